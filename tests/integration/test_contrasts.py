"""What a campaign declares that it will compare: kept by a real daemon, changed after scores were known, and told in its comparison."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from marathond.cli.client import call
from marathond.core.compare import compare
from marathond.core.compare.result import Metric
from marathond.core.results import Contrast, Results
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs.results import read_results
from marathond.service.exits import CallFailed
from tests.support.process_rig import ProcessRig
from tests.support.rig import make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

VERIFIER = """[ -e /tmp/solved ] && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
echo '{"partial_score": 0.5}' >/logs/verifier/metrics.json
"""
ARMS = {
    "plain": {"kind": "nop"},
    "goal": {"kind": "command", "argv": ["touch", "/tmp/solved"]},
    "loop": {"kind": "command", "argv": ["true"]},
}


def declare(rig: ProcessRig, *pairs: tuple[str, str]) -> None:
    text = rig.config.read_text().partition("\n[comparison]")[0]
    rig.config.write_text(f"{text}\n[comparison]\ncontrasts = {json.dumps(pairs)}\n")


async def submit(rig: ProcessRig, config: Path | None = None) -> Any:
    args = {"config": str(config or rig.config)}
    return await to_thread.run_sync(call, rig.root / "state" / "control.sock", "submit", args)


def results(rig: ProcessRig) -> Results:
    with closing(open_readonly(rig.root / "state" / "ledger.db")) as connection:
        return read_results(connection)


async def test_contrasts_are_kept_in_versions_with_the_scores_that_were_known(docker_host: str, tmp_path: Path) -> None:
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", test=VERIFIER)], arms=ARMS) as rig:
        await rig.until_done()
        undeclared = results(rig)
        assert (undeclared.contrasts, undeclared.declaration) == ((), 0)
        assert len(compare(undeclared).contrasts) == 3

        declare(rig, ("goal", "plane"))
        with pytest.raises(CallFailed, match=r'comparison\.contrasts\[0\]\[1\] = "plane": no such arm; did you mean plain\?'):
            await submit(rig)
        declare(rig, ("goal", "plain"))
        with pytest.raises(CallFailed, match=r"submit: the running marathond uses .*, not /nowhere/other\.toml: "):
            await submit(rig, Path("/nowhere/other.toml"))
        answer = await submit(rig)
        assert (answer["declared"], answer["declared_after"], answer["added_cells"]) == (1, 3, 0)
        assert (await submit(rig))["declared"] == 0, "it stands there already"

        await rig.kill()
        declare(rig, ("loop", "plain"), ("plain", "goal"))
        await rig.start()
        await rig.until("SELECT max(version) = 2 FROM contrast")
        found = results(rig)
        assert [(each.a, each.b, each.scores_known) for each in found.contrasts] == [("loop", "plain", 3), ("plain", "goal", 3)]
        assert all(isinstance(each, Contrast) and each.declared_at_ms for each in found.contrasts)
        assert found.dropped == ()

        comparison = compare(found)
        reward = comparison.contrasts[1].of(Metric.REWARD)
        assert reward is not None and reward.tasks is not None and reward.mcnemar is not None
        assert (reward.tasks.difference, reward.cells, reward.mcnemar.only_b) == (-1.0, 1, 1)
        assert any("declared when 3 scores were known" in note for note in comparison.contrasts[1].notes)
        ended = {arm.arm: [(each.ended_by, each.cells) for each in arm.by_ending] for arm in comparison.arms}
        assert ended == {arm: [("agent", 1)] for arm in ARMS}
        assert all(arm.agent_s is not None and arm.agent_s.n == 1 and arm.budget_ended == 0 for arm in comparison.arms)
        assert results(rig) == found, "nothing is asked but the ledger"
