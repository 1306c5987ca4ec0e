"""A whole campaign on a real engine, from submission to artifacts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.outcome import assert_nothing_left, wait_for
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]


async def test_every_cell_is_scored_and_nothing_is_left(docker_host: str, tmp_path: Path) -> None:
    check = "if [ -e /app/done ]; then r=1; else r=0; fi\necho $r >/logs/verifier/reward.txt\n"
    tasks = [
        make_task(tmp_path, "with-network", test=check, solve="touch /app/done\n", network="public", environment='workdir = "/app"'),
        make_task(tmp_path, "without", test=check, solve="touch /app/done\n", environment='workdir = "/app"'),
    ]
    arms = {"oracle": {"kind": "oracle"}, "nop": {"kind": "nop"}, "sh": {"kind": "command", "argv": ["touch", "/app/done"]}}
    async with Rig(docker_host, tasks=tasks, arms=arms, replicates=2) as rig:
        await rig.until_done()
        rows = rig.sql("SELECT arm, count(*), sum(reward) FROM v_cell WHERE state = 'done' GROUP BY arm ORDER BY arm")
        assert rows == [("nop", 4, 0.0), ("oracle", 4, 4.0), ("sh", 4, 4.0)]
        await rig.until("SELECT count(*) = 0 FROM finding WHERE closed_at_ms IS NULL AND severity <> 'info'")
        assert rig.daemon is not None
        await assert_nothing_left(rig, rig.daemon.engine)
        result = json.loads((rig.root / "out" / "test" / "result.json").read_text())
        assert result["stats"]["n_completed_trials"] == 12
        folders = sorted(p.name for p in (rig.root / "out" / "test").iterdir() if p.is_dir())
        assert len(folders) == 12
        assert (rig.root / "out" / "test" / folders[0] / "verifier" / "reward.txt").exists()
        told = json.loads((rig.root / "out" / "test" / "disclosures.json").read_text())
        stored = rig.sql("SELECT code, text FROM v_disclosure WHERE campaign = 'test' ORDER BY position")
        assert [(each["code"], each["text"]) for each in told["disclosures"]] == stored and "nop_is_no_agent" in dict(stored)
        trial = json.loads((rig.root / "out" / "test" / folders[0] / "result.json").read_text())["agent_result"]["metadata"]["marathond"]
        mine = [each["code"] for each in told["disclosures"] if trial["arm"]["name"] in each["arms"]]
        assert [each["code"] for each in trial["disclosures"]] == mine != []
        # Removed after the ledger's word that the copy is there, never before it.
        await wait_for(lambda: not list((rig.root / "state" / "r").iterdir()))
