"""An agent that ends while no daemon looks (fault c19): its time is its own, not that of the look; on real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest

import marathond
from marathond.core.text import span
from marathond.ledger.connect import connect
from marathond.practice.script import Practice
from tests.support.model_rig import model_rig
from tests.support.outcome import wait_for
from tests.support.process_rig import ProcessRig
from tests.support.rig import make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

LIMIT_S = 45.0
"""Long enough for three agents to begin on a busy machine; the tests wait for its end."""
WAIT = "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"
ARMS = {
    "ends": {"kind": "command", "argv": ["sh", "-c", f"{WAIT}; exit 3"]},
    "mute": {"kind": "command", "argv": ["sh", "-c", f"{WAIT}; kill -9 0"]},
    "never": {"kind": "command", "argv": ["sh", "-c", "sleep 100000"]},
}
ROW = """SELECT t.arm, t.ended_by, t.agent_s, t.overrun_s, c.budget_ended, coalesce(json_extract(e.detail_json, '$.time_source'), 'watched')
FROM v_trial AS t JOIN v_cell AS c USING (cell)
JOIN trial_event AS e ON printf('t%04d', e.trial_id) = t.trial AND e.event IN ('agent_ended', 'budget_spent')"""


class Away:
    """What the agents did while nobody looked."""

    def __init__(self, rig: ProcessRig) -> None:
        self.rig = rig
        rows = rig.sql("SELECT arm.name, trial_id FROM trial JOIN arm USING (arm_id)")
        self.run = {arm: rig.root / "state" / "r" / f"t{trial:04d}" for arm, trial in rows}
        self.let_go_s = 0.0

    def status(self, arm: str) -> Path:
        return self.run[arm] / "ctl" / "exit-status"

    def let_go(self) -> None:
        self.let_go_s = time.monotonic()
        for folder in self.run.values():
            (folder / "logs" / "artifacts" / "go").touch()

    async def until(self, *arms: str) -> None:
        await wait_for(lambda: all(self.status(arm).exists() for arm in arms))

    def started_s(self, arm: str) -> float:
        sql = "SELECT started_mono_ms FROM trial_agent JOIN trial USING (trial_id) JOIN arm USING (arm_id) WHERE arm.name = ?"
        return float(self.rig.one(sql, arm)) / 1000

    def took_s(self, arm: str) -> tuple[float, float]:
        """At least and at most."""
        # The wall clock first: a host that leaves this process standing between the two only makes the bound wider.
        ended_s = self.status(arm).stat().st_mtime - time.time()
        ended_s += time.monotonic()
        return self.let_go_s - self.started_s(arm) - 0.5, ended_s - self.started_s(arm) + 0.5


async def began(rig: ProcessRig) -> Away:
    for trial in (1, 2, 3):
        await rig.agent_runs(trial)
    return Away(rig)


def span_s(seconds: float) -> str:
    return span(round(seconds * 1000))


async def shown(rig: ProcessRig, trial: str) -> str:
    command = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(rig.config), "show", trial]
    said = await anyio.run_process(command, cwd=Path(marathond.__file__).parents[1])
    return said.stdout.decode()


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_c19_the_time_of_an_agent_is_its_own(docker_host: str, tmp_path: Path, how: str) -> None:
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=LIMIT_S)], arms=ARMS) as rig:
        away = await began(rig)
        process = rig.process
        assert process is not None
        if how == "killed":
            await rig.kill()
        else:
            rig.strike(signal.SIGSTOP)
        away.let_go()
        try:
            await away.until("ends", "never")  # the latter by its container's timer, long after everyone's deadline
            least_s, most_s = away.took_s("ends")
            assert most_s < LIMIT_S, "the host was too slow for this to say anything"
            timer_s = away.took_s("never")[1]
            await anyio.sleep(3.0)
        finally:
            if how == "frozen":
                rig.strike(signal.SIGCONT)
        if how == "killed":
            await rig.start()
        await rig.until_done()

        rows = {row[0]: row[1:] for row in rig.sql(ROW)}
        ended_by, agent_s, overrun_s, budget_ended, source = rows["ends"]
        assert (ended_by, overrun_s, budget_ended, source) == ("agent", 0.0, 0, "file"), rows
        assert least_s <= agent_s <= most_s
        assert rows["mute"] == ("agent", None, None, 0, "unknown")
        ended_by, agent_s, overrun_s, budget_ended, source = rows["never"]
        assert (ended_by, budget_ended, source) == ("timer", 1, "file") and abs(agent_s - timer_s) < 1 and 29 <= overrun_s <= 30
        for arm, words in {
            "ends": f"ended by agent after {span_s(rows['ends'][1])} (by its status file: nobody looked all the time), exit code 3",
            "mute": "ended by agent after a time that is not known (nobody looked all the time, and nothing tells when)",
            "never": "(by its status file: nobody looked all the time), exit code 137 (the engine's word), overran by 30s",
        }.items():
            said = await shown(rig, away.run[arm].name)
            assert words in said, said
        for arm, timed in {"ends": True, "mute": False}.items():
            folder = rig.one("SELECT folder FROM v_trial WHERE arm = ?", arm)
            timing = json.loads((rig.root / "out" / folder / "result.json").read_text())["agent_execution"]
            assert (timing["finished_at"] is not None) is timed


def kill_session(number: int) -> None:
    """All processes of it, its leader included."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[3]) == number:
                os.kill(int(stat.parent.name), signal.SIGKILL)


