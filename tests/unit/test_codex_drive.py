"""What a codex driver does next: decided from the log alone, for both drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.agents.codex import drive
from marathond.agents.codex.actions import Action, Again, CarryOut, End, Fail, First, Listen, StartThread
from marathond.agents.codex.drive import decide
from marathond.agents.codex.state import Pending, State, fold
from marathond.core.model import CodexArm
from marathond.core.names import Drive, EndedBy

Entry = tuple[str, dict[str, Any]]


def arm(**given: Any) -> CodexArm:
    return CodexArm(package="codex@0", version="0.171.0", model="gpt-5.5", effort="high", **given)


PLAIN, GOAL = arm(infra_retries=2), arm(drive=Drive.GOAL, infra_retries=2)
OPERATOR = arm(drive=Drive.GOAL, operator=True, unblocks_at_most=2)
BEGUN: list[Entry] = [
    ("prepared", {"uid": 0}),
    ("thread_intended", {}),
    ("thread", {"thread_id": "T"}),
    ("turn_intended", {"n": 1, "cause": "first", "mark": "m1"}),
    ("turn_accepted", {"mark": "m1", "turn_id": "1"}),
    ("turn_started", {"turn_id": "1"}),
]
GOAL_BEGUN: list[Entry] = [*BEGUN[:3], ("goal_set", {}), BEGUN[3], ("goal", {"status": "active"}), *BEGUN[4:]]


def over(turn_id: str, status: str = "completed", acts: int = 1, info: str = "", **more: Any) -> Entry:
    words = {"info": info, "message": info and "words"}
    return "turn_completed", {"turn_id": turn_id, "status": status, **words, "commands": acts, "acts": acts, "said": 1, **more}


def started(turn_id: str) -> Entry:
    return "turn_started", {"turn_id": turn_id}


def goal(status: str) -> Entry:
    return "goal", {"status": status}


def unblock(cause: str) -> list[Entry]:
    return [("unblock", {"n": 1, "cause": cause, "pause_s": 0}), goal("active")]


def after(*entries: Entry, codex: CodexArm = PLAIN, begun: Sequence[Entry] = BEGUN) -> Action:
    return decide(fold([*begun, *entries]), codex)


def goal_after(*entries: Entry, codex: CodexArm = GOAL) -> Action:
    return after(*entries, codex=codex, begun=GOAL_BEGUN)


def test_the_beginning() -> None:
    assert decide(State(), PLAIN) == StartThread() == decide(fold(BEGUN[:2]), GOAL)
    assert decide(fold(BEGUN[:3]), PLAIN) == First() == decide(fold(GOAL_BEGUN[:4]), GOAL)
    assert decide(fold(BEGUN[:4]), PLAIN) == CarryOut(Pending("turn", "first", "m1"))
    assert decide(fold(BEGUN[:5]), PLAIN) == Listen(resting=True)
    assert decide(fold(BEGUN), PLAIN) == Listen() == decide(fold(GOAL_BEGUN), GOAL)


def test_a_message_is_taken_only_when_codex_says_so() -> None:
    """A goal set active starts a turn by itself: that turn is no sign that the task's text arrived."""
    state = fold([*GOAL_BEGUN[:6], started("1"), over("1")])
    assert decide(state, GOAL) == CarryOut(Pending("turn", "first", "m1"))


def test_a_thread_that_is_begun_anew_forgets_the_old_one() -> None:
    assert decide(fold([*BEGUN[:4], ("thread_intended", {})]), PLAIN) == StartThread()
    again = [*BEGUN[:4], ("thread_intended", {}), ("thread", {"thread_id": "U"})]
    assert decide(fold(again), PLAIN) == CarryOut(Pending("turn", "first", "m1"))


def test_plain_ends_with_its_turn() -> None:
    assert after(over("1")) == End(EndedBy.AGENT, "turn completed")
    assert after(over("1", acts=0)) == End(EndedBy.AGENT, "turn completed")


