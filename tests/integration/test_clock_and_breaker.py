"""Clocks that step, and failures that repeat (faults e05, e06, f12)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from marathond.flow import scheduler
from marathond.ports.clock import SystemClock
from marathond.service import decisions
from tests.support.outcome import wait_for
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

HOUR_MS = 3_600_000
NOP = {"kind": "nop"}
SLEEPS = {"kind": "command", "argv": ["sleep", "300"]}
CHECK = "until [ -e /logs/artifacts/go ]; do sleep 0.05; done; echo no such agent; exit $(cat /logs/artifacts/go)"
GATED = {"kind": "command", "argv": ["true"], "install_check": ["sh", "-c", CHECK]}
"""Its gate says what it is told to, so that failures come together whatever the machine's load."""
FAILS, PASSES = 3, 0
PAUSE_MS = 600_000
AT_ONCE = {"admission.cpu_overcommit": 16.0, "admission.memory_overcommit": 16.0, "limits.gate_timeout_s": 1000.0}
PREPARING = "SELECT count(*) = ? FROM v_trial WHERE state = 'preparing'"
CLOSED = "SELECT count(*) FROM admission_stop WHERE kind = 'breaker' AND ended_at_ms IS NULL"
WAITING = "SELECT value_json LIKE '%' || ? || '%' FROM observation WHERE key = 'waiting'"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "TICK_S", 0.2)


def let_end(rig: Rig, status: int, arm: str = "%") -> None:
    """The install checks of this arm's trials, which are at their gate, end with this exit status."""
    for (trial,) in rig.sql("SELECT trial FROM v_trial WHERE state = 'preparing' AND arm LIKE ?", arm):
        folder = rig.root / "state" / "r" / trial / "logs" / "artifacts"
        (folder / "going").write_text(str(status))
        # In one step, for it is said again and again: a file that is written anew is empty for a moment, and that reads as 0.
        (folder / "going").rename(folder / "go")


async def end_all(rig: Rig, status: int) -> None:
    """Everything that is in work, to its teardown."""
    while rig.sql("SELECT 1 FROM claim WHERE released_at_ms IS NULL"):
        let_end(rig, status)
        await anyio.sleep(0.1)


async def nothing_begins(rig: Rig) -> None:
    """For five looks of the scheduler."""
    trials, seen = rig.one("SELECT count(*) FROM trial"), set[int]()

    def five() -> bool:
        seen.add(rig.one("SELECT at_ms FROM observation WHERE key = 'waiting'"))
        return len(seen) > 5

    await wait_for(five)
    assert rig.one("SELECT count(*) FROM trial") == trials, rig.story()


