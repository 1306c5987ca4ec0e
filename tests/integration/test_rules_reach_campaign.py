"""A rule of the configuration reaches a campaign that runs, survives the daemon, and is kept with each score that was read by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from marathond.cli.client import call
from marathond.service.exits import CallFailed
from tests.support.process_rig import ProcessRig
from tests.support.rig import make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

VERIFIER = """echo 0 >/logs/verifier/reward.txt
echo '{"partial_score": 0.25, "phase": "build_failed"}' >/logs/verifier/metrics.json
echo '{"final": [{"reward": 0.5}, {"share": 0.75}]}' >/logs/verifier/result.json
echo '{"results": {"summary": {"tests": 8, "passed": 6, "failed": 2}}}' >/logs/verifier/unit_ctrf.json
"""
RULES = '[scores.t]\nreward = "result.json:final[0].reward"\npartial = "result.json:final[1].share"\n'


def configure(rig: ProcessRig, replicates: int, rules: str) -> None:
    text = rig.config.read_text().partition("[scores")[0]
    before = text.index("replicates = ")
    rig.config.write_text(text[:before] + f"replicates = {replicates}" + text[text.index("\n", before) :] + rules)


async def submit(rig: ProcessRig) -> Any:
    return await to_thread.run_sync(call, rig.root / "state" / "control.sock", "submit", {})


def score(rig: ProcessRig, trial_id: int) -> tuple[Any, ...]:
    row = rig.one("SELECT reward, reward_source, partial, tests_passed, tests_total, test_rate FROM score WHERE trial_id = ?", trial_id)
    return tuple(row)


def rules_of(rig: ProcessRig, trial_id: int) -> dict[str, str]:
    sql = "SELECT name, value FROM score_part JOIN score USING (score_id) WHERE trial_id = ? AND name LIKE 'rule:%'"
    return dict(rig.sql(sql, trial_id))


async def test_d03_a_rule_is_taken_by_a_running_campaign_survives_its_daemon_and_never_falls_back(docker_host: str, tmp_path: Path) -> None:
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", test=VERIFIER)], arms={"nop": {"kind": "nop"}}) as rig:
        await rig.until_done()
        assert score(rig, 1) == (0, "reward.txt", 0.25, 6, 8, 0.75), "fault d05: a build that failed is a score"
        assert rig.one("SELECT flags_json FROM score") == '["build_failed"]'
        assert rules_of(rig, 1) == {}

        configure(rig, 2, RULES.replace("[scores.t]", "[scores.tt]"))
        with pytest.raises(CallFailed, match=r"marathond\.toml:\d+: scores\.tt: no such task"):
            await submit(rig)

        configure(rig, 2, RULES)
        assert (await submit(rig))["added_cells"] == 1
        await rig.until_done()
        assert score(rig, 2) == (0.5, "result.json:final[0].reward", 0.75, 6, 8, 0.75)
        assert rules_of(rig, 2) == {"rule:reward": "result.json:final[0].reward", "rule:partial": "result.json:final[1].share"}
        assert score(rig, 1)[0] == 0, "what was scored stays as it was read"

        await rig.kill()
        configure(rig, 3, RULES)
        await rig.start()
        await rig.until("SELECT count(*) = 3 FROM cell")
        await rig.until_done()
        assert score(rig, 3) == score(rig, 2)

        configure(rig, 4, RULES.replace("final[0]", "final[7]"))
        await submit(rig)
        await rig.until_done()
        code, detail = rig.one("SELECT code, detail FROM review WHERE trial_id = 4")
        assert code == "score_unreadable" and "result.json" in detail and "a rule names it for reward" in detail
        assert rig.sql("SELECT 1 FROM score WHERE trial_id = 4") == []
