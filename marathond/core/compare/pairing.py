"""Which cells are compared: those that are valid in both arms, by task and replicate (fault a07).

Owns the pairs, what was left out and why, and the bounds for what is missing.  Pure.  Must not test anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from marathond.core.compare.paired import mean
from marathond.core.compare.result import Interval, LeftOut, Metric, PairedTask
from marathond.core.results import CellResult

Key = tuple[str, int]
"""Task and replicate."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The cells of one task and replicate in both arms, valid for the metric in question."""

    task: str
    replicate: int
    a: CellResult
    b: CellResult
    value_a: float
    value_b: float

    @property
    def build_failed(self) -> bool:
        return self.a.build_failed or self.b.build_failed


@dataclass(frozen=True, slots=True)
class Pairing:
    """``bounds`` None: no cell is planned in both arms, of a task that has such a number.  ``refused``: pairs that were left out for a
    value that was refused."""

    pairs: tuple[Pair, ...]
    left_out: tuple[LeftOut, ...]
    bounds: Interval | None
    refused: int = 0


def by_key(cells: Iterable[CellResult]) -> dict[Key, CellResult]:
    return {(cell.task, cell.replicate): cell for cell in cells}


def pair(a: str, b: str, cells_a: Mapping[Key, CellResult], cells_b: Mapping[Key, CellResult], metric: Metric) -> Pairing:
    """:param a: the arm's name; ``cells_a``: its cells."""
    pairs: list[Pair] = []
    left_out: list[LeftOut] = []
    refused = 0
    for key in sorted({*cells_a, *cells_b}):
        cell_a, cell_b = cells_a.get(key), cells_b.get(key)
        value_a, value_b = value(cell_a, metric), value(cell_b, metric)
        if cell_a is not None and cell_b is not None and value_a is not None and value_b is not None:
            pairs.append(Pair(*key, cell_a, cell_b, value_a, value_b))
        else:
            left_out.append(LeftOut(*key, _why((a, cell_a, value_a), (b, cell_b, value_b), metric)))
            refused += any(cell is not None and cell.state == "done" and cell.why_refused(metric.value) != "" for cell in (cell_a, cell_b))
    return Pairing(tuple(pairs), tuple(left_out), _bounds(cells_a, cells_b, metric), refused)


def value(cell: CellResult | None, metric: Metric) -> float | None:
    """Of a done cell; None: it is not, or it has none."""
    if cell is None or cell.state != "done":
        return None
    found: float | None = getattr(cell, metric.value)
    return found


def per_task(pairs: Sequence[Pair]) -> tuple[PairedTask, ...]:
    """Means over the replicates of each task, in the tasks' order."""
    tasks: dict[str, list[Pair]] = {}
    for each in pairs:
        tasks.setdefault(each.task, []).append(each)
    found = []
    for task in sorted(tasks):
        mean_a, mean_b = mean([each.value_a for each in tasks[task]]), mean([each.value_b for each in tasks[task]])
        found.append(PairedTask(task, mean_a, mean_b, mean_a - mean_b, len(tasks[task])))
    return tuple(found)


def _why(a: tuple[str, CellResult | None, float | None], b: tuple[str, CellResult | None, float | None], metric: Metric) -> str:
    """``parked: task_unsupported in goal``; the same of both is said once."""
    reasons: dict[str, list[str]] = {}
    for arm, cell, found in (a, b):
        if found is None:
            reasons.setdefault(_missing(cell, metric), []).append(arm)
    return "; ".join(f"{reason} in {' and '.join(arms)}" for reason, arms in reasons.items())


def _missing(cell: CellResult | None, metric: Metric) -> str:
    if cell is None:
        return "not planned"
    if cell.state == "done":
        name = metric.value.replace("_", " ")
        return f"{name} refused" if cell.why_refused(metric.value) else f"no {name}"
    code = {"parked": cell.park_code, "review": cell.review_code}.get(cell.state)
    return f"{cell.state}: {code}" if code else cell.state


def _tells_none(cells: Sequence[CellResult], metric: Metric) -> bool:
    """Of one task: no trial has such a number, refused or not, and not because its build failed alone."""
    done = [cell for cell in cells if cell.state == "done"]
    some = any(value(cell, metric) is not None or cell.why_refused(metric.value) for cell in done)
    return not some and any(not cell.build_failed for cell in done)


def _bounds(cells_a: Mapping[Key, CellResult], cells_b: Mapping[Key, CellResult], metric: Metric) -> Interval | None:
    """Worst and best case (Manski 1990): every missing value of the one arm is 0 and of the other 1, and the other way round.

    Over the tasks that have such a number: of one whose verifier tells none in any trial nothing is missing.
    """
    tasks: dict[str, list[Key]] = {}
    for key in sorted(cells_a.keys() & cells_b.keys()):
        tasks.setdefault(key[0], []).append(key)
    tasks = {
        task: keys for task, keys in tasks.items() if not _tells_none([cells[key] for key in keys for cells in (cells_a, cells_b)], metric)
    }
    if not tasks:
        return None

    def difference(missing_a: float, missing_b: float) -> float:
        means = []
        for keys in tasks.values():
            known_a, known_b = (value(cells_a[key], metric) for key in keys), (value(cells_b[key], metric) for key in keys)
            means.append(
                mean([missing_a if found is None else found for found in known_a])
                - mean([missing_b if found is None else found for found in known_b])
            )
        return mean(means)

    return Interval(difference(0.0, 1.0), difference(1.0, 0.0), 1.0)
