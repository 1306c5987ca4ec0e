"""What a replicate that begins takes from the trials before it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields
from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from marathond.core.order import CellKey, Lasted, Order, block_order, order_cells, short_half_first
from marathond.core.plan import OpenCell

LIMITS = st.dictionaries(st.text("abcde", min_size=1, max_size=3), st.sampled_from([None, 600.0, 3600.0]), min_size=1, max_size=8)
LASTED = st.builds(
    lambda n, each, more: Lasted(n, n * each + more, each + more), st.integers(1, 9), st.integers(0, 9_000), st.integers(0, 9)
)
SEEDS = st.integers(0, 2**63 - 1)


@st.composite
def known(draw: st.DrawFn) -> tuple[Mapping[str, float | None], Mapping[str, Lasted]]:
    limits = draw(LIMITS)
    return limits, {task: draw(LASTED) for task in draw(st.sets(st.sampled_from(sorted(limits))))}


@given(known(), SEEDS, st.booleans(), st.randoms(use_true_random=False))
def test_a12_the_blocks_order_depends_on_what_is_known_and_the_seed_alone(
    case: tuple[Mapping[str, float | None], Mapping[str, Lasted]], seed: int, short_first: bool, dice: random.Random
) -> None:
    limits, lasted = case
    ordered = block_order(limits, lasted, replicate=2, seed=seed, short_first=short_first)
    assert sorted(ordered) == sorted(limits)
    shuffled = dice.sample(sorted(limits), len(limits))
    assert ordered == block_order({task: limits[task] for task in shuffled}, lasted, replicate=2, seed=seed, short_first=short_first)


@given(known(), SEEDS)
def test_the_declared_limit_comes_first_and_what_was_learned_among_equals(
    case: tuple[Mapping[str, float | None], Mapping[str, Lasted]], seed: int
) -> None:
    limits, lasted = case
    ordered = block_order(limits, lasted, replicate=3, seed=seed)
    most = {task: float("inf") if limit is None else limit for task, limit in limits.items()}
    at = len(ordered) - len(ordered) // 4
    for part, name in ((ordered[:at], "mean_s"), (ordered[at:], "longest_ms")):
        length = {task: getattr(lasted[task], name) if task in lasted else float("inf") for task in limits}
        for earlier, later in pairwise(part):
            if earlier in lasted and later in lasted:
                assert (most[earlier], length[earlier]) >= (most[later], length[later])
    assert [most[task] for task in ordered] == sorted(most.values(), reverse=True)
    half = len(ordered) // 2
    assert block_order(limits, lasted, replicate=3, seed=seed, short_first=True) == ordered[half:] + ordered[:half]


@given(LIMITS, SEEDS, st.integers(1, 4))
def test_who_has_learned_nothing_keeps_the_declared_order(limits: Mapping[str, float | None], seed: int, replicate: int) -> None:
    cells = [CellKey(task, arm, replicate, limit) for task, limit in limits.items() for arm in "xyz"]
    ordered = order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed)
    blocks = [task for task, _ in groupby(cell.task for cell in ordered)]
    assert block_order(limits, {}, replicate=replicate, seed=seed) == blocks
    assert order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed, settled={replicate: blocks}) == ordered


@given(LIMITS, SEEDS, st.data())
def test_a12_a_settled_replicate_moves_whole_blocks_and_nothing_else(
    limits: Mapping[str, float | None], seed: int, data: st.DataObject
) -> None:
    cells = [CellKey(task, arm, number, limit) for task, limit in limits.items() for arm in "xyz" for number in (1, 2, 3)]
    tasks = data.draw(st.permutations(sorted(limits)))
    named = tasks[: data.draw(st.integers(0, len(tasks)))]
    before = order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed)
    after = order_cells(cells, order=Order.REPLICATE_MAJOR, seed=seed, settled={2: named})
    third = len(limits) * 3
    assert after[:third] == before[:third] and after[2 * third :] == before[2 * third :]
    blocks = [list(block) for _, block in groupby(after[third : 2 * third], key=lambda cell: cell.task)]
    assert [block[0].task for block in blocks][: len(named)] == named
    assert all(block == [cell for cell in before if (cell.task, cell.replicate) == (block[0].task, 2)] for block in blocks)
    other = order_cells(cells, order=Order.TASK_MAJOR, seed=seed, settled={2: named})
    assert other == order_cells(cells, order=Order.TASK_MAJOR, seed=seed)


@given(st.dictionaries(st.sampled_from("abc"), LASTED), st.integers(1, 99))
def test_the_shorter_half_goes_first_only_from_so_many_slots_on(lasted: Mapping[str, Lasted], cells: int) -> None:
    said = [short_half_first(lasted, cells=cells, slots=slots) for slots in range(1, 400)]
    assert said == sorted(said)
    longest = {"a": Lasted(4, 40_000, 20_000)}  # 20 s against 10 s a trial
    assert not short_half_first(longest, cells=100, slots=60) and short_half_first(longest, cells=100, slots=61)


def test_promise_2_neither_what_is_planned_nor_what_is_learned_carries_an_arm() -> None:
    assert {each.name for each in fields(OpenCell)} == {"cell_id", "task_id", "cpus", "memory_mb", "needs_network", "block_id"}
    assert {each.name for each in fields(Lasted)} == {"trials", "total_ms", "longest_ms"}
