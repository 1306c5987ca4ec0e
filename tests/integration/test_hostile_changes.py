"""Task directories that change or vanish while the campaign runs: what was planned is run and graded, or nothing is."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from tests.support.hostile import MANY, Ran
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = "while [ ! -e /logs/artifacts/go ]; do sleep 0.05; done"
ARMS = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}


async def let_go(rig: Rig, task: str) -> None:
    """Ends the agent of the task's only trial."""
    trial = Ran(rig).trial(task)
    await (anyio.Path(rig.root) / "state" / "r" / f"t{trial:04d}" / "logs" / "artifacts" / "go").touch()


async def test_a_task_that_changes_under_its_running_agent_is_not_graded(docker_host: str, tmp_path: Path) -> None:
    """Gone, with other tests, or untouched: the first two are void with the reason and parked, the third is scored."""
    names = ("vanishes", "edited", "stays")
    tasks = [make_task(tmp_path, name, instruction=WAITS, agent_s=1000) for name in names]
    async with Rig(docker_host, tasks=tasks, arms=ARMS, overrides=MANY) as rig:
        await rig.until("SELECT count(*) = 3 FROM trial WHERE state = 'running'")
        shutil.rmtree(tmp_path / "vanishes")
        (tmp_path / "edited" / "tests" / "test.sh").write_text("#!/bin/sh\necho 0 >/logs/verifier/reward.txt\n")
        for name in names:
            await let_go(rig, name)
        await rig.until_done()
        ran = Ran(rig)
        for name, code, words in (("vanishes", "task_missing", "no such directory"), ("edited", "task_changed", "digest was")):
            ((void, reason),) = ran.voids(name)
            assert void == "task_vanished" and words in reason
            assert ran.park(name)[0] == code and words in ran.park(name)[1]
            assert rig.sql("SELECT * FROM score WHERE trial_id = ?", ran.trial(name)) == []
            assert ran.agent(name, "exit_code, ended_by") == (0, "agent")
        assert ran.reward("stays") == 1.0
        assert ran.stop_losses() == []


async def test_a_task_edited_between_plan_and_start_parks_as_changed(docker_host: str, tmp_path: Path) -> None:
    """One slot: the second task is edited while the first one holds it."""
    tasks = [
        make_task(tmp_path, "first", instruction=WAITS, agent_s=1000),
        make_task(tmp_path, "second", instruction="touch /logs/artifacts/ran"),
        make_task(tmp_path, "third", instruction="true"),
    ]
    async with Rig(docker_host, tasks=tasks, arms=ARMS, overrides={**MANY, "admission.concurrency": 1}) as rig:
        await rig.until("SELECT count(*) = 1 FROM v_trial WHERE state = 'running' AND task = 'first'")
        (tmp_path / "second" / "instruction.md").write_text("touch /logs/artifacts/ran # now easier\n")
        await let_go(rig, "first")
        await rig.until_done()
        ran = Ran(rig)
        assert ran.park("second")[0] == "task_changed" and "digest was" in ran.park("second")[1]
        assert [code for code, _ in ran.voids("second")] == ["task_vanished"]
        assert rig.sql("SELECT * FROM trial_agent WHERE trial_id = ?", ran.trial("second")) == []
        assert ran.reward("first") == ran.reward("third") == 1.0
        assert ran.stop_losses() == []
