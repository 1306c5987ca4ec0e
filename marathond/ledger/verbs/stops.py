"""Why admission is closed for everything, as the ledger says.  Apart, so that `status` starts quickly."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopRow:
    stop_id: int
    kind: str
    detail: str
    author: str
    at_ms: int
    until_ms: int | None


def stops(c: sqlite3.Connection) -> list[StopRow]:
    """Standing stops, oldest first."""
    sql = "SELECT stop_id, kind, detail, author, at_ms, until_ms FROM admission_stop WHERE ended_at_ms IS NULL ORDER BY stop_id"
    return [StopRow(**dict(row)) for row in c.execute(sql).fetchall()]
