"""In which order cells are offered (fault a12: arms run one after another while the provider changes in between).

Owns the three orders.  Randomness is a hash of the seed and the cell's own names, so that a task, arm or replicate added later
leaves the others where they were.  Must not know which cells are done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Order(StrEnum):
    """``replicate-major``: stopping at any moment leaves a table as balanced as can be."""

    REPLICATE_MAJOR = "replicate-major"
    ARM_MAJOR = "arm-major"
    TASK_MAJOR = "task-major"


@dataclass(frozen=True, slots=True)
class CellKey:
    """A cell and the limit (seconds) its task declares; None: no limit, which counts as the longest."""

    task: str
    arm: str
    replicate: int
    declared_limit_s: float | None


def order_cells(cells: Sequence[CellKey], *, order: Order, seed: int, arms: Sequence[str] = ()) -> list[CellKey]:
    """All of ``cells``, in the order in which they are to be started; the order of the input does not matter.

    * ``replicate-major``: replicate by replicate; inside, blocks of one task with all its arms side by side, longest task first, ties
      and the order of arms in each block by seed.
    * ``arm-major``: arm by arm, in the order of ``arms`` (those not named follow by seed); inside, replicates, then longest task.
    * ``task-major``: longest task first, ties by seed; inside, replicates, then arms by seed in each block.

    :raises ValueError: the same cell twice.
    """
    if len({(cell.task, cell.arm, cell.replicate) for cell in cells}) != len(cells):
        raise ValueError("the same cell is given twice")
    length = _task_lengths(cells)
    rank = {arm: place for place, arm in enumerate(arms)}

    def by_replicate(cell: CellKey) -> tuple[object, ...]:
        tie = _draw(seed, "task", cell.replicate, cell.task)
        return (cell.replicate, -length[cell.task], tie, _draw(seed, "arm", cell.task, cell.replicate, cell.arm))

    def by_arm(cell: CellKey) -> tuple[object, ...]:
        tie = _draw(seed, "arm", cell.arm)
        return (rank.get(cell.arm, len(rank)), tie, *by_replicate(cell))

    def by_task(cell: CellKey) -> tuple[object, ...]:
        return (-length[cell.task], _draw(seed, "task", cell.task), *by_replicate(cell))

    keys: dict[Order, Callable[[CellKey], tuple[object, ...]]] = {
        Order.REPLICATE_MAJOR: by_replicate,
        Order.ARM_MAJOR: by_arm,
        Order.TASK_MAJOR: by_task,
    }
    return sorted(cells, key=keys[order])


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
