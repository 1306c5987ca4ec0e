"""What the first requests of a campaign's trials say about its arms: alike within an arm, and between arms different by declaration alone.

Pure.  It compares arms only to say that a comparison is hurt, and decides nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from marathond.core.contract import Declared, Difference, Path, differences, undeclared, undelivered
from marathond.core.model_rules import Found
from marathond.core.names import trial_label

CODE = "arm_contract_differs"
NAMED_AT_MOST = 8
"""Differences named in one finding."""
_OF_THE_TASK = ("instructions",)
"""What a task's own files may change (its skills, say), alike for all arms: compared between trials of one task only."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The shape of one trial's first request (:func:`marathond.core.contract.shape`)."""

    trial_id: int
    arm: str
    task: str
    shape: Mapping[str, Any]


def contracts_differ(asked: Sequence[Asked], declared: Mapping[tuple[str, str], Sequence[Declared]]) -> list[Found]:
    """Every finding that these give; one that is not among them any more is over.

    :param asked: in the order of the trials, so that the first of an arm is what the others are compared with.
    :param declared: of each pair of arms, in the order in which these first come.
    """
    firsts: dict[str, Asked] = {}
    for one in asked:
        firsts.setdefault(one.arm, one)
    return [
        *(found for arm, first in firsts.items() if (found := _within(first, [one for one in asked if one.arm == arm])) is not None),
        *(found for a, b in combinations(firsts, 2) if (found := _between(a, b, asked, declared.get((a, b), ()))) is not None),
    ]


def _within(first: Asked, others: Sequence[Asked]) -> Found | None:
    """Trials of one arm that asked for something else than its first one; of the same task where that matters."""
    of_task: dict[str, Asked] = {}
    strange: dict[str, list[int]] = {}
    for one in others:
        mine = of_task.setdefault(one.task, one)
        found = [each for each in differences(first.shape, one.shape) if each.path[:1] != _OF_THE_TASK]
        found += [each for each in differences(mine.shape, one.shape) if each.path[:1] == _OF_THE_TASK]
        for each in found:
            strange.setdefault(each.words(trial_label(first.trial_id), "these"), []).append(one.trial_id)
    if not strange:
        return None
    listed = [f"{words} ({_trials(trials)})" for words, trials in strange.items()]
    return Found(CODE, "error", first.arm, f"trials of {first.arm} differ in their first request: {_some(listed)}")


def _between(a: str, b: str, asked: Sequence[Asked], declared: Sequence[Declared]) -> Found | None:
    """Two arms by their first trials of one task, or of any where they share none yet."""
    by_task: dict[str, dict[str, Asked]] = {}
    for one in asked:
        if one.arm in (a, b):
            by_task.setdefault(one.task, {}).setdefault(one.arm, one)
    same = next((pair for pair in by_task.values() if len(pair) == 2), None)
    pair = same or {arm: next(one for one in asked if one.arm == arm) for arm in (a, b)}
    left, right = pair[a], pair[b]
    found = undeclared(left.shape, right.shape, declared)
    if same is None:
        found = [each for each in found if each.path[:1] != _OF_THE_TASK]
    # Input and configuration are no part of a shape: what is declared of them cannot be missed in it.
    parts = (("tools",),) if same is None else (("tools",), _OF_THE_TASK)
    told = [each for each in declared if any(path[:1] in parts for path in each.paths)]
    missing = [
        f"{each.field} declares {'.'.join(_in_shape(each, parts))}: both are alike in it"
        for each in undelivered(left.shape, right.shape, told)
    ]
    missing += [f"{each.field}: it is not known what it declares" for each in declared if not each.paths]
    if not found and not missing:
        return None
    names = f"{trial_label(left.trial_id)} and {trial_label(right.trial_id)}"
    words = f"{a} and {b} differ in what no row declares ({names}): {_some([*_words(found, a, b), *missing])}"
    return Found(CODE, "error", f"{a} x {b}", words)


def _in_shape(declared: Declared, parts: Sequence[Path]) -> Path:
    return next(path for path in declared.paths if path[:1] in parts)


def _words(found: Sequence[Difference], a: str, b: str) -> list[str]:
    return [each.words(a, b) for each in found]


def _trials(trials: Sequence[int]) -> str:
    shown = ", ".join(trial_label(trial) for trial in trials[:5])
    return shown if len(trials) <= 5 else f"{shown} and {len(trials) - 5} more"


def _some(words: Sequence[str]) -> str:
    more = f"; and {len(words) - NAMED_AT_MOST} more" if len(words) > NAMED_AT_MOST else ""
    return "; ".join(words[:NAMED_AT_MOST]) + more
