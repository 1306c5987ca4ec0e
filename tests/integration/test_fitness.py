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
UNFIT = {
    "old": ("find / -xdev -name 'libm.so.6' -delete", "cannot run in the image (exit 1): ", "libm.so.6"),
    "own": ("touch /usr/bin/loopx", "cannot run in the image (exit 1): ", "a LoopX of the image's own: /usr/bin/loopx"),
    "taken": ("mkdir -p /usr/local/bin/loopx", "cannot run in the image: ", "not a directory"),
}
"""By task: what its image did, and what is said of it.  Of the last two a gate or a container of LoopX's arms alone would fail."""


def test_an_image_that_cannot_run_it_parks_its_task_for_all_arms(docker_host: str, staged_loopx: StagedTree, tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, name) for name in UNFIT]
    for task in tasks:
        toml = (task / "task.toml").read_text()
        (task / "task.toml").write_text("".join(line for line in toml.splitlines(keepends=True) if not line.startswith("docker_image")))
        (task / "environment").mkdir()
        (task / "environment" / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nRUN {UNFIT[task.name][0]}\n")
    overrides = {"loopx.python": loopx_wanted().python}
    with model_campaign(docker_host, tasks, ARMS, NOBODY_ASKS, overrides=overrides) as ran:
        cells = ran.rig.sql("SELECT task, arm, state, attempts, park_code, park_detail FROM v_cell ORDER BY task, arm")
        assert [tuple(row[:5]) for row in cells] == [(task, arm, "parked", 0, "runtime_unfit") for task in UNFIT for arm in ARMS]
        for task, *_, said in cells:
            _, begins, holds = UNFIT[task]
            assert said.startswith(f"LoopX {VERSION}'s Python and Node {begins}") and holds in said, said
        assert ran.rig.gateway.records() == []
