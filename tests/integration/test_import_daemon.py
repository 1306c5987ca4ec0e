"""A whole daemon on real Docker over a ledger that holds an imported campaign: it runs its own and touches nothing of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from marathond.cli.client import call
from marathond.service.importing.run import Wanted, carry_out, plan
from tests.support.old_runs import plant
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

OF = "JOIN cell USING (cell_id) JOIN campaign USING (campaign_id) WHERE campaign.name"
THERE = f"""
SELECT trial_id, trial.state, attempt, (SELECT count(*) FROM trial_event e WHERE e.trial_id = trial.trial_id)
FROM trial {OF} = 'old' ORDER BY trial_id"""


def nothing_was_done(rig: Rig) -> None:
    """No container, network, artifact, finding or park of any imported trial or cell."""
    mine = f"trial_id IN (SELECT trial_id FROM trial {OF} = 'old')"
    for table in ("container", "network_lease", "artifact_export", "verification", "trial_agent"):
        assert rig.one(f"SELECT count(*) FROM {table} WHERE {mine}") == 0, table
    assert rig.one(f"SELECT count(*) FROM park {OF} = 'old'") == 0
    assert rig.sql("SELECT code, subject, detail FROM finding WHERE severity IN ('error', 'stop_loss')") == []
    assert rig.sql(f"SELECT 1 FROM claim {OF} = 'old' AND released_at_ms IS NULL") == []


async def test_the_next_daemon_neither_runs_nor_recovers_nor_exports_it(docker_host: str, tmp_path: Path) -> None:
    task = make_task(tmp_path, "one")
    rig = Rig(docker_host, tasks=[task], arms={"nop": {"kind": "nop"}})
    out = plant(tmp_path / "before")
    carry_out(rig.ledger_path, plan(rig.ledger_path, Wanted(out, name="old"), "ana"))
    before: list[tuple[Any, ...]] = rig.sql(THERE)
    assert len(before) == 15
    async with rig:
        await rig.until("SELECT count(*) > 0 AND count(*) FILTER (WHERE state = 'done') = count(*) FROM v_cell WHERE campaign = 'test'")
        await rig.until("SELECT count(*) = 1 FROM artifact_export")
        assert rig.sql(THERE) == before
        # A person withdraws one while the daemon lives; the daemon has nothing to tear down and nothing to write about it.
        label = rig.one(f"SELECT printf('t%04d', min(trial_id)) FROM trial {OF} = 'old' AND trial.state = 'scored'")
        args = {"trials": [int(label[1:])], "reason": "wrong disk"}
        answer = await to_thread.run_sync(call, rig.root / "state" / "control.sock", "void", args)
        assert (answer["count"]["voided"], answer["reopened"], answer["imported"]) == (1, 0, 1)
        await rig.kill()
        await rig.start()
        await rig.until("SELECT ready_at_ms IS NOT NULL FROM run ORDER BY run_id DESC LIMIT 1")
        seen = rig.one("SELECT max(run_id) FROM run")
        await rig.until("SELECT count(*) > 0 FROM observation WHERE key = 'waiting' AND run_id = ?", seen)
        nothing_was_done(rig)
        assert sorted(path.name for path in (rig.root / "out").iterdir()) == ["test"]
        assert [row[1] for row in rig.sql(THERE)].count("voided") == [row[1] for row in before].count("voided") + 1
        assert rig.sql("SELECT count(*) FROM trial WHERE trial_id > 15") == [(1,)]
