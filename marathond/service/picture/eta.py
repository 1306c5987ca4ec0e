"""When a campaign will be done, and what that rests on.

Owns the estimate: what runs now and the open cells, in the order of the plan, are laid over the slots, each as long as trials of its task
were.  Pure; foresees no void, no pause and no change of a knob.  Must stay light, see :mod:`.reader`.

How long a cell takes is drawn from what was seen, the first of these that there is:

1. durations of its own task; with fewer than :data:`OWN_ENOUGH` of them, their mean times a factor by which trials of this campaign
   differ from the mean of their task;
2. the task's declared limit times a share of its limit that a trial of another task took;
3. any duration of the campaign.

This is done :data:`ROUNDS` times, each time with durations that were first drawn anew from those seen (a bootstrap), by random numbers
that are the same at every look.  The middle one is the estimate, the range leaves out a tenth of them on each side.

Two properties hold by construction, since every round uses the same lengths whatever the slots: nothing ends before what runs now, and
one more slot never makes it later.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from marathond.core.text import plural

ROUNDS = 20
LISTED = 600
"""Open cells that are laid one by one, the last ones of the plan: the end depends on these.  Those before them fill the slots evenly."""
OWN_ENOUGH = 3
RANGE_FROM = 5
"""Durations below which there is no range."""
RANGE_TASKS = 0.9
"""Share of the tasks with something to run that must have been seen for one: of the others nobody knows how far they differ."""


@dataclass(frozen=True, slots=True)
class Eta:
    """``ms`` None: cannot be told, and ``basis`` says why.  ``low_ms``, ``high_ms``: eight times in ten the end lies between them, if
    things go on as they went; None: too few durations to say."""

    ms: int | None
    basis: str
    low_ms: int | None = None
    high_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A trial in work.  ``left_ms``: what is left of its agent's limit; None: it has none, or its agent does not run."""

    task_id: int
    elapsed_ms: int
    left_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """What is to be done, and what was seen.

    ``open_tasks``: the task of each open cell in the order of the plan, at least the last ones; ``more``: open cells before those.
    ``claimed``: cells in work, those being torn down as well.  ``limits_ms``: of every task of the campaign its declared limit, None: none.
    ``lengths``: (task, milliseconds from claim to release) of trials that count.
    """

    open_tasks: Sequence[int] = ()
    more: int = 0
    claimed: int = 0
    running: Sequence[Running] = ()
    limits_ms: Mapping[int, int | None] = field(default_factory=dict)
    lengths: Sequence[tuple[int, int]] = ()

    @property
    def open(self) -> int:
        return len(self.open_tasks) + self.more


