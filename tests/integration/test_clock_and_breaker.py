"""Clocks that step, and failures that repeat (faults e05, e06, f12)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from marathond.flow import scheduler
from marathond.ports.clock import SystemClock
from tests.support.outcome import wait_for
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

HOUR_MS = 3_600_000
NOP = {"kind": "nop"}
SLEEPS = {"kind": "command", "argv": ["sleep", "300"]}
CHECK = "until [ -e /logs/artifacts/go ]; do sleep 0.05; done; echo no such agent; exit 3"
BROKEN = {"kind": "command", "argv": ["true"], "install_check": ["sh", "-c", CHECK]}
"""Fails when it is told to, so that failures come together whatever the machine's load."""
AT_ONCE = {"admission.cpu_overcommit": 16.0, "admission.memory_overcommit": 16.0, "limits.gate_timeout_s": 1000.0}
PREPARING = "SELECT count(*) = ? FROM v_trial WHERE state = 'preparing' AND arm LIKE ? AND attempt = ?"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "TICK_S", 0.2)


def let_fail(rig: Rig, arm: str, attempt: int = 1) -> None:
    """The install checks of these trials, which are at their gate, end now."""
    for (trial,) in rig.sql("SELECT trial FROM v_trial WHERE state = 'preparing' AND arm LIKE ? AND attempt = ?", arm, attempt):
        (rig.root / "state" / "r" / trial / "logs" / "artifacts" / "go").touch()


