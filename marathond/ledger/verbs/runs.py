"""The daemon's lives.  The number of a life is its epoch: it stands on every claim, trial, event and score."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from marathond.core.parting import Left, parting
from marathond.ledger.verbs.sql import LIVE, NEWEST_RUN, changed, one

_LOOSE = f"""
SELECT trial_id FROM claim INDEXED BY claim_one_live_per_cell CROSS JOIN trial ON trial.claim_id = claim.claim_id
WHERE claim.released_at_ms IS NULL AND state NOT IN {LIVE}
UNION SELECT trial_id FROM network_lease JOIN trial USING (trial_id) WHERE released_at_ms IS NULL AND state NOT IN {LIVE} ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One daemon life; ``*_ms`` are wall-clock milliseconds since 1970 UTC.

    ``stop_reason`` without ``stopped_at_ms``: not a daemon but the command of that name, which has not ended.
    """

    run_id: int
    pid: int
    pid_start_ticks: int
    host: str
    boot_id: str
    version: str
    started_at_ms: int
    ready_at_ms: int | None
    seen_at_ms: int
    stopped_at_ms: int | None
    stop_reason: str | None


def begin_run(c: sqlite3.Connection, *, pid: int, pid_start_ticks: int, host: str, boot_id: str, version: str, now_ms: int) -> int:
    """A new life; from here on writes of every earlier one are refused."""
    cursor = c.execute(
        "INSERT INTO run (pid, pid_start_ticks, host, boot_id, version, started_at_ms, seen_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (pid, pid_start_ticks, host, boot_id, version, now_ms, now_ms),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def begin_offline(
    c: sqlite3.Connection, *, what: str, pid: int, pid_start_ticks: int, host: str, boot_id: str, version: str, now_ms: int
) -> int:
    """The life of a command that writes while no daemon does; until it ends, its name stands where the reason of its end will."""
    run_id = begin_run(c, pid=pid, pid_start_ticks=pid_start_ticks, host=host, boot_id=boot_id, version=version, now_ms=now_ms)
    changed(c.execute("UPDATE run SET stop_reason = ? WHERE run_id = ?", (what, run_id)), "run")
    return run_id


def mark_ready(c: sqlite3.Connection, *, now_ms: int) -> None:
    """Recovery is over."""
    changed(c.execute(f"UPDATE run SET ready_at_ms = ?, seen_at_ms = ? WHERE run_id = {NEWEST_RUN}", (now_ms, now_ms)), "run")


def mark_seen(c: sqlite3.Connection, *, now_ms: int) -> None:
    """Heartbeat, for "last seen" when the daemon is down."""
    changed(c.execute(f"UPDATE run SET seen_at_ms = ? WHERE run_id = {NEWEST_RUN}", (now_ms,)), "run")


def end_run(c: sqlite3.Connection, *, reason: str, now_ms: int) -> None:
    """An orderly end; a life that was killed has no end."""
    sql = f"UPDATE run SET stopped_at_ms = ?, seen_at_ms = ?, stop_reason = ? WHERE run_id = {NEWEST_RUN}"
    changed(c.execute(sql, (now_ms, now_ms, reason)), "run")


def left(c: sqlite3.Connection) -> Left:
    """What a daemon that ended now would leave to the next one."""
    live = c.execute(f"SELECT trial_id, state FROM trial WHERE state IN {LIVE} ORDER BY trial_id").fetchall()
    loose = c.execute(_LOOSE).fetchall()
    return Left(tuple((row[0], row[1]) for row in live), tuple(row[0] for row in loose))


def lately_loose(c: sqlite3.Connection, *, since_ms: int) -> list[int]:
    """Trials at rest since then whose container or network may still be there; wall-clock milliseconds since 1970 UTC."""
    sql = f"SELECT trial_id FROM ({_LOOSE}) AS loose WHERE (SELECT max(at_ms) FROM trial_event WHERE trial_id = loose.trial_id) >= ?"
    return [row[0] for row in c.execute(sql, (since_ms,)).fetchall()]


def part(c: sqlite3.Connection, *, asked: str, undone: Sequence[str] = (), now_ms: int) -> str:
    """:func:`end_run` with what is left to the next daemon; these words."""
    words = parting(asked, left(c), undone)
    end_run(c, reason=words, now_ms=now_ms)
    return words


def last_run(c: sqlite3.Connection) -> RunRow | None:
    """The newest life, ended or not; None before the first."""
    row = one(c, f"SELECT * FROM run WHERE run_id = {NEWEST_RUN}")
    return None if row is None else RunRow(**dict(row))
