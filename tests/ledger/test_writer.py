"""The single writer: one hop per verb, whatever happens to the one who waits for it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import itertools
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiosqlite
import anyio
import pytest
from support.ledgers import ENGINE, LEDGER_ID, T0, cell, fill, memory_ledger, subnet

from marathond.core.errors import LedgerRefused
from marathond.ledger.connect import connect
from marathond.ledger.errors import RuleBroken
from marathond.ledger.open import create
from marathond.ledger.verbs import admission, settings, trials
from marathond.ledger.writer import InlineLedger, SqliteLedger
from marathond.ports.ledger import Ledger

pytestmark = pytest.mark.anyio

LIFE = {"pid": 1, "pid_start_ticks": 1, "host": "h", "boot_id": "b", "version": "v", "now_ms": T0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ledger.db"
    create(made, host="h", now_ms=T0)
    c = connect(made, mode="rw")
    fill(c)
    c.close()
    return made


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteLedger]:
    async with await SqliteLedger.open(path, busy_ms=240_000) as opened:
        await opened.begin_life(**LIFE)  # type: ignore[arg-type]
        yield opened


def count(c: sqlite3.Connection) -> int:
    return int(c.execute("SELECT count(*) FROM setting_change").fetchone()[0])


def put(c: sqlite3.Connection, key: str, gate: threading.Event | None = None, entered: threading.Event | None = None) -> str:
    """A write that, in the middle of its transaction, waits for the test."""
    settings.set_value(c, key, old=None, new=1, author="a", reason="r", now_ms=T0)
    if entered is not None:
        entered.set()
    if gate is not None:
        assert gate.wait(240)
    return key


async def soon(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, 240)


async def test_the_private_surface_of_aiosqlite_is_what_we_pinned(ledger: SqliteLedger) -> None:
    """Connection(connector, iter_chunk_size) and _execute(fn, *args): runs fn on the connection's one thread, in order of arrival."""
    assert importlib.metadata.version("aiosqlite").startswith("0.22.")
    seen: list[tuple[int, int]] = []
    conn = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), 64)
    await conn
    try:
        order = [asyncio.ensure_future(conn._execute(lambda n=n: seen.append((n, threading.get_ident())))) for n in range(20)]
        await asyncio.gather(*order)
    finally:
        await conn.close()
    assert [n for n, _ in seen] == list(range(20))
    assert len({thread for _, thread in seen}) == 1 and threading.get_ident() not in {thread for _, thread in seen}


async def test_a_verb_is_one_hop(ledger: SqliteLedger) -> None:
    """BEGIN, the verb and COMMIT in one function on the thread: nothing of another coroutine can come in between."""
    spans: list[tuple[float, float, int]] = []

    def slow(c: sqlite3.Connection, key: str) -> None:
        begun = time.monotonic()
        assert c.in_transaction
        put(c, key)
        for _ in range(200):
            count(c)
        spans.append((begun, time.monotonic(), threading.get_ident()))

    async with anyio.create_task_group() as group:
        for n in range(10):
            group.start_soon(ledger.write, slow, f"k{n}")
    spans.sort()
    assert all(end <= begin for (_, end, _), (begin, _, _) in itertools.pairwise(spans))
    assert len({thread for *_, thread in spans}) == 1
    assert await ledger.read(count) == 10


async def test_f03_cancelled_write_is_finished_and_cancellation_comes_after(ledger: SqliteLedger) -> None:
    gate, entered = threading.Event(), threading.Event()
    after: list[str] = []
    async with anyio.create_task_group() as group:

        async def work() -> None:
            after.append(await ledger.write(put, "k", gate, entered))
            await anyio.lowlevel.checkpoint()
            after.append("not cancelled")

        group.start_soon(work)
        await soon(entered)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert await ledger.read(count) == 0  # still inside its transaction
            gate.set()
    assert after == ["k"]  # the answer arrived, then the cancellation
    assert await ledger.read(count) == 1
    assert await ledger.write(put, "k2") == "k2"  # and nothing stayed open