class SteppingClock(SystemClock):
    """A wall clock that somebody sets; the monotonic one goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.off_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.off_ms


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
async def test_e06_a_wall_clock_that_steps_moves_no_deadline(docker_host: str, tmp_path: Path, step_ms: int) -> None:
    clock = SteppingClock()
    tasks = [make_task(tmp_path, "t", agent_s=4.0)]
    async with Rig(docker_host, tasks=tasks, arms={"s": SLEEPS}, clock=clock) as rig:
        await rig.agent_runs()
        clock.off_ms = step_ms
        await rig.kill()  # the next daemon reckons the deadline anew
        await rig.start()
        await rig.until_done()
        started, ended, limit_ms, ended_by = rig.one("SELECT started_mono_ms, ended_mono_ms, limit_ms, ended_by FROM trial_agent")
        assert ended_by == "deadline"
        assert limit_ms == 4000
        assert limit_ms <= ended - started < HOUR_MS / 10
        assert rig.sql("SELECT state, reward FROM trial") == [("scored", 1.0)]


async def test_e05_order_is_the_ledger_s_whatever_the_clock_says(docker_host: str, tmp_path: Path) -> None:
    clock = SteppingClock()
    async with Rig(
        docker_host, tasks=[make_task(tmp_path, "t")], arms={"n": NOP}, replicates=4, clock=clock, overrides={"admission.concurrency": 1}
    ) as rig:
        for done in range(1, 4):
            await rig.until("SELECT count(*) >= ? FROM trial WHERE state = 'scored'", done)
            clock.off_ms -= HOUR_MS
        await rig.until_done()
        events = rig.sql("SELECT trial_id, seq, from_state, to_state, at_ms FROM trial_event ORDER BY event_id")
        times = [row[4] for row in events]
        assert times != sorted(times)  # the clock did step back in the middle
        for trial_id in range(1, 5):
            mine = [row for row in events if row[0] == trial_id]
            assert [row[1] for row in mine] == list(range(1, len(mine) + 1))
            assert all(before[3] == after[2] for before, after in pairwise(mine))
            assert mine[-1][3] == "scored"
        # One after the other, as planned: the n-th trial began after the one before it had ended.
        assert [row[0] for row in events] == sorted(row[0] for row in events)
        assert rig.sql("SELECT cell_id FROM trial JOIN cell USING (cell_id) ORDER BY trial_id") == rig.sql(
            "SELECT cell_id FROM cell ORDER BY ordinal"
        )
        assert rig.sql("SELECT code FROM finding WHERE closed_at_ms IS NULL AND severity <> 'info'") == []


async def test_f12_repeated_voids_close_admission_for_all_and_it_opens_by_itself(docker_host: str, tmp_path: Path) -> None:
    """Even when the wall clock steps back an hour while it is closed."""
    clock = SteppingClock()
    breaker = {"admission.breaker_after": 3, "admission.breaker_pause_s": 10.0}
    overrides = {**AT_ONCE, **breaker, "admission.passes": 2, "admission.concurrency": 6}
    tasks = [make_task(tmp_path, name) for name in ("one", "two", "three")]
    async with Rig(docker_host, tasks=tasks, arms={"bad": BROKEN, "good": NOP}, clock=clock, overrides=overrides) as rig:
        await rig.until(PREPARING, 3, "bad", 1)
        let_fail(rig, "bad")
        await rig.until("SELECT count(*) FROM admission_stop WHERE kind = 'breaker' AND ended_at_ms IS NULL")
        await rig.until("SELECT value_json LIKE '%BREAKER%' FROM observation WHERE key = 'waiting'")
        clock.off_ms = -HOUR_MS
        assert rig.one("SELECT detail FROM admission_stop WHERE stop_id = 1") == "3 x install_check_failed within 10 s"
        assert rig.sql("SELECT subject FROM finding WHERE code = 'breaker' AND closed_at_ms IS NULL") == [("admission",)]
        counted_while_closed: list[int] = []

        def opened() -> bool:
            stop = "SELECT ended_at_ms IS NULL, (SELECT count(*) FROM trial) FROM admission_stop WHERE stop_id = 1"
            closed, admitted = rig.one(stop)
            if closed:
                counted_while_closed.append(admitted)
            return not closed

        await wait_for(opened)
        # Nobody of either arm was admitted meanwhile.  Before the third failure closed it, the places of the first two may have been taken.
        assert len(set(counted_while_closed)) == 1 and 6 <= counted_while_closed[0] <= 8
        assert rig.one("SELECT ended_by FROM admission_stop WHERE stop_id = 1") == "marathond"
        await rig.until(PREPARING, 3, "bad", 2)
        let_fail(rig, "bad", 2)
        await rig.until_done()
        assert rig.sql("SELECT arm, count(*) FROM v_cell WHERE state = 'done' GROUP BY arm") == [("good", 3)]
        assert rig.sql("SELECT code, count(*) FROM park GROUP BY code") == [("passes_exhausted", 3)]
        # Each parked cell used up exactly its passes; what was voided while admission was closed used none.
        counted = rig.sql("SELECT cell_id, sum(counts_pass) FROM void JOIN trial USING (trial_id) GROUP BY cell_id")
        assert [passes for _, passes in counted] == [2] * 3
        await rig.until("SELECT count(*) = 0 FROM admission_stop WHERE ended_at_ms IS NULL")
        await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'breaker' AND closed_at_ms IS NULL")


async def test_f12_voids_inside_the_window_use_no_pass(docker_host: str, tmp_path: Path) -> None:
    """Four in work when the first void closes admission: the rest of the four costs nothing."""
    breaker = {"admission.breaker_after": 1, "admission.breaker_pause_s": 600.0}
    overrides = {**AT_ONCE, **breaker, "admission.passes": 1, "admission.concurrency": 4}
    tasks = [make_task(tmp_path, "t")]
    arms = dict.fromkeys(("quick", "slow1", "slow2", "slow3"), BROKEN)
    async with Rig(docker_host, tasks=tasks, arms=arms, overrides=overrides) as rig:
        await rig.until(PREPARING, 4, "%", 1)
        let_fail(rig, "quick")
        await rig.until("SELECT count(*) FROM admission_stop WHERE kind = 'breaker' AND ended_at_ms IS NULL")
        let_fail(rig, "slow%")
        await rig.until("SELECT count(*) = 4 FROM void")
        rows = rig.sql("SELECT arm, counts_pass FROM void JOIN v_trial ON trial = printf('t%04d', trial_id) ORDER BY void_id")
        assert rows[0] == ("quick", 1)
        assert [counts for _, counts in rows[1:]] == [0, 0, 0]
        await rig.until("SELECT count(*) = 0 FROM claim WHERE released_at_ms IS NULL")
        assert rig.sql("SELECT count(*) FROM trial") == [(4,)]
        assert rig.sql("SELECT v_cell.arm FROM v_cell WHERE state = 'parked'") == [("quick",)]
