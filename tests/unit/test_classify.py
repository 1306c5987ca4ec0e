"""Scored, again, void or review: and no arm in sight."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.classify import Again, Decision, Evidence, Review, Scored, VerifierEnd, Void, classify, of_verification
from marathond.core.logwords import PATTERNS, Pattern, Said, said
from marathond.core.ourside import Alike, JudgeRequest, OtherTrial, OurSide, alike, judge, whose
from marathond.core.score import Number, Refusal, ScoreReading

GOOD = ScoreReading(reward=Number(1.0, "reward.txt", ""))
NOTHING = ScoreReading(refusals=(Refusal("reward.txt", "", "missing"),))


def evidence(reading: ScoreReading = GOOD, *, outcome: str = "exited", exit_code: int | None = 0, round: int = 1) -> Evidence:
    return Evidence(VerifierEnd(outcome, exit_code, round), reading, container_alive=True, engine_restarted=False, oom_killed=False)


def test_the_decision_has_no_arm_to_look_at() -> None:
    names = {f.name for f in dataclasses.fields(Evidence)} | {f.name for f in dataclasses.fields(ScoreReading)}
    assert not [name for name in names if "arm" in name]


def test_a_reward_of_a_verifier_that_exited_is_a_score_whatever_its_exit_code() -> None:
    assert classify(evidence(exit_code=1)) == Scored()
    assert classify(evidence(ScoreReading(reward=Number(0.0, "reward.txt", "")))) == Scored()


def test_d02_a_missing_reward_is_verified_once_more_then_reviewed_never_zero() -> None:
    assert classify(evidence(NOTHING)) == Again("unreadable")
    second = classify(evidence(NOTHING, round=2))
    assert isinstance(second, Review)
    assert second.code == "score_unreadable"
    assert "missing" in second.detail


def test_d10_a_verifier_deadline_is_told_apart_and_run_once_more() -> None:
    assert classify(evidence(outcome="deadline")) == Again("deadline")
    second = classify(evidence(outcome="deadline", round=2))
    assert isinstance(second, Review)
    assert second.code == "verifier_deadline"


def test_a_second_round_that_works_is_flagged() -> None:
    assert classify(evidence(round=2)) == Scored(("verified_again",))


def test_a_container_lost_with_its_engine_is_void_and_without_it_is_doubt() -> None:
    lost = dataclasses.replace(evidence(outcome="lost"), container_alive=False, engine_restarted=True)
    assert isinstance(classify(lost), Void)
    alone = dataclasses.replace(lost, engine_restarted=False)
    decided = classify(alone)
    assert isinstance(decided, Review)
    assert decided.code == "verifier_lost"


def test_b18_a_verifier_that_was_interrupted_once_too_often_is_doubt_for_its_container_runs() -> None:
    decided = classify(dataclasses.replace(evidence(outcome="lost"), container_alive=True, engine_restarted=True))
    assert isinstance(decided, Review)
    assert (decided.code, "container runs" in decided.detail) == ("verifier_lost", True)


def test_b09_exit_137_says_nothing_only_the_engine_says_oom() -> None:
    assert classify(evidence(exit_code=137)) == Scored()
    assert classify(dataclasses.replace(evidence(exit_code=0), oom_killed=True)) == Scored(("verifier_oom",))


def test_a_refusal_without_a_file_or_a_key_has_no_empty_place() -> None:
    reading = ScoreReading(refusals=(Refusal("", "reward", "neither was written"), Refusal("metrics.json", "", "not JSON")))
    decision = classify(evidence(reading, round=2))
    assert isinstance(decision, Review)
    assert decision.detail == "no readable reward after 2 rounds: neither was written; metrics.json: not JSON"
    assert decision.evidence["refusals"] == ["reward: neither was written", "metrics.json: not JSON"]


# ── words in the verifier's log, and what our own side saw (faults d05, d06) ──

FAILED = ScoreReading(reward=Number(0.0, "reward.txt", ""), flags=())
BUILD = ScoreReading(reward=Number(0.0, "reward.txt", ""), flags=("build_failed",))
SETUP = ScoreReading(reward=Number(0.0, "reward.txt", ""), flags=("setup_error",))
DNS, RATE = said("curl: (6) Could not resolve host: pypi.org"), said("openai.RateLimitError: Error code: 429")
FULL, KILLED = said("error: No space left on device (os error 28)"), said("Cannot allocate memory")
NO = JudgeRequest("gave_up", 429, "held_http", held=True)
YES = JudgeRequest("complete", 200, None)


def suspect(log: tuple[Said, ...], reading: ScoreReading = FAILED, *, oom: bool = False, **ours: Any) -> Decision:
    return classify(dataclasses.replace(evidence(reading), log=log, oom_killed=oom, ours=OurSide(**ours)))


def others(count: int, *, alike: int, oracles: int = 0, oracles_alike: int = 0, flag: str = "log:dns") -> Alike:
    return Alike(count, {flag: alike} if alike else {}, oracles, {flag: oracles_alike} if oracles_alike else {})


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.code)
def test_d06_every_pattern_finds_its_example_and_not_its_counter_example(pattern: Pattern) -> None:
    found = [word for word in said(f"ok\n{pattern.example}\nmore") if word.code == pattern.code]
    assert [(word.kind, word.line) for word in found] == [(pattern.kind, " ".join(pattern.example.split()))]
    assert pattern.code not in [word.code for word in said(f"ok\n{pattern.counter_example}\nmore")]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.code)
def test_d06_words_alone_never_void_and_never_doubt(pattern: Pattern) -> None:
    assert suspect(said(pattern.example)) == Scored(tuple(f"log:{word.code}" for word in said(pattern.example)))


def test_d06_words_of_the_containers_own_addresses_are_the_agents_servers() -> None:
    for address in ("localhost:8000", "127.0.0.1 port 80", "[::1]:443", "http://0.0.0.0:9"):
        assert said(f"connect to {address}: Connection refused") == ()
    assert [word.code for word in said("connect to 127.0.0.1:8792: Connection refused", ways=["127.0.0.1:8792"])] == ["refused"]
    assert [word.code for word in said("localhost: Connection refused\n10.0.0.7: Connection refused")] == ["refused"]


@pytest.mark.parametrize(
    ("log", "ours", "words"),
    [
        (RATE, {"judge": judge([NO, YES], {})}, "1 of 2 judge requests failed for the provider's or our own reasons (1 x gave_up HTTP 429"),
        (DNS, {"judge": judge([YES], {"gateway_busy": 4})}, "4 of 5 judge requests"),
        (DNS, {"engine_breaks": 2}, "the engine was away 2 times"),
        (KILLED, {"interrupted": 1}, "the verifier was ended by its engine once before"),
        (FULL, {"disks": ("/srv: 12 MB free",)}, "below the floor: /srv: 12 MB free"),
        (DNS, {"alike": others(0, alike=0, oracles=2, oracles_alike=1)}, "the task's own solution ended alike (log:dns, 1 of 2 trials)"),
        (DNS, {"alike": others(3, alike=3)}, "every other trial of the task ended alike (log:dns, 3 of 3)"),
    ],
)
def test_d06_words_beside_evidence_from_our_side_are_a_review_with_both(log: tuple[Said, ...], ours: dict[str, Any], words: str) -> None:
    decided = suspect(log, **ours)
    assert isinstance(decided, Review) and decided.code == "infrastructure_suspected"
    assert log[0].line in decided.detail and words in decided.detail
    assert decided.evidence["log"] == [{"code": log[0].code, "kind": log[0].kind.value, "line": log[0].line}]
    assert json.dumps(decided.evidence)


@pytest.mark.parametrize(
    ("log", "ours"),
    [
        ((), {"engine_breaks": 2, "disks": ("/srv",)}),  # nothing that the verifier complains of
        (FULL, {"judge": judge([NO, YES], {})}),  # evidence of another kind
        (DNS, {"disks": ("/srv: 12 MB free",)}),
        (RATE, {"judge": judge([JudgeRequest("complete", 400, "invalid_prompt"), YES], {"too_many_streams": 9})}),  # its own doing
        (DNS, {"alike": others(3, alike=2)}),  # another trial of the task did not meet it
        (DNS, {"alike": others(1, alike=1)}),  # one other is chance
        (DNS, {"alike": others(0, alike=0, oracles=2)}),  # the task's own solution did not meet it
        (RATE, {"alike": others(3, alike=3)}),  # the others met something else
    ],
)
def test_d06_evidence_that_does_not_belong_to_the_words_doubts_nothing(log: tuple[Said, ...], ours: dict[str, Any]) -> None:
    decided = suspect(log, **ours)
    assert isinstance(decided, Scored)
    assert [flag for flag in decided.flags if flag.startswith("log:")] == [f"log:{word.code}" for word in log]


def test_d06_trouble_of_our_own_beside_a_failure_is_told_also_where_nothing_complains() -> None:
    assert suspect((), engine_breaks=2, disks=("/srv",)) == Scored(("engine_away", "disk_low"))
    assert suspect((), GOOD, engine_breaks=2, disks=("/srv",)) == Scored(), "beside a success it tells nothing"
    assert of_verification("engine_away") and of_verification("disk_low"), "a new reading of the files keeps it"


def test_d06_the_engines_out_of_memory_beside_such_words_is_a_doubt_and_alone_a_flag() -> None:
    doubted = suspect(KILLED, oom=True)
    assert isinstance(doubted, Review) and "for want of memory" in doubted.detail
    assert suspect((), oom=True) == Scored(("verifier_oom",))
    assert suspect(FULL, oom=True) == Scored(("verifier_oom", "log:disk_full"))


def test_d06_a_verifier_whose_set_up_failed_is_doubted_when_the_tasks_own_solution_met_the_same() -> None:
    assert suspect((), SETUP) == Scored()
    assert isinstance(suspect((), SETUP, alike=others(0, alike=0, oracles=1, oracles_alike=1, flag="setup_error")), Review)


def test_d06_a_trial_that_passed_is_never_doubted() -> None:
    assert suspect(DNS, GOOD, engine_breaks=3, alike=others(5, alike=5, oracles=1, oracles_alike=1)) == Scored()


def test_d06_a_judge_whose_last_word_was_a_failure_of_ours_is_a_doubt_without_any_words() -> None:
    decided = suspect((), judge=judge([YES, NO], {}))
    assert isinstance(decided, Review) and decided.code == "judge_failed" and "gave_up HTTP 429" in decided.detail
    assert suspect((), judge=judge([NO, YES], {})) == Scored(), "it was made good"
    assert suspect((), judge=judge([JudgeRequest("cut_by_client", None, None)], {})) == Scored(), "it hung up by itself"


def test_d05_a_build_that_failed_is_the_agents_scored_and_flagged_whatever_else_was_seen() -> None:
    everything: dict[str, Any] = {
        "judge": judge([NO], {}),
        "engine_breaks": 3,
        "disks": ("/srv",),
        "alike": others(4, alike=4, oracles=1, oracles_alike=1),
    }
    assert suspect(DNS, BUILD, **everything) == Scored(("log:dns", "engine_away", "disk_low"))
    assert "build_failed" in BUILD.flags, "the flag is the reading's, and stands in the score's row"
    assert suspect((), BUILD) == Scored()


def test_d02_d10_the_review_of_what_nobody_could_read_shows_our_side_too() -> None:
    seen = dataclasses.replace(
        evidence(NOTHING, round=2), log=DNS, ours=OurSide(engine_breaks=1, alike=Alike(4, {"score_unreadable": 3}, 1, {}))
    )
    decided = classify(seen)
    assert isinstance(decided, Review) and decided.code == "score_unreadable"
    shown = dict(decided.evidence)
    assert (shown["engine_breaks"], shown["others"], shown["others_alike"]) == (1, 4, {"log:dns": 0, "score_unreadable": 3})
    late = classify(dataclasses.replace(seen, verifier=VerifierEnd("deadline", None, 2)))
    assert isinstance(late, Review) and dict(late.evidence)["others_alike"] == {"log:dns": 0, "verifier_deadline": 0}


@pytest.mark.parametrize(
    ("request_", "side"),
    [
        (YES, "fine"),
        (NO, "ours"),
        (JudgeRequest("complete", 503, "overloaded"), "ours"),
        (JudgeRequest("complete", 401, "upstream_auth"), "ours"),
        (JudgeRequest("complete", 429, "usage_limit"), "ours"),
        (JudgeRequest("complete", 200, "server_error"), "ours"),
        (JudgeRequest("cut_by_provider", 200, "cut_by_provider"), "ours"),
        (JudgeRequest("cut_by_gateway", None, None), "ours"),
        (JudgeRequest("refused", 429, "gateway_busy"), "ours"),
        (JudgeRequest("refused", 503, "journal_no_space"), "ours"),
        (JudgeRequest("cut_by_client", None, None, held=True), "ours"),
        (JudgeRequest("cut_by_client", None, None, held=True, answered=True), "own"),
        (JudgeRequest("cut_by_client", None, None), "own"),
        (JudgeRequest("complete", 400, "bad"), "own"),
        (JudgeRequest("complete", 200, "context_length_exceeded"), "own"),
        (JudgeRequest("refused", 401, "bad_key"), "own"),
        (JudgeRequest("refused", 429, "too_many_streams"), "own"),
        (JudgeRequest("gateway_died", None, "gateway_died"), "untold"),
        (JudgeRequest("lost", None, None), "untold"),
    ],
)
def test_d06_whose_failure_a_judges_request_was(request_: JudgeRequest, side: str) -> None:
    assert whose(request_) == side


def test_only_counts_come_from_other_trials_and_those_that_passed_failed_at_nothing() -> None:
    told = alike(
        [
            OtherTrial(False, 0.0, ("build_failed", "log:dns", "no_tests")),
            OtherTrial(False, 1.0, ("log:dns",)),
            OtherTrial(False, None, (), "score_unreadable"),
            OtherTrial(True, 0.5, ("early_exit:health_timeout",)),
            OtherTrial(True, None, (), "overrun"),
        ]
    )
    assert told == Alike(3, {"build_failed": 1, "log:dns": 1, "score_unreadable": 1}, 2, {"early_exit:health_timeout": 1})
    names = {f.name for kind in (OtherTrial, Alike, OurSide, JudgeRequest) for f in dataclasses.fields(kind)}
    assert not [name for name in names if "arm" in name]


def test_flags_of_the_verification_and_of_the_reading_are_told_apart() -> None:
    assert all(map(of_verification, ("verified_again", "verifier_oom", "log:dns", "changed_after_exit")))
    assert not any(map(of_verification, ("build_failed", "early_exit:x", "no_tests", "counts_too_large")))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=3000))
def test_no_log_breaks_the_patterns(text: str) -> None:
    assert all(len(word.line) <= 200 for word in said(text))


words = st.sampled_from([(), DNS, RATE, FULL, KILLED])
sides = st.builds(
    OurSide,
    st.sampled_from([judge([], {}), judge([YES], {}), judge([NO], {}), judge([NO, YES], {})]),
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([(), ("/srv",)]),
    st.sampled_from([Alike(), others(3, alike=3), others(3, alike=2, oracles=1, oracles_alike=1)]),
)
readings = st.sampled_from([GOOD, FAILED, BUILD, SETUP, NOTHING])
ends = st.builds(VerifierEnd, st.sampled_from(["exited", "deadline", "lost"]), st.sampled_from([0, 1, 137, None]), st.integers(1, 2))


@settings(max_examples=300, deadline=None)
@given(st.builds(Evidence, ends, readings, st.booleans(), st.booleans(), st.booleans(), words, sides))
def test_d05_d06_whatever_is_seen_only_a_lost_engine_voids_and_only_a_read_reward_is_scored(seen: Evidence) -> None:
    decided, end = classify(seen), seen.verifier
    gone = end.outcome == "lost" or not seen.container_alive
    assert isinstance(decided, Void) == (not seen.container_alive and seen.engine_restarted)
    readable = not gone and end.outcome == "exited" and seen.reading.reward is not None
    if isinstance(decided, Scored):
        assert readable
    if readable and seen.reading in (GOOD, BUILD):
        assert isinstance(decided, Scored)
    if isinstance(decided, Again):
        assert end.round == 1 and not readable
    if readable and not seen.log and "setup_error" not in seen.reading.flags and not seen.ours.judge.ours:
        assert isinstance(decided, Scored), "evidence without a complaint changes nothing"
    if readable and seen.ours == OurSide() and not seen.oom_killed:
        assert isinstance(decided, Scored), "a complaint without evidence changes nothing"
