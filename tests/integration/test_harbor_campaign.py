"""What the daemon itself wrote on real Docker is a job that Harbor's viewer lists, trial by trial."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from tests.support.harbor_env import harbor_view
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]


def _get(base: str, path: str) -> Any:
    with urllib.request.urlopen(base + path, timeout=240) as answer:
        return json.load(answer)


def _listed(out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with harbor_view(out) as base:
        return _get(base, "/api/jobs")["items"], _get(base, "/api/jobs/test/trials")["items"]


async def test_a_campaign_on_disk_is_a_job_in_harbors_viewer(docker_host: str, harbor: None, tmp_path: Path) -> None:
    check = "if [ -e /app/done ]; then r=1; else r=0; fi\necho $r >/logs/verifier/reward.txt\n"
    task = make_task(tmp_path, "touch", test=check, solve="touch /app/done\n", environment='workdir = "/app"')
    arms = {"oracle": {"kind": "oracle"}, "nop": {"kind": "nop"}}
    async with Rig(docker_host, tasks=[task], arms=arms) as rig:
        await rig.until_done()
        jobs, trials = await to_thread.run_sync(_listed, rig.root / "out")
    assert [job["name"] for job in jobs] == ["test"]
    assert {(trial["task_name"], trial["agent_name"], trial["reward"], trial["error_type"]) for trial in trials} == {
        ("touch", "oracle", 1.0, None),
        ("touch", "nop", 0.0, None),
    }
