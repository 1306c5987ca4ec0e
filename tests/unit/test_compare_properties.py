"""What must hold of any comparison: nothing undefined leaves it, names and order do not matter, and no lone cell changes a pair."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.compare import compare
from marathond.core.compare.result import Metric, MetricContrast
from marathond.core.results import CellResult, Contrast, Results
from tests.support.some_results import a_campaign, a_cell, some_results

few = settings(max_examples=40, deadline=None)

STATES = ["done", "done", "done", "done", "open", "review", "parked", "claimed"]


@st.composite
def campaigns(draw: st.DrawFn, *, binary: bool = False) -> Results:
    """Up to eight tasks, three arms and three replicates, cells of every state, some planned in one arm only.

    Hypothesis chooses the size and the dice; cell by cell it would take its time.
    """
    tasks, dice = draw(st.integers(1, 8)), random.Random(draw(st.integers(0, 2**32)))
    rewards = [0.0, 1.0] if binary else dice.choice([[0.0, 1.0], [0.0, 1.0, 0.25], [0.0], [1.0]])
    has_partial = dice.random() < 0.7
    cells: list[CellResult] = []
    for task in range(tasks):
        for arm in ("plain", "goal", "loop"):
            for replicate in range(1, dice.randint(1, 3) + 1):
                if (state := dice.choice(STATES)) != "done":
                    cells.append(a_cell(f"t{task}", arm, replicate, state=state))
                    continue
                cells.append(
                    a_cell(
                        f"t{task}",
                        arm,
                        replicate,
                        dice.choice(rewards),
                        partial=dice.choice([dice.random(), 0.5]) if has_partial and dice.random() < 0.9 else None,
                        flags=dice.choice([(), (), ("build_failed",)]),
                        agent_s=dice.choice([None, dice.uniform(0, 1e5)]),
                        cost_usd=dice.choice([None, dice.uniform(0, 1e3)]),
                    )
                )
    return some_results(cells, contrasts=(Contrast("goal", "plain"), Contrast("loop", "goal")))


def numbers(value: Any) -> Iterator[float]:
    """Every number in a tree of dataclasses."""
    if isinstance(value, float):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from numbers(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)


@few
@given(campaigns())
def test_nothing_that_is_no_number_leaves(results: Results) -> None:
    found = list(numbers(compare(results)))
    assert all(type(each) is float and math.isfinite(each) for each in found), "plain floats, all finite"


@few
@given(campaigns())
def test_probabilities_lie_between_0_and_1_and_intervals_are_ordered(results: Results) -> None:
    for contrast in compare(results).contrasts:
        for found in contrast.metrics:
            if found.tasks is None:
                assert found.why and not found.pairs and found.cells == 0
                continue
            tasks = found.tasks
            ps = [tasks.p_t, tasks.p_sign_flip, tasks.p_sign_test, tasks.p_wilcoxon, tasks.p_holm, tasks.smallest_p]
            if found.these_tasks is not None:
                ps += [found.these_tasks.p_exact, found.these_tasks.p_cmh]
            assert all(p is None or 0 <= p <= 1 for p in ps)
            assert tasks.p_sign_flip is not None and tasks.smallest_p is not None
            assert tasks.p_sign_flip >= tasks.smallest_p * (1 - 1e-9), "no exact p lies below the least there can be"
            assert found.bounds is not None and found.bounds.low <= found.bounds.high
            if tasks.interval is not None:
                assert tasks.interval.low <= tasks.difference <= tasks.interval.high
            assert (tasks.t is None) == (tasks.p_t is None) == (tasks.interval is None) == (tasks.mde is None) == bool(found.why)


@few
@given(campaigns(), st.randoms(use_true_random=False))
def test_the_order_of_cells_changes_nothing(results: Results, dice: random.Random) -> None:
    cells = list(results.cells)
    dice.shuffle(cells)
    assert compare(replace(results, cells=tuple(cells))) == compare(results)


def _same_both_ways(found: MetricContrast) -> list[float]:
    """What must come out the same when the contrast is turned round; -1 for what is undefined."""
    tasks, these = found.tasks, found.these_tasks
    values: list[float | None] = [found.cells, found.build_failed]
    if tasks is not None:
        values += [tasks.n, tasks.se, tasks.p_t, tasks.p_sign_flip, tasks.p_sign_test, tasks.p_wilcoxon, tasks.p_holm, tasks.mde]
    if these is not None:
        values += [these.p_exact, these.p_cmh, these.informative]
    return [-1 if value is None else value for value in values]


@few
@given(campaigns(binary=True))
def test_turning_a_contrast_round_flips_signs_and_keeps_every_p(results: Results) -> None:
    turned = replace(results, contrasts=tuple(Contrast(each.b, each.a) for each in results.contrasts))
    for ours, theirs in zip(compare(results).contrasts, compare(turned).contrasts, strict=True):
        for metric in Metric:
            one, other = ours.of(metric), theirs.of(metric)
            assert (one is None) == (other is None)
            if one is None or other is None:
                continue
            assert _same_both_ways(one) == pytest.approx(_same_both_ways(other), rel=1e-9)
            assert {(each.task, each.replicate) for each in one.left_out} == {(each.task, each.replicate) for each in other.left_out}
            if one.tasks is None or other.tasks is None:
                continue
            assert (one.tasks.difference, one.tasks.t or 0) == pytest.approx((-other.tasks.difference, -(other.tasks.t or 0)))
            assert (one.tasks.wins, one.tasks.losses) == (other.tasks.losses, other.tasks.wins)
            assert one.bounds is not None and other.bounds is not None
            assert (one.bounds.low, one.bounds.high) == pytest.approx((-other.bounds.high, -other.bounds.low))
            if one.tasks.interval is not None and other.tasks.interval is not None:
                mirrored = (-other.tasks.interval.high, -other.tasks.interval.low)
                assert (one.tasks.interval.low, one.tasks.interval.high) == pytest.approx(mirrored)
            ratio, reverse = one.these_tasks and one.these_tasks.odds_ratio, other.these_tasks and other.these_tasks.odds_ratio
            if ratio and reverse:
                assert ratio == pytest.approx(1 / reverse)


@few
@given(campaigns())
def test_other_names_of_arms_change_no_number(results: Results) -> None:
    names = {"plain": "z", "goal": "a", "loop": "m"}
    renamed = replace(
        results,
        arms=tuple(replace(arm, name=names[arm.name]) for arm in results.arms),
        cells=tuple(replace(cell, arm=names[cell.arm]) for cell in results.cells),
        contrasts=tuple(Contrast(names[each.a], names[each.b]) for each in results.contrasts),
    )
    ours, theirs = compare(results), compare(renamed)
    assert [list(numbers(each)) for each in ours.contrasts] == [list(numbers(each)) for each in theirs.contrasts]


@few
@given(campaigns(), st.sampled_from(["goal", "plain"]), st.booleans())
def test_a07_a_cell_valid_in_one_arm_only_changes_nothing_that_is_paired(results: Results, arm: str, new_task: bool) -> None:
    task, replicate = ("only-here", 1) if new_task else (results.cells[0].task, 9)
    more = replace(results, cells=(*results.cells, a_cell(task, arm, replicate, 1.0, partial=1.0)))
    before, after = compare(results).contrasts[0], compare(more).contrasts[0]
    for found in before.metrics:
        now = after.of(found.metric)
        assert now is not None
        assert (now.tasks and replace(now.tasks, p_holm=None), now.pairs, now.cells, now.these_tasks, now.mcnemar) == (
            found.tasks and replace(found.tasks, p_holm=None),
            found.pairs,
            found.cells,
            found.these_tasks,
            found.mcnemar,
        )
        lone = [each for each in now.left_out if (each.task, each.replicate) == (task, replicate)]
        assert len(lone) == 1 and lone[0].why.startswith("not planned in")
        assert now.bounds == found.bounds, "what was never planned in both is not missing"


@few
@given(campaigns())
def test_each_task_and_replicate_is_paired_or_left_out_and_never_both(results: Results) -> None:
    planned = {(cell.task, cell.replicate) for cell in results.cells if cell.arm in ("goal", "plain")}
    for found in compare(results).contrasts[0].metrics:
        assert found.cells == sum(each.replicates for each in found.pairs)
        assert found.cells + len(found.left_out) == len(planned)


def test_the_big_campaign_has_all_of_it_finite() -> None:
    for results in (a_campaign(), a_campaign(whole=True), replace(a_campaign(), contrasts=())):
        assert all(math.isfinite(each) for each in numbers(compare(results)))
