"""What a canary concludes from how the arms of one task ended (faults a04, c10, c15)."""

from __future__ import annotations

from typing import Any

import pytest

from marathond.cli.canary import judge


def row(arm: str, **over: Any) -> dict[str, Any]:
    plain = {
        "arm": arm, "kind": "codex", "park_code": None, "park_detail": None, "trial": "t0001", "state": "scored", "ended_by": "deadline",
        "limit_s": 25.0, "limit_origin": "own", "agent_s": 25.4, "credit_s": 0.0, "reward": 0.0, "reward_source": "reward.txt",
        "code": None, "reason": None, "rounds": 1, "requests": 7, "cost_usd": None,
    }  # fmt: skip
    return {**plain, **over}


def test_a04_arms_that_spent_the_same_budget_and_were_graded_alike_are_well() -> None:
    assert [bird.verdict for bird in judge([row("plain"), row("goal", agent_s=31.0), row("heartbeat", reward=1.0)])] == ["ok"] * 3


@pytest.mark.parametrize(
    ("over", "verdict", "word"),
    [
        ({"ended_by": "agent"}, "unknown", "before its budget was spent"),
        ({"ended_by": "timer"}, "unknown", "timer"),
        ({"limit_origin": "task 30 x 1.0"}, "wrong", "deadline from task 30 x 1.0, plain: own"),
        ({"limit_s": 30.0, "agent_s": 30.1}, "wrong", "deadline of 30.0"),
        ({"reward_source": "reward.json"}, "wrong", "reward from reward.json"),
        ({"rounds": 2}, "wrong", "rounds"),
        ({"agent_s": 12.0}, "wrong", "ran 12 s"),
        ({"agent_s": 80.0}, "wrong", "ran 80 s"),
        ({"requests": 0}, "wrong", "never asked"),
        ({"state": "review"}, "unknown", "review"),
        ({"state": "voided", "code": "dead_agent", "reason": "no command ran"}, "wrong", "void: dead_agent: no command ran"),
        ({"trial": None, "park_code": "runtime_unfit", "park_detail": "musl"}, "wrong", "runtime_unfit: musl"),
    ],
)
def test_c15_each_way_in_which_one_arm_differs_is_named(over: dict[str, Any], verdict: str, word: str) -> None:
    plain, other = judge([row("plain"), row("goal", **over)])
    assert (plain.verdict, other.verdict) == ("ok", verdict)
    assert word in other.why


def test_money_that_ran_out_is_a_spent_budget_and_held_time_is_no_overrun() -> None:
    assert [bird.verdict for bird in judge([row("plain", ended_by="money", agent_s=9.0)])] == ["ok"]
    assert [bird.verdict for bird in judge([row("plain", agent_s=85.0, credit_s=60.0)])] == ["ok"]
