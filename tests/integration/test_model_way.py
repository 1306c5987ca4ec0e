"""The way to the model, whole: provider, gateway process, daemon, containers.  The client is bash (tests/support/model_agent.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.model_agent import asking
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

SCRIPT = """
[[script]]
text = "Do it."
usage = { input = 100, cached = 40, output = 20, reasoning = 5 }
step = [{ say = "Done." }]
"""


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    folder = tmp_path_factory.mktemp("tasks")
    tasks = [make_task(folder, "ask", test="grep -q response.completed /tmp/answer && echo 1 >/logs/verifier/reward.txt\n")]
    with model_campaign(docker_host, tasks, {"sh": asking("ask 'Do it.'")}, SCRIPT, commands_ask=True) as ran:
        yield ran


def test_a_command_in_a_container_without_network_reaches_the_model(ran: ModelRan) -> None:
    assert ran.reward("ask") == 1.0


def test_its_tokens_are_in_the_ledger(ran: ModelRan) -> None:
    counted = ran.usage("ask", "sh")
    assert {key: counted[key] for key in ("requests", "failed", "unknown", "input_tokens", "cached_tokens", "output_tokens")} == {
        "requests": 1,
        "failed": 0,
        "unknown": 0,
        "input_tokens": 100,
        "cached_tokens": 40,
        "output_tokens": 20,
    }
