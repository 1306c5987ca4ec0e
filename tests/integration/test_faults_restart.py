"""dockerd is killed under agents and verifiers, codex in the middle of a turn among them, with live-restore and without (b11, b18)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.flow import scheduler
from marathond.practice.script import Practice
from tests.support.model_rig import ModelRig, model_rig
from tests.support.outcome import runs_of, wait_for
from tests.support.private_engine import PrivateEngine
from tests.support.rig import PATIENCE_S, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = "echo run >>/logs/artifacts/runs; until [ -e /logs/artifacts/go ]; do sleep 0.05; done"
ARMS: dict[str, dict[str, Any]] = {"plain": {"kind": "codex", "drive": "turn"}, "w": {"kind": "command", "argv": ["sh", "-c", WAITS]}}
TEST = "touch /logs/verifier/began; until [ -e /logs/verifier/go ]; do sleep 0.05; done; echo 1 >/logs/verifier/reward.txt\n"
MORE = 4
MORES = [{"run": "sleep 1; echo more >>/logs/artifacts/more"} for _ in range(MORE)]
GO = {"run": "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"}
"""However long the others take to get there: the turn is not over when dockerd is killed."""
TURN = [{"run": "echo run >>/logs/artifacts/runs"}, *MORES[:2], GO, *MORES[2:], {"say": "Done."}]
SCRIPT = {"script": [{"text": "TASK-agent:", "step": TURN}, {"text": "TASK-verify:", "step": [*TURN[:1], TURN[-1]]}]}
ENGINE_BAD = "SELECT json_extract(value_json, '$.ok') = 0 FROM observation WHERE key = 'engine'"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "ENGINE_LOOK_S", 0.5)
    monkeypatch.setattr(scheduler, "TICK_S", 0.5)


def logs(rig: ModelRig, trial: str) -> Path:
    return rig.root / "state" / "r" / trial / "logs"


def let_go(rig: ModelRig, *, task: str = "%", verifiers: bool = True) -> None:
    for (trial,) in rig.sql("SELECT trial FROM v_trial WHERE state IN ('running', 'verifying') AND task LIKE ?", task):
        for folder in ("artifacts", "verifier") if verifiers else ("artifacts",):
            if (logs(rig, trial) / folder).is_dir():
                (logs(rig, trial) / folder / "go").touch()


@pytest.mark.parametrize("live_restore", [True, False], ids=["live-restore", "without"])
async def test_b11_b18_dockerd_killed_under_turns_and_verifiers(own_engine: PrivateEngine, tmp_path: Path, live_restore: bool) -> None:
    if live_restore:
        own_engine.stop()
        own_engine.arguments.append("--live-restore")
        own_engine.start()
    tasks = [
        make_task(tmp_path, name, network="public", instruction=f"TASK-{name}: do it.\n", agent_s=600.0, verifier_s=600.0, test=TEST)
        for name in ("agent", "verify")
    ]
    async with model_rig(own_engine.url, tasks, ARMS, Practice.model_validate(SCRIPT)) as rig:
        await rig.until("SELECT count(*) = 4 FROM v_trial")
        at = {(task, arm): trial for task, arm, trial in rig.sql("SELECT task, arm, trial FROM v_trial")}

        def everybody_is_there() -> bool:
            let_go(rig, task="verify", verifiers=False)
            verify = all((logs(rig, at["verify", arm]) / "verifier" / "began").exists() for arm in ARMS)
            return verify and all((logs(rig, at["agent", arm]) / "artifacts" / "runs").exists() for arm in ARMS)

        await wait_for(everybody_is_there)
        await anyio.to_thread.run_sync(own_engine.kill)
        await rig.until(ENGINE_BAD)
        await anyio.to_thread.run_sync(own_engine.start)
        with anyio.fail_after(PATIENCE_S):
            while rig.sql("SELECT 1 FROM cell_state WHERE state IN ('open', 'claimed')"):
                let_go(rig)
                await anyio.sleep(0.2)
        await rig.until_done()
        ends = Counter(rig.sql("SELECT attempt, state, reward FROM trial"))
        if live_restore:
            assert ends == {(1, "scored", 1.0): 4}, rig.story()
            flags = "SELECT task, flags_json LIKE '%verification_interrupted%' FROM v_trial JOIN score ON trial = printf('t%04d', trial_id)"
            assert sorted(rig.sql(flags)) == [("agent", 0)] * 2 + [("verify", 1)] * 2
        else:
            assert ends == {(1, "voided", None): 4, (2, "scored", 1.0): 4}, rig.story()
            for code, reason, evidence, docker_id in rig.sql(
                "SELECT void.code, reason, evidence_json, docker_id FROM void JOIN container USING (trial_id)"
            ):
                assert code == "container_lost" and docker_id in evidence and "engine" in reason, rig.story()
        assert runs_of(rig) == [1] * 4, "nobody ran twice"
        folders = rig.sql(
            """SELECT artifact_export.folder FROM artifact_export JOIN v_trial ON trial = printf('t%04d', trial_id)
               WHERE state = 'scored' AND task = 'agent' AND arm = 'plain'"""
        )
        (more,) = [(rig.root / "out" / folder / "artifacts" / "more").read_text().split() for (folder,) in folders]
        assert more == ["more"] * MORE, "the turn went on where it was, and did nothing twice"
