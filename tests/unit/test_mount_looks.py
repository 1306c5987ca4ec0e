"""Looks at what arms mount: shared by all who ask, waited for by none too long, and breaking no trial, whatever happens in them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from marathond.core.model import Mount
from marathond.core.mounts import UNREAD, WHOLE, WRITABLE
from marathond.flow import mounts
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.trials import Fact
from marathond.staging import mounted
from marathond.staging.mounted import Mounted
from tests.support import ledgers as have
from tests.support.arm_tree import LONG_S, edit, make_tree, value, wait


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A file system that answers nothing until the event is set."""
    answers = threading.Event()
    real = mounted._walk

    def walk(root: str, look: Any) -> Any:
        answers.wait(LONG_S)
        yield from real(root, look)

    monkeypatch.setattr(mounted, "_walk", walk)
    yield answers
    answers.set()


def test_one_that_hangs_is_waited_for_no_longer_than_asked_and_keeps_one_thread(tree: Path, hung: threading.Event) -> None:
    reader, before = Mounted(), set(threading.enumerate())
    assert wait(reader, tree, 0.05) == f"{UNREAD}no answer in time"
    for _ in range(3):
        assert wait(reader, tree, 0.05) == f"{UNREAD}an earlier look has not ended"
    assert len(set(threading.enumerate()) - before) == 1, "those of other tests may end meanwhile"
    hung.set()
    assert value(tree, reader).startswith(WHOLE), "and when it answers again it is read"