def test_a05_a_turn_that_the_infrastructure_failed_is_taken_up_alike() -> None:
    failed = over("1", "failed", info="other")
    first = after(failed)
    assert first == goal_after(failed) == goal_after(goal("blocked"), failed) == Again("infra", 1, drive.PAUSE_FIRST_S)
    retry: Entry = ("turn_intended", {"n": 2, "cause": "retry", "mark": "m2"})
    assert after(failed, retry) == CarryOut(Pending("turn", "retry", "m2"))
    plain: list[Entry] = [failed, retry, ("turn_accepted", {"mark": "m2", "turn_id": "2"}), started("2"), over("2", "failed")]
    goals: list[Entry] = [goal("blocked"), failed, *unblock("infra"), started("2"), goal("blocked"), over("2", "failed")]
    assert after(*plain) == goal_after(*goals) == Again("infra", 2, drive.PAUSE_FIRST_S * drive.PAUSE_FACTOR)
    once = {"infra_retries": 1}
    for ended in (after(*plain, codex=arm(**once)), goal_after(*goals, codex=arm(drive=Drive.GOAL, **once))):
        assert isinstance(ended, Fail) and ended.code == "model_failed" and "1 retries" in ended.detail
    # The operator's resumptions are not spent by it, nor the other way round.
    assert fold([*GOAL_BEGUN, *goals]).unblocks == 0


def test_a_failure_that_the_agent_brought_about_by_itself_is_its_own_end_and_no_other_failure_is() -> None:
    failed = after(over("1", "failed", info="other"), codex=arm(infra_retries=0))
    assert isinstance(failed, Fail) and drive.own_doing(failed, 0) is None
    own = drive.own_doing(failed, 3)
    assert own is not None and own.by is EndedBy.AGENT and "3 refused" in own.why and failed.detail in own.why
    assert drive.own_doing(Fail("usage_limit", "spent"), 3) is None
    assert fold([*BEGUN, ("crowded", {"refused": 3})]) == fold(BEGUN)


def test_usage_limits_fail_at_once() -> None:
    for action in (after(over("1", "failed", info="usageLimitExceeded")), goal_after(over("1", "failed"), goal("usageLimited"))):
        assert isinstance(action, Fail) and action.code == "usage_limit"


@pytest.mark.parametrize("status", ["usageLimited", "budgetLimited"])
def test_c18_a_limit_that_nobody_met_was_set_by_the_agent(status: str) -> None:
    """Its shell reaches its own control socket: no other attempt for it, and no budget that the arm does not have."""
    assert goal_after(goal(status), over("1")) == End(EndedBy.AGENT, f"goal {status} by nobody of us")


@pytest.mark.parametrize("word", sorted(drive.OWN_ERRORS))
def test_what_the_agent_brought_about_is_its_own_end(word: str) -> None:
    assert after(over("1", "failed", info=word)) == End(EndedBy.AGENT, word)
    assert goal_after(goal("blocked"), over("1", "failed", info=word)) == End(EndedBy.AGENT, word, quiet=True)


def test_interrupted_by_nobody_of_us() -> None:
    assert after(over("1", "interrupted")) == End(EndedBy.AGENT, "turn interrupted by nobody of us")
    # The goal stays active and idle then: whoever waited for its status would wait for ever.
    assert goal_after(over("1", "interrupted")) == End(EndedBy.AGENT, "turn interrupted by nobody of us", quiet=True)


def test_a_goal_ends_when_no_turn_is_in_flight() -> None:
    assert goal_after(goal("complete")) == Listen()
    assert goal_after(goal("complete"), over("1")) == End(EndedBy.AGENT, "goal complete")
    assert goal_after(goal("complete"), over("1", "failed")) == End(EndedBy.AGENT, "goal complete")
    budget = arm(drive=Drive.GOAL, token_budget=1)
    assert goal_after(over("1"), goal("budgetLimited"), codex=budget) == End(EndedBy.TOKEN_BUDGET, "goal budgetLimited")
    assert goal_after(goal("paused"), over("1")) == End(EndedBy.AGENT, "goal paused by nobody of us")
    assert goal_after(goal("cleared"), over("1")) == End(EndedBy.AGENT, "goal cleared by nobody of us")
    assert goal_after(over("1")) == Listen(resting=True)
    assert goal_after(over("1"), started("2")) == Listen()


