"""Findings: what a person must know, by stable code, open until it is over."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.ledger.verbs.sql import must


@dataclass(frozen=True, slots=True)
class FindingRow:
    """``severity``: info, warning, error, stop_loss.  Acknowledged is not closed: it is still true, a person knows it."""

    finding_id: int
    campaign_id: int | None
    code: str
    severity: str
    subject: str
    detail: str
    opened_at_ms: int
    seen_at_ms: int
    times: int
    closed_at_ms: int | None
    acked_at_ms: int | None
    acked_by: str | None
    ack_reason: str | None


def raise_finding(
    c: sqlite3.Connection, *, code: str, severity: str, subject: str, detail: str, campaign_id: int | None, now_ms: int
) -> int:
    """Open it, or count one more time on the open one; returns its id.  An acknowledgement stays."""
    rows = c.execute(
        """UPDATE finding SET times = times + 1, seen_at_ms = ?, severity = ?, detail = ?
           WHERE code = ? AND subject = ? AND closed_at_ms IS NULL RETURNING finding_id""",
        (now_ms, severity, detail, code, subject),
    ).fetchall()
    if not rows:
        rows = c.execute(
            """INSERT INTO finding (campaign_id, code, severity, subject, detail, opened_at_ms, seen_at_ms)
               VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING finding_id""",
            (campaign_id, code, severity, subject, detail, now_ms, now_ms),
        ).fetchall()
    return int(must(rows[0], "finding")[0])


def close_finding(c: sqlite3.Connection, *, code: str, subject: str, now_ms: int) -> bool:
    """It is over; False when none is open."""
    sql = "UPDATE finding SET closed_at_ms = ? WHERE code = ? AND subject = ? AND closed_at_ms IS NULL"
    return c.execute(sql, (now_ms, code, subject)).rowcount == 1


def ack(c: sqlite3.Connection, which: int | str, *, author: str, reason: str, now_ms: int) -> int:
    """A person knows: one finding by id, or every open one of a code.  Returns how many; one acknowledged before keeps its author."""
    column = "finding_id" if isinstance(which, int) else "code"
    return c.execute(
        f"""UPDATE finding SET acked_at_ms = ?, acked_by = ?, ack_reason = ?
            WHERE {column} = ? AND closed_at_ms IS NULL AND acked_at_ms IS NULL""",
        (now_ms, author, reason, which),
    ).rowcount


def open_findings(c: sqlite3.Connection) -> list[FindingRow]:
    """Worst first, then oldest first."""
    rows = c.execute(
        """SELECT * FROM finding WHERE closed_at_ms IS NULL
           ORDER BY CASE severity WHEN 'stop_loss' THEN 0 WHEN 'error' THEN 1 WHEN 'warning' THEN 2 ELSE 3 END, finding_id"""
    )
    return [FindingRow(**dict(row)) for row in rows.fetchall()]