class Gate:
    """Each walk waits until it is let through; ``walks``: how many began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.walks, self.open = 0, threading.Semaphore(0)
        real = mounted._walk

        def walk(root: str, look: Any) -> Any:
            self.walks += 1
            assert self.open.acquire(timeout=LONG_S)
            yield from real(root, look)

        monkeypatch.setattr(mounted, "_walk", walk)

    def until(self, walks: int) -> None:
        for _ in range(int(LONG_S * 100)):
            if self.walks == walks:
                return
            time.sleep(0.01)
        raise AssertionError(f"{self.walks} walks")


def test_all_who_ask_while_one_is_under_way_share_the_next(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, reader = Gate(monkeypatch), Mounted()
    first = reader.ask(str(tree))
    gate.until(1)
    others = [reader.ask(str(tree)) for _ in range(64)]
    assert len(set(map(id, others))) == 1 and others[0] is not first
    gate.open.release()
    assert reader.answer(first, time.monotonic() + LONG_S).startswith(WHOLE)
    gate.until(2)
    late = reader.ask(str(tree))
    assert late is not others[0], "it has begun: what was edited since, it may not have seen"
    gate.open.release(2)
    assert {reader.answer(each, time.monotonic() + LONG_S) for each in (*others, late)} == {first.value}
    assert gate.walks == 3
    gate.open.release()
    assert value(tree, reader) == first.value, "a thread of its own, again"


def test_one_that_nobody_waits_for_does_not_begin_and_one_that_has_begun_stops(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, reader = Gate(monkeypatch), Mounted()
    first, second = reader.ask(str(tree)), reader.ask(str(tree))
    gate.until(1)
    if second is first:
        second = reader.ask(str(tree))
        reader.leave(first)
    reader.leave(first)
    reader.leave(second)
    gate.open.release()
    assert first.over.wait(LONG_S) and first.value == f"{UNREAD}no answer in time"
    assert second.over.wait(LONG_S) and gate.walks == 1


@pytest.mark.anyio
async def test_after_a_time_out_it_is_not_asked_again_at_once(tree: Path, hung: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, mount = Mounted(), Mount(str(tree), "/opt/arm")
    monkeypatch.setattr(mounts, "READ_S", 0.2)
    said = {"/opt/arm": f"{UNREAD}no answer within 0.2 s, asked again after five minutes"}
    assert await mounts.held([mount], reader) == said
    monkeypatch.setattr(mounts, "READ_S", LONG_S * 10)
    with anyio.fail_after(LONG_S):
        assert await mounts.held([mount], reader) == said, "at once"
    monkeypatch.setattr(mounted, "monotonic", lambda: time.monotonic() + 301)
    hung.set()
    assert (await mounts.held([mount], reader))["/opt/arm"].startswith(WHOLE)


@pytest.mark.anyio
async def test_mounts_of_one_arm_are_looked_at_side_by_side(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=LONG_S)
    real = mounted._walk

    def walk(root: str, look: Any) -> Any:
        both.wait()
        yield from real(root, look)

    monkeypatch.setattr(mounted, "_walk", walk)
    found = await mounts.held([Mount(str(tree), "/a"), Mount(str(tree / "bin"), "/b")], Mounted())
    assert all(each.startswith(WHOLE) for each in found.values())


@pytest.mark.anyio
async def test_a_look_that_breaks_is_a_value(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Mounted):
        def ask(self, source: str) -> Any:
            raise RuntimeError("a bug \udce9")

    (fact,) = await mounts.facts([Mount(str(tree), "/opt/arm")], Broken())
    assert fact.value == f"{UNREAD}RuntimeError: a bug \ufffd"


# ── the agent's end ──


class Ledger:
    """``broken``: refuses to write."""

    def __init__(self) -> None:
        self.c = have.memory_ledger()
        have.fill(self.c)
        self.trial_id = have.bring_to(self.c, have.cell(self.c), "running").trial_id
        self.broken = False

    async def read(self, verb: Any, *args: Any) -> Any:
        return verb(self.c, *args)

    async def write(self, verb: Any, *args: Any, **named: Any) -> Any:
        if self.broken:
            raise RuntimeError("refused")
        return verb(self.c, *args, **named)

    def facts(self) -> dict[str, str]:
        return dict(self.c.execute("SELECT name, value FROM trial_fact WHERE name LIKE 'mount %'").fetchall())


async def began(ledger: Ledger, tree: Path) -> tuple[Any, list[Mount]]:
    """What a trial has noted when its agent starts: of a folder, of one that was not there, and of a writable one."""
    world = SimpleNamespace(ledger=ledger, mounted=Mounted(), clock=SimpleNamespace(wall_ms=lambda: have.T0))
    arm = [Mount(str(tree), "/opt/arm"), Mount(str(tree / "no"), "/opt/no"), Mount(str(tree / "bin"), "/cache", read_only=False)]
    trials.facts(ledger.c, ledger.trial_id, await mounts.facts(arm, world.mounted), now_ms=have.T0)
    return world, arm


@pytest.mark.anyio
@pytest.mark.parametrize("late", [False, True])
async def test_a18_what_is_other_or_unread_at_the_agents_end_is_noted(tree: Path, late: bool) -> None:
    ledger = Ledger()
    world, arm = await began(ledger, tree)
    at_start = ledger.facts()
    end = await mounts.at_end(world, ledger.trial_id, arm, late=late)
    assert [mount.target for mount, _ in end.asked] == ["/opt/arm"], "of what was unknown at the start nothing can be said"
    await end.note()
    assert ledger.facts() == at_start, "nothing of what is the same"
    edit(tree)
    end = await mounts.at_end(world, ledger.trial_id, arm, late=late)
    await end.note()
    new = f"{UNREAD}no daemon was there to look; later it was {value(tree)}" if late else value(tree)
    assert ledger.facts() == {**at_start, "mount /opt/arm (at the agent's end)": new}
    shutil.rmtree(tree)
    end = await mounts.at_end(world, ledger.trial_id, arm, late=late)
    await end.note()
    assert ledger.facts()["mount /opt/arm (at the agent's end)"] == f"{UNREAD}no such file or directory"


@pytest.mark.anyio
async def test_grading_does_not_wait_for_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    world, arm = await began(ledger, tree)
    gate = Gate(monkeypatch)
    end = await mounts.at_end(world, ledger.trial_id, arm, late=False)
    gate.until(1)
    (look,) = [look for _, look in end.asked]
    assert isinstance(look, mounted.Look) and not look.over.is_set()
    end.leave()
    end.leave()
    gate.open.release()
    assert look.over.wait(LONG_S) and look.waiters == 0


@pytest.mark.anyio
async def test_whatever_happens_at_the_end_breaks_no_trial(tree: Path) -> None:
    ledger = Ledger()
    world, arm = await began(ledger, tree)
    at_start = ledger.facts()
    edit(tree)
    ledger.broken = True
    await (await mounts.at_end(world, ledger.trial_id, arm, late=False)).note()
    assert ledger.facts() == at_start
    ledger.broken = False

    async def read(*_: Any) -> Any:
        raise RuntimeError("a bug")

    world.ledger = SimpleNamespace(read=read, write=ledger.write)
    await (await mounts.at_end(world, ledger.trial_id, arm, late=False)).note()
    assert ledger.facts()["mount /opt/arm (at the agent's end)"] == f"{UNREAD}RuntimeError: a bug"


@pytest.mark.anyio
async def test_the_daemon_goes_on_while_one_hangs(tree: Path, hung: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "READ_S", 0.2)
    beats = []

    async def beat() -> None:
        while True:
            beats.append(0)
            await anyio.sleep(0.01)

    cache = Path("/srv/cache")
    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        found = await mounts.held([Mount(str(cache), "/cache", read_only=False), Mount(str(tree), "/opt/arm")], Mounted())
        group.cancel_scope.cancel()
    assert found == {"/cache": WRITABLE, "/opt/arm": f"{UNREAD}no answer within 0.2 s, asked again after five minutes"} and len(beats) > 2


@pytest.mark.anyio
async def test_a_trials_facts(tree: Path) -> None:
    (fact,) = await mounts.facts([Mount(str(tree), "/opt/arm")], Mounted())
    assert fact == Fact("mount /opt/arm", value(tree), "arm")
    assert await mounts.facts([], Mounted()) == []
