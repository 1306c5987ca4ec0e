"""``stop --now`` withdraws what runs at that moment; what was scored while it was decided keeps its score."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from marathond.cli.happened import words
from marathond.flow.world import Handle, World
from marathond.ledger.connect import connect
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import admission, trials
from marathond.ledger.verbs.happened import ALL, newest
from marathond.ledger.verbs.happened_sources import Of
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service import winding_down
from marathond.service.commands import StopMode
from marathond.service.daemon import Daemon
from marathond.service.settings import load
from marathond.service.winding_down import StopRequest, void_everything
from tests.support import ledgers as help
from tests.support.ledgers import T0, bring_to, cell, file_ledger, fill, memory_ledger

pytestmark = pytest.mark.anyio


class ScoredMeanwhile(SqliteLedger):
    """Trial 1's score is written right before the daemon's own next write after it closed admission."""

    closed = False

    async def write(self, verb: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if self.closed:
            self.closed = False
            await super().write(trials.scored, 1, help.good_score(), now_ms=T0)
        self.closed = verb is admission.open_stop
        return await super().write(verb, *args, **kwargs)


async def test_a08_a_trial_that_is_scored_while_stop_now_is_decided_keeps_its_score(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    file_ledger(path, host=socket.gethostname(), now_ms=T0)
    conn = connect(path, mode="rw")
    fill(conn)
    bring_to(conn, cell(conn, "zstd", "plain"), "verifying")
    bring_to(conn, cell(conn, "zstd", "goal"), "running")
    run_id = conn.execute("SELECT max(run_id) FROM run").fetchone()[0]
    async with await ScoredMeanwhile.open(path, run_id=run_id) as ledger:
        world = World(*[cast(Any, None)] * 2, ledger, *[cast(Any, None)] * 2, SystemClock())
        world.driven[2] = handle = Handle()
        await void_everything(world, StopRequest("now", "ana", "enough"))
        assert handle.withdrawn
    found = conn.execute("SELECT trial_id, state FROM trial ORDER BY trial_id").fetchall()
    assert [tuple(row) for row in found] == [(1, "scored"), (2, "voided")]
    assert [tuple(row) for row in conn.execute("SELECT trial_id, code, from_state FROM void")] == [(2, "stop_now", "running")]
    (closed,) = [words(one) for one in newest(conn, Of(), ALL) if one.kind == "stop"]
    assert closed.endswith("  admission  closed, drain by ana: enough")  # history tells whose it was, and why
    conn.close()


@pytest.mark.parametrize("kind", ["pause", "drain"])
def test_what_a_person_closed_since_the_look_is_closed(kind: str) -> None:
    """The planner's look and the admission lie seconds apart where the engine is slow; a trial that began then would be left alone."""
    c = memory_ledger()
    fill(c)
    admission.open_stop(c, kind, detail="the end", author="ana", until_ms=None, now_ms=T0)
    with pytest.raises(RuleBroken, match="admission_closed"):
        help.admit(c, cell(c, "zstd", "plain"))
    admission.end_stop(c, kind, author="ana", now_ms=T0)
    admission.open_stop(c, "breaker", detail="it tries one", author="marathond", until_ms=None, now_ms=T0)
    assert help.admit(c, cell(c, "zstd", "plain")).attempt == 1


class Resumed(SqliteLedger):
    """A drain's look finds that a person has resumed; in that moment comes the next word."""

    next_word: Callable[[], None] | None = None

    async def read(self, verb: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        found = await super().read(verb, *args, **kwargs)
        if verb is admission.stops and self.next_word is not None:
            word, self.next_word = self.next_word, None
            word()
        return found


@pytest.mark.parametrize("word", ["now", "term", "drain"])
async def test_f08_a_word_that_comes_while_a_drain_is_called_off_is_heard(
    tmp_path: Path, word: StopMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winding_down, "TORN_DOWN_S", 0.2)  # nobody tears down here
    path = tmp_path / "ledger.db"
    file_ledger(path, host=socket.gethostname(), now_ms=T0)
    conn = connect(path, mode="rw")
    fill(conn)
    bring_to(conn, cell(conn, "zstd", "goal"), "running")
    run_id = conn.execute("SELECT max(run_id) FROM run").fetchone()[0]
    config = tmp_path / "marathond.toml"
    config.write_text('[campaign]\nname = "c"\ntasks = ["t"]\n[arms.a]\nkind = "nop"\n')

    async with await Resumed.open(path, run_id=run_id) as ledger:
        daemon = Daemon(load(config), cast(Any, None), ledger, cast(Any, None), SystemClock())
        daemon.world = World(*[cast(Any, None)] * 2, ledger, *[cast(Any, None)] * 2, SystemClock())

        def comes() -> None:
            if word == "drain":
                admission.open_stop(conn, "drain", detail="again", author="bo", until_ms=None, now_ms=T0)
            daemon.request_stop(word, "bo", "again")

        daemon.request_stop("drain", "ana", "upgrade")
        ledger.next_word = comes
        with anyio.fail_after(240):
            ended = await daemon._wind_down()
        stop = daemon.stop
        assert stop is not None and (stop.mode, stop.author) == (word, "bo")
        assert daemon._stopping.is_set() and ended is (word != "drain")
    assert conn.execute("SELECT state FROM trial").fetchone()[0] == ("voided" if word == "now" else "running")
    conn.close()