def estimate(left: Left, slots: int | None, *, closed: str = "", blocked: str = "", bound: str = "") -> Eta:
    """When the last open cell ends, from now, in milliseconds; ``basis`` like ``from 212 durations of 18 of 20 tasks``: of those with
    something to run.

    :param slots: trials at one time; None: the daemon has not said.
    :param closed: what closes admission; empty: it is open.
    :param blocked: why there is no telling whatever was seen; empty: there may be.
    :param bound: what keeps the slots below the knob, such as ``CPU``; empty: nothing does.
    """
    if not left.open and not left.claimed:
        return Eta(0, "nothing left to run")
    if blocked:
        return Eta(None, blocked)
    if left.open and closed:
        return Eta(None, f"admission is closed: {closed}")
    if not left.lengths:
        return Eta(None, "no durations yet")
    if left.open and slots is None:
        return Eta(None, "concurrency not known")
    seen = _Seen(left)
    ends = sorted(_round(left, seen, max(1, slots or 1), Random(number)) for number in range(ROUNDS))
    low: int | None
    high: int | None
    low, high = (int(ends[at]) for at in (ROUNDS // 10, ROUNDS - 1 - ROUNDS // 10))
    wanted = {*left.open_tasks, *(trial.task_id for trial in left.running), *(left.limits_ms if left.more else ())}
    known = {task_id for task_id, _ in left.lengths} & wanted
    basis = f"from {plural(len(left.lengths), 'duration')}"
    basis += f" of {len(known)} of {plural(len(wanted), 'task')}" if wanted else ""
    basis += f"; {bound} lets {slots} run" if bound and left.open else ""
    if len(left.lengths) < RANGE_FROM or len(known) < RANGE_TASKS * len(wanted) or low >= high:
        low = high = None
    return Eta(int(ends[ROUNDS // 2]), basis, low, high)


# ── one round ──


def _round(left: Left, seen: _Seen, slots: int, dice: Random) -> float:
    """Milliseconds until the last cell ends, with lengths drawn by ``dice``."""
    drawn = _Lengths(seen, dice)
    remaining = sorted(drawn.rest_of(trial) for trial in left.running)
    end = remaining[-1] if remaining else 0.0
    # More run than there are slots when the knob was lowered: the first ones to end make no room.
    loads = remaining[max(0, len(remaining) - slots) :]
    loads = [0.0] * (slots - len(loads)) + loads
    bulk = sum(count * drawn.mean(task_id) for task_id, count in Counter(left.open_tasks[:-LISTED]).items())
    if left.more:
        mix = Counter(left.open_tasks or tuple(left.limits_ms) or (0,))
        bulk += left.more * sum(count * drawn.mean(task_id) for task_id, count in mix.items()) / mix.total()
    if bulk:
        loads = poured(loads, bulk)
        end = max(end, loads[0])
    of, replace = drawn.of, heapq.heapreplace
    for task_id in left.open_tasks[-LISTED:]:
        done = loads[0] + of(task_id)
        replace(loads, done)
        if done > end:
            end = done
    return end


def poured(loads: Sequence[float], amount: float) -> list[float]:
    """``amount`` of work spread over slots that are busy until ``loads``, as water finds its level; lowest first."""
    ordered, below = sorted(loads), amount
    for count, load in enumerate(ordered, start=1):
        below += load
        level = below / count
        if count == len(ordered) or level <= ordered[count]:
            return [level] * count + ordered[count:]
    return ordered


class _Seen:
    """What was seen, sorted for the rounds.

    The first trials to end are the short ones: early in a campaign their durations alone promise too much.  So each trial in work counts
    as well, as long as it has run and as trials that ran longer went on.
    """

    def __init__(self, left: Left) -> None:
        self.limits = left.limits_ms
        self.own: dict[int, list[float]] = {}
        for task_id, length in left.lengths:
            self.own.setdefault(task_id, []).append(length)
        self._sort()
        for trial in sorted(left.running, key=lambda trial: trial.elapsed_ms):
            whole = trial.elapsed_ms + self.rest_of(trial, mean_of)
            self.own.setdefault(trial.task_id, []).append(whole)
        self._sort()

    def _sort(self) -> None:
        self._ordered: dict[int, list[float]] = {}
        self.means = {task_id: sum(lengths) / len(lengths) for task_id, lengths in self.own.items()}
        every = [(task_id, length) for task_id, lengths in self.own.items() for length in lengths]
        self.all = [length for _, length in every]
        self.shares = [length / limit for task_id, length in every if (limit := self.limits.get(task_id))]
        # A task with one duration has nothing to differ from.
        self.factors = [length / mean for task_id, length in every if len(self.own[task_id]) > 1 and (mean := self.means[task_id]) > 0]

    def of(self, task_id: int) -> tuple[float, Sequence[float]]:
        """A scale, and values to be taken times it."""
        if (own := self.own.get(task_id)) is not None:
            return 1.0, own
        limit = self.limits.get(task_id)
        return (float(limit), self.shares) if limit and self.shares else (1.0, self.all)

    def rest_of(self, trial: Running, choose: Callable[[Sequence[float]], float]) -> float:
        """What is left of a trial: what is chosen of the lengths beyond what it has run already.

        One that has run longer than all goes on as if it began anew, at most to its limit.
        """
        if (ordered := self._ordered.get(trial.task_id)) is None:
            scale, values = self.of(trial.task_id)
            ordered = self._ordered[trial.task_id] = sorted(scale * value for value in values)
        if longer := ordered[bisect_right(ordered, trial.elapsed_ms) :]:
            return choose(longer) - trial.elapsed_ms
        rest = mean_of(ordered)
        return rest if trial.left_ms is None else min(rest, max(0, trial.left_ms))


def mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class _Lengths:
    """Durations as one round believes in them."""

    def __init__(self, seen: _Seen, dice: Random) -> None:
        self._seen, self._draw = seen, dice.random
        self._factors = seen.factors or [1.0]
        self._known: dict[int, tuple[float, Sequence[float]]] = {}
        for task_id, lengths in seen.own.items():
            if (count := len(lengths)) >= OWN_ENOUGH:
                self._known[task_id] = 1.0, [lengths[int(self._draw() * count)] for _ in lengths]
            else:  # how far its own mean can be trusted, and how its trials differ, is known from the other tasks alone
                self._known[task_id] = seen.means[task_id] * self._pick(self._factors), self._factors
        self._means: dict[int, float] = {}

    def _of(self, task_id: int) -> tuple[float, Sequence[float]]:
        if (found := self._known.get(task_id)) is None:
            found = self._known[task_id] = self._seen.of(task_id)
        return found

    def _pick(self, values: Sequence[float]) -> float:
        return values[int(self._draw() * len(values))]

    def of(self, task_id: int) -> float:
        scale, values = self._of(task_id)
        return scale * values[int(self._draw() * len(values))]

    def mean(self, task_id: int) -> float:
        if task_id not in self._means:
            scale, values = self._of(task_id)
            self._means[task_id] = scale * mean_of(values)
        return self._means[task_id]

    def rest_of(self, trial: Running) -> float:
        return self._seen.rest_of(trial, self._pick)
