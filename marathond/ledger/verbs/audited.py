"""What the audit found, written down: findings opened, updated and closed, and admission closed where one of them stops.

Owns the observation ``audit``: on which trials each stop-loss rested while admission stood closed.  By it a person's ``resume`` holds:
admission is closed anew only for trials that are not among them, in this daemon's life or a later one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from marathond.core.model_rules import Found
from marathond.ledger.verbs import findings, settings
from marathond.ledger.verbs.admission import open_stop
from marathond.ledger.verbs.sql import one
from marathond.ledger.verbs.stops import stops

AUDIT = "audit"
STOP_LOSS = "stop_loss"
Key = tuple[str, str]
"""Code and subject."""


def known(c: sqlite3.Connection, campaign_id: int) -> dict[Key, set[int]]:
    """Trials for which admission was closed, or stood closed, by stop-loss."""
    said = settings.observations(c).get(AUDIT)
    value = said.value if said is not None and isinstance(said.value, dict) else {}
    if value.get("campaign_id") != campaign_id:
        return {}
    return {(code, subject): set(trials) for code, subject, trials in value["stopped"]}


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
    standing = any(stop.kind == STOP_LOSS for stop in stops(c))
    before = known(c, campaign_id)
    after = {key: set(trials) for key, trials in before.items()}
    closed = []
    for each in stopping:
        key = (each.code, each.subject)
        if set(each.trials) - before.get(key, set()) and not standing and not _acked(c, key):
            open_stop(c, STOP_LOSS, detail=f"{each.code}: {each.detail}", author="marathond", until_ms=None, now_ms=now_ms)
            closed.append(key)
        after.setdefault(key, set()).update(each.trials)
    standing = standing or bool(closed)
    ended = []
    for code, subject in over:
        if not standing or not _stop_loss(c, (code, subject)) or _acked(c, (code, subject)):
            findings.close_finding(c, code=code, subject=subject, now_ms=now_ms)
            ended.append((code, subject))
    if after != before:
        stopped = [[code, subject, sorted(trials)] for (code, subject), trials in sorted(after.items())]
        settings.observe(c, AUDIT, {"campaign_id": campaign_id, "stopped": stopped}, now_ms=now_ms)
    return closed, ended


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
    row = one(c, "SELECT coalesce(max(event_id), 0) FROM trial_event")
    assert row is not None
    return int(row[0])
