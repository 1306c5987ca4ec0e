"""A script that an arm mounts is edited while its campaign runs: trials of before and after are told apart, and none is added to them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from marathond.core.errors import Refused
from tests.support.outcome import wait_for
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

SCRIPT = "echo {word} >/logs/artifacts/ran\nwhile [ ! -e /gate/go ]; do sleep 0.1; done\n"
PASSES = "echo 1 >/logs/verifier/reward.txt\n"


def write(path: Path, word: str) -> None:
    """In the place of what is there, so that a shell that reads it goes on with the old one."""
    path.with_suffix(".new").write_text(SCRIPT.format(word=word))
    path.with_suffix(".new").rename(path)


async def test_a18_a_mounted_script_edited_between_two_trials_is_named(docker_host: str, tmp_path: Path) -> None:
    arms = {}
    for name in ("hasty", "steady"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "run.sh", "old")
        (tmp_path / f"gate-{name}").mkdir()
        folder = {"source": str(tmp_path / name), "target": f"/opt/{name}"}
        gate = {"source": str(tmp_path / f"gate-{name}"), "target": "/gate", "read_only": False}
        arms[name] = {"kind": "command", "argv": ["sh", f"/opt/{name}/run.sh"], "mounts": [folder, gate]}
    (tmp_path / "gate-steady/go").touch()
    task = make_task(tmp_path / "tasks", "one", test=PASSES, agent_s=600)
    overrides = {"admission.concurrency": 1}
    async with Rig(docker_host, tasks=[task], arms=arms, replicates=2, overrides=overrides) as rig:
        first = "SELECT trial_id FROM trial JOIN arm USING (arm_id) WHERE arm.name = 'hasty' AND state = 'running'"
        trial_id = await rig.until(first)
        began = rig.root / f"state/r/t{trial_id:04d}/logs/artifacts/ran"
        await wait_for(began.exists)  # its shell has the old one open
        write(tmp_path / "hasty/run.sh", "new")
        (tmp_path / "gate-hasty/go").touch()
        await rig.until_done()

        held = rig.sql("SELECT value FROM trial_fact WHERE name = 'mount /opt/hasty' ORDER BY trial_id")
        (old,), (new,) = held
        ended = rig.one("SELECT trial_id, value FROM trial_fact WHERE name = 'mount /opt/hasty (at the agent''s end)'")
        assert ended == (trial_id, new), "it changed while this one ran"
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", old) and re.fullmatch(r"sha256:[0-9a-f]{64}", new) and old != new
        assert rig.sql("SELECT DISTINCT value FROM trial_fact WHERE name = 'mount /gate'") == [("not digested: writable",)]
        assert sorted(said.read_text() for said in rig.root.glob("out/test/*/artifacts/ran")) == ["new\n", "old\n", "old\n", "old\n"]

        # The audit after the last score counts it, too.
        sql = "SELECT detail FROM finding WHERE code = 'mount_changed' AND closed_at_ms IS NULL AND detail LIKE '%in 2 trials%'"
        detail = await rig.until(sql)
        assert detail == (
            f"what hasty mounts at /opt/hasty was {old[7:19]} as submitted and in 1 trial from t{trial_id:04d} on; "
            f"{new[7:19]} in 2 trials from t{trial_id:04d} on"
        )
        assert rig.sql("SELECT subject, severity FROM finding WHERE code = 'mount_changed'") == [("hasty /opt/hasty", "error")]

        assert rig.daemon is not None
        with pytest.raises(Refused, match=r"arm hasty: what it mounts at /opt/hasty was [0-9a-f]{12}, now [0-9a-f]{12} .*new campaign"):
            await rig.daemon.submit("ana")
        # A daemon that starts loses no campaign over it.
        await rig.kill()
        await rig.start()
        await rig.until(
            "SELECT value_json = '\"test\"' FROM observation WHERE key = 'campaign' AND at_ms >= (SELECT max(started_at_ms) FROM run)"
        )
        write(tmp_path / "hasty/run.sh", "old")
        os.utime(tmp_path / "hasty/run.sh", (1, 1))
        assert rig.daemon is not None
        assert (await rig.daemon.submit("ana")).added_cells == 0
