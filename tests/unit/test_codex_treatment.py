"""LoopX's part of a receipt: what was delivered, what was used, and the two findings of fault a13."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex import receipt, summary, treatment
from marathond.agents.codex.account import add_up
from marathond.agents.codex.atif import trajectory
from marathond.agents.codex.receipt_loopx import LoopXPart
from marathond.agents.codex.rollout import Ran, Rollout, sha256
from marathond.agents.codex.traffic import Commanded, Traffic
from marathond.agents.codex.treatment import Told
from marathond.agents.loopx import left, profile
from marathond.core.model import LoopXArm
from marathond.core.names import Drive, LoopXProfile
from marathond.ports.agent import ReceiptInvalid, Remark
from tests.support.codex_rollouts import ABOUT, AT, events
from tests.support.codex_trial import codex_arm
from tests.unit.test_codex_receipt import END, Log, entries, finished, turn

BODY = f"Advance the goal: {profile.CLI} quota should-run"
WAKE_1, WAKE_2 = "2026-01-01T00:00:00Z", "2026-01-01T00:03:00Z"
SET_UP: dict[str, Any] = {
    **{"cwd": "/app", "profile": "codex_app_ssh_goal", "goal_id": "g", "todo_id": "todo_1", "skills": ["b", "a"]},
    "state": {name: f"{profile.STATE}/{name}" for name in ("registry", "runtime", "state_file", "document")},
    **{"body": BODY, "body_sha256": sha256(BODY), "hashes": {"codex_app_ssh_goal": sha256(BODY)}},
}
PREPARED = {"uid": 0, "cwd": "/app", "untrusted": [], "base_url": "http://127.0.0.1:8790/v1", "config_sha256": "ab"}
THREAD = ("thread", {"thread_id": "thread", "model": "gpt-5.5", "effort": "high", "cwd": "/app", "path": "/x"})
GATES = {
    "loopx node": "22.23.3, at least 22.22.3",
    "loopx python": "3.11.2, with sqlite3",
    "loopx quota": "run, normal_run, selects todo_1",
}


def prepared(**loopx: Any) -> tuple[str, dict[str, Any]]:
    return "prepared", {**PREPARED, "loopx": {**SET_UP, **loopx}}


def goal(objective: str = BODY) -> Log:
    return [
        ("goal_set", {"objective": objective, "token_budget": None}),
        ("turn_intended", {"n": 1, "cause": "first", "mark": "m1", "pause_s": 0.0}),
        ("goal", {"status": "active", "tokens_used": 0}),
        ("turn_accepted", {"mark": "m1", "turn_id": "t1"}),
        turn("t1"),
    ]


def wake(n: int, turn_id: str, cause: str = "hint", *, taken: bool = True, pause_s: float = 180.0) -> Log:
    intended = ("wake_intended", {"n": n, "cause": cause, "mark": f"m{n}", "pause_s": pause_s, "turn_id": turn_id})
    return [intended, *([("turn_accepted", {"mark": f"m{n}", "turn_id": f"t{n}"}), turn(f"t{n}")] if taken else [])]


def text(turn_id: str) -> str:
    return f"{profile.CLI} quota should-run --turn-instance-id {turn_id}"


CALL = Commanded("thread", "c1", f"/bin/bash -lc '{profile.CLI} quota should-run'")


def made(
    tmp_path: Path,
    *log: tuple[str, Mapping[str, Any]],
    told: Told | None = None,
    wakes: bool = False,
    main: Rollout | None = None,
    others: Sequence[Rollout] = (),
    **known: Any,
) -> tuple[LoopXPart, dict[str, str]]:
    runtime = LoopXProfile.GENERIC_CLI if wakes else LoopXProfile.SSH_GOAL
    loopx = LoopXArm("loopx-2.1.1-0123456789ab", "2.1.1", "wheel sha256:ab", profile=runtime)
    arm = codex_arm(Drive.WAKE if wakes else Drive.GOAL, loopx=loopx, operator=True)
    every = entries(*log, *END)
    run = finished(tmp_path, every, arm, **{"gates": GATES, **known})
    main = events() if main is None else main
    drawn = trajectory(ABOUT, main)
    told = Told([CALL]) if told is None else told
    data, remarks = summary.receipt(run, add_up(every), Traffic(whole=True), main, others, (), "ab", (), drawn, "rollouts", told)
    part = receipt.validated(data).loopx
    assert part is not None
    return part, {remark.code: remark.detail for remark in remarks if remark.code.startswith("treatment_")}


# ---- delivered


def test_a_goal_arm_that_was_given_all_of_it(tmp_path: Path) -> None:
    one, found = made(tmp_path, prepared(), THREAD, *goal())
    assert found == {} and one.delivered_all and one.used_any and one.set_up is not None
    assert (one.versions.loopx, one.versions.source, one.versions.node) == ("2.1.1", "wheel sha256:ab", "22.23.3")
    assert one.versions.python == "3.11.2" and one.versions.package == "loopx-2.1.1-0123456789ab"
    assert (one.set_up.todo_id, one.set_up.state, one.set_up.skills) == ("todo_1", "outside", ["a", "b"])
    assert (one.set_up.body.sha256, one.set_up.body.chars) == (sha256(BODY), len(BODY))
    assert one.delivered.selected == "todo_1" and one.delivered.wakes is None and one.delivered.polls.n == 0


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([("prepared", PREPARED), THREAD, *goal()], "its set-up"),
        ([prepared(todo_id=""), THREAD, *goal()], "the task's todo"),
        ([prepared(), THREAD, *goal("Finish the task.")], "its body, which is not the goal's objective"),
        ([prepared(body_sha256="another"), THREAD, *goal()], "its body"),
        ([prepared(), THREAD, *goal()[:2]], "its body"),
        ([prepared(), THREAD], "its body"),
    ],
    ids=["no set-up", "no todo", "another objective", "another body", "never active", "never begun"],
)
def test_a13_a_goal_arm_that_was_not_given_something(tmp_path: Path, log: Log, words: str) -> None:
    one, found = made(tmp_path, *log)
    assert not one.delivered_all and set(found) == {"treatment_not_delivered"} and words in found["treatment_not_delivered"]


def test_wakes_are_told_by_their_ids_texts_and_pauses(tmp_path: Path) -> None:
    quota = ("quota", {"should_run": True, "decision": "run", "action": "run_now"})
    log: Log = [prepared(), THREAD, *wake(1, WAKE_1, "first", pause_s=0.0), quota, *wake(2, WAKE_2), ("replayed", {"turn_id": WAKE_2})]
    sent = {"m1": f"Do it.\n\n{text(WAKE_1)}", "m2": text(WAKE_2)}
    one, found = made(tmp_path, *log, told=Told([CALL], sent), wakes=True)
    wakes = one.delivered.wakes
    assert found == {} and wakes is not None and (wakes.n, wakes.taken, wakes.distinct, wakes.replayed) == (2, 2, 2, 1)
    assert wakes.by_cause == {"first": 1, "hint": 1} and (wakes.pause_s_total, wakes.pause_s_most) == (180.0, 180.0)
    assert one.delivered.polls.by_answer == {"run_now": 1}
    again, _ = made(tmp_path, *log, told=Told([CALL], {"m1": sent["m1"], "m2": text(WAKE_2)}), wakes=True)
    assert again.delivered.wakes is not None and again.delivered.wakes.texts == wakes.texts
    assert wakes.texts[sha256(text(treatment.TURN))] == 1, "an id says nothing of the text"


@pytest.mark.parametrize(
    ("second", "whole", "delivered", "unseen"),
    [
        (text(WAKE_2), True, True, 0),
        ("Continue.", True, False, 0),
        (text(WAKE_1), True, False, 0),
        (None, True, False, 0),
        (None, False, True, 1),
    ],
    ids=["given", "no body", "the body of another wake", "never sent", "not known"],
)
def test_a13_any_wake_without_a_body(tmp_path: Path, second: str | None, whole: bool, delivered: bool, unseen: int) -> None:
    sent = {"m1": text(WAKE_1), **({} if second is None else {"m2": second})}
    log: Log = [prepared(), THREAD, *wake(1, WAKE_1, "first"), *wake(2, WAKE_2)]
    one, found = made(tmp_path, *log, told=Told([CALL], sent, whole), wakes=True)
    assert one.delivered.wakes is not None and (one.delivered_all, one.delivered.wakes.unseen) == (delivered, unseen)
    assert delivered or "a body in 1 of 2 wakes" in found["treatment_not_delivered"]


def test_a13_a_heartbeat_that_never_beat(tmp_path: Path) -> None:
    _, found = made(tmp_path, prepared(), THREAD, *wake(1, WAKE_1, "first", taken=False), wakes=True)
    assert "a single wake" in found["treatment_not_delivered"]


# ---- used


def ran(item_id: str, command: str) -> Ran:
    return Ran(AT, item_id, command, "completed", 0, 1)


def test_calls_of_all_threads_are_counted_once(tmp_path: Path) -> None:
    """As codex told of them and as the rollouts do, over both shapes of a command; one that never ended is there too."""
    heard = [
        Commanded("thread", "c0", "/bin/bash -lc 'grep -r loopx /app'"),
        Commanded("thread", "c1", "/bin/bash -lc 'cd /app && loopx quota should-run | head'"),
        Commanded("kid", "c1", "/bin/bash -lc 'loopx todo list; loopx todo list'"),
    ]
    main = events(ran("c0", "grep -r loopx /app"), ran("c1", "cd /app && loopx quota should-run | head"), ran("c2", "loopx status"))
    kid = events(ran("c1", "loopx todo list; loopx todo list"), thread_id="kid", parent_id="thread")
    one, found = made(tmp_path, prepared(), THREAD, *goal(), told=Told(heard), main=main, others=[kid])
    used = one.used
    assert found == {} and used.by_name == {"quota should-run": 1, "todo list": 2, "status": 1}
    assert (used.calls, used.of_sub_agents, used.in_commands, used.first, used.commands, used.complete) == (4, 2, 3, 2, 4, True)


def test_a13_an_agent_that_never_called_loopx(tmp_path: Path) -> None:
    log = left.Events(Counter(todo_add=1, quota_should_run=1))
    heard = [Commanded("thread", "c0", "/bin/bash -lc 'ls /opt/lxprofile; which loopx'")]
    one, found = made(tmp_path, prepared(), THREAD, *goal(), told=Told(heard, events=log))
    assert not one.used_any and one.delivered_all and one.used.events is not None and one.used.events.agent == {}
    words = "no call of LoopX by the agent, neither in its commands (1) nor in LoopX's own log: its arm had it, it did not use it"
    assert found == {"treatment_unused": words}


def test_a13_calls_out_of_a_script_are_seen_in_loopxs_own_log(tmp_path: Path) -> None:
    """What the gates, the driver's polls and an operator left there is not the agent's."""
    log = left.Events(Counter(todo_add=2, quota_should_run=3, todo_complete=1))
    quota = ("quota", {"should_run": True, "decision": "run", "action": "run_now"})
    cleared: Log = [("unblock", {"n": 1, "cause": "gate", "pause_s": 0.0}), ("gate_cleared", {"ids": ["g1"]})]
    one, found = made(tmp_path, prepared(), THREAD, *goal(), quota, *cleared, told=Told(events=log))
    assert found == {} and one.used_any and one.used.calls == 0 and one.used.events is not None
    assert one.used.events.harness == {"todo_add": 1, "quota_should_run": 2, "todo_complete": 1}
    assert one.used.events.agent == {"todo_add": 1, "quota_should_run": 1}
    assert (one.operator.gate, one.operator.cleared) == (1, ["g1"])


def test_what_was_not_heard_whole_says_so(tmp_path: Path) -> None:
    cut = replace(events(), cut=True)
    one, found = made(tmp_path, prepared(), THREAD, *goal(), told=Told(), main=cut)
    assert not one.used.complete and "as far as they were heard" in found["treatment_unused"]
    huge = [Commanded("thread", str(n), "loopx todo list;" + "x" * (treatment.CHARS_AT_MOST // 3)) for n in range(4)]
    one, _ = made(tmp_path, prepared(), THREAD, *goal(), told=Told(huge))
    assert not one.used.complete and (one.used.calls, one.used.commands) == (2, 4)


def test_a_void_trial_raises_no_finding_of_its_treatment(tmp_path: Path) -> None:
    one, found = made(tmp_path, ("prepared", PREPARED), THREAD, told=Told(), void=("model_failed", "x"))
    assert not one.delivered_all and not one.used_any and found == {}


def test_an_arm_without_loopx_has_no_part_of_it(tmp_path: Path) -> None:
    every = entries(("prepared", PREPARED), THREAD, *goal("Finish the task."), *END)
    run, added = finished(tmp_path, every, codex_arm(Drive.GOAL)), add_up(every)
    data, _ = summary.receipt(run, added, Traffic(), events(), (), (), "ab", (), trajectory(ABOUT, events()), "rollouts")
    assert receipt.validated(data).loopx is None and treatment.remarks(run, None) == []


# ---- shapes


def test_e03_a_renamed_field_of_the_set_up_is_an_error_by_name(tmp_path: Path) -> None:
    renamed = {**SET_UP, "todo": SET_UP["todo_id"]}
    del renamed["todo_id"]
    with pytest.raises(ReceiptInvalid, match=r"entry 1 of the agent's log \(prepared\): loopx.todo_id: Field required"):
        add_up(entries(("prepared", {**PREPARED, "loopx": renamed})))


def test_e03_a_renamed_field_of_loopxs_part_is_an_error_by_name(tmp_path: Path) -> None:
    every = entries(prepared(), THREAD, *goal(), *END)
    loopx = LoopXArm("p", "2.1.1", "wheel")
    run = finished(tmp_path, every, codex_arm(Drive.GOAL, loopx=loopx))
    data, _ = summary.receipt(run, add_up(every), Traffic(), events(), (), (), "ab", (), trajectory(ABOUT, events()), "rollouts")
    data["loopx"]["used"]["call_count"] = data["loopx"]["used"].pop("calls")
    with pytest.raises(ReceiptInvalid, match=r"loopx.used.calls: Field required"):
        receipt.validated(data)


def test_the_findings_are_warnings_beside_the_score() -> None:
    assert {Remark(code, "").severity for code in (treatment.NOT_DELIVERED, treatment.UNUSED)} == {"warning"}
