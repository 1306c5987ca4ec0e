"""The scheduler lets a replicate learn before its first cell is admitted."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]


async def test_a_replicate_is_admitted_in_the_order_that_it_learned(docker_host: str, tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, name) for name in ("one", "two", "three")]
    arms, knobs = {"a": {"kind": "nop"}, "b": {"kind": "nop"}}, {"admission.concurrency": 2}
    async with Rig(docker_host, tasks=tasks, arms=arms, replicates=2, overrides=knobs) as rig:
        await rig.until_done()
        admitted = rig.sql("SELECT task, replicate FROM v_trial ORDER BY trial")
        noted = rig.sql("SELECT value_json FROM observation WHERE key LIKE 'order of campaign %'")
    assert [replicate for _, replicate in admitted] == [1] * 6 + [2] * 6
    blocks = [task for task, _ in groupby(task for task, replicate in admitted if replicate == 2)]
    assert len(blocks) == 3  # side by side
    (said,) = (json.loads(value) for (value,) in noted)
    assert said["replicate"] == 2 and [name for name, *_ in said["blocks"]] == blocks
    assert sum(trials for _, _, trials, *_ in said["blocks"]) >= 4  # two at once: at most two of the first replicate had not ended
    assert [elsewhere for *_, elsewhere in said["blocks"]] == [0, 0, 0]
    lengths = [float("inf") if mean_s is None else mean_s for _, _, _, mean_s, _ in said["blocks"]]
    assert lengths == sorted(lengths, reverse=True)  # all have one limit