def test_c06_a_blocked_goal_with_and_without_an_operator() -> None:
    blocked = [goal("blocked"), over("1", acts=0)]
    assert goal_after(*blocked) == End(EndedBy.BLOCKED, "the model declared its goal blocked")
    assert goal_after(*blocked, codex=OPERATOR) == Again("model", 1, 0.0)
    assert goal_after(*blocked, ("unblock", {"cause": "model"}), codex=OPERATOR) == CarryOut(Pending("goal", "unblock"))
    assert goal_after(*blocked, *unblock("model"), codex=OPERATOR) == Listen(resting=True)
    second = [*blocked, *unblock("model"), started("2"), goal("blocked"), over("2", acts=0)]
    assert goal_after(*second, codex=OPERATOR) == Again("model", 2, drive.OPERATOR_PAUSE_S)
    third = [*second, *unblock("model"), started("3"), goal("blocked"), over("3", acts=0)]
    assert goal_after(*third, codex=OPERATOR) == End(EndedBy.UNBLOCK_CAP, "blocked again after 2 times")
    # Its own resumption was cut short by the infrastructure: told apart, counted apart.
    assert goal_after(*blocked, *unblock("model"), started("2"), goal("blocked"), over("2", "failed"), codex=OPERATOR) == Again(
        "infra", 1, drive.PAUSE_FIRST_S
    )


def test_c07_a_goal_without_progress_and_one_without_end() -> None:
    idle = [entry for n in (2, 3) for entry in (started(str(n)), over(str(n), acts=0))]
    assert goal_after(over("1"), *idle) == Listen(resting=True)
    third = [*idle, started("4"), over("4", acts=0)]
    assert goal_after(over("1"), *third) == End(EndedBy.NO_PROGRESS, "3 turns in a row without a tool call", quiet=True)
    assert goal_after(over("1"), *idle, started("4"), over("4"), started("5"), over("5", acts=0)) == Listen(resting=True)
    # A second response tells of a tool call that left no item; a turn that was not heard whole tells nothing.
    assert goal_after(over("1"), *idle, started("4"), over("4", acts=0, responses=2)) == Listen(resting=True)
    unheard = [*idle, started("4"), over("4", acts=0, heard=False)]
    assert goal_after(over("1"), *unheard) == Listen(resting=True)
    assert isinstance(goal_after(over("1"), *unheard, started("5"), over("5", acts=0)), End)
    capped = arm(drive=Drive.GOAL, turns_at_most=2)
    assert goal_after(over("1"), codex=capped) == Listen(resting=True)
    assert goal_after(over("1"), started("2"), over("2"), codex=capped) == End(EndedBy.TURN_CAP, "2 turns", quiet=True)
    assert goal_after(over("1"), started("2"), goal("complete"), over("2"), codex=capped) == End(EndedBy.AGENT, "goal complete")


def test_c07_a_goals_own_turns_before_its_task_has_come_are_no_idleness() -> None:
    """The daemon was killed between the goal and its message; the next one hears their ends after the message was taken."""
    begun = [*GOAL_BEGUN[:-2], ("turn_accepted", {"mark": "m1", "turn_id": "5"})]
    early = [entry for n in (1, 2, 3, 4) for entry in (started(str(n)), over(str(n), acts=0))]
    assert after(*early, codex=GOAL, begun=begun) == Listen(resting=True)
    late = [entry for n in (5, 6, 7) for entry in (started(str(n)), over(str(n), acts=0))]
    assert isinstance(after(*early, *late, codex=GOAL, begun=begun), End)
    assert after(*early, *late[:-1], codex=GOAL, begun=begun) == Listen()


def test_a_goal_that_codex_does_not_continue() -> None:
    stalled: Entry = ("stalled", {"goal": "active"})
    assert goal_after(over("1"), stalled) == Again("stalled", 1, drive.PAUSE_FIRST_S)
    twice = [over("1"), stalled, *unblock("stalled"), stalled, *unblock("stalled")]
    assert goal_after(*twice) == Listen(resting=True)
    assert goal_after(*twice, stalled) == Fail("driver_failed", "codex does not continue its active goal")
    assert decide(fold([*BEGUN[:5], stalled]), PLAIN) == Fail("driver_failed", "codex accepted the first message and began no turn")


