"""What differs between two campaigns of a ledger, and their results side by side over the cells that count in both.

Owns which difference makes a comparison of the two none: one of the treatment, of an arm of one name, of a task of one name.  Pure; means
alone, intervals are the report's (core/compare).  A cell is one task, arm and replicate, by name; of a task that is not the same in both no
cell is common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from marathond.core.contract import ABSENT, differences
from marathond.core.mounts import Reading, by_mount, known, story

NAMED = 5
"""Names in one warning."""
HASH = "treatment_hash"


@dataclass(frozen=True, slots=True)
class Done:
    """A cell with its trial's score.  None: the trial has no such number."""

    task: str
    arm: str
    replicate: int
    reward: float
    partial: float | None
    test_rate: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One campaign.  ``treatment``: what all its cells share; ``arms``, ``tasks``: by name all that an agent or a verifier meets;
    ``operation``: what decides no result.  ``cells``: how many it has; ``done``: those that count.  ``mounted``: what arms' mounts held."""

    name: str
    treatment: Mapping[str, Any] = field(default_factory=dict)
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    operation: Mapping[str, Any] = field(default_factory=dict)
    cells: int = 0
    done: Sequence[Done] = ()
    mounted: Sequence[Reading] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """``a``, ``b``: the two values; None where only the other side (``only``: ``a`` or ``b``) has it."""

    where: str
    a: Any
    b: Any
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """An arm or a task of one name in both, and what it differs in."""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Means:
    """Over the same cells of both campaigns.  None: none of them has that number on that side."""

    name: str
    cells: int
    reward_a: float | None
    reward_b: float | None
    partial_a: float | None
    partial_b: float | None
    test_rate_a: float | None
    test_rate_b: float | None
    like: bool
    """Whether the arm (or task) is the same in both."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """``common``: cells that count in both.  ``warnings``: why the results do not compare like with like; empty: they do."""

    a: str
    b: str
    cells_a: int
    cells_b: int
    done_a: int
    done_b: int
    common: int
    treatment: tuple[Change, ...]
    arms: tuple[Named, ...]
    arms_only_a: tuple[str, ...]
    arms_only_b: tuple[str, ...]
    tasks: tuple[Named, ...]
    tasks_only_a: tuple[str, ...]
    tasks_only_b: tuple[str, ...]
    operation: tuple[Change, ...]
    by_arm: tuple[Means, ...]
    by_task: tuple[Means, ...]
    warnings: tuple[str, ...]


def unlike(a: Side, b: Side) -> Unlike:
    """What differs, in the order of ``a``."""
    treatment, tasks = _changes(a.treatment, b.treatment), _named(a.tasks, b.tasks)
    contents, unsure = _contents(a, b)
    arms = _named(a.arms, b.arms, contents)
    changed_arms, changed_tasks = {each.name for each in arms}, {each.name for each in tasks}
    ours = {(cell.task, cell.arm, cell.replicate): cell for cell in a.done}
    theirs = {(cell.task, cell.arm, cell.replicate): cell for cell in b.done}
    common = [key for key in ours if key in theirs and key[0] not in changed_tasks]
    pairs = [(ours[key], theirs[key]) for key in common]
    return Unlike(
        a=a.name,
        b=b.name,
        cells_a=a.cells,
        cells_b=b.cells,
        done_a=len(a.done),
        done_b=len(b.done),
        common=len(common),
        treatment=treatment,
        arms=arms,
        arms_only_a=_only(a.arms, b.arms),
        arms_only_b=_only(b.arms, a.arms),
        tasks=tasks,
        tasks_only_a=_only(a.tasks, b.tasks),
        tasks_only_b=_only(b.tasks, a.tasks),
        operation=_changes(a.operation, b.operation),
        by_arm=tuple(
            _means(arm, [pair for pair in pairs if pair[0].arm == arm], arm not in changed_arms) for arm in a.arms if arm in b.arms
        ),
        by_task=tuple(
            _means(task, [pair for pair in pairs if pair[0].task == task], True) for task in _both(a.tasks, b.tasks, changed_tasks)
        ),
        warnings=(*_warnings(treatment, arms, tasks), *unsure),
    )


def _warnings(treatment: Sequence[Change], arms: Sequence[Named], tasks: Sequence[Named]) -> Iterable[str]:
    if treatment:
        yield f"the treatments differ ({_listed(change.where for change in treatment)}): what differs below may come from that"
    if arms:
        yield f"arms of one name are not the same arm ({_listed(each.name for each in arms)}): their rows do not compare like with like"
    if tasks:
        yield f"tasks of one name are not the same task ({_listed(each.name for each in tasks)}): none of their cells is common"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:NAMED]) + (f" and {len(every) - NAMED} more" if len(every) > NAMED else "")


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Change, ...]:
    found = []
    for each in differences(a, b):
        only = "b" if each.a is ABSENT else "a" if each.b is ABSENT else None
        found.append(Change(each.where, None if each.a is ABSENT else each.a, None if each.b is ABSENT else each.b, only))
    return tuple(found)


def _named(
    a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]], more: Mapping[str, tuple[Change, ...]] = MappingProxyType({})
) -> tuple[Named, ...]:
    """``more``: what of one name differs besides its row."""
    found = ((name, (*_changes(a[name], b[name]), *more.get(name, ()))) for name in a if name in b)
    return tuple(Named(name, _telling(changes)) for name, changes in found if changes)


def _contents(a: Side, b: Side) -> tuple[dict[str, tuple[Change, ...]], list[str]]:
    """By arm, mounts of both sides that did not hold the same; and in words those of which that is not known."""
    changed: dict[str, tuple[Change, ...]] = {}
    unsure = []
    ours, theirs = by_mount(a.mounted), by_mount(b.mounted)
    for arm, target in dict.fromkeys([*ours, *theirs]):
        if arm not in a.arms or arm not in b.arms or not (_mounts(a, arm, target) and _mounts(b, arm, target)):
            continue  # one side mounts nothing there: its row differs
        seen = [(a, ours.get((arm, target), ())), (b, theirs.get((arm, target), ()))]
        had, has = (_values(group) for _, group in seen)
        if had and has and (had != has or len(had) > 1):
            where = f"content of {target}"
            changed[arm] = (*changed.get(arm, ()), Change(where, had[0] if len(had) == 1 else had, has[0] if len(has) == 1 else has))
        else:
            unsure += [_unsure(arm, target, side, group) for side, group in seen if _in_doubt(group)]
    return changed, unsure


def _mounts(side: Side, arm: str, target: str) -> bool:
    return any(mount["target"] == target for mount in side.arms[arm].get("mounts") or ())


def _values(readings: Sequence[Reading]) -> list[str]:
    """What is known of it; one that is there was a value of trials before one that is the submission's alone counts."""
    tried = [each for each in readings if each.trials and known(each.value)]
    return sorted({each.value for each in tried or readings if known(each.value)})


def _in_doubt(readings: Sequence[Reading]) -> bool:
    return not _values(readings) or any(each.trials and not known(each.value) for each in readings)


def _unsure(arm: str, target: str, side: Side, group: Sequence[Reading]) -> str:
    said = story([each for each in group if not known(each.value)]) or "no trial yet"
    return f"whether arm {arm} mounts the same at {target} is not known ({side.name}: {said})"


def _telling(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """A hash says that something differs; where what differs is told, it tells nothing more."""
    return tuple(each for each in changes if each.where != HASH) or changes


def _only(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in a if name not in b)


def _both(a: Mapping[str, Any], b: Mapping[str, Any], changed: set[str]) -> list[str]:
    return [name for name in a if name in b and name not in changed]


def _means(name: str, pairs: Sequence[tuple[Done, Done]], like: bool) -> Means:
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = [_mean(getattr(cell, key) for cell in side) for key in ("reward", "partial", "test_rate") for side in (ours, theirs)]
    return Means(name, len(pairs), found[0], found[1], found[2], found[3], found[4], found[5], like)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