async def test_f03_a_bare_asyncio_cancel_waits_for_the_commit_too(ledger: SqliteLedger) -> None:
    gate, entered = threading.Event(), threading.Event()
    task = asyncio.ensure_future(ledger.write(put, "k", gate, entered))
    await soon(entered)
    task.cancel()
    await anyio.lowlevel.checkpoint()
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ledger.read(count) == 1


async def test_f03_cancelled_while_queued_is_all_or_nothing(ledger: SqliteLedger) -> None:
    gate, entered = threading.Event(), threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(ledger.write, put, "first", gate, entered)
        await soon(entered)
        with anyio.CancelScope() as scope:
            group.start_soon(ledger.write, put, "second")
            await anyio.lowlevel.checkpoint()
            scope.cancel()
        gate.set()
    assert await ledger.read(count) == 2


async def test_f03_failing_verb_leaves_nothing_and_disturbs_nobody(ledger: SqliteLedger) -> None:
    def half(c: sqlite3.Connection) -> None:
        put(c, "half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await ledger.write(half)
    with pytest.raises(RuleBroken) as caught:
        await ledger.write(lambda c: (put(c, "half"), c.execute("DELETE FROM run")))
    assert caught.value.rule == "run_is_never_deleted"
    assert await ledger.read(count) == 0
    assert await ledger.write(put, "whole") == "whole"


async def test_verb_that_ends_its_transaction_is_a_bug(ledger: SqliteLedger) -> None:
    with pytest.raises(RuntimeError, match="ended the transaction"):
        await ledger.write(lambda c: c.execute("ROLLBACK"))
    assert await ledger.write(put, "k") == "k"


async def test_f04_readers_do_not_block_the_writer_and_see_one_state(ledger: SqliteLedger, path: Path) -> None:
    gate, entered = threading.Event(), threading.Event()
    seen: list[int] = []

    def look_twice(c: sqlite3.Connection) -> None:
        seen.append(count(c))
        entered.set()
        assert gate.wait(240)
        seen.append(count(c))

    async with anyio.create_task_group() as group:
        group.start_soon(ledger.read, look_twice)
        await soon(entered)
        await ledger.write(put, "k")  # goes through while the reader is in the middle
        gate.set()
    assert seen == [0, 0]
    assert await ledger.read(count) == 1


async def test_f04_another_writer_is_waited_for(ledger: SqliteLedger, path: Path) -> None:
    other = connect(path, mode="rw")
    other.execute("BEGIN IMMEDIATE")
    started = threading.Event()

    def verb(c: sqlite3.Connection) -> str:
        return put(c, "k")

    async with anyio.create_task_group() as group:

        async def work() -> None:
            started.set()
            assert await ledger.write(verb) == "k"

        group.start_soon(work)
        await soon(started)
        other.execute("COMMIT")
    other.close()
    assert await ledger.read(count) == 1


async def test_f04_waiting_is_bounded_and_named(path: Path) -> None:
    other = connect(path, mode="rw")
    async with await SqliteLedger.open(path, busy_ms=50) as ledger:
        await ledger.begin_life(**LIFE)  # type: ignore[arg-type]
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerRefused, match="another process holds its write lock") as caught:
            await ledger.write(put, "k")
        assert caught.value.code == "busy" and isinstance(caught.value.__cause__, sqlite3.OperationalError)
        other.execute("COMMIT")
        assert await ledger.write(put, "k") == "k"
    other.close()


async def test_old_epoch_is_refused_before_the_verb_runs(path: Path) -> None:
    ran = []
    async with await SqliteLedger.open(path) as old, await SqliteLedger.open(path) as new:
        assert await old.begin_life(**LIFE) == 2  # type: ignore[arg-type]
        assert await new.begin_life(**LIFE) == 3  # type: ignore[arg-type]
        with pytest.raises(LedgerRefused, match="run 2 was replaced by run 3") as caught:
            await old.write(lambda c: ran.append(1))
        assert caught.value.code == "old_epoch" and ran == []
        assert await new.write(put, "k") == "k"
        assert await old.read(count) == 1  # looking is allowed


async def test_no_write_before_a_life_begins(path: Path) -> None:
    async with await SqliteLedger.open(path) as ledger:
        with pytest.raises(LedgerRefused, match="no daemon life has begun"):
            await ledger.write(put, "k")


