"""What requests say about provider and fairness: named when it is there, silent when it is chance or the agent's own doing."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.model_rules import (
    Found,
    Outcome,
    Waits,
    at_least,
    bad_request_one_arm,
    held_disparity,
    model_changed,
    new_or_over,
    of_campaign,
    of_request,
    other_model,
)
from marathond.core.requests import Ended, Who

ENDED = Ended(Who(7, "agent", 1), 2, 0, 0, "complete", "none", status=429, upstream_status=429, error_type="usage_limit", route="main")


def outcome(arm: str = "plain", trial: int = 1, **changes: object) -> Outcome:
    return replace(Outcome(trial, arm, None, "m", "m-1", 200, "", 10), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, "usage_limit"),
        ({"error_type": "insufficient_quota"}, "usage_limit"),
        ({"error_type": "upstream_auth", "upstream_status": 401}, "upstream_auth"),
        ({"who": Who(7, "verifier", 1)}, "usage_limit"),
    ],
)
def test_a_spent_account_and_a_refused_key_stop_everything(changes: dict[str, object], code: str) -> None:
    found = of_request(replace(ENDED, **changes))  # type: ignore[arg-type]
    assert found is not None and (found.code, found.severity, found.subject, found.stops) == (code, "stop_loss", "main", True)
    assert "t0007" in found.detail and "for any arm" in found.detail


@pytest.mark.parametrize("changes", [{"error_type": "rate_limit_exceeded"}, {"error_type": None}, {"who": Who(7, "gate", 1)}])
def test_a_passing_limit_stops_nothing(changes: dict[str, object]) -> None:
    assert of_request(replace(ENDED, **changes)) is None  # type: ignore[arg-type]


def test_a16_another_model_behind_the_same_name_is_named_with_the_first_trial_of_each() -> None:
    same = [outcome(answered="m-1", trial=3), outcome(answered="m-1", arm="goal"), outcome(answered="", status=500)]
    assert model_changed(same) == []
    found = model_changed([*same, outcome(answered="m-2", trial=9, requests=4)])
    assert [(each.code, each.severity, each.subject) for each in found] == [("model_changed", "error", "m")]
    assert "m-1 (20 requests, first in t0001), m-2 (4 requests, first in t0009)" in found[0].detail


def test_a_model_that_is_not_the_arms_is_named() -> None:
    assert (
        other_model([outcome(configured="m"), outcome(configured=None, asked="x"), outcome(configured="m", asked="x", answered="")]) == []
    )
    found = other_model([outcome(configured="m", asked="big", trial=4)])
    assert [(each.code, each.subject) for each in found] == [("other_model", "big")] and "t0004 (10 requests)" in found[0].detail


def test_a02_a_400_that_hits_one_arm_only_is_named() -> None:
    bad = outcome("goal", status=400, answered="", error_type="unknown_parameter", requests=4)
    found = bad_request_one_arm([outcome(), bad])
    assert [(each.code, each.severity, each.subject) for each in found] == [("bad_request_one_arm", "error", "goal")]
    assert "4 of 4 requests (unknown_parameter)" in found[0].detail and "plain 0 of 10" in found[0].detail


@pytest.mark.parametrize(
    "rows",
    [
        [outcome(), outcome("goal", status=400, requests=1)],
        [outcome("plain", status=400, requests=4), outcome("goal", status=400, requests=4)],
        [outcome(requests=1), outcome("goal", status=400, requests=4)],
        [outcome(), outcome("goal", status=400, error_type="context_length_exceeded", requests=4)],
        [outcome("goal", status=400, requests=9)],
    ],
    ids=["once", "both", "nothing to compare with", "the agent's own words", "one arm"],
)
def test_a02_a_400_that_says_nothing_about_a_transport_is_not_named(rows: list[Outcome]) -> None:
    assert bad_request_one_arm(rows) == []


def test_a01_limits_that_hit_one_arm_more_often_than_chance_allows_are_named() -> None:
    even = [Waits(n, arm, 60_000 if n % 2 else 0, 0) for n in range(20) for arm in ("plain", "goal")]
    assert held_disparity(even) == []
    uneven = [Waits(n, "goal", 60_000, 3) for n in range(12)] + [Waits(n, "plain", 100, 0) for n in range(12)]
    found = {each.subject: each for each in held_disparity(uneven)}
    assert set(found) == {"goal"} and found["goal"].code == "held_disparity"
    assert "12 of 12 trials of goal, 0 of 12 of the other arms; 60 s a trial, 0 s" in found["goal"].detail
    assert held_disparity([Waits(n, "goal", 60_000, 3) for n in range(12)]) == []
    assert held_disparity([Waits(1, "goal", 60_000, 3), Waits(2, "plain", 0, 0)]) == []


@given(st.integers(0, 8), st.integers(1, 8), st.integers(0, 8), st.integers(1, 8))
def test_the_exact_test_counts_the_ways(hit: int, of: int, others_hit: int, others: int) -> None:
    hit, others_hit = min(hit, of), min(others_hit, others)
    marked = hit + others_hit
    ways = [comb(of, k) * comb(others, marked - k) if 0 <= marked - k <= others else 0 for k in range(of + 1)]
    assert at_least(hit, of, others_hit, others) == pytest.approx(sum(ways[hit:]) / comb(of + others, marked))


def test_findings_are_told_when_their_words_change_and_are_over_when_they_are_gone() -> None:
    before = {("a", "s"): "old", ("b", "s"): "same", ("c", "s"): "gone"}
    changed, same = Found("a", "error", "s", "new"), Found("b", "error", "s", "same")
    assert new_or_over(before, [changed, same]) == ([changed], [("c", "s")])


def test_a_quiet_campaign_gives_nothing() -> None:
    assert of_campaign([outcome(), outcome("goal")], [Waits(1, "plain", 0, 0), Waits(2, "goal", 0, 0)]) == []