class SteppingClock(SystemClock):
    """A wall clock that somebody sets; the monotonic one goes on, or a test lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.off_ms = self.mono_off_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.off_ms

    def mono_ms(self) -> int:
        return super().mono_ms() + self.mono_off_ms


@pytest.mark.parametrize(
    ("step_ms", "restart"), [(-HOUR_MS, True), (HOUR_MS, True), (8 * HOUR_MS, False)], ids=["back", "ahead", "suspended for a night"]
)
async def test_e06_a_wall_clock_that_steps_moves_no_deadline(docker_host: str, tmp_path: Path, step_ms: int, restart: bool) -> None:
    """A suspended host looks the same from within: the wall clock is ahead by a night, the monotonic one went on where it was."""
    clock = SteppingClock()
    tasks = [make_task(tmp_path, "t", agent_s=8.0)]
    async with Rig(docker_host, tasks=tasks, arms={"s": SLEEPS}, clock=clock) as rig:
        # Not that it runs as well: on a slow machine its time may be over when it is seen, and what is asked below holds all the same.
        await rig.until("SELECT count(*) FROM trial_fact WHERE name = 'agent session'")
        clock.off_ms = step_ms
        if restart:
            await rig.kill()  # the next daemon reckons the deadline anew
            await rig.start()
        await rig.until_done()
        started, ended, limit_ms, ended_by = rig.one("SELECT started_mono_ms, ended_mono_ms, limit_ms, ended_by FROM trial_agent")
        assert ended_by == "deadline"
        assert limit_ms == 8000
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
        # One that a busy host raised, such as for a container that is slow to go, is closed when it is over.
        await rig.until("SELECT count(*) = 0 FROM finding WHERE closed_at_ms IS NULL AND severity <> 'info'")


async def test_f12_repeated_voids_close_admission_one_trial_is_tried_and_opens_it(docker_host: str, tmp_path: Path) -> None:
    """Closed, tried in vain, tried with success; across a restart, and while the wall clock steps back an hour."""
    clock = SteppingClock()
    breaker = {"admission.breaker_after": 3, "admission.breaker_pause_s": PAUSE_MS / 1000}
    overrides = {**AT_ONCE, **breaker, "admission.passes": 2, "admission.concurrency": 3}
    tasks = [make_task(tmp_path, name) for name in ("one", "two", "three")]
    async with Rig(docker_host, tasks=tasks, arms={"a": GATED, "b": GATED}, clock=clock, overrides=overrides) as rig:
        await rig.until(PREPARING, 3)
        let_end(rig, FAILS)
        await rig.until(CLOSED)
        ((newest, reason),) = rig.sql(
            "SELECT printf('t%04d', trial_id), reason FROM void WHERE void_id <= 3 AND at_ms <= (SELECT at_ms FROM admission_stop) "
            "ORDER BY void_id DESC LIMIT 1"
        )
        said = rig.one("SELECT detail FROM admission_stop")
        assert said.startswith(f"3 x install_check_failed within 600 s, e.g. {newest}: ") and reason and reason[:60] in said
        assert rig.sql("SELECT subject FROM finding WHERE code = 'breaker' AND closed_at_ms IS NULL") == [("admission",)]
        await rig.until(WAITING, "BREAKER 10m (3 x install_check_failed")
        # Before the third failure closed it, the places of the first two may have been taken: their voids fall into the window.
        await end_all(rig, FAILS)
        clock.off_ms = -HOUR_MS
        await nothing_begins(rig)
        clock.mono_off_ms += PAUSE_MS
        await rig.until(PREPARING, 1)
        first = rig.one("SELECT trial FROM v_trial WHERE state = 'preparing'")
        await rig.until(WAITING, f"BREAKER probe {first} (3 x")
        await nothing_begins(rig)
        await rig.kill()
        await rig.start()  # the probe of the former life never got to its agent: that says nothing, and another one is tried
        await rig.until("SELECT code = 'daemon_lost' FROM void WHERE printf('t%04d', trial_id) = ?", first)
        await rig.until(PREPARING, 1)
        ((second, tried),) = rig.sql("SELECT trial, cell FROM v_trial WHERE state = 'preparing'")
        await rig.until(WAITING, f"BREAKER probe {second} (3 x")
        await nothing_begins(rig)
        await end_all(rig, FAILS)
        await rig.until("SELECT detail LIKE ? FROM finding WHERE code = 'breaker' AND closed_at_ms IS NULL", f"%{second}, which was tried%")
        await rig.until(WAITING, "BREAKER ")
        clock.mono_off_ms += PAUSE_MS
        await nothing_begins(rig)  # the second pause is twice as long
        assert rig.one("SELECT count(*), sum(ended_at_ms IS NULL) FROM admission_stop") == (1, 1)
        clock.mono_off_ms += PAUSE_MS
        await rig.until(PREPARING, 1)
        # Another cell: a task that is bad by itself must not hold all others up.
        assert rig.one("SELECT cell FROM v_trial WHERE state = 'preparing'") != tried
        await nothing_begins(rig)
        counted = "SELECT count(*) FROM void WHERE counts_pass"
        assert rig.one(counted) == 3, "only the failures that closed it count; nothing of the window or of a probe does"
        let_end(rig, PASSES)
        await rig.until("SELECT ended_by = 'marathond' FROM admission_stop")
        await rig.until(PREPARING, 3)
        while rig.sql("SELECT 1 FROM cell_state WHERE state IN ('open', 'claimed')"):
            let_end(rig, PASSES)
            await anyio.sleep(0.1)
        await rig.until_done()
        assert rig.sql("SELECT arm, count(*) FROM v_cell WHERE state = 'done' GROUP BY arm") == [("a", 3), ("b", 3)]
        assert rig.one(counted) == 3
        await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'breaker' AND closed_at_ms IS NULL")


async def test_f12_voids_inside_the_window_use_no_pass_and_a_person_opens_it(docker_host: str, tmp_path: Path) -> None:
    """Four in work when the first void closes admission: the rest of the four costs nothing.  `resume` opens it while one is tried."""
    clock = SteppingClock()
    breaker = {"admission.breaker_after": 1, "admission.breaker_pause_s": PAUSE_MS / 1000}
    overrides = {**AT_ONCE, **breaker, "admission.passes": 1, "admission.concurrency": 4}
    arms = dict.fromkeys(("quick", "slow1", "slow2", "slow3"), GATED)
    async with Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms=arms, clock=clock, overrides=overrides) as rig:
        await rig.until(PREPARING, 4)
        let_end(rig, FAILS, "quick")
        await rig.until(CLOSED)
        await end_all(rig, FAILS)
        rows = rig.sql("SELECT arm, counts_pass FROM void JOIN v_trial ON trial = printf('t%04d', trial_id) ORDER BY void_id")
        assert rows[0] == ("quick", 1)
        assert [counts for _, counts in rows[1:]] == [0, 0, 0]
        assert rig.sql("SELECT count(*) FROM trial") == [(4,)]
        assert rig.sql("SELECT v_cell.arm FROM v_cell WHERE state = 'parked'") == [("quick",)]
        clock.mono_off_ms += PAUSE_MS
        await rig.until(PREPARING, 1)
        await nothing_begins(rig)
        assert rig.daemon is not None
        await rig.daemon.ledger.write(decisions.reopen_admission, author="ana", now_ms=0)
        await rig.until(PREPARING, 3)
        assert rig.sql("SELECT ended_by FROM admission_stop") == [("ana",)]
        await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'breaker' AND closed_at_ms IS NULL")
