"""Small helpers of the verbs.  Must not hold state."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

NEWEST_RUN = "(SELECT max(run_id) FROM run)"
"""The epoch of the writer; the writer has verified that it is its own."""

LIVE = "('new', 'reserved', 'preparing', 'running', 'verifying')"
"""States of a trial that is not at rest; the same list as in the partial index ``trial_unfinished``, so that the index is used."""

Params = Mapping[str, Any] | tuple[Any, ...]


def dump(value: object) -> str:
    """JSON as the ledger holds it: sorted, no NaN."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))


def one(c: sqlite3.Connection, sql: str, params: Params = ()) -> sqlite3.Row | None:
    """The only row of a query, or None."""
    rows = c.execute(sql, params).fetchmany(2)
    if len(rows) > 1:
        raise RuntimeError(f"more than one row where one was expected: {sql[:80]}")
    return rows[0] if rows else None


def scalar(c: sqlite3.Connection, sql: str, params: Params = ()) -> Any:
    """First column of the only row; None without a row."""
    row = one(c, sql, params)
    return None if row is None else row[0]


def must(row: sqlite3.Row | None, what: str) -> sqlite3.Row:
    """:raises LookupError: a row that the caller knows by id is not there (a bug: ids come from the ledger)."""
    if row is None:
        raise LookupError(f"no {what} in the ledger")
    return row


def changed(cursor: sqlite3.Cursor, what: str) -> None:
    """:raises LookupError: an update by id met no row."""
    if cursor.rowcount != 1:
        raise LookupError(f"no {what} in the ledger to change ({cursor.rowcount} rows)")


def marks(values: Iterable[object]) -> str:
    """``?, ?, ?`` for an IN list."""
    return ", ".join("?" for _ in values)
