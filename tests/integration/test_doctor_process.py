"""doctor beside a real daemon: all is alive while it lives, and named dead or unknown once it was killed (faults e01, e04)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from tests.support.process_rig import ProcessRig
from tests.support.published import printed
from tests.support.rig import PATIENCE_S, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

QUICK = {"kind": "command", "argv": ["true"]}
WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}


async def asked(rig: ProcessRig) -> tuple[int, dict[str, Any]]:
    argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(rig.config), "doctor", "--json"]
    done = await to_thread.run_sync(lambda: subprocess.run(argv, capture_output=True, text=True, cwd=rig.root, check=False))
    assert done.stdout, done.stderr
    return done.returncode, printed("doctor", done.stdout)


def verdicts(told: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in told["sources"]}


async def test_e01_doctor_beside_a_living_daemon_and_beside_a_killed_one(docker_host: str, tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, "t", network="public", agent_s=1000)]
    async with ProcessRig(docker_host, tasks=tasks, arms={"quick": QUICK, "waits": WAITS}) as rig:
        await rig.until("SELECT (SELECT count(*) FROM artifact_export) = 1 AND (SELECT count(*) FROM trial WHERE state = 'running') = 1")
        ends = time.monotonic() + PATIENCE_S
        while True:  # each source speaks in its own time
            code, told = await asked(rig)
            if code == 0 or time.monotonic() > ends:
                break
            await anyio.sleep(0.5)
        assert code == 0, [row for row in told["sources"] if row["verdict"] not in ("ok", "nothing yet")]
        seen = verdicts(told)
        asked_of = ("daemon", "observation engine", "observation disk", "observation waiting", "observation clock_offset", "audit")
        assert {seen[name] for name in (*asked_of, "out_dir", "networks local", "findings")} == {"ok"}, seen
        assert told["looked_at"]["ledger"] == str(rig.ledger_path) and all(proof["ok"] for proof in told["proofs"])

        await rig.kill()
        changed = rig.one("SELECT total_changes() + (SELECT count(*) FROM trial_event)")  # only now nobody else writes
        code, told = await asked(rig)
        seen = verdicts(told)
        assert code == 1 and seen["daemon"] == "dead"
        assert {seen[name] for name in asked_of[1:]} == {"unknown"}, "nobody looks any more: that is not ok"
        assert seen["out_dir"] == "ok", "what can be seen without a daemon is seen"
        assert rig.one("SELECT total_changes() + (SELECT count(*) FROM trial_event)") == changed, "doctor only reads"