async def test_c19_what_a_daemon_was_about_to_end_when_it_was_killed_did_not_end_by_itself(docker_host: str, tmp_path: Path) -> None:
    """It had said so, and killed the agent's whole session; there is no status file, and the next life comes later."""
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=600.0)], arms={"never": ARMS["never"]}) as rig:
        await rig.agent_runs(1)
        await rig.kill()
        session = int(rig.one("SELECT value FROM trial_fact WHERE name = 'agent session'"))
        started_s = rig.one("SELECT started_mono_ms FROM trial_agent") / 1000
        with closing(connect(rig.ledger_path, mode="rw")) as conn:
            cut_s, at_ms = time.monotonic() - started_s, time.time_ns() // 1_000_000
            conn.execute("INSERT INTO trial_fact VALUES (1, 'ended by us', 'deadline', 'said before it was done', ?)", (at_ms,))
        kill_session(session)
        await anyio.sleep(3.0)
        await rig.start()
        await rig.until_done()
        ((_, ended_by, agent_s, overrun_s, budget_ended, source),) = rig.sql(ROW)
        assert (ended_by, overrun_s, budget_ended, source) == ("deadline", 0.0, 1, "watched"), rig.story()
        assert abs(agent_s - cut_s) < 1


def rollouts(run: Path) -> list[str]:
    """What codex has written of its conversations.  By os.walk, for a glob breaks on a folder that vanishes while it looks."""
    paths = [Path(folder) / name for folder, _, names in os.walk(run) for name in names if name.startswith("rollout-")]
    return [path.read_text(errors="replace") for path in paths]


async def test_c19_a_turn_that_ended_while_nobody_listened_ended_when_codex_says(docker_host: str, tmp_path: Path) -> None:
    """Its server goes on without a turn, past the deadline and into the next life."""
    limit_s = 90.0
    step = {"run": "cd /logs/artifacts; touch begun; while [ ! -e go ]; do sleep 0.05; done"}
    task = make_task(tmp_path, "task", instruction="TASK-held: do it.\n", agent_s=limit_s)
    script = Practice.model_validate({"script": [{"text": "TASK-held:", "step": [step]}]})
    arms = {drive: {"kind": "codex", "drive": drive} for drive in ("turn", "goal")}
    async with model_rig(docker_host, [task], arms, script) as rig:
        runs = {trial: rig.root / "state" / "r" / f"t{trial:04d}" for trial in (1, 2)}
        await wait_for(lambda: all((run / "logs" / "artifacts" / "begun").exists() for run in runs.values()))
        await rig.kill()
        go_s, started_s = time.monotonic(), {trial: ms / 1000 for trial, ms in rig.sql("SELECT trial_id, started_mono_ms FROM trial_agent")}
        for run in runs.values():
            (run / "logs" / "artifacts" / "go").touch()
        await wait_for(lambda: all(any('"task_complete"' in text for text in rollouts(run)) for run in runs.values()))
        over_s = time.monotonic()
        assert over_s - min(started_s.values()) < limit_s - 2, "the host was too slow for this to say anything"
        await anyio.sleep(max(0.0, max(started_s.values()) + limit_s + 8 - time.monotonic()))
        await rig.start()
        await rig.until_done()
        assert rig.sql("SELECT state FROM trial") == [("scored",)] * 2, rig.story()
        rows = {row[0]: row[1:] for row in rig.sql(ROW)}
        for arm, trial in rig.sql("SELECT arm.name, trial_id FROM trial JOIN arm USING (arm_id)"):
            ended_by, agent_s, overrun_s, budget_ended, source = rows[arm]
            assert (ended_by, overrun_s, budget_ended, source) == ("agent", 0.0, 0, "codex"), rig.story()
            assert go_s - started_s[trial] - 1.5 <= agent_s <= over_s - started_s[trial] + 0.5  # codex tells whole seconds
            receipt = json.loads(rig.one("SELECT receipt_json FROM receipt WHERE trial_id = ?", trial))
            assert receipt["time"]["ran_ms"] == round(agent_s * 1000)
            assert "(by codex's word of its last turn: nobody looked all the time)" in await shown(rig, f"t{trial:04d}")
