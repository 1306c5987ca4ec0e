"""LoopX's cadence and its operator: decided from the log alone, for the drive ``wake`` and for goals whose body LoopX renders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from marathond.agents.codex import drive, wake
from marathond.agents.codex.actions import Action, Again, Ask, CarryOut, End, Fail, First, Listen, Look, Wake
from marathond.agents.codex.drive import decide
from marathond.agents.codex.harness import Receipts
from marathond.agents.codex.shapes import Item
from marathond.agents.codex.state import Pending, fold
from marathond.core.model import CodexArm, LoopXArm
from marathond.core.names import Drive, EndedBy, LoopXProfile

Entry = tuple[str, dict[str, Any]]
LOOPX = LoopXArm("loopx@0", "2.1.1", "sha256", profile=LoopXProfile.GENERIC_CLI)


def arm(interval_s: float | None = None, **given: Any) -> CodexArm:
    values = {"drive": Drive.WAKE, "operator": True, "infra_retries": 2, **given}
    return CodexArm("codex@0", "0.171.0", "gpt-5.5", "high", loopx=replace(LOOPX, wake_interval_s=interval_s), **values)


HEARTBEAT, ALONE = arm(), arm(operator=False)
GOAL = replace(arm(drive=Drive.GOAL), loopx=replace(LOOPX, profile=LoopXProfile.SSH_GOAL))
RUN: dict[str, Any] = {
    **{"should_run": True, "decision": "run", "action": "run_now", "todo_id": "todo_1", "waiting_on": "codex", "requires_user": False},
    **{"stop": False, "interval_s": 180.0, "max_interval_s": 600.0, "multiplier": 2.0, "unchanged_at_most": None},
}
WAIT = {**RUN, "should_run": False, "decision": "skip", "action": "backoff_until_state_change", "interval_s": 60.0, "max_interval_s": 200.0}
GATE = {**WAIT, "action": "backoff_waiting_for_user", "waiting_on": "controller", "requires_user": True, "unchanged_at_most": 3}
STOP = {**WAIT, "action": "stop_until_explicit_resume", "decision": "skip", "stop": True, "interval_s": None}


def woken(n: int = 1, cause: str = "first", turn_id: str = "") -> list[Entry]:
    """A wake that is under way."""
    detail = {"n": n, "cause": cause, "mark": f"m{n}", "pause_s": 0.0, "turn_id": turn_id or f"w{n}"}
    return [("wake_intended", detail), ("turn_accepted", {"mark": f"m{n}", "turn_id": str(n)}), ("turn_started", {"turn_id": str(n)})]


def over(n: int = 1, status: str = "completed", acts: int = 1, **more: Any) -> Entry:
    return "turn_completed", {"turn_id": str(n), "status": status, "info": "", "message": "", "commands": acts, "acts": acts, **more}


def quota(said: dict[str, Any], **more: Any) -> Entry:
    return "quota", {**said, **more}


BEGUN: list[Entry] = [("prepared", {"uid": 0}), ("thread_intended", {}), ("thread", {"thread_id": "T"})]
ONE: list[Entry] = [*BEGUN, *woken(), over()]
RESUMED: list[Entry] = [
    ("loopx_gate", {"ids": ["g"]}),
    ("unblock", {"n": 1, "cause": "gate", "mark": ""}),
    ("gate_cleared", {"ids": ["g"]}),
]


def after(*entries: Entry, codex: CodexArm = HEARTBEAT, begun: Sequence[Entry] = ONE) -> Action:
    return decide(fold([*begun, *entries]), codex)


def test_the_beginning_of_a_heartbeat() -> None:
    assert decide(fold(BEGUN), HEARTBEAT) == First()
    intended = woken()
    assert after(intended[0], begun=BEGUN) == CarryOut(Pending("turn", "first", "m1", "w1"))
    assert after(*intended[:2], begun=BEGUN) == Listen(resting=True)
    assert after(*intended, begun=BEGUN) == Listen()


def test_c06_loopx_is_asked_after_each_wake_and_its_hint_is_the_cadence() -> None:
    assert after() == Ask()
    assert after(quota(RUN)) == Wake("hint", 0.0)
    assert after(quota(RUN, action="preserve_current_schedule")) == Wake("hint", 180.0)
    assert after(quota(WAIT)) == Ask(60.0)
    assert after(quota(RUN), *woken(2, "hint"), over(2)) == Ask(), "what it said before a wake says nothing after it"


def test_c06_the_pause_grows_while_loopx_says_the_same_up_to_its_maximum() -> None:
    polls = [quota(WAIT)] * 6
    assert [after(*polls[:n]) for n in range(1, 5)] == [Ask(60.0), Ask(120.0), Ask(200.0), Ask(200.0)]
    assert after(*polls, quota(WAIT, waiting_on="peer")) == Ask(60.0), "another word begins anew"


def test_the_arms_own_interval_replaces_loopxs() -> None:
    codex = arm(interval_s=7.0)
    assert after(quota(RUN), codex=codex) == Wake("hint", 7.0)
    assert after(*[quota(WAIT)] * 5, codex=codex) == Ask(7.0)


def test_c06_stop_is_obeyed() -> None:
    assert after(quota(STOP)) == End(EndedBy.AGENT, "loopx: stop_until_explicit_resume (skip)")
    assert after(quota({**STOP, "requires_user": True})) == after(quota(STOP)), "whoever it waits for"


def test_c06_loopxs_own_bound_of_unchanged_polls_is_obeyed_after_a_last_look() -> None:
    bounded = [quota(WAIT, unchanged_at_most=2)] * 5
    assert [after(*bounded[:n]) for n in range(1, 4)] == [Ask(60.0), Ask(120.0), Ask()]
    assert after(*bounded[:4]) == End(EndedBy.AGENT, "loopx: backoff_until_state_change, unchanged 3 times")
    assert after(*bounded[:3], quota(RUN)) == Wake("hint", 0.0)


def test_c06_a_gate_between_two_wakes_with_and_without_an_operator() -> None:
    assert after(quota(GATE), codex=ALONE) == End(EndedBy.BLOCKED, "LoopX waits for a person")
    assert after(quota(GATE)) == Look()
    assert after(quota(GATE), RESUMED[0]) == Again("gate", 1, 0.0)
    assert after(quota(GATE), ("loopx_gate", {"ids": []})) == Again("gate", 1, 0.0), "it may wait without a todo"
    assert after(quota(GATE), *RESUMED[:2]) == CarryOut(Pending("gate", "unblock"))
    assert after(quota(GATE), *RESUMED) == Ask()
    assert after(quota(GATE), *RESUMED, quota(RUN)) == Wake("gate", 0.0)
    again = [quota(GATE), *RESUMED, quota(RUN), *woken(2, "gate"), over(2), quota(RUN)]
    assert after(*again) == Wake("hint", 0.0), "the whole task goes with one wake only"
    assert after(*again, quota(GATE), RESUMED[0]) == Again("gate", 2, drive.OPERATOR_PAUSE_S)


def test_c06_a_person_wanted_for_one_path_holds_up_no_other() -> None:
    assert after(quota(RUN, requires_user=True), codex=ALONE) == Wake("hint", 0.0)
    assert after(quota(GATE, should_run=True)) == Look(), "its cadence waits for the person"


def test_c06_gates_of_a_heartbeat_are_cleared_so_often_and_no_more() -> None:
    codex = arm(unblocks_at_most=2)
    log = [quota(GATE), *RESUMED, quota(GATE), *RESUMED, quota(GATE)]
    assert after(*log, codex=codex) == End(EndedBy.UNBLOCK_CAP, "blocked again after 2 times")
    # Nothing was done after three of them.
    log = [entry for _ in range(3) for entry in (quota(GATE), *RESUMED)]
    assert after(*log, quota(GATE)) == End(EndedBy.NO_PROGRESS, "resumed 3 times in a row, and nothing was done")
    assert after(*log, quota(RUN), *woken(2, "gate"), over(2), quota(GATE)) == Look()


def test_a05_a_failed_wake_is_taken_up_again_as_in_every_arm() -> None:
    log: list[Entry] = [over(1, "failed")]
    begun = [*BEGUN, *woken()]
    assert after(*log, begun=begun) == Again("infra", 1, drive.PAUSE_FIRST_S)
    log += [*woken(2, "retry"), over(2, "failed")]
    assert after(*log, begun=begun) == Again("infra", 2, drive.PAUSE_FIRST_S * drive.PAUSE_FACTOR)
    log += [*woken(3, "retry"), over(3, "failed")]
    failed = after(*log, begun=begun)
    assert isinstance(failed, Fail) and failed.code == "model_failed" and fold([*begun, *log]).unblocks == 0
    assert after(over(1, "interrupted"), begun=begun) == End(EndedBy.AGENT, "turn interrupted by nobody of us")


def test_c07_caps_hold_for_wakes() -> None:
    assert after(quota(RUN), codex=arm(turns_at_most=1)) == End(EndedBy.TURN_CAP, "1 turns")
    idle: list[Entry] = [over(1, acts=0, responses=1), quota(RUN)]
    for n in (2, 3):
        idle += [*woken(n, "hint"), over(n, acts=0, responses=1), quota(RUN)]
    assert after(*idle, begun=[*BEGUN, *woken()]) == End(EndedBy.NO_PROGRESS, "3 wakes in a row without a tool call")


def test_c01_dead_tools_end_a_heartbeat_too() -> None:
    dead = after(("warning", {"text": "no code-mode host", "sidecar": True}), over(1, acts=0), begun=[*BEGUN, *woken()])
    assert isinstance(dead, Fail) and dead.code == "dead_agent"


def test_c18_a_loopx_that_says_no_after_its_agent_acted_ends_a_heartbeat_and_holds_up_no_goal() -> None:
    refused: Entry = ("loopx_refused", {"call": "quota should-run", "code": "refused", "detail": "exit 1"})
    end = End(EndedBy.AGENT, "LoopX does not answer any more: quota should-run: exit 1")
    assert after(refused) == end
    assert after(quota(RUN), *woken(2, "hint")[:1], refused) == end, "a wake that cannot be rendered"
    assert after(quota(GATE), *RESUMED[:2], refused) == end
    assert after(over(1, "failed"), refused, begun=[*BEGUN, *woken()]) == end
    assert goal_after(*blocked(1), refused) == Again("model", 1, 0.0)


# ---- goals whose body LoopX renders

GOAL_BEGUN: list[Entry] = [
    *(*BEGUN, ("goal_set", {}), ("turn_intended", {"n": 1, "cause": "first", "mark": "m1"}), ("goal", {"status": "active"})),
    *(("turn_accepted", {"mark": "m1", "turn_id": "1"}), ("turn_started", {"turn_id": "1"})),
]


def blocked(n: int, acts: int = 1) -> list[Entry]:
    return [("goal", {"status": "blocked"}), over(n, acts=acts)]


def resumed(n: int, cause: str, ids: Sequence[str] = ()) -> list[Entry]:
    """By the operator, with the whole task, up to the turn ``n``."""
    return [
        ("loopx_gate", {"ids": list(ids)}),
        ("unblock", {"n": n - 1, "cause": cause, "pause_s": 0.0, "mark": f"m{n}"}),
        ("gate_cleared", {"ids": list(ids)}),
        ("goal", {"status": "active"}),
        ("turn_accepted", {"mark": f"m{n}", "turn_id": str(n)}),
        ("turn_started", {"turn_id": str(n)}),
    ]


def goal_after(*entries: Entry, codex: CodexArm = GOAL) -> Action:
    return after(*entries, codex=codex, begun=GOAL_BEGUN)


def test_c06_a_blocked_goal_of_loopx_is_looked_into_before_it_is_resumed() -> None:
    assert goal_after(*blocked(1), codex=replace(GOAL, operator=False)) == End(EndedBy.BLOCKED, "the model declared its goal blocked")
    assert goal_after(*blocked(1)) == Look()
    assert goal_after(*blocked(1), ("loopx_gate", {"ids": []})) == Again("model", 1, 0.0)
    assert goal_after(*blocked(1), ("loopx_gate", {"ids": ["g"]})) == Again("gate", 1, 0.0)
    assert goal_after(*blocked(1), *resumed(2, "gate", ["g"])[:2]) == CarryOut(Pending("turn", "unblock", "m2"))
    # The goal is active before the message is taken: it is sent all the same.
    assert goal_after(*blocked(1), *resumed(2, "gate", ["g"])[:4]) == CarryOut(Pending("turn", "unblock", "m2"))
    assert goal_after(*blocked(1), *resumed(2, "gate", ["g"])) == Listen()
    assert goal_after(*blocked(1), *resumed(2, "gate", ["g"]), *blocked(2)) == Look(), "each time anew"


def test_c06_model_and_gate_share_a_bound_and_infra_has_its_own() -> None:
    codex = replace(GOAL, unblocks_at_most=2)
    log = [*blocked(1), *resumed(2, "model"), *blocked(2), *resumed(3, "gate", ["g"])]
    assert goal_after(*log, ("goal", {"status": "blocked"}), over(3, "failed"), codex=codex) == Again("infra", 1, drive.PAUSE_FIRST_S)
    assert goal_after(*log, *blocked(3), codex=codex) == End(EndedBy.UNBLOCK_CAP, "blocked again after 2 times")
    state = fold([*GOAL_BEGUN, *log])
    assert (state.unblocks, state.infra) == (2, 0)
    # Nobody approves a gate for what the infrastructure failed.
    retried = fold([*GOAL_BEGUN, ("unblock", {"n": 1, "cause": "infra", "pause_s": 5.0, "mark": ""})])
    asked = fold([*GOAL_BEGUN, *blocked(1), *resumed(2, "gate", ["g"])[:2]])
    assert [state.pending and state.pending.by_operator for state in (retried, asked)] == [False, True]


def test_c06_an_arm_that_blocks_itself_for_ever_is_resumed_eight_times() -> None:
    log = blocked(1)
    for n in range(2, 10):
        assert goal_after(*log) == Look()
        log += [*resumed(n, "model"), *blocked(n)]
    assert goal_after(*log) == End(EndedBy.UNBLOCK_CAP, "blocked again after 8 times")


def test_c06_resumed_in_vain_it_is_not_resumed_for_ever() -> None:
    log = blocked(1)
    for n in (2, 3, 4):
        assert not isinstance(goal_after(*log), End)
        log += [*resumed(n, "model"), *blocked(n, acts=0)]
    assert goal_after(*log) == End(EndedBy.NO_PROGRESS, "resumed 3 times in a row, and nothing was done", quiet=True)
    assert goal_after(*log[:-1], over(4, acts=1)) == Look()
    assert goal_after(*log[:-1], over(4, acts=0, sub_acts=1)) == Look()


def test_c06_a_goal_that_was_completed_meanwhile_is_never_set_active_again() -> None:
    for pending in (resumed(2, "model")[:2], [("unblock", {"n": 1, "cause": "infra", "pause_s": 0.0})]):
        assert goal_after(*blocked(1), *pending, ("goal", {"status": "complete"})) == End(EndedBy.AGENT, "goal complete")


# ---- ids and receipts


@given(st.lists(st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2090, 1, 1)), max_size=20), st.integers(-12, 12))
def test_ids_of_wakes_are_fresh_time_stamps_in_utc(times: list[datetime], hours: int) -> None:
    used: list[str] = []
    for at in times:
        used.append(wake.turn_id(at.replace(tzinfo=timezone(timedelta(hours=hours))), used))
    assert len(set(used)) == len(used)
    assert all(datetime.fromisoformat(made.replace("Z", "+00:00")).tzinfo == UTC for made in used)


def output(*said: tuple[str, str]) -> Item:
    text = "".join(f'{{"heartbeat_receipt":{{"schema_version":"v0","turn_instance_id":"{i}","status":"{s}","x":1}}}}' for i, s in said)
    return Item(id="1", type="commandExecution", status="completed", command="sh", aggregated_output=text)


def test_c06_an_id_that_loopx_knew_is_noticed_and_a_second_question_of_the_same_wake_is_not() -> None:
    receipts = Receipts()
    assert not receipts.replayed(output(("w1", "committed")), "w1")
    assert not receipts.replayed(output(("w1", "replayed")), "w1")
    assert not receipts.replayed(output(("w1", "replayed")), "w2")
    assert not receipts.replayed(Item(id="1", type="agentMessage", text="…"), "w2")
    assert receipts.replayed(output(("w1", "replayed"), ("w2", "replayed")), "w2")
    assert not receipts.replayed(output(("w2", "replayed")), "w2"), "once"


# ---- whatever the log holds

polls = st.sampled_from([RUN, WAIT, GATE, STOP]).map(quota)
entries = st.one_of(
    polls,
    st.builds(over, st.integers(1, 4), st.sampled_from(["completed", "failed", "interrupted"]), st.integers(0, 1)),
    st.builds(lambda n, cause: woken(n, cause)[0], st.integers(2, 4), st.sampled_from(["hint", "gate", "retry"])),
    st.builds(lambda n: ("turn_accepted", {"mark": f"m{n}", "turn_id": str(n)}), st.integers(1, 4)),
    st.builds(lambda n: ("turn_started", {"turn_id": str(n)}), st.integers(1, 4)),
    st.sampled_from(RESUMED),
    st.just(("stalled", {"goal": ""})),
)


@given(st.lists(entries, max_size=30), st.sampled_from([HEARTBEAT, ALONE, arm(5.0, unblocks_at_most=1, turns_at_most=3)]))
def test_c06_whatever_the_log_holds_bounds_hold(log: list[Entry], codex: CodexArm) -> None:
    state = fold([*ONE, *log])
    action = decide(state, codex)
    assert action == decide(fold([*ONE, *log]), codex)
    if isinstance(action, Wake | Ask):
        assert action.pause_s >= 0 and state.turns < codex.turns_at_most and not state.in_flight
    if isinstance(action, Again) and action.cause == "gate":
        assert codex.operator and state.unblocks < codex.unblocks_at_most
    if isinstance(action, CarryOut) and action.pending.wake:
        assert action.pending.wake == state.wakes[-1]
    assert len(state.wakes) == state.intended
