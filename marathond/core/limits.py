"""Which time limit a trial really has, and where it came from (fault c15: which of two deadlines fires must never be a surprise).

Owns the rule: the effective deadline is the smaller of our own and the task's times the multiplier.  Must not know clocks.
"""

from __future__ import annotations

from marathond.core.model import Limit
from marathond.core.names import Origin


def effective_agent_limit(own_s: float | None, task_s: float | None, multiplier: float) -> Limit:
    """The agent's deadline in seconds: ``min(own, task x multiplier)``; at equality it is ours.

    ``own_s`` None: no own deadline.  ``task_s`` None: the task declares no limit.  Both None: unlimited, origin ``none``.
    The other limit, if there is one, is kept in ``loser``.

    :raises ValueError: a limit or the multiplier is not greater than 0.
    """
    _positive(own_s, task_s, multiplier)
    own, task = Origin.OWN.value, _times(Origin.TASK, task_s, multiplier)
    if own_s is None:
        return Limit(None, Origin.NOT_SET.value) if task_s is None else Limit(task_s * multiplier, task)
    if task_s is None:
        return Limit(own_s, own)
    if own_s <= task_s * multiplier:
        return Limit(own_s, own, loser=task)
    return Limit(task_s * multiplier, task, loser=f"{own} {_number(own_s)}")


def effective_verifier_limit(task_s: float, multiplier: float, *, declared: bool) -> Limit:
    """The verifier's deadline in seconds: the task's, or (``declared`` False) the format's default, times the multiplier.

    :raises ValueError: the limit or the multiplier is not greater than 0.
    """
    _positive(task_s, multiplier)
    return Limit(task_s * multiplier, _times(Origin.TASK if declared else Origin.FORMAT_DEFAULT, task_s, multiplier))


OVERRUN_AT_MOST_MS, OVERRUN_SHARE = 15 * 60_000, 0.1
"""Time past its deadline that an agent may have had by accident, whichever is larger; beyond it a person looks (fault c19)."""


def overran(overrun_ms: int | None, limit_ms: int | None) -> bool:
    """Whether an agent had so much more than its time that its score says little.  None: unknown, or without limit."""
    return overrun_ms is not None and limit_ms is not None and overrun_ms > max(OVERRUN_AT_MOST_MS, OVERRUN_SHARE * limit_ms)


def _times(origin: Origin, limit_s: float | None, multiplier: float) -> str:
    return "" if limit_s is None else f"{origin.value} {_number(limit_s)} x {float(multiplier)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _positive(*values: float | None) -> None:
    for value in values:
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"a limit and its multiplier must be finite and greater than 0, not {value}")
