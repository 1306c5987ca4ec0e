"""A campaign on a real engine in which one arm's infrastructure fails: until admission is closed for all, and after a person's word."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

GOOD = {"kind": "command", "argv": ["true"]}
BAD = {"kind": "command", "argv": ["true"], "install_check": ["sh", "-c", "echo no such agent; exit 3"]}
KNOBS = {
    "admission.passes": 100,
    "admission.breaker_after": 1000,
    "admission.concurrency": 4,
    "admission.cpu_overcommit": 16.0,
    "admission.memory_overcommit": 16.0,
}
STOPS = "SELECT count(*) FROM admission_stop WHERE kind = 'stop_loss' AND ended_at_ms IS {}"


async def ctl(rig: Rig, *words: str) -> tuple[int, Any]:
    """Exit status, and what it printed: JSON where it is."""
    argv = [sys.executable, "-c", "from marathond.cli.ctl import main; main()", "--config", str(rig.config), *words]
    done = await anyio.run_process(argv, check=False)
    text = done.stdout.decode()
    return done.returncode, json.loads(text) if "--json" in words else text + done.stderr.decode()


async def test_a06_a_failing_arm_closes_admission_for_all_and_resume_opens_it_until_it_fails_again(
    docker_host: str, tmp_path: Path
) -> None:
    tasks = [make_task(tmp_path, name) for name in ("one", "two", "three")]
    async with Rig(docker_host, tasks=tasks, arms={"good": GOOD, "bad": BAD}, replicates=40, overrides=KNOBS) as rig:
        await rig.until(STOPS.format("NULL"))
        detail = rig.one("SELECT detail FROM admission_stop")
        assert detail.startswith("infra_disparity: infrastructure first: ") and "x install_check_failed" in detail
        failed, others = rig.one("SELECT count(*) FILTER (WHERE arm = 'bad'), count(*) FILTER (WHERE arm <> 'bad') FROM v_void")
        assert failed >= 6 and others == 0
        code, status = await ctl(rig, "status")
        assert code == 1 and "infra_disparity" in status
        code, report = await ctl(rig, "audit", "--json")
        (told,) = [rule for rule in report["rules"] if rule["found"] and rule["severity"] == "stop_loss"]
        assert (code, told["code"], told["found"][0]["subject"]) == (1, "infra_disparity", "bad")
        assert told["looked_at"] <= told["of"] and report["looked_at"]["campaign"] == "test"

        # What runs ends; nothing of either arm begins.
        await rig.until("SELECT count(*) = 0 FROM trial WHERE state NOT IN ('scored', 'voided', 'review')")
        admitted = rig.one("SELECT count(*) FROM trial")
        await rig.until("SELECT value_json LIKE '%STOP_LOSS%' FROM observation WHERE key = 'waiting'")
        assert rig.one("SELECT count(*) FROM trial") == admitted

        code, said = await ctl(rig, "resume", "--reason", "repaired, I think")
        assert code == 0, said
        await rig.until("SELECT count(*) > ? FROM trial", admitted)
        await rig.until(STOPS.format("NULL"))  # it was not: the next failure closes it again
        assert rig.one(STOPS.format("NOT NULL")) == 1
        assert rig.one("SELECT count(*) FROM finding WHERE code = 'infra_disparity'") == 1
        assert rig.one("SELECT count(*) FROM void") > failed
