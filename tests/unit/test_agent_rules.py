"""What an agent's end says that people should know; ends by the agent itself or a spent budget say nothing."""

from __future__ import annotations

import pytest

from marathond.core.agent_rules import BY_RULE, of_agent
from marathond.core.names import EndedBy

TURN = ["turn_intended", "turn_started", "turn_completed"]


@pytest.mark.parametrize("ended_by", [by for by in EndedBy if by not in BY_RULE])
def test_an_ordinary_end_says_nothing(ended_by: EndedBy) -> None:
    assert of_agent(7, [*TURN, "goal", "unblock", *TURN], ended_by) == []


@pytest.mark.parametrize(("ended_by", "code"), [(by, code) for by, (code, _) in BY_RULE.items()])
def test_c06_c07_an_end_by_rule_is_named(ended_by: EndedBy, code: str) -> None:
    (found,) = of_agent(7, [*TURN, "unblock", *TURN], ended_by)
    assert (found.code, found.severity, found.subject, found.stops) == (code, "warning", "t0007", False)
    assert found.detail.endswith(": 2 turns, 1 times set active again")


def test_a_failure_of_the_agents_own_doing_is_named() -> None:
    (found,) = of_agent(7, [*TURN, "crowded", "crowded", "ended"], EndedBy.AGENT)
    assert (found.code, found.severity, found.subject) == ("gateway_crowded", "warning", "t0007")


def test_c06_wakes_that_were_not_fresh_and_a_loopx_that_went_silent_are_named() -> None:
    found = of_agent(7, ["wake_intended", "replayed", "wake_intended", "loopx_refused", "ended"], EndedBy.AGENT)
    assert [(each.code, each.severity, each.subject) for each in found] == [
        ("wake_replayed", "warning", "t0007"),
        ("loopx_refused", "warning", "t0007"),
    ]
    assert "1 of 2 wakes" in found[0].detail


def test_a_goal_that_ran_before_its_task_is_named() -> None:
    (found,) = of_agent(7, ["goal_set", "turn_intended", "turn_started", "goal_alone", "turn_completed", "ended"], EndedBy.AGENT)
    assert (found.code, found.severity, found.subject) == ("goal_before_task", "warning", "t0007")


def test_a_limit_of_processes_that_was_met_is_named_whatever_drove_the_agent() -> None:
    (found,) = of_agent(7, [], EndedBy.AGENT, pids_refused=3)
    assert (found.code, found.severity, found.subject) == ("pids_limit_hit", "warning", "t0007") and " 3 times " in found.detail


def test_c01_c13_silence_is_named_beside_it() -> None:
    found = of_agent(7, [*TURN, "silent_turn", *TURN, "silent_turn", *TURN, "no_commands"], EndedBy.AGENT)
    assert [(each.code, each.detail) for each in found] == [
        ("no_commands", "ended without one command, in 3 turns"),
        ("silent_turns", "2 of 3 turns completed with neither a word nor an act"),
    ]
