"""Notices: what there is to tell, what was told, over which channel.

A notice and its sendings are written before anything is sent, and marked after: told at least once, and twice only if the daemon was killed
in between.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.notices import OWN_STOPS, FindingSeen, Notice, Progress, StopSeen
from marathond.ledger.verbs.cells import cells_by_arm, standing_by_arm
from marathond.ledger.verbs.sql import LIVE, changed, dump, marks, one, scalar

ANSWER_MAX = 500


@dataclass(frozen=True, slots=True)
class Marks:
    """How far one looked: what came after these and is over already is still seen."""

    finding_id: int
    stop_id: int
    score_id: int


def newest(c: sqlite3.Connection) -> Marks:
    """The marks of now."""
    sql = """SELECT (SELECT coalesce(max(finding_id), 0) FROM finding), (SELECT coalesce(max(stop_id), 0) FROM admission_stop),
                 (SELECT coalesce(max(score_id), 0) FROM score)"""
    return Marks(*c.execute(sql).fetchone())


def findings_seen(c: sqlite3.Connection, after_id: int) -> tuple[FindingSeen, ...]:
    """Open ones, and those after ``after_id`` that are closed again.  One that a person has acknowledged is known already."""
    rows = c.execute(
        """SELECT finding_id, code, severity, subject, detail FROM finding
           WHERE (closed_at_ms IS NULL OR finding_id > ?) AND acked_at_ms IS NULL ORDER BY finding_id""",
        (after_id,),
    )
    return tuple(FindingSeen(*row) for row in rows.fetchall())


def stops_seen(c: sqlite3.Connection, after_id: int) -> tuple[StopSeen, ...]:
    """The daemon's own ones that stand, and those after ``after_id`` that are over again."""
    rows = c.execute(
        f"""SELECT stop_id, kind, detail FROM admission_stop
            WHERE kind IN ({marks(OWN_STOPS)}) AND (ended_at_ms IS NULL OR stop_id > ?) ORDER BY stop_id""",
        (*OWN_STOPS, after_id),
    )
    return tuple(StopSeen(*row) for row in rows.fetchall())


def arms_now(c: sqlite3.Connection, campaign_id: int, after_score: int) -> tuple[dict[int, str], set[int], dict[int, int]]:
    """(arm id → name, arms with a trial in work, arm id → its newest score after ``after_score``)."""
    arms = {row[0]: row[1] for row in c.execute("SELECT arm_id, name FROM arm WHERE campaign_id = ?", (campaign_id,)).fetchall()}
    running = c.execute(f"SELECT DISTINCT arm_id FROM trial INDEXED BY trial_unfinished WHERE state IN {LIVE}").fetchall()
    scores = "SELECT arm_id, max(score_id) FROM score JOIN trial USING (trial_id) WHERE score_id > ? GROUP BY arm_id"
    return arms, {row[0] for row in running}, {row[0]: row[1] for row in c.execute(scores, (after_score,)).fetchall()}


def progress(c: sqlite3.Connection, campaign_id: int) -> Progress:
    """While anything is claimed the campaign is not done, and nobody counts."""
    if scalar(c, "SELECT 1 FROM claim WHERE released_at_ms IS NULL LIMIT 1"):
        return Progress(claimed=1)
    counts = cells_by_arm(c, campaign_id, standing_by_arm(c, campaign_id)).values()
    return Progress(**{name: sum(states.get(name, 0) for states in counts) for name in ("done", "open", "claimed", "parked", "review")})


def told(c: sqlite3.Connection, keys: Sequence[str]) -> set[str]:
    """Those of ``keys`` that have a notice."""
    return {row[0] for row in c.execute(f"SELECT key FROM notice WHERE key IN ({marks(keys)})", tuple(keys)).fetchall()}


def intend(c: sqlite3.Connection, notice: Notice, message: Mapping[str, Any], *, channels: Sequence[str], now_ms: int) -> int | None:
    """To be told over each of ``channels``; None: it has a notice already."""
    row = one(
        c,
        "INSERT INTO notice (key, kind, message_json, at_ms) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING notice_id",
        (notice.key, notice.kind, dump(dict(message)), now_ms),
    )
    if row is None:
        return None
    for channel in channels:
        c.execute("INSERT INTO notice_sending (notice_id, channel) VALUES (?, ?)", (row[0], channel))
    return int(row[0])


@dataclass(frozen=True, slots=True)
class Unsent:
    notice_id: int
    tries: int
    message: dict[str, Any]


def unsent(c: sqlite3.Connection, channel: str) -> Unsent | None:
    """The oldest one that the channel has neither taken nor been given up for."""
    row = one(
        c,
        """SELECT notice_id, tries, message_json FROM notice_sending JOIN notice USING (notice_id)
           WHERE channel = ? AND told_at_ms IS NULL AND gave_up_at_ms IS NULL ORDER BY notice_id LIMIT 1""",
        (channel,),
    )
    return None if row is None else Unsent(row[0], row[1], json.loads(row[2]))


def tried(c: sqlite3.Connection, notice_id: int, channel: str, *, ok: bool, last: bool, answer: str, now_ms: int) -> None:
    """One more try.  ``last``: when it failed, there will be no other."""
    cursor = c.execute(
        """UPDATE notice_sending SET tries = tries + 1, answer = ?, told_at_ms = iif(?, ?, NULL), gave_up_at_ms = iif(?, ?, NULL)
           WHERE notice_id = ? AND channel = ?""",
        (answer[:ANSWER_MAX], ok, now_ms, last and not ok, now_ms, notice_id, channel),
    )
    changed(cursor, "notice")


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """``sendings``: (channel, tries, told_at_ms, gave_up_at_ms, answer)."""

    notice_id: int
    key: str
    kind: str
    message: dict[str, Any]
    at_ms: int
    sendings: tuple[tuple[str, int, int | None, int | None, str], ...]


def newest_notices(c: sqlite3.Connection, limit: int) -> list[NoticeRow]:
    """Newest first."""
    rows = c.execute("SELECT notice_id, key, kind, message_json, at_ms FROM notice ORDER BY notice_id DESC LIMIT ?", (limit,)).fetchall()
    sql = "SELECT channel, tries, told_at_ms, gave_up_at_ms, answer FROM notice_sending WHERE notice_id = ? ORDER BY channel"
    return [
        NoticeRow(row[0], row[1], row[2], json.loads(row[3]), row[4], tuple(tuple(s) for s in c.execute(sql, (row[0],)).fetchall()))
        for row in rows
    ]
