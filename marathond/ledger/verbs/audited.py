"""What the audit found, written down: findings opened, updated and closed, and admission closed where one of them stops.

A person's ``resume`` is kept as a place in the ledger's order of events (``admission.answered``, written in the transaction that opens
admission).  Admission is closed anew only for a trial that has an event behind it, in this life of the daemon or a later one, whatever a
clock says in between (fault e06).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from marathond.core.model_rules import Found
from marathond.ledger.verbs import findings
from marathond.ledger.verbs.admission import answered, open_stop
from marathond.ledger.verbs.sql import dump, must, one, scalar
from marathond.ledger.verbs.stops import stops

STOP_LOSS = "stop_loss"
Key = tuple[str, str]
"""Code and subject."""


def keep(
    c: sqlite3.Connection,
    told: Sequence[Found],
    over: Sequence[Key],
    stopping: Sequence[Found],
    *,
    campaign_id: int,
    now_ms: int,
) -> tuple[list[Key], list[Key]]:
    """In one transaction, so that nobody resumes between the look at the stops and the next one.

    :param told: findings that are new, or whose words are.  :param over: open ones that are true no longer.
    :param stopping: all that stop, told before or not.
    :returns: those that closed admission just now, and those of ``over`` that were closed.  A stop-loss stays open while admission is
        closed by stop-loss and nobody has acknowledged it, so that a person finds the reason where admission stands closed.
    """
    for each in told:
        findings.raise_finding(
            c, code=each.code, severity=each.severity, subject=each.subject, detail=each.detail, campaign_id=campaign_id, now_ms=now_ms
        )
    closed = []
    if not any(stop.kind == STOP_LOSS for stop in stops(c)):
        mark = answered(c)
        for each in stopping:
            if _is_news(c, each.trials, mark) and not _acked(c, (each.code, each.subject)):
                open_stop(c, STOP_LOSS, detail=f"{each.code}: {each.detail}", author="marathond", until_ms=None, now_ms=now_ms)
                closed.append((each.code, each.subject))
    standing = any(stop.kind == STOP_LOSS for stop in stops(c))
    ended = []
    for code, subject in over:
        if not standing or not _stop_loss(c, (code, subject)) or _acked(c, (code, subject)):
            findings.close_finding(c, code=code, subject=subject, now_ms=now_ms)
            ended.append((code, subject))
    return closed, ended


def _is_news(c: sqlite3.Connection, trials: Sequence[int], mark: int) -> bool:
    """Whether one of them came to rest, or began, since a person resumed."""
    sql = "SELECT 1 FROM json_each(?) AS t CROSS JOIN trial_event AS e ON e.trial_id = t.value WHERE e.event_id > ? LIMIT 1"
    return scalar(c, sql, (dump(list(trials)), mark)) is not None


def _open(c: sqlite3.Connection, key: Key) -> sqlite3.Row | None:
    return one(c, "SELECT severity, acked_at_ms FROM finding WHERE code = ? AND subject = ? AND closed_at_ms IS NULL", key)


def _acked(c: sqlite3.Connection, key: Key) -> bool:
    row = _open(c, key)
    return row is not None and row["acked_at_ms"] is not None


def _stop_loss(c: sqlite3.Connection, key: Key) -> bool:
    row = _open(c, key)
    return row is not None and row["severity"] == STOP_LOSS


def newest_event(c: sqlite3.Connection) -> int:
    """A trial that comes to rest, or leaves it, has an event."""
    return int(must(one(c, "SELECT coalesce(max(event_id), 0) FROM trial_event"), "number")[0])
