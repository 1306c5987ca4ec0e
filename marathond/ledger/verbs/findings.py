"""Findings: what a person must know, by stable code, open until it is over."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.ledger.verbs.sql import must, one


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


def closed_findings(c: sqlite3.Connection) -> list[FindingRow]:
    """Those that are over, the last one first."""
    rows = c.execute("SELECT * FROM finding WHERE closed_at_ms IS NOT NULL ORDER BY closed_at_ms DESC, finding_id DESC")
    return [FindingRow(**dict(row)) for row in rows.fetchall()]


def counts(c: sqlite3.Connection) -> dict[int | None, tuple[int, int]]:
    """Campaign (None: the house) to (open ones, all there ever were); who never had one is not there."""
    rows = c.execute(
        """SELECT campaign_id, count(*) FILTER (WHERE closed_at_ms IS NULL), count(*) FROM finding
           GROUP BY campaign_id ORDER BY campaign_id IS NULL, campaign_id"""
    )
    return {row[0]: (int(row[1]), int(row[2])) for row in rows.fetchall()}


def finding(c: sqlite3.Connection, finding_id: int) -> FindingRow | None:
    row = one(c, "SELECT * FROM finding WHERE finding_id = ?", (finding_id,))
    return None if row is None else FindingRow(**dict(row))


def same(c: sqlite3.Connection, code: str, subject: str) -> list[FindingRow]:
    """All that there ever were of one code and subject, newest first."""
    rows = c.execute("SELECT * FROM finding WHERE code = ? AND subject = ? ORDER BY finding_id DESC", (code, subject))
    return [FindingRow(**dict(row)) for row in rows.fetchall()]


@dataclass(frozen=True, slots=True)
class Told:
    """One sending of a finding's notice."""

    channel: str
    tries: int
    told_at_ms: int | None
    gave_up_at_ms: int | None
    answer: str


def told_of(c: sqlite3.Connection, finding_id: int) -> list[Told]:
    """What people were told of it, by channel (core/notices.py makes the key)."""
    rows = c.execute(
        """SELECT channel, tries, told_at_ms, gave_up_at_ms, answer FROM notice_sending JOIN notice USING (notice_id)
           WHERE key = ? ORDER BY channel""",
        (f"finding:{finding_id}",),
    )
    return [Told(*row) for row in rows.fetchall()]
