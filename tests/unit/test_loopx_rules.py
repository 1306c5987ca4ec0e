"""LoopX's answers as values, and what its gates make of them; the answers are those of LoopX 2.1.1, cut to what is read."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from marathond.agents.codex.gates import HOME, compare_skills
from marathond.agents.loopx import gates, profile
from marathond.agents.loopx.commands import Refused, answer_of, words
from marathond.agents.loopx.goal import PLACEHOLDERS, Goal, Paths, read_body, read_todos
from marathond.agents.loopx.quota import Quota, read_quota
from marathond.core.errors import GateFailed
from marathond.core.model import LoopXArm
from marathond.core.names import LoopXProfile

LOCAL = {"recommended_interval_minutes": 3, "max_interval_minutes": 10, "unchanged_poll_backoff_multiplier": 2, "after_limit": "continue"}
RUN: dict[str, Any] = {
    "ok": True,
    "decision": "run",
    "should_run": True,
    "effective_action": "normal_run",
    "waiting_on": "codex",
    "requires_user_action": False,
    "selected_todo": {"todo_id": "todo_1"},
    "scheduler_hint": {
        "action": "run_now",
        "cadence_class": "active_work",
        "reason_code": "interaction_agent_attempt_required",
        "unchanged_poll": {"after_limits": {"local_scheduler": "continue"}},
        "cold_path_detail": {"local_scheduler": LOCAL},
    },
    "heartbeat_receipt": {"status": "committed"},
}
GATE: dict[str, Any] = {
    "decision": "skip",
    "should_run": False,
    "effective_action": "operator_gate_notify",
    "waiting_on": "controller",
    "requires_user_action": True,
    "selected_todo": {"todo_id": "todo_1"},
    "scheduler_hint": {
        "action": "backoff_waiting_for_user",
        "cadence_class": "human_gate",
        "reason_code": "interaction_blocking_user_gate",
        "cold_path_detail": {
            "local_scheduler": {**LOCAL, "recommended_interval_minutes": 30, "max_interval_minutes": 120, "unchanged_poll_limit": 3}
        },
    },
}
PAUSED: dict[str, Any] = {
    "decision": "skip",
    "should_run": False,
    "effective_action": "quota_skip",
    "waiting_on": "codex",
    "requires_user_action": False,
    "scheduler_hint": {
        "action": "stop_until_explicit_resume",
        "cadence_class": "quota_paused",
        "reason_code": "quota_paused",
        "unchanged_poll": {"local_scheduler": "stop"},
    },
}
STATE = Paths("/s/registry.json", "/s/runtime", "/s/A.md", "/s/TASK.md")
GOAL = Goal("/app", LoopXProfile.SSH_GOAL, STATE, todo_id="todo_1", body="b", body_sha256="h", hashes={"x": "y"}, skills=("a", "b"))


def test_c16_a_quota_that_runs_waits_or_has_stopped() -> None:
    run, gate, paused = (read_quota(answer) for answer in (RUN, GATE, PAUSED))
    active = Quota(
        should_run=True,
        decision="run",
        effective="normal_run",
        action="run_now",
        cadence="active_work",
        reason="interaction_agent_attempt_required",
        todo_id="todo_1",
        waiting_on="codex",
        requires_user=False,
        stop=False,
        interval_s=180.0,
        max_interval_s=600.0,
        multiplier=2.0,
        unchanged_at_most=None,
        receipt="committed",
    )
    assert run == active
    assert (gate.should_run, gate.requires_user, gate.waiting_on, gate.stop, gate.interval_s, gate.max_interval_s, gate.receipt) == (
        *(False, True, "controller", False, 1800.0, 7200.0),
        "",
    )
    assert (gate.unchanged_at_most, paused.unchanged_at_most) == (3, None)
    assert (paused.stop, paused.todo_id, paused.interval_s, paused.max_interval_s, paused.multiplier) == (True, None, None, None, None)
    assert read_quota({**RUN, "scheduler_hint": {**RUN["scheduler_hint"], "unchanged_poll": {"local_scheduler": "stop"}}}).stop


MISSHAPEN = {
    "should_run": ("yes", "should_run is 'yes', expected bool"),
    "decision": (None, "decision is 'None', expected str"),
    "effective_action": (7, "effective_action is '7', expected str"),
    "requires_user_action": (None, "requires_user_action is 'None', expected bool"),
    "waiting_on": (["codex"], "waiting_on is \"['codex']\", expected str"),
    "selected_todo": ("todo_1", "selected_todo is 'todo_1', expected dict"),
    "selected_todo.todo_id": (None, "selected_todo.todo_id is 'None', expected str"),
    "scheduler_hint": (None, "scheduler_hint is 'None', expected dict"),
    "scheduler_hint.action": (None, "scheduler_hint.action is 'None', expected str"),
    "scheduler_hint.cadence_class": (None, "scheduler_hint.cadence_class is 'None', expected str"),
    "scheduler_hint.cold_path_detail": (None, "scheduler_hint.cold_path_detail is 'None', expected dict"),
    "scheduler_hint.cold_path_detail.local_scheduler": (None, "scheduler_hint.cold_path_detail.local_scheduler is 'None', expected dict"),
    "scheduler_hint.cold_path_detail.local_scheduler.recommended_interval_minutes": (0, "minutes is '0', expected a positive number"),
    "scheduler_hint.cold_path_detail.local_scheduler.max_interval_minutes": (True, "minutes is 'True', expected a positive number"),
    "scheduler_hint.cold_path_detail.local_scheduler.unchanged_poll_limit": ("3", "unchanged_poll_limit is '3', expected int"),
    "heartbeat_receipt.status": (None, "heartbeat_receipt.status is 'None', expected str"),
}


@pytest.mark.parametrize("field", MISSHAPEN)
def test_e03_a_quota_of_another_shape_is_refused_by_its_field(field: str) -> None:
    value, said = MISSHAPEN[field]
    answer = copy.deepcopy(RUN)
    *path, last = field.split(".")
    at = answer
    for name in path:
        at = at[name]
    at[last] = value
    with pytest.raises(ValueError) as error:
        read_quota(answer)
    assert str(error.value).startswith("quota should-run: ") and said in str(error.value)


def test_e03_todos_of_another_shape_are_refused_by_their_field() -> None:
    row = {"todo_id": "t", "role": "user", "status": "open", "task_class": "user_gate", "title": "Tabs?"}
    (todo,) = read_todos({"todos": [row]})
    assert (todo.todo_id, todo.kind, todo.text, todo.is_gate) == ("t", "user_gate", "Tabs?", True)
    assert not any(read_todos({"todos": [{**row, **other}]})[0].is_gate for other in ({"role": "agent"}, {"status": "done"}))
    for answer, named in (({"todos": None}, "todos is"), ({"todos": ["t"]}, "todos is"), ({"todos": [{**row, "status": 1}]}, "status is")):
        with pytest.raises(ValueError, match=named):
            read_todos(answer)


def test_a_goal_survives_the_log() -> None:
    assert Goal.read(json.loads(json.dumps(GOAL.data()))) == GOAL


def test_state_lies_outside_the_tasks_tree_or_in_its_own_folder_there() -> None:
    outside, inside, at_root = (
        Paths.of(LoopXArm("p", "2.1.1", "wheel", state_inside=within), cwd)
        for within, cwd in ((False, "/app"), (True, "/app"), (True, "/"))
    )
    assert (outside.registry, inside.registry, at_root.registry) == (
        f"{profile.STATE}/registry.json",
        "/app/.loopx/registry.json",
        "/.loopx/registry.json",
    )


def test_the_agents_skills_lie_in_its_codex_home() -> None:
    assert profile.CODEX_HOME == HOME


def done(out: str, exit_code: int = 0, err: str = "") -> dict[str, Any]:
    return {"exit": exit_code, "out": out, "err": err, "ms": 1}


def test_what_is_no_answer_is_refused_with_the_call_and_its_words() -> None:
    argv = ("--registry", "/r", "--format", "json", "todo", "add", "--goal-id", "g")
    assert words(argv) == "loopx todo add" and answer_of(argv, done('{"ok": true}')) == {"ok": True}
    for told, code, said in (
        (done('{"ok": false, "error": "no such goal"}', 1), "refused", "exit 1: no such goal"),
        (done('{"ok": false, "reason": "not now"}'), "refused", "exit 0: not now"),
        (done("", 2, "usage: loopx"), "refused", "exit 2: usage: loopx"),
        (done("", -9), "refused", "exit -9: no output"),
        (done("# Markdown"), "silent", "no JSON object: # Markdown"),
        (done("[1]"), "silent", "no JSON object: [1]"),
    ):
        with pytest.raises(Refused) as refused:
            answer_of(argv, told)
        assert refused.value.code == code and refused.value.detail == f"loopx todo add: {said}"


def body(quota: str = "one", *more: str) -> str:
    return "\n".join(("Advance.", f"`{profile.CLI} quota should-run {quota}`", *more))


def failed(code: str, words: str, judge: Any, *arguments: Any) -> None:
    with pytest.raises(GateFailed) as failure:
        judge(*arguments)
    assert failure.value.code == code and words in failure.value.detail, failure.value.detail


def test_c05_bodies_have_no_placeholder_fit_and_differ_in_the_quota_call_alone() -> None:
    ssh, cli, wake = LoopXProfile.SSH_GOAL, LoopXProfile.CODEX_CLI, LoopXProfile.GENERIC_CLI
    assert gates.judge_bodies({ssh: body("one"), cli: body("two")}) == "; they differ in line 2 alone"
    assert gates.judge_bodies({wake: body("one", "x" * 5000)}) == ""
    long = {ssh: body("one", "x" * 4000), cli: body("two", "x" * 4000)}
    failed("loopx_body", "a goal's objective has less than 4000", gates.judge_bodies, long)
    failed("loopx_body", "differing in []", gates.judge_bodies, {ssh: body(), cli: body()})
    failed("loopx_body", "differing in [2, 3]", gates.judge_bodies, {ssh: body("one", "x"), cli: body("two", "y")})
    failed("loopx_body", "differing in [3]", gates.judge_bodies, {ssh: body("one", "x"), cli: body("one", "y")})
    failed("loopx_body", "2 and 3 lines", gates.judge_bodies, {ssh: body("one"), cli: body("two", "y")})
    failed("loopx_body", f"{profile.CLI} does not occur", gates.judge_bodies, {wake: "Advance with loopx."})
    failed(
        "loopx_body",
        "a placeholder is left: see ~/.loopx/registry",
        gates.judge_bodies,
        {wake: body("", "see ~/.loopx/registry.global.json")},
    )


def test_c05_known_placeholders_become_the_trials_own_registry() -> None:
    answer = {"task_body": body("", *PLACEHOLDERS), "interface_budget": {"within_budget": True}}
    assert read_body(answer, GOAL) == body("", "/s/registry.json", "/s/registry.json")
    for wrong in (
        {**answer, "task_body": " "},
        {**answer, "interface_budget": {"within_budget": False}},
        {**answer, "interface_budget": None},
    ):
        with pytest.raises(Refused):
            read_body(wrong, GOAL)


def test_c16_a_quota_that_selects_another_todo_or_none() -> None:
    assert gates.judge_quota(RUN, GOAL) == "run, normal_run, selects todo_1"
    failed("loopx_quota", "selected no todo, expected todo_1", gates.judge_quota, {**RUN, "selected_todo": None}, GOAL)
    failed("loopx_quota", "selected todo_2", gates.judge_quota, {**RUN, "selected_todo": {"todo_id": "todo_2"}}, GOAL)
    failed("loopx_quota", "should_run False", gates.judge_quota, GATE, GOAL)
    failed("loopx_quota", "scheduler_hint is", gates.judge_quota, {**RUN, "scheduler_hint": None}, GOAL)


def test_c12_a_doctor_that_is_content_is_not_enough() -> None:
    assert gates.judge_doctor({"ok": True, "skill_delivery": {"status": "ready"}}) == "skill delivery ready"
    for delivery in ({"status": "missing"}, None, "ready"):
        failed("loopx_doctor", "expected 'ready'; ok is True", gates.judge_doctor, {"ok": True, "skill_delivery": delivery})


def test_c04_codex_must_find_exactly_the_skills_that_are_required() -> None:
    compare_skills(["b", "a"], ["brew"], ["a", "b"])
    compare_skills([], ["brew"], [])
    failed("loopx_skills", "codex finds a, expected a, b", compare_skills, ["a"], [], ["a", "b"])
    failed("loopx_skills", "codex finds a, b, c, expected a, b", compare_skills, ["a", "b", "c"], [], ["a", "b"])
    failed("loopx_copies", "skills of the same names: a", compare_skills, ["a", "b"], ["a", "brew"], ["a", "b"])
