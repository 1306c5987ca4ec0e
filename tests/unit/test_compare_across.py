"""Two campaigns over their common cells: which arms are matched, and what a reader is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marathond.core.compare import compare
from marathond.core.compare.result import Metric
from marathond.core.errors import Refused
from marathond.core.results import Results
from tests.support.some_results import a_campaign, rewards, some_results

FIRST = some_results(
    [*rewards("both", {"plain": [1, 1], "goal": [0, 1]}), *rewards("mine", {"plain": [1, 1], "goal": [1, 1]})],
    campaign="first",
    task_digests={"both": "d1", "mine": "d"},
)
SECOND = some_results(
    [*rewards("both", {"plain": [0, 0, 0], "turn": [1, 0, 0]}), *rewards("theirs", {"plain": [1], "turn": [1]})],
    campaign="second",
    ledger_id="ba9876543210",
    task_digests={"both": "d1", "theirs": "d"},
)


def test_arms_of_the_same_name_are_compared_over_the_cells_that_both_planned() -> None:
    comparison = compare(FIRST, SECOND)
    assert comparison.across == "first against second"
    assert [arm.arm for arm in comparison.arms] == ["first/plain", "second/plain"]
    (contrast,) = comparison.contrasts
    assert (contrast.a, contrast.b, contrast.declared_at_ms) == ("first/plain", "second/plain", None)
    found = contrast.of(Metric.REWARD)
    assert found is not None and found.tasks is not None
    assert (found.cells, found.tasks.n, found.tasks.difference) == (2, 1, 1.0)
    assert [(each.task, each.replicate, each.why) for each in found.left_out] == [
        ("both", 3, "not planned in first/plain"),
        ("mine", 1, "not planned in second/plain"),
        ("mine", 2, "not planned in second/plain"),
        ("theirs", 1, "not planned in first/plain"),
    ]
    assert found.bounds is not None and found.bounds.low == found.bounds.high == 1.0, "nothing that both planned is missing"


def test_pairs_of_arms_can_be_named() -> None:
    comparison = compare(FIRST, SECOND, pairs=[("goal", "turn"), ("goal", "plain")])
    assert [(each.a, each.b) for each in comparison.contrasts] == [("first/goal", "second/turn"), ("first/goal", "second/plain")]
    assert [arm.arm for arm in comparison.arms] == ["first/goal", "second/turn", "second/plain"]
    assert comparison.family.startswith("2 pairs of arms, one of each campaign")


@pytest.mark.parametrize(
    ("pairs", "line"),
    [
        ([("gaol", "plain")], "no arm gaol in campaign first; there are: plain, goal"),
        ([("goal", "goal")], "no arm goal in campaign second; there are: plain, turn"),
        ([("goal", "turn"), ("goal", "turn")], "goal against turn is named twice"),
    ],
)
def test_a_pair_that_cannot_be_is_refused(pairs: list[tuple[str, str]], line: str) -> None:
    with pytest.raises(Refused) as caught:
        compare(FIRST, SECOND, pairs=pairs)
    assert str(caught.value) == line


def test_without_a_common_name_pairs_must_be_named() -> None:
    other = some_results(rewards("both", {"turn": [1]}), campaign="other")
    with pytest.raises(Refused, match=r"no arm of first \(plain, goal\) has its name in other \(turn\): name pairs of arms"):
        compare(FIRST, other)


def test_a_campaign_is_not_compared_with_itself() -> None:
    with pytest.raises(Refused, match="campaign first cannot be compared with itself"):
        compare(FIRST, FIRST)
    copy = replace(FIRST, ledger_id="ba9876543210")
    assert compare(FIRST, copy).across == "first@0123456789ab against first@ba9876543210"


def _notes(results: Results, against: Results) -> str:
    return "\n".join(compare(results, against).notes)


def test_what_differs_between_the_two_is_said() -> None:
    other = replace(
        SECOND,
        treatment_hash="sha256:" + "b" * 64,
        arms=tuple(replace(arm, treatment_hash="sha256:" + "c" * 64) for arm in SECOND.arms),
        task_digests={"both": "d2"},
    )
    notes = _notes(FIRST, other)
    assert "1 tasks are common" not in notes and "1 task is common to first (2) and second (2)" in notes
    assert "the two did not run side by side" in notes
    assert "their treatments differ: first aaaaaaaaaaaa, second bbbbbbbbbbbb" in notes
    assert "these arms' own treatments differ: plain" in notes
    assert "not the same task in both, by its digest, and so not compared: both" in notes
    assert "two ledgers, 0123456789ab and ba9876543210" in notes


def test_a18_a_task_that_is_another_one_has_no_common_cell() -> None:
    other = replace(SECOND, task_digests={"both": "d2"})
    (contrast,) = compare(FIRST, other).contrasts
    found = contrast.of(Metric.REWARD)
    assert found is not None and (found.tasks, found.cells) == (None, 0)
    assert {each.task for each in found.left_out} == {"mine", "theirs"}


def test_what_is_alike_is_not_said_to_differ() -> None:
    notes = _notes(FIRST, SECOND)
    assert "treatments differ" not in notes and "digest" not in notes
    imported = replace(SECOND, task_digests={})
    assert "not known of 1 of the 1" in _notes(FIRST, imported)


def test_a_column_that_one_of_them_lacks_is_absent_with_the_reason() -> None:
    comparison = compare(a_campaign(whole=True), replace(FIRST, campaign="bare"))
    assert [each.metric for each in comparison.contrasts[0].metrics] == [Metric.REWARD]
    assert any(note.startswith("no column partial: bare: none of") for note in comparison.notes)


def test_voids_follow_their_arms() -> None:
    comparison = compare(a_campaign(), replace(a_campaign(seed=2), campaign="other"))
    assert {arm.arm: sum(arm.voids.values()) for arm in comparison.arms if arm.voids} == {
        "some/plain": 1,
        "some/goal": 1,
        "other/plain": 1,
        "other/goal": 1,
    }
