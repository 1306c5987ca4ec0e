"""Triggers that refuse every write of a connection whose rules are asleep.

Owns the generated ``guard_*`` triggers.  The ``sqlite3`` shell starts with foreign keys off, and then an illegal reference is accepted
silently; with recursive triggers off, REPLACE deletes rows without asking the delete triggers.  Both settings belong to the connection,
so each table asks for them at every row.  Must not know what the tables mean.
"""

from __future__ import annotations

import sqlite3

RULE = "writes_need_foreign_keys"
MESSAGE = f"{RULE}: run PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON; first, or the rules of this ledger would sleep"

_ASLEEP = "(SELECT foreign_keys FROM pragma_foreign_keys) = 0 OR (SELECT recursive_triggers FROM pragma_recursive_triggers) = 0"
_OPERATIONS = ("INSERT", "UPDATE", "DELETE")


def guarded_tables(conn: sqlite3.Connection) -> list[str]:
    """Every table of the ledger, by name."""
    rows = conn.execute(r"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name")
    return [str(row[0]) for row in rows.fetchall()]


def drop_guards(conn: sqlite3.Connection) -> None:
    """Inside a migration's transaction: migrations write with foreign keys off."""
    rows = conn.execute(r"SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'guard\_%' ESCAPE '\'").fetchall()
    for (name,) in rows:
        conn.execute(f'DROP TRIGGER "{name}"')


def create_guards(conn: sqlite3.Connection) -> None:
    """Three triggers for every table that exists now."""
    for table in guarded_tables(conn):
        for operation in _OPERATIONS:
            conn.execute(
                f'CREATE TRIGGER "guard_{table}_{operation.lower()}" BEFORE {operation} ON "{table}" WHEN {_ASLEEP}\n'
                f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
            )
