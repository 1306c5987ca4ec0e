"""``stop --now`` withdraws what runs at that moment; what was scored while it was decided keeps its score."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from marathond.flow.world import Handle, World
from marathond.ledger.connect import connect
from marathond.ledger.verbs import admission, trials
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service.winding_down import StopRequest, void_everything
from tests.support import ledgers as help
from tests.support.ledgers import T0, bring_to, cell, file_ledger, fill

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
        world = World(*[cast(Any, None)] * 5, SystemClock())
        world.driven[2] = handle = Handle()
        await void_everything(world, ledger, StopRequest("now", "ana", "enough"))
        assert handle.withdrawn
    found = conn.execute("SELECT trial_id, state FROM trial ORDER BY trial_id").fetchall()
    assert [tuple(row) for row in found] == [(1, "scored"), (2, "voided")]
    assert [tuple(row) for row in conn.execute("SELECT trial_id, code, from_state FROM void")] == [(2, "stop_now", "running")]
    conn.close()
