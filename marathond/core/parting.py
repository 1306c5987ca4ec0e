"""The last words of a daemon life: what was asked for, and by number what it leaves to the next one.

Owns the wording alone.  Must not know how any of it was found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marathond.core.names import TrialState, trial_label

NAMED_AT_MOST = 20
"""Trials that are named; more are counted."""
UNDONE_AT_MOST = 10


@dataclass(frozen=True, slots=True)
class Left:
    """``live``: trials that are not at rest, with their state; ``loose``: trials at rest whose container or network may still be there."""

    live: Sequence[tuple[int, str]] = ()
    loose: Sequence[int] = ()


def parting(asked: str, left: Left, undone: Sequence[str] = ()) -> str:
    """One line.  ``asked``: why it ends; ``undone``: clauses for what was begun and cut."""
    going = [trial for trial, state in left.live if state in (TrialState.RUNNING, TrialState.VERIFYING)]
    early = [trial for trial, state in left.live if trial not in going]
    parts = []
    if going:
        parts.append(f"{_trials(going)} left running: {named(going)}")
    if early:
        parts.append(f"{_trials(early)} not begun yet, void at the next start: {named(early)}")
    if left.loose:
        parts.append(f"{_trials(left.loose)} not torn down yet, the next daemon sweeps: {named(left.loose)}")
    parts = parts or ["nothing left running"]
    if undone:
        parts.append(f"cut short: {', '.join(undone[:UNDONE_AT_MOST])}" + _more(len(undone), UNDONE_AT_MOST))
    return f"{asked}: {'; '.join(parts)}"


def named(trials: Sequence[int]) -> str:
    """``t0001 t0002 … and 5 more``."""
    return " ".join(trial_label(trial) for trial in trials[:NAMED_AT_MOST]) + _more(len(trials), NAMED_AT_MOST)


def _trials(trials: Sequence[int]) -> str:
    return f"{len(trials)} trial{'' if len(trials) == 1 else 's'}"


def _more(count: int, shown: int) -> str:
    return f" and {count - shown} more" if count > shown else ""