async def test_reader_cannot_write(ledger: SqliteLedger) -> None:
    with pytest.raises(LedgerRefused) as caught:
        await ledger.read(put, "k")
    assert caught.value.code == "read_only"


async def test_rival_admissions_of_one_cell_give_one_trial(ledger: SqliteLedger) -> None:
    """Two coroutines that planned the same cell: one wins, the other is told by rule."""
    cell_id = await ledger.read(cell)
    outcomes: list[str] = []

    async def attempt(n: int) -> None:
        try:
            await ledger.write(
                admission.admit,
                cell_id=cell_id,
                token=f"t{n}",
                engine=ENGINE,
                subnet=subnet(n),
                needs_network=True,
                ledger_id=LEDGER_ID,
                now_ms=T0,
            )
            outcomes.append("admitted")
        except RuleBroken as broken:
            outcomes.append(broken.rule)

    async with anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(attempt, n)
    assert sorted(outcomes) == ["admitted", *["claim_only_open_cell"] * 4]
    assert len(await ledger.read(trials.unfinished)) == 1
    assert await ledger.read(lambda c: c.execute("SELECT count(*) FROM network_lease").fetchone()[0]) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "small"
    point.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)], check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield point
    subprocess.run(["umount", str(point)], check=True)


async def test_f05_disk_that_fills_up_is_named_and_nothing_is_half_written(small_disk: Path) -> None:
    create(small_disk / "ledger.db", host="h", now_ms=T0)
    async with await SqliteLedger.open(small_disk / "ledger.db") as ledger:
        await ledger.begin_life(**LIFE)  # type: ignore[arg-type]
        written = 0
        with pytest.raises(LedgerRefused) as caught:
            for n in range(1000):
                await ledger.write(settings.observe, f"k{n}", "x" * 100_000, now_ms=T0)
                written += 1
        assert caught.value.code == "disk_full" and written > 5
        assert await ledger.read(lambda c: c.execute("SELECT count(*) FROM observation").fetchone()[0]) == written


def test_acknowledged_writes_survive_a_kill(path: Path) -> None:
    """synchronous=FULL and one COMMIT per verb; the process is killed while it writes."""
    code = (
        "import anyio, sys\nfrom pathlib import Path\nfrom marathond.ledger.writer import SqliteLedger\n"
        "from marathond.ledger.verbs import settings\n"
        "async def main():\n"
        "    ledger = await SqliteLedger.open(Path(sys.argv[1]))\n"
        "    await ledger.begin_life(pid=1, pid_start_ticks=1, host='h', boot_id='b', version='v', now_ms=1)\n"
        "    n = 0\n"
        "    while True:\n"
        "        await ledger.write(settings.set_value, f'k{n}', old=None, new=n, author='a', reason='r', now_ms=1)\n"
        "        print(n, flush=True)\n"
        "        n += 1\n"
        "anyio.run(main)\n"
    )
    acknowledged = -1
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged == 50:
                process.kill()
    c = connect(path, mode="rw")
    assert count(c) >= acknowledged + 1 >= 51
    assert c.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    c.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_inline_ledger_is_the_same_port(anyio_backend: str) -> None:
    c = memory_ledger()
    fill(c)
    ledger: Ledger = InlineLedger(c)
    assert isinstance(ledger, InlineLedger)
    assert await ledger.begin_life(**LIFE) == 2  # type: ignore[arg-type]
    assert await ledger.write(put, "k") == "k"
    with pytest.raises(RuleBroken):
        await ledger.write(lambda c: (put(c, "half"), c.execute("DELETE FROM run")))
    assert await ledger.read(count) == 1
    with anyio.CancelScope() as scope:
        scope.cancel()
        await ledger.write(put, "never")
    assert await ledger.read(count) == 1
    rival = InlineLedger(c)
    await rival.begin_life(**LIFE)  # type: ignore[arg-type]
    with pytest.raises(LedgerRefused, match="run 2 was replaced by run 3"):
        await ledger.write(put, "k")
    c.close()


def test_both_implementations_satisfy_the_port(tmp_path: Path) -> None:
    def takes(ledger: Ledger) -> Ledger:
        return ledger

    c = memory_ledger()
    assert takes(InlineLedger(c)) is not None
    c.close()
