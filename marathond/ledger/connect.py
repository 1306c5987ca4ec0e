"""One SQLite connection, set up and read back.

Owns the settings that every connection to a ledger must have.  A setting that does not read back as asked is a refusal, for with foreign
keys off an illegal state is accepted silently.  Must not know migrations, places or verbs.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from marathond.core.errors import LedgerRefused

BUSY_TIMEOUT_MS = 5_000
"""Longest wait for another process's write lock (a migration, a checkpoint, a person in the shell), then LedgerRefused("busy")."""

CACHE_KIB = 16_384
"""Page cache of one connection."""


def file_uri(path: Path, *, mode: str, immutable: bool = False) -> str:
    """``mode`` ro, rw or rwc.  rw never makes a file: a missing ledger is not a new empty one."""
    return f"file:{quote(str(path))}?mode={mode}" + ("&immutable=1" if immutable else "")


def connect(path: Path, *, mode: str, immutable: bool = False, busy_ms: int = BUSY_TIMEOUT_MS) -> sqlite3.Connection:
    """A connection in autocommit (we say BEGIN ourselves), rows by name.

    May be used by one thread at a time, not necessarily this one.

    :raises sqlite3.Error: as SQLite says; see :func:`marathond.ledger.errors.translate`.
    :raises LedgerRefused: a setting does not hold.
    """
    uri = file_uri(path, mode=mode, immutable=immutable)
    conn = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=busy_ms / 1000, check_same_thread=False)
    try:
        settle(conn, str(path), busy_ms=busy_ms, readonly=mode == "ro")
    except BaseException:
        conn.close()
        raise
    return conn


def connect_memory() -> sqlite3.Connection:
    """An empty private database in memory, for simulation and tests; migrate it with :mod:`marathond.ledger.migrate`."""
    conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    settle(conn, ":memory:", busy_ms=0, readonly=False)
    return conn


def settle(conn: sqlite3.Connection, where: str, *, busy_ms: int, readonly: bool) -> None:
    """Set and read back what the rules depend on."""
    conn.row_factory = sqlite3.Row
    wanted = {"foreign_keys": 1, "recursive_triggers": 1, "trusted_schema": 1, "synchronous": 2, "busy_timeout": busy_ms}
    if readonly:
        wanted["query_only"] = 1
    conn.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    for name, value in wanted.items():
        conn.execute(f"PRAGMA {name} = {value}").fetchall()
        found = conn.execute(f"PRAGMA {name}").fetchone()
        if found is None or found[0] != value:
            got = None if found is None else found[0]
            raise LedgerRefused("settings", f"ledger {where}: SQLite {sqlite3.sqlite_version} keeps {name} at {got}, must be {value}")


def use_wal(conn: sqlite3.Connection, where: str) -> None:
    """Readers never block the writer.

    :raises LedgerRefused: the file system has no shared memory for it.
    """
    mode = conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise LedgerRefused("no_wal", f"ledger {where}: journal mode is {mode}, must be wal; put the ledger on a local disk")
