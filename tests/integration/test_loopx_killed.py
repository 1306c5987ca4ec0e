"""The daemon's process is killed with -9 under an arm of LoopX, in the middle of a command; the next one finishes it (fault f02).

What was set up for LoopX, what its agent did before, meanwhile and after, and what was paid for it must be in one receipt, as of an
undisturbed run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex.receipt import validated
from marathond.core.names import LoopXProfile
from marathond.practice.script import Practice
from tests.support import loopx_agent
from tests.support.loopx_env import loopx_wanted
from tests.support.model_rig import model_rig
from tests.support.outcome import wait_for
from tests.support.rig import make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

PROFILE = LoopXProfile.CODEX_CLI
ARMS: dict[str, dict[str, Any]] = {"loopx": {"kind": "codex", "drive": "goal", "loopx": PROFILE.value}}
HELD = "cd /logs/artifacts; echo begun >>ran; while [ ! -e go ]; do sleep 0.05; done; echo gone >>ran"
AGAIN = {"run": loopx_agent.ask(PROFILE)["run"].replace("echo asked >>/ran", "echo asked >>/logs/artifacts/ran")}
AGENT_S = 1200.0
"""A loaded machine needs many times what an idle one does; the run ends by itself."""
SCRIPT = Practice.model_validate({"script": [{"text": "TASK-held", "step": [AGAIN, {"run": HELD}, AGAIN]}]})


@pytest.mark.usefixtures("staged_loopx")
async def test_f02_the_receipt_of_an_arm_of_loopx_outlives_its_daemon(docker_host: str, tmp_path: Path) -> None:
    task = make_task(tmp_path, "held", instruction="TASK-held: do it.\n", agent_s=AGENT_S)
    overrides = {"loopx.python": loopx_wanted().python}
    async with model_rig(docker_host, [task], ARMS, SCRIPT, overrides=overrides, in_process=False) as rig:
        folder = rig.root / "state" / "r" / "t0001" / "logs" / "artifacts"
        await wait_for(lambda: (folder / "ran").exists() and "begun" in (folder / "ran").read_text(), patience_s=AGENT_S)
        for _ in range(2):
            await rig.kill()
            await rig.start()
            await rig.until("SELECT count(*) FROM agent_event WHERE kind = 'reattached' AND run_id = (SELECT max(run_id) FROM run)")
        (folder / "go").touch()
        await rig.until_done(AGENT_S)
        assert rig.sql("SELECT attempt, state, reward FROM trial") == [(1, "scored", 1.0)], rig.story()
        assert rig.one("SELECT count(*) FROM trial_event WHERE event = 'reattached'") == 2
        (ran,) = (rig.root / "out" / rig.one("SELECT folder FROM artifact_export")).rglob("artifacts/ran")
        assert ran.read_text().split() == ["asked", "begun", "gone", "asked"]
        schema, data = rig.one("SELECT schema, receipt_json FROM receipt")
        receipt = validated(json.loads(data), schema)
        raw = json.loads(data)
        assert raw["rpc"]["reattached"] >= 2 and raw["rpc"]["connections"] >= 3 and raw["turns"]["commands"] == 3
        assert raw["tokens"]["explained"] is True and raw["remarks"] == []
        assert receipt.loopx is not None and receipt.loopx.set_up is not None
        assert (receipt.loopx.delivered_all, receipt.loopx.used_any) == (True, True)
        assert (receipt.loopx.used.by_name, receipt.loopx.used.commands) == ({"quota should-run": 2}, 3)
        assert rig.sql("SELECT code FROM finding WHERE code LIKE 'treatment_%'") == []
        assert rig.sql("SELECT ended_by, exit_source FROM trial_agent") == [("agent", "driver")]
