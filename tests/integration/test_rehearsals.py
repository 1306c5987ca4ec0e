"""The demo's scripted rehearsals: each sample task in each arm and tool surface, by the real codex in the sample's own image and limits.

What comes out is what the sample's own verifier says of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.demo.host import SetupError
from marathond.demo.rehearsals import rehearsals
from marathond.practice.script import parse
from tests.conftest import IN_CI
from tests.support.codex_box import boxed
from tests.support.codex_env import codex_binary
from tests.support.yard import TESTS, Yard, sample, yard

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

DIRECT, CODE = "gpt-5.5", "gpt-6.2-sol"
AT_ONCE = 3
INTENDED = {
    ("csv-totals", "plain"): (4, 1, None),
    ("csv-totals", "goal"): (8, 2, "complete"),
    ("maze", "plain"): (2, 1, None),
    ("maze", "goal"): (5, 2, "blocked"),
    **{(task, "plain"): (TESTS[task], 1, None) for task in ("greet", "roman", "visits", "own-address")},
    **{(task, "goal"): (TESTS[task], 1, "complete") for task in ("greet", "roman", "visits", "own-address")},
}
"""Checks that pass, turns, and the goal's last status."""


async def rehearse(made: Yard, binary: Path, name: str, arm: str, model: str) -> tuple[Any, ...]:
    """One conversation and its verification, in the order of :data:`INTENDED`; asserts what all of them share."""
    task, practice = sample(name), parse(rehearsals())
    async with boxed(made, task, binary, practice, model, goals=arm == "goal") as (codex, server):
        if arm == "goal":
            turns, status = await codex.pursue(task.instruction)
        else:
            turns, status = [await codex.turn(task.instruction)], None
        assert [(turn["status"], turn["error"]) for turn in turns] == [("completed", None)] * len(turns)
        assert {item["exitCode"] for item in codex.items("commandExecution")} == {0}, codex.items("commandExecution")
        (tally,) = server.tallies.values()
        assert tally.outcomes.get("refused", 0) == (name == "own-address") and "broken" not in tally.outcomes
        told = codex.tokens()
        assert (told["inputTokens"], told["cachedInputTokens"]) == (tally.usage.input, tally.usage.cached)
        assert (told["outputTokens"], told["reasoningOutputTokens"]) == (tally.usage.output, tally.usage.reasoning)
        assert tally.usage.input > 20_000
        reading = await made.verify(codex.container, task)
    assert reading.refusals == () and reading.tests_total is not None and reading.tests_total.value == TESTS[name]
    assert reading.tests_passed is not None and reading.reward is not None
    assert reading.reward.value == (reading.tests_passed.value == TESTS[name])
    return reading.tests_passed.value, len(turns), status


async def test_every_script_leaves_what_it_means_to_in_both_arms_and_both_surfaces(docker_host: str) -> None:
    try:
        binary = codex_binary()
    except SetupError as err:
        pytest.fail(str(err)) if IN_CI else pytest.skip(str(err))
    came: dict[tuple[str, str, str], tuple[Any, ...]] = {}
    room = anyio.CapacityLimiter(AT_ONCE)

    async def one(made: Yard, name: str, arm: str, model: str) -> None:
        async with room:
            try:
                came[name, arm, model] = await rehearse(made, binary, name, arm, model)
            except AssertionError as err:
                err.add_note(f"in {name}, {arm}, {model}")
                raise

    async with yard(docker_host) as made, anyio.create_task_group() as group:
        for name, arm in INTENDED:
            for model in (DIRECT, CODE):
                group.start_soon(one, made, name, arm, model)
    assert came == {(*cell, model): intended for cell, intended in INTENDED.items() for model in (DIRECT, CODE)}
