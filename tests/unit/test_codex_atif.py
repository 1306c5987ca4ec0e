"""Trajectories of recorded runs and of strange ones: a step per answer, calls with what they gave back, sub-agents in their parent's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marathond.agents.codex import atif
from marathond.agents.codex.atif import Made, from_items, trajectory
from marathond.agents.codex.rollout import Called, Returned, Said, Used
from tests.support.codex_rollouts import ABOUT, AT, ITEMS, document, events, family, recorded, tokens


def steps(made: Made, source: str = "agent") -> list[dict[str, Any]]:
    return [step for step in document(made)["steps"] if step["source"] == source]


def test_one_step_per_answer_with_calls_outputs_and_tokens() -> None:
    made = trajectory(ABOUT, recorded("direct"))
    agent = steps(made)
    assert [(step["message"], [call["function_name"] for call in step.get("tool_calls", ())]) for step in agent] == [
        ("Looking.", ["exec_command"]),
        ("", ["apply_patch"]),
        ("", ["exec_command"]),
        ("", ["exec_command"]),
        ("All done.", []),
    ]
    assert agent[0]["observation"]["results"][0]["content"].endswith("Output:\none\n")
    assert agent[2]["extra"]["commands"] == [{"command": "exit 3", "status": "failed", "exit_code": 3, "duration_ms": 0}]
    assert agent[1]["extra"]["file_changes"] == [{"status": "completed", "files": {"/app/patched": "add"}}]
    assert all(step["metrics"]["prompt_tokens"] == 1000 and step["llm_call_count"] == 1 for step in agent)
    assert [step["message"] for step in steps(made, "user")] == ["do it"]
    totals = {"total_prompt_tokens": 5000, "total_completion_tokens": 250, "total_cached_tokens": 2000, "total_cost_usd": 0.25}
    assert document(made)["final_metrics"] == {**totals, "total_steps": len(document(made)["steps"])}


def test_turns_of_a_goal_follow_each_other_and_carry_their_turns_id() -> None:
    made = trajectory(ABOUT, recorded("goal"))
    turns = [step["extra"]["turn_id"] for step in steps(made)]
    assert len(set(turns)) == 2 and turns == sorted(turns)
    said = [step["message"] for step in steps(made, "system")]
    assert said.count("goal_objective: Finish the task.") == 2
    assert {command["command"] for step in steps(made) for command in step["extra"].get("commands", ())} == {"echo one >>/ran", "exit 3"}


def test_a_turn_that_was_stopped_or_failed_says_so() -> None:
    assert steps(trajectory(ABOUT, recorded("interrupted")), "system")[-1]["message"] == "The turn was interrupted: interrupted"
    failed = [step["message"] for step in steps(trajectory(ABOUT, recorded("failed")), "system")]
    assert sum(message.startswith("The turn failed: ") for message in failed) == 2


def test_a_compaction_is_told() -> None:
    assert any(
        step["message"].startswith("The context was compacted.") for step in steps(trajectory(ABOUT, recorded("compacted")), "system")
    )


@pytest.mark.parametrize("name", ["sub-agent", "sub-agent-v1"])
def test_a_sub_agent_lies_in_its_parents_trajectory_and_its_call_points_there(name: str) -> None:
    root, others = family(name)
    made = trajectory(ABOUT, root, others)
    (child,) = document(made)["subagent_trajectories"]
    refs = [
        (call["function_name"], result["subagent_trajectory_ref"])
        for step in steps(made)
        for call, result in zip(step.get("tool_calls", ()), step.get("observation", {}).get("results", ()), strict=False)
        if "subagent_trajectory_ref" in result
    ]
    assert [(name.rpartition(".")[2], ref) for name, ref in refs] == [("spawn_agent", [{"trajectory_id": child["trajectory_id"]}])]
    assert made.embedded == {others[0].thread_id} and child["session_id"] == "t0001"
    assert "total_cost_usd" not in child["final_metrics"], "the cost is the whole trial's"


def test_a_silent_answer_is_a_step_too() -> None:
    made = trajectory(ABOUT, events(Said(AT, "user", "do it"), Used(AT, "r1", tokens())))
    assert [(step["message"], step["llm_call_count"]) for step in steps(made)] == [("", 1)]


def test_an_answer_that_was_cut_has_no_tokens() -> None:
    made = trajectory(ABOUT, events(Said(AT, "agent", "I beg")))
    assert [("metrics" in step, "llm_call_count" in step) for step in steps(made)] == [(False, False)]


def test_an_output_that_comes_late_goes_to_its_call() -> None:
    first, second = Called(AT, "a", "one", {}), Called(AT, "b", "two", {})
    made = trajectory(ABOUT, events(first, Used(AT, "r", tokens()), second, Used(AT, "r", tokens()), Returned(AT, "a", "", "late")))
    assert steps(made)[0]["observation"]["results"] == [{"source_call_id": "a", "content": "late"}]


def test_nothing_to_tell_is_no_trajectory() -> None:
    assert trajectory(ABOUT, events()) == Made(None) and from_items(ABOUT, "t", []) == Made(None)


def test_texts_are_bounded_each_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atif, "TEXT_CHARS_AT_MOST", 1000)
    monkeypatch.setattr(atif, "CHARS_AT_MOST", 3000)
    made = trajectory(ABOUT, events(*(Said(AT, "user", "x" * 5000) for _ in range(10))))
    lengths = [len(step["message"]) for step in document(made)["steps"]]
    assert lengths[0] < 1100 and lengths[-1] < 300 and made.cut == 10
    assert document(made)["steps"][0]["message"].endswith("[4000 characters more in the rollout]")


def test_arguments_may_hold_anything() -> None:
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    odd = {"n": float("nan"), "big": 10**400, "deep": deep, "half": "\ud800", "none": None}
    made = trajectory(ABOUT, events(Called(AT, "a", "odd", odd)))
    json.dumps(made.document, allow_nan=False).encode("utf-8")


def test_threads_that_are_each_others_parents_end() -> None:
    one = events(Said(AT, "user", "a"), thread_id="one", parent_id="two")
    two = events(Said(AT, "user", "b"), thread_id="two", parent_id="one")
    made = trajectory(ABOUT, one, [two, one])
    assert made.embedded == {"two"}


def test_without_a_rollout_the_items_that_were_heard_tell_it() -> None:
    made = from_items(ABOUT, "thread", ITEMS)
    assert [step["source"] for step in document(made)["steps"]] == ["user", "agent", "agent", "agent"]
    assert document(made)["notes"].startswith("No rollout was left")
