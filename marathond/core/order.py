"""In which order cells are offered (fault a12: arms run one after another while the provider changes in between).

Owns the three orders, and what the blocks of a replicate learn from those before it.  Randomness is a hash of the seed and the cell's
own names, so that a task, arm or replicate added later leaves the others where they were.  Must not know which cells are done.  What is
learned is a task's, over all arms together: nothing here tells how long one arm takes (promise 2).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Order(StrEnum):
    """``replicate-major``: stopping at any moment leaves a table as balanced as can be."""

    REPLICATE_MAJOR = "replicate-major"
    ARM_MAJOR = "arm-major"
    TASK_MAJOR = "task-major"


class Expected(StrEnum):
    """What a replicate that begins takes for a task's length, under ``replicate-major``.

    ``learned``: among tasks with the same declared limit what their trials took so far; ``declared``: the limit alone.
    """

    LEARNED = "learned"
    DECLARED = "declared"


@dataclass(frozen=True, slots=True)
class CellKey:
    """A cell and the limit (seconds) its task declares; None: no limit, which counts as the longest."""

    task: str
    arm: str
    replicate: int
    declared_limit_s: float | None


@dataclass(frozen=True, slots=True)
class Lasted:
    """How long trials of one task held their slots, of all arms together; at least one trial."""

    trials: int
    total_ms: int
    longest_ms: int

    @property
    def mean_s(self) -> float:
        return self.total_ms / self.trials / 1000


def order_cells(
    cells: Sequence[CellKey], *, order: Order, seed: int, arms: Sequence[str] = (), settled: Mapping[int, Sequence[str]] | None = None
) -> list[CellKey]:
    """All of ``cells``, in the order in which they are to be started; the order of the input does not matter.

    * ``replicate-major``: replicate by replicate; inside, blocks of one task with all its arms side by side, longest task first, ties
      and the order of arms in each block by seed.
    * ``arm-major``: arm by arm, in the order of ``arms`` (those not named follow by seed); inside, replicates, then longest task.
    * ``task-major``: longest task first, ties by seed; inside, replicates, then arms by seed in each block.

    :param settled: replicate to its tasks in the order that they have, of replicates that have begun; a task that is not named there
        follows.  Counts under ``replicate-major`` only.
    :raises ValueError: the same cell twice.
    """
    if len({(cell.task, cell.arm, cell.replicate) for cell in cells}) != len(cells):
        raise ValueError("the same cell is given twice")
    length = _task_lengths(cells)
    rank = {arm: place for place, arm in enumerate(arms)}
    begun = {replicate: {task: place for place, task in enumerate(tasks)} for replicate, tasks in (settled or {}).items()}
    nothing: dict[str, int] = {}

    def by_replicate(cell: CellKey) -> tuple[object, ...]:
        tie = _draw(seed, "task", cell.replicate, cell.task)
        return (cell.replicate, -length[cell.task], tie, _draw(seed, "arm", cell.task, cell.replicate, cell.arm))

    def by_settled(cell: CellKey) -> tuple[object, ...]:
        places = begun.get(cell.replicate, nothing)
        return (cell.replicate, places.get(cell.task, len(places)), *by_replicate(cell))

    def by_arm(cell: CellKey) -> tuple[object, ...]:
        tie = _draw(seed, "arm", cell.arm)
        return (rank.get(cell.arm, len(rank)), tie, *by_replicate(cell))

    def by_task(cell: CellKey) -> tuple[object, ...]:
        return (-length[cell.task], _draw(seed, "task", cell.task), *by_replicate(cell))

    keys: dict[Order, Callable[[CellKey], tuple[object, ...]]] = {
        Order.REPLICATE_MAJOR: by_settled,
        Order.ARM_MAJOR: by_arm,
        Order.TASK_MAJOR: by_task,
    }
    return sorted(cells, key=keys[order])


OUTLASTS = 1.2
"""How much longer than the last replicate's share of a slot a trial must have taken for :func:`short_half_first`."""


def block_order(
    limits_s: Mapping[str, float | None], lasted: Mapping[str, Lasted], *, replicate: int, seed: int, short_first: bool = False
) -> list[str]:
    """The tasks of a replicate that begins, in the order of their blocks.

    Longest declared limit first: it alone bounds what an arm may take that was quick so far.  Among tasks with one limit, the one first
    whose trials took longest on the mean, of all arms together; a task without a trial counts as taking its whole limit.  In the last
    quarter of the blocks the longest trial counts instead of the mean: what is started last ends when its longest trial does.  Ties by
    seed.

    :param limits_s: of every task of the replicate; None: no limit, which counts as the longest.
    :param lasted: of tasks of which a trial ended.
    :param short_first: the shorter half goes first, see :func:`short_half_first`.
    """

    def key(task: str, length_s: float | None) -> tuple[object, ...]:
        limit = limits_s[task]
        most = float("inf") if limit is None else limit
        return (-most, -(most if length_s is None else length_s), _draw(seed, "task", replicate, task))

    ordered = sorted(limits_s, key=lambda task: key(task, lasted[task].mean_s if task in lasted else None))
    at = len(ordered) - len(ordered) // 4
    ordered[at:] = sorted(ordered[at:], key=lambda task: key(task, lasted[task].longest_ms / 1000 if task in lasted else None))
    half = len(ordered) // 2
    return ordered[half:] + ordered[:half] if short_first else ordered


def short_half_first(lasted: Mapping[str, Lasted], *, cells: int, slots: int) -> bool:
    """Whether the last replicate but one should begin with its shorter half.

    The last replicate begins when everything before it was started.  Where one of its trials may take longer than the whole replicate
    gives each slot to do, that beginning decides when the campaign ends: then the long blocks before it are started last, and it begins
    while they still run.

    :param cells: of the last replicate.
    :param slots: trials at one time.
    """
    if not lasted:
        return False
    mean_ms = sum(each.total_ms for each in lasted.values()) / sum(each.trials for each in lasted.values())
    return max(each.longest_ms for each in lasted.values()) * slots > OUTLASTS * mean_ms * cells


def _task_lengths(cells: Sequence[CellKey]) -> dict[str, float]:
    """Each task's longest declared limit; infinity for a task with an unlimited cell."""
    lengths: dict[str, float] = {}
    for cell in cells:
        limit = float("inf") if cell.declared_limit_s is None else cell.declared_limit_s
        lengths[cell.task] = max(limit, lengths.get(cell.task, limit))
    return lengths


def _draw(*parts: str | int) -> bytes:
    """A number by seed and names alone.  JSON keeps the parts apart: ``a|b`` + ``c`` is not ``a`` + ``b|c``."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).digest()
