"""The agent's own log and its receipt: what the driver did and saw, and what is kept of it in the end."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marathond.ledger.verbs.sql import NEWEST_RUN, dump, one
from marathond.ports.agent import LogEntry


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """``schema``: number of the schema that ``data`` was validated against."""

    schema: int
    data: dict[str, Any]
    at_ms: int


def append(c: sqlite3.Connection, trial_id: int, *, kind: str, detail: Mapping[str, Any], mono_ms: int, now_ms: int) -> int:
    """One more line; returns its number, which counts from 1 without gaps."""
    row = c.execute(
        f"""INSERT INTO agent_event (trial_id, seq, kind, detail_json, at_ms, mono_ms, run_id)
            SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5, {NEWEST_RUN} FROM agent_event WHERE trial_id = ?1 RETURNING seq""",
        (trial_id, kind, dump(dict(detail)), now_ms, mono_ms),
    ).fetchone()
    return int(row[0])


def entries(c: sqlite3.Connection, trial_id: int) -> list[LogEntry]:
    """All lines in order."""
    rows = c.execute("SELECT seq, kind, detail_json, at_ms, mono_ms FROM agent_event WHERE trial_id = ? ORDER BY seq", (trial_id,))
    return [LogEntry(seq, kind, json.loads(detail), at_ms, mono_ms) for seq, kind, detail, at_ms, mono_ms in rows.fetchall()]


def keep_receipt(c: sqlite3.Connection, trial_id: int, *, schema: int, data: Mapping[str, Any], now_ms: int) -> None:
    """The last one counts: a daemon that was killed between collecting and recording collects again."""
    c.execute(
        """INSERT INTO receipt (trial_id, schema, receipt_json, at_ms) VALUES (?, ?, ?, ?)
           ON CONFLICT (trial_id) DO UPDATE SET schema = excluded.schema, receipt_json = excluded.receipt_json, at_ms = excluded.at_ms""",
        (trial_id, schema, dump(dict(data)), now_ms),
    )


def receipt(c: sqlite3.Connection, trial_id: int) -> ReceiptRow | None:
    row = one(c, "SELECT schema, receipt_json, at_ms FROM receipt WHERE trial_id = ?", (trial_id,))
    return None if row is None else ReceiptRow(row[0], json.loads(row[1]), row[2])
