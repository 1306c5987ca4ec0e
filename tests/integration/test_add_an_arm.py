"""The arm of docs/add-an-arm.md, as it is printed there, runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.rig import Rig, make_task
from tests.unit.test_docs import arm_example

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


async def test_the_worked_example_is_scored(docker_host: str, tmp_path: Path) -> None:
    run, solve, arms = arm_example(tmp_path)
    twice: Any = arms["twice"]
    (tmp_path / "run.sh").write_text(run)
    (tmp_path / "solve.sh").write_text(solve)
    assert twice["mounts"][0].pop("source") == "/srv/arms/twice"
    twice["mounts"][0]["source"] = str(tmp_path)
    task = make_task(
        tmp_path / "tasks", "answer", test='[ "$(cat answer.txt)" = done ]; echo $((1 - $?)) >/logs/verifier/reward.txt\n', toml=""
    )
    async with Rig(docker_host, tasks=[task], arms={"twice": twice}) as rig:
        await rig.until_done()
        assert rig.sql("SELECT state, reward FROM v_cell") == [("done", 1.0)]
        (said,) = rig.root.glob("out/test/*/artifacts/attempts.txt")
        assert said.read_text() == "not yet\ndone\n" or said.read_text() == "not yet\n"
