"""What ``loopx quota should-run`` answered, as a value: whether, when and on what to go on.

Pure.  Owns the shape that is expected of the answer.  Must not know what a driver makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STOP = "stop_until_explicit_resume"
MINUTE_S = 60.0
NUMBER_BELOW = 1e9
"""No pause in minutes, multiplier or bound is larger: what is derived from it must stay a number (NaN is below nothing)."""


@dataclass(frozen=True, slots=True)
class Quota:
    """:param action: the scheduler's word: ``run_now``, ``backoff_…``, :data:`STOP`; ``effective``: of the answer as a whole
        (``normal_run``, ``operator_gate_notify``); ``decision``: ``run``, ``skip``, …; ``cadence``: ``active_work``, ``human_gate``, ….
    :param todo_id: what was selected; None: nothing was (fault c16).
    :param waiting_on: whom LoopX waits for (``codex``, ``controller``, …); empty: it does not say.
    :param requires_user: whether it wants a person.
    :param stop: not to be asked again until somebody resumes it.
    :param interval_s: pause before the next question, and ``max_interval_s``, ``multiplier`` while nothing changes; None together: there is
        no next question.
    :param unchanged_at_most: answers in a row that say the same, after which it wants to be asked once more and then left alone; None: it
        sets no bound.
    :param receipt: of the turn id that was given: ``committed``, ``replayed``; empty without one.
    """

    should_run: bool
    decision: str
    effective: str
    action: str
    cadence: str
    reason: str
    todo_id: str | None
    waiting_on: str
    requires_user: bool
    stop: bool
    interval_s: float | None
    max_interval_s: float | None
    multiplier: float | None
    unchanged_at_most: int | None
    receipt: str


def read_quota(answer: Mapping[str, Any]) -> Quota:
    """Of the JSON.  Raises ValueError with the field when it has another shape (fault e03)."""
    hint = _field(answer, "scheduler_hint", dict)
    action = _field(hint, "action", str, "scheduler_hint.")
    selected = _field(answer, "selected_todo", dict, optional=True)
    receipt = _field(answer, "heartbeat_receipt", dict, optional=True)
    unchanged = _field(hint, "unchanged_poll", dict, "scheduler_hint.", optional=True) or {}
    stop = action == STOP or str(unchanged.get("local_scheduler")).startswith("stop")
    interval = limit = multiplier = unchanged_at_most = None
    # A scheduler that has stopped has no cadence.
    if not stop:
        detail = _field(hint, "cold_path_detail", dict, "scheduler_hint.")
        local = _field(detail, "local_scheduler", dict, at := "scheduler_hint.cold_path_detail.")
        at += "local_scheduler."
        interval = _number(local, "recommended_interval_minutes", at) * MINUTE_S
        limit = _number(local, "max_interval_minutes", at) * MINUTE_S
        multiplier = _number(local, "unchanged_poll_backoff_multiplier", at)
        unchanged_at_most = _count(local, "unchanged_poll_limit", at)
    return Quota(
        should_run=_field(answer, "should_run", bool),
        decision=_field(answer, "decision", str),
        effective=_field(answer, "effective_action", str),
        action=action,
        cadence=_field(hint, "cadence_class", str, "scheduler_hint."),
        reason=_field(hint, "reason_code", str, "scheduler_hint.", optional=True) or "",
        todo_id=None if selected is None else _field(selected, "todo_id", str, "selected_todo."),
        waiting_on=_field(answer, "waiting_on", str, optional=True) or "",
        requires_user=_field(answer, "requires_user_action", bool),
        stop=stop,
        interval_s=interval,
        max_interval_s=limit,
        multiplier=multiplier,
        unchanged_at_most=unchanged_at_most,
        receipt="" if receipt is None else _field(receipt, "status", str, "heartbeat_receipt."),
    )


def _field(data: Mapping[str, Any], name: str, kind: type, at: str = "", *, optional: bool = False) -> Any:
    value = data.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, kind):
        raise ValueError(f"quota should-run: {at}{name} is {str(value)[:80]!r}, expected {kind.__name__}")
    return value


def _number(data: Mapping[str, Any], name: str, at: str) -> float:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < NUMBER_BELOW:
        raise ValueError(f"quota should-run: {at}{name} is {str(value)[:80]!r}, expected a positive number")
    return float(value)


def _count(data: Mapping[str, Any], name: str, at: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < NUMBER_BELOW:
        raise ValueError(f"quota should-run: {at}{name} is {str(value)[:80]!r}, expected int")
    return value
