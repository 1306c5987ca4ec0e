"""Scored, again, void or review: and no arm in sight."""

from __future__ import annotations

import dataclasses

from marathond.core.classify import Again, Evidence, Review, Scored, VerifierEnd, Void, classify
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


def test_b09_exit_137_says_nothing_only_the_engine_says_oom() -> None:
    assert classify(evidence(exit_code=137)) == Scored()
    assert classify(dataclasses.replace(evidence(exit_code=0), oom_killed=True)) == Scored(("verifier_oom",))


def test_a_refusal_without_a_file_or_a_key_has_no_empty_place() -> None:
    reading = ScoreReading(refusals=(Refusal("", "reward", "neither was written"), Refusal("metrics.json", "", "not JSON")))
    decision = classify(evidence(reading, round=2))
    assert isinstance(decision, Review)
    assert decision.detail == "no readable reward after 2 rounds: neither was written; metrics.json: not JSON"
    assert decision.evidence["refusals"] == ["reward: neither was written", "metrics.json: not JSON"]
