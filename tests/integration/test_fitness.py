"""An image in which one arm's runtime cannot run parks its task for all arms: a real campaign, real LoopX, no trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.staging.manifest import StagedTree
from tests.support.loopx_env import VERSION, loopx_wanted
from tests.support.model_rig import model_campaign
from tests.support.rig import BASE_IMAGE, make_task

pytestmark = pytest.mark.docker

ARMS = {"nop": {"kind": "nop"}, "ssh-goal": {"kind": "codex", "drive": "goal", "loopx": "codex_app_ssh_goal"}}
NOBODY_ASKS = '[[script]]\n[[script.step]]\nsay = "nobody asked"\n'
# A shell needs libc alone; Python and Node need this one too, as they would need a newer libc, or glibc instead of musl.
DOCKERFILE = f"FROM {BASE_IMAGE}\nRUN find / -xdev -name 'libm.so.6' -delete\n"


def test_an_image_that_cannot_run_it_parks_its_task_for_all_arms(docker_host: str, staged_loopx: StagedTree, tmp_path: Path) -> None:
    task = make_task(tmp_path, "old")
    toml = (task / "task.toml").read_text()
    (task / "task.toml").write_text("".join(line for line in toml.splitlines(keepends=True) if not line.startswith("docker_image")))
    (task / "environment").mkdir()
    (task / "environment" / "Dockerfile").write_text(DOCKERFILE)
    overrides = {"loopx.python": loopx_wanted().python}
    with model_campaign(docker_host, [task], ARMS, NOBODY_ASKS, overrides=overrides) as ran:
        cells = ran.rig.sql("SELECT arm, state, attempts, park_code, park_detail FROM v_cell ORDER BY arm")
        assert [row[:4] for row in cells] == [(arm, "parked", 0, "runtime_unfit") for arm in ARMS]
        for row in cells:
            assert row[4].startswith(f"LoopX {VERSION}'s Python and Node cannot run in the image (exit 1): ") and "libm.so.6" in row[4]
        assert ran.rig.gateway.records() == []
