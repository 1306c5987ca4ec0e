"""Whether a file is a ledger, and one that this code can read.

Owns ``PRAGMA user_version`` and ``application_id``.  Must not change a file (:mod:`marathond.ledger.migrate` does).
"""

from __future__ import annotations

import sqlite3

from marathond.core.errors import LedgerRefused

LATEST = 7
"""The newest migration this code knows.  Changed together with the file."""

APPLICATION_ID = 0x6D72746E
"""``mrtn``: tells a ledger from any other SQLite file."""


def version_of(conn: sqlite3.Connection) -> int:
    """Number of the newest migration in this file; 0: none."""
    return int(conn.execute("PRAGMA user_version").fetchone()[0])


def check_is_ledger(conn: sqlite3.Connection, where: str) -> None:
    """:raises LedgerRefused: ``not_a_ledger``."""
    found = int(conn.execute("PRAGMA application_id").fetchone()[0])
    if found != APPLICATION_ID:
        raise LedgerRefused("not_a_ledger", f"{where} is an SQLite file but no marathond ledger (application_id {found:#x})")


def check_version(conn: sqlite3.Connection, where: str, *, may_migrate: bool) -> int:
    """The file's version, refused when it is newer than this code, or older and nobody here may change it."""
    version = version_of(conn)
    if version > LATEST:
        raise LedgerRefused("newer", f"ledger {where} has version {version}, this marathond knows {LATEST}: install the newer marathond")
    if version < LATEST and not may_migrate:
        raise LedgerRefused(
            "older", f"ledger {where} has version {version}, must be {LATEST}: start marathond once, it migrates the ledger"
        )
    return version
