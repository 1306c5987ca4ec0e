"""Daemon lives that another one has replaced."""

from __future__ import annotations

import sqlite3

from marathond.ledger.verbs.sql import NEWEST_RUN


def taken_over(c: sqlite3.Connection, *, pid: int, pid_start_ticks: int, boot_id: str, how: str, now_ms: int) -> None:
    """How the life before this one was ended by it; nothing when that process had not begun one yet.

    :param how: in words (``SIGTERM, ended after 0.4 s``).  A life that said its own last word keeps it.
    """
    c.execute(
        f"""UPDATE run SET stopped_at_ms = coalesce(stopped_at_ms, ?), stop_reason = coalesce(stop_reason || ', ', '') || ?
            WHERE run_id = (SELECT max(run_id) FROM run
                            WHERE run_id < {NEWEST_RUN} AND pid = ? AND pid_start_ticks = ? AND boot_id = ?)""",
        (now_ms, f"taken over: {how}", pid, pid_start_ticks, boot_id),
    )


def earlier_lives(c: sqlite3.Connection, *, boot_id: str) -> frozenset[tuple[int, int]]:
    """Processes (pid, start ticks) of this boot that were lives of this ledger before the newest."""
    rows = c.execute(f"SELECT pid, pid_start_ticks FROM run WHERE run_id < {NEWEST_RUN} AND boot_id = ?", (boot_id,))
    return frozenset((row["pid"], row["pid_start_ticks"]) for row in rows.fetchall())
