"""The three orders of cells, as properties."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.order import CellKey, Order, order_cells

NAMES = st.text('abc|,"é', min_size=1, max_size=3)
LIMITS = st.one_of(st.none(), st.sampled_from([600.0, 3600.0, 3600.0, 36000.0]))


@st.composite
def campaigns(draw: st.DrawFn) -> list[CellKey]:
    tasks = draw(st.dictionaries(NAMES, LIMITS, min_size=1, max_size=5))
    arms = draw(st.sets(NAMES, min_size=1, max_size=4))
    replicates = draw(st.integers(1, 3))
    return [CellKey(task, arm, r, limit) for task, limit in tasks.items() for arm in sorted(arms) for r in range(1, replicates + 1)]


SEEDS = st.integers(0, 2**63 - 1)
ORDERS = st.sampled_from(Order)


@given(campaigns(), ORDERS, SEEDS, st.randoms(use_true_random=False))
def test_a12_the_order_is_a_permutation_and_depends_on_the_seed_alone(
    cells: list[CellKey], order: Order, seed: int, random: object
) -> None:
    shuffled = list(cells)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    ordered = order_cells(shuffled, order=order, seed=seed)
    assert Counter(ordered) == Counter(cells)
    assert ordered == order_cells(cells, order=order, seed=seed)


@given(campaigns(), SEEDS)
def test_a12_every_prefix_is_balanced_over_the_arms(cells: list[CellKey], seed: int) -> None:
    arms = {cell.arm for cell in cells}
    done: Counter[str] = Counter()
    for cell in order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed):
        done[cell.arm] += 1
        counts = [done[arm] for arm in arms]
        assert max(counts) - min(counts) <= 1


@given(campaigns(), SEEDS)
def test_a12_every_prefix_is_balanced_over_the_replicates_of_a_task(cells: list[CellKey], seed: int) -> None:
    arms = len({cell.arm for cell in cells})
    done: Counter[str] = Counter()
    for cell in order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed):
        done[cell.task] += 1
        assert max(done.values()) - min(done[c.task] for c in cells) <= arms


@given(campaigns(), SEEDS)
def test_a12_arms_of_one_block_stand_side_by_side_longest_task_first(cells: list[CellKey], seed: int) -> None:
    ordered = order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed)
    assert [cell.replicate for cell in ordered] == sorted(cell.replicate for cell in cells)
    arms = {cell.arm for cell in cells}
    blocks = [list(block) for _, block in groupby(ordered, key=lambda cell: (cell.replicate, cell.task))]
    assert all({cell.arm for cell in block} == arms and len(block) == len(arms) for block in blocks)
    for _, group in groupby(blocks, key=lambda block: block[0].replicate):
        lengths = [float("inf") if block[0].declared_limit_s is None else block[0].declared_limit_s for block in group]
        assert lengths == sorted(lengths, reverse=True)


@given(campaigns(), ORDERS, SEEDS, st.data())
def test_a_task_arm_or_replicate_added_later_moves_nobody(cells: list[CellKey], order: Order, seed: int, data: st.DataObject) -> None:
    kept = data.draw(st.sampled_from(["task", "arm", "replicate"]))
    gone = getattr(data.draw(st.sampled_from(cells)), kept)
    fewer = [cell for cell in cells if getattr(cell, kept) != gone]
    ordered = order_cells(cells, order=order, seed=seed)
    assert order_cells(fewer, order=order, seed=seed) == [cell for cell in ordered if cell in set(fewer)]


def _grid(tasks: int, arms: int, replicates: int) -> list[CellKey]:
    return [CellKey(f"t{t}", f"a{a}", r, 600.0) for t in range(tasks) for a in range(arms) for r in range(replicates)]


def test_a12_the_seed_shuffles_ties_and_the_arms_in_each_block() -> None:
    cells = _grid(12, 4, 2)
    one, two = (order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed) for seed in (1, 2))
    assert one != two
    arm_orders = {tuple(cell.arm for cell in one[i : i + 4]) for i in range(0, len(one), 4)}
    assert len(arm_orders) > 5  # of 24; the chance of fewer is below 1e-6
    task_orders = [[cell.task for cell in one if cell.replicate == r][::4] for r in (0, 1)]
    assert task_orders[0] != task_orders[1]


def test_a12_no_arm_is_favoured_by_its_place_in_the_block() -> None:
    cells = _grid(200, 4, 5)
    ordered = order_cells(cells, order=Order.REPLICATE_MAJOR, seed=7)
    first = Counter(cell.arm for cell in ordered[::4])
    assert all(180 < first[arm] < 320 for arm in ("a0", "a1", "a2", "a3"))  # 250 expected, five standard deviations


def test_arm_major_follows_the_given_order_of_arms_then_the_seed() -> None:
    cells = _grid(3, 4, 2)
    ordered = order_cells(cells, order=Order.ARM_MAJOR, seed=3, arms=["a3", "a1"])
    arms = [arm for arm, _ in groupby(ordered, key=lambda cell: cell.arm)]
    assert arms[:2] == ["a3", "a1"]
    assert sorted(arms[2:]) == ["a0", "a2"]
    assert [cell.replicate for cell in ordered[:6]] == [0, 0, 0, 1, 1, 1]


def test_task_major_finishes_the_longest_task_first() -> None:
    cells = [CellKey("short", "a", r, 60.0) for r in (1, 2)] + [CellKey("endless", "a", r, None) for r in (1, 2)]
    ordered = order_cells(cells, order=Order.TASK_MAJOR, seed=1)
    assert [(cell.task, cell.replicate) for cell in ordered] == [("endless", 1), ("endless", 2), ("short", 1), ("short", 2)]


def test_the_same_cell_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        order_cells([CellKey("t", "a", 1, None), CellKey("t", "a", 1, 5.0)], order=Order.TASK_MAJOR, seed=1)


def test_the_order_of_a_seed_never_changes_between_versions() -> None:
    """A campaign that runs for weeks outlives an upgrade of marathond."""
    ordered = order_cells(_grid(2, 2, 2), order=Order.REPLICATE_MAJOR, seed=1)
    assert " ".join(f"{c.task}{c.arm}r{c.replicate}" for c in ordered) == "t1a1r0 t1a0r0 t0a1r0 t0a0r0 t1a0r1 t1a1r1 t0a1r1 t0a0r1"
