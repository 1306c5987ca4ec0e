"""The sample tasks in real containers: their solutions pass, doing nothing fails, and the halfway agent gets as far as it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marathond.core.model import Task
from marathond.core.names import NetworkPolicy
from marathond.core.score import ScoreReading
from marathond.ports.engine import ExecSpec
from tests.support.yard import HALFWAY, TESTS, sample, yard

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

HALFWAY_PASSES = {"csv-totals": 3, "greet": 6, "maze": 3, "own-address": 3, "roman": 4, "visits": 1}


async def score(docker_host: str, task: Task, arm: str) -> ScoreReading:
    async with yard(docker_host) as made:
        container = await made.container(task, [HALFWAY])
        if task.healthcheck is not None:
            healthy = await made.run(container, ExecSpec(["sh", "-c", task.healthcheck.command]))
            assert healthy.exit_code == 0, healthy
        await made.agent(container, task, arm)
        return await made.verify(container, task)


@pytest.mark.parametrize("arm", ["oracle", "nop", "halfway"])
@pytest.mark.parametrize("name", sorted(TESTS))
async def test_each_arm_gets_what_it_deserves(docker_host: str, name: str, arm: str) -> None:
    passes = {"oracle": TESTS[name], "nop": 0, "halfway": HALFWAY_PASSES[name]}[arm]
    reading = await score(docker_host, sample(name), arm)
    assert reading.refusals == () and reading.flags == ()
    assert reading.reward is not None and reading.partial is not None
    assert reading.tests_passed is not None and reading.tests_total is not None
    assert (reading.tests_passed.value, reading.tests_total.value) == (passes, TESTS[name])
    assert reading.reward.value == (1.0 if passes == TESTS[name] else 0.0)
    assert reading.partial.value == pytest.approx(passes / TESTS[name], abs=1e-4)


async def test_two_stages_are_told_apart(docker_host: str) -> None:
    reading = await score(docker_host, sample("csv-totals"), "halfway")
    stages = {key: part.value for key, part in reading.parts.items() if "stages" in key}
    assert stages["metrics.json:stages.plain.passed"] == 2
    assert stages["metrics.json:stages.quoted.passed"] == 1


async def test_a_variable_from_outside_reaches_the_agent_and_the_verifier(docker_host: str) -> None:
    reading = await score(docker_host, sample("greet", MARATHOND_GREETING="Salut"), "oracle")
    assert reading.reward is not None and reading.reward.value == 1.0


async def test_the_task_that_needs_a_network_fails_without_one(docker_host: str) -> None:
    async with yard(docker_host) as made:
        task = replace(sample("own-address"), network=NetworkPolicy.NONE)
        container = await made.container(task, [HALFWAY])
        await made.agent(container, task, "halfway")
        reading = await made.verify(container, task)
        assert reading.reward is not None and reading.reward.value == 0.0
        assert reading.tests_passed is not None and reading.tests_passed.value == 0
