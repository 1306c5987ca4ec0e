"""The provider fails for a while in the middle of real codex's work: neither arm notices more than a wait (faults a01, a17).

The provider's clock runs eighty times as fast as ours: its outage of 20 minutes is over after 15 seconds, a limit of 4 minutes after three.
A request is held for 5 s at most, so that codex itself is told to come back, and does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from marathond.practice.script import Practice
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

ARMS: dict[str, dict[str, Any]] = {"plain": {"kind": "codex", "drive": "turn"}, "goal": {"kind": "codex", "drive": "goal"}}
HOLD_S = 5.0
FAULTS: dict[str, tuple[dict[str, Any], ...]] = {
    "steady": (),
    "outage": ({"kind": "status", "status": 503, "for_s": 1200},),
    "limited": ({"kind": "status", "status": 429, "for_s": 240},),
}
TEST = "if [ \"$(cat /made)\" = 'one\ntwo' ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n"
BOTH = [(task, arm) for task in ("outage", "limited") for arm in ARMS]


def script(task: str) -> dict[str, Any]:
    return {
        "text": f"TASK-{task}:",
        "step": [{"run": "echo one >>/made"}, {"run": "echo two >>/made", "fault": FAULTS[task]}, {"say": "Done."}],
    }


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    root = tmp_path_factory.mktemp("tasks")
    tasks = [make_task(root, name, instruction=f"TASK-{name}: do it.\n", agent_s=300.0, test=TEST) for name in FAULTS]
    practice = Practice.model_validate({"speed": 80, "script": [script(task) for task in FAULTS]})
    with model_campaign(docker_host, tasks, ARMS, practice, overrides={"gateway.hold_s": HOLD_S}, patience_s=400.0) as ran:
        yield ran


@pytest.mark.parametrize(("task", "arm"), BOTH)
def test_a17_it_ends_as_without_it_and_no_command_runs_twice(ran: ModelRan, task: str, arm: str) -> None:
    assert ran.reward(task, arm) == ran.reward("steady", arm) == 1.0
    assert ran.agent(task, "ended_by", arm) == ran.agent("steady", "ended_by", arm) == "agent"
    rows = ran.rig.sql("SELECT detail_json FROM agent_event WHERE trial_id = ? AND kind = 'turn_completed'", ran.trial(task, arm))
    assert {json.loads(detail)["status"] for (detail,) in rows} == {"completed"}, "no turn failed, so none was taken up again"


@pytest.mark.parametrize(("task", "arm"), BOTH)
def test_a17_the_wait_is_recorded_and_not_charged(ran: ModelRan, task: str, arm: str) -> None:
    value, origin = ran.facts(task, arm)["held by the gateway"]
    assert float(value.removesuffix(" s")) >= {"outage": HOLD_S, "limited": 2.0}[task], (
        "of the outage one whole hold: how soon codex comes back is its business"
    )
    assert origin == f"not charged: {value}"
    counted = ran.usage(task, arm)
    assert counted["retries"] > 0 and counted["unknown"] == 0


def test_a01_nothing_of_it_is_a_disparity_or_a_stop(ran: ModelRan) -> None:
    assert ran.findings("held_disparity") == [] and ran.stop_losses() == []


@pytest.mark.parametrize("arm", ARMS)
def test_codex_itself_was_told_to_come_back(ran: ModelRan, arm: str) -> None:
    ends = [record["end"] for record in ran.rig.gateway.records() if record["trial"] == f"t{ran.trial('outage', arm):04d}"]
    assert "gave_up" in ends and ends[-1] == "complete"