def test_c01_no_command_and_a_word_about_the_sidecar() -> None:
    warning: Entry = ("warning", {"text": "Code Mode is unavailable because failed to spawn code-mode host", "sidecar": True})
    dead = after(warning, over("1", acts=0))
    assert isinstance(dead, Fail) and dead.code == "dead_agent" and "code-mode host" in dead.detail
    assert after(over("1", acts=0)) == End(EndedBy.AGENT, "turn completed")
    # A goal would go on for ever: it is not waited for.
    assert goal_after(warning, over("1", acts=0, responses=2)) == dead
    assert after(warning, over("1", acts=0, sub_acts=1)) == End(EndedBy.AGENT, "turn completed")
    assert after(warning, over("1", acts=1)) == End(EndedBy.AGENT, "turn completed")
    assert after(("warning", {"text": "a model nobody knows", "sidecar": False}), over("1", acts=0)) == End(EndedBy.AGENT, "turn completed")


def test_who_ended_it_is_not_decided_twice() -> None:
    assert after(over("1"), ("ended", {"by": "no_progress"})) == End(EndedBy.NO_PROGRESS, "ended before")
    assert after(("halt", {}), over("1", "interrupted")) == Listen()


@pytest.mark.parametrize(
    ("line", "speaks"),
    [
        ("ERROR codex_core::tools::router: error=failed to spawn code-mode host /opt/codex/bin/codex-code-mode-host: not found", True),
        ("ERROR gRPC code-mode session opening failed: code: 'The service is currently unavailable'", True),
        ("ERROR codex_app_server: Codex could not find bubblewrap on PATH.", False),
        ("ERROR codex_core::tools::code_mode: script failed", False),
    ],
)
def test_the_sidecars_words(line: str, speaks: bool) -> None:
    assert bool(drive.SIDECAR_WORDS.search(line)) is speaks


def test_error_words() -> None:
    assert drive.error_word("other") == "other"
    assert drive.error_word({"httpConnectionFailed": {"httpStatusCode": 401}}) == "httpConnectionFailed 401"
    assert drive.error_word({"responseStreamDisconnected": {"httpStatusCode": None}}) == "responseStreamDisconnected"
    assert drive.error_word(None) == drive.error_word({"a": 1, "b": 2}) == ""


def test_pauses_grow_and_are_bounded() -> None:
    pauses = [drive.pause_s(n) for n in range(1, 101)]
    assert pauses == sorted(pauses) and pauses[0] == drive.PAUSE_FIRST_S and pauses[-1] == drive.PAUSE_AT_MOST_S


ids = st.sampled_from(["1", "2", "3", "4"])
entries = st.one_of(
    st.builds(started, ids),
    st.builds(over, ids, st.sampled_from(["completed", "failed", "interrupted"]), st.integers(0, 2), st.sampled_from(["", "other"])),
    st.builds(goal, st.sampled_from(["active", "paused", "blocked", "usageLimited", "budgetLimited", "complete", "cleared"])),
    st.builds(lambda cause: ("unblock", {"n": 1, "cause": cause}), st.sampled_from(["infra", "model", "stalled"])),
    st.just(("stalled", {"goal": "active"})),
    st.just(("turn_accepted", {"mark": "m1", "turn_id": "1"})),
)
arms = st.sampled_from([PLAIN, GOAL, OPERATOR, arm(drive=Drive.GOAL, infra_retries=0, turns_at_most=1)])


@given(st.lists(entries, max_size=30), arms)
def test_whatever_the_log_holds(log: list[Entry], codex: CodexArm) -> None:
    """Always a step; the same from the same log; entries that come twice (two lives saw them) change nothing; bounds hold."""
    state = fold([*GOAL_BEGUN, *log])
    action = decide(state, codex)
    assert action == decide(fold([*GOAL_BEGUN, *log]), codex)
    seen = [entry for entry in log if entry[0] in ("turn_started", "turn_completed")]
    if not state.in_flight:
        again = fold([*GOAL_BEGUN, *log, *(entry for entry in seen if entry[1]["turn_id"] in state.over)])
        assert decide(again, codex) == action
    if isinstance(action, Again):
        assert state.infra < codex.infra_retries if action.cause != "model" else codex.operator and state.unblocks < codex.unblocks_at_most
        assert state.goal not in ("complete", "paused", "cleared") or codex.drive is Drive.TURN
    if isinstance(action, End | Again):
        assert not state.in_flight
