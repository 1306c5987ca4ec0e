"""Rules over what a verifier wrote and nobody can count with: their words, their severity, and that they see no arm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marathond.core.audit.facts import Facts
from marathond.core.score import RefusedValue
from tests.support.audit_facts import facts, trial
from tests.unit.test_audit_results import BROKEN, EMPTY, PERCENT, look, mute, rows, with_oracle


def test_d02_a_verifier_that_never_writes_a_reward_is_told_with_the_reference_solution() -> None:
    (found,) = look("no_reward_written", with_oracle([*mute(3), *mute(1, ("oracle",), first=9)])).found
    assert found.detail == (
        "no reward that can be read in 4 of 4 graded trials, 1 of them of the reference solution: t0001, t0002, t0003, t0009"
    )


def test_d09_refused_shares_are_told_with_their_reason_and_what_was_kept_and_by_no_arm() -> None:
    refused = rows(6, first=20, partial=None, refused=(PERCENT,))
    (found,) = look("score_refused", facts([*rows(12, partial=0.0), *refused])).found
    told = "partial refused in 6 of 18 scored trials (above 1: 50, at metrics.json:partial_score), and kept in 12: "
    assert found.detail == told + "t0020, t0021, t0022, t0023, t0024, t0025"
    assert found.severity == "error"
    others = [replace(row, arm="goal" if row.arm == "plain" else "plain") for row in [*rows(12, partial=0.0), *refused]]
    assert look("score_refused", facts(others)).found == (found,)


@pytest.mark.parametrize(
    "seen",
    [
        facts([*rows(4), trial(9, partial=None, test_rate=None, refused=(BROKEN,))]),
        facts(rows(4, partial=None, refused=(EMPTY,))),
        facts([*rows(4), trial(9, refused=(replace(PERCENT, columns=()),))]),
    ],
    ids=("a file", "an empty place", "read from elsewhere"),
)
def test_what_leaves_no_column_in_part_is_a_warning(seen: Facts) -> None:
    assert [(each.subject, each.severity) for each in look("score_refused", seen).found] == [("zstd", "warning")]


def test_d09_refused_everywhere_is_a_warning_and_each_kind_is_told() -> None:
    rate = RefusedValue("test_rate", "metrics.json:pass_rate", "above 1: 87", ("test_rate",))
    forty = replace(PERCENT, why="above 1: 40")
    trials = [
        trial(1, partial=None, refused=(PERCENT,)),
        trial(2, "goal", partial=None, refused=(forty, rate), test_rate=None),
        trial(3, partial=None, test_rate=None, refused=(BROKEN,)),
    ]
    (found,) = look("score_refused", facts([replace(row, test_rate=None) for row in trials])).found
    assert found.severity == "warning"
    assert found.detail == (
        "partial refused in 2 of 3 scored trials (such as above 1: 40, at metrics.json:partial_score), and kept in 0: t0001, t0002; "
        "test rate refused in 1 of 3 scored trials (above 1: 87, at metrics.json:pass_rate), and kept in 0: t0002; "
        "metrics.json not taken in 1 of 3 scored trials (no valid JSON: Expecting value): t0003"
    )
