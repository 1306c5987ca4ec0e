"""``marathonctl sql``: one read-only statement over the ledger's published views.

Owns the guard (nothing is written, no other file is opened, a bounded time), the names near one that there is not, and three ways to
print rows.
"""

from __future__ import annotations

import csv
import difflib
import re
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from marathond.cli.output import Column, Screen, note, print_json, say, table
from marathond.core.text import clean, csv_text
from marathond.service.exits import CallFailed, Exit

TABLE_ROWS_MAX = 1000
"""A table is laid out in memory; --csv and --json have no such bound."""

_STEPS = 10_000
"""Virtual machine steps between two looks at the clock."""

_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "user_version", "database_list", "foreign_keys"}
)
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION})


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """Reads only.  The connection is read-only besides; this also stops ATTACH, which would open (and make) other files."""
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if second == "load_extension" else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in _PRAGMAS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def query(connection: sqlite3.Connection, statement: str, *, timeout_s: float) -> tuple[list[str], Iterator[Sequence[object]]]:
    """Column names and rows, lazily.

    :raises CallFailed: exit 2 for what is no single reading statement, 75 when the time is up (a long reader makes the WAL grow).
    """
    give_up = time.monotonic() + timeout_s
    connection.set_progress_handler(lambda: int(time.monotonic() > give_up), _STEPS)
    connection.set_authorizer(_authorize)
    try:
        cursor = connection.execute(statement)
    except sqlite3.Error as error:
        raise _failure(error, timeout_s, _near(connection, statement, str(error))) from error
    if cursor.description is None:
        raise CallFailed("sql: only statements that return rows; the ledger is read-only here", Exit.USAGE)
    return [str(entry[0]) for entry in cursor.description], _rows(cursor, timeout_s)


def _rows(cursor: sqlite3.Cursor, timeout_s: float) -> Iterator[Sequence[object]]:
    try:
        yield from cursor
    except sqlite3.Error as error:
        raise _failure(error, timeout_s) from error


_UNKNOWN = re.compile(r'no such (table|column): "?((?:\w+\.)?)(\w+)')
_NEAR_AT_MOST, _LISTED_AT_MOST = 3, 40


def _near(connection: sqlite3.Connection, statement: str, error: str) -> str:
    """Of a table or column that there is not: what looks like it, else what there is.  Empty: the error says something else."""
    found = _UNKNOWN.match(error)
    if found is None:
        return ""
    connection.set_progress_handler(None, 0)
    kind, prefix, name = found.groups()
    tables = dict(connection.execute("SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name").fetchall())
    if kind == "table":
        published = [table for table, what in tables.items() if what == "view" and table.startswith("v_")]
        known, there, prefix = list(tables), f"the views are {', '.join(published)}", ""
    else:
        asked = [table for table in tables if re.search(rf"\b{re.escape(table)}\b", statement)]
        columns = {table: [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")').fetchall()] for table in asked}
        known = list(dict.fromkeys(column for each in columns.values() for column in each))
        there = "; ".join(f"{table} has {', '.join(each[:_LISTED_AT_MOST])}" for table, each in columns.items())
    if near := difflib.get_close_matches(name, known, _NEAR_AT_MOST, 0.6):
        return f"; did you mean {' or '.join(prefix + each for each in near)}?"
    return f"; {there}" if there else ""


def _failure(error: sqlite3.Error, timeout_s: float, more: str = "") -> CallFailed:
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_INTERRUPT":
        return CallFailed(f"sql: not done within {timeout_s:g} s (--timeout)", Exit.BUSY)
    if name == "SQLITE_AUTH":
        return CallFailed("sql: only reading statements; change the ledger with marathonctl's other commands", Exit.USAGE)
    if name == "SQLITE_BUSY":
        return CallFailed("sql: the ledger is busy; try again", Exit.BUSY)
    return CallFailed(f"sql: {clean(error)}{more}", Exit.USAGE if name in ("", "SQLITE_ERROR") else Exit.FAILED)


Value = str | int | float | None
"""Bytes are shown as hexadecimal digits; NaN and infinities as null."""
Row = dict[str, Value]
"""Column to value; of two columns of one name the later one."""


def print_rows(names: Sequence[str], rows: Iterator[Sequence[object]], style: str, where: Screen) -> None:
    """``style``: ``table``, ``json`` (a list of objects, texts as they are) or ``csv`` (RFC 4180 with bare line feeds, header first; texts
    that steer neither a terminal nor a spreadsheet)."""
    if style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(csv_text, names))
        for row in rows:
            writer.writerow(["" if value is None else csv_text(value) if isinstance(value, str) else _plain(value) for value in row])
    elif style == "json":
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        first = list(islice(rows, TABLE_ROWS_MAX + 1))
        shown = [["" if value is None else clean(_plain(value)) for value in row] for row in first[:TABLE_ROWS_MAX]]
        numeric = [all(isinstance(row[i], int | float | None) for row in first) for i in range(len(names))]
        columns = [Column(clean(name), right=right, least=0 if right else 8) for name, right in zip(names, numeric, strict=True)]
        for line in table(columns, shown, where):
            say(line)
        if len(first) > TABLE_ROWS_MAX:
            note(f"only the first {TABLE_ROWS_MAX} rows; use --csv or --json for all")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return round(value, 6) if isinstance(value, float) else value
