"""A ledger that is only looked at.

Owns the connection that cannot write, and SQLite's errors in the house's words.  Must not import what makes, locks or migrates a ledger.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marathond.ledger import place
from marathond.ledger.connect import BUSY_TIMEOUT_MS, connect
from marathond.ledger.errors import translate
from marathond.ledger.place import read_identity
from marathond.ledger.version import check_is_ledger, check_version

_NO_SHARED_MEMORY = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR_SHM")
"""How SQLite says that it cannot make -wal and -shm: no permission, a read-only disk, a full disk."""


def open_readonly(path: Path, *, busy_ms: int = BUSY_TIMEOUT_MS) -> sqlite3.Connection:
    """A connection that can only read; never migrates, needs no write permission, makes no lock.  The caller closes it.

    While a daemon lives (or after it was killed) its -wal and -shm lie beside the ledger and are read.  After an orderly end they are
    gone, and in a folder where we may not make them SQLite cannot open the ledger the ordinary way; then it is read as ``immutable``,
    only when nothing is in the log.  Such a reader does not see, and may misread, what a daemon writes that starts meanwhile: keep it
    short, and mark what it shows as stale (no daemon runs at that moment anyhow).
    :raises LedgerRefused: ``missing``, ``not_a_ledger``, ``newer``, ``older``, ``corrupt``, ``read_only``.
    """
    path = real(path)
    place.refuse_missing(path)
    with house_errors(path):
        try:
            return _readable(path, busy_ms, immutable=False)
        except sqlite3.OperationalError as exc:
            if not exc.sqlite_errorname.startswith(_NO_SHARED_MEMORY) or not place.nothing_in_wal(path):
                raise
            return _readable(path, busy_ms, immutable=True)


def _readable(path: Path, busy_ms: int, *, immutable: bool) -> sqlite3.Connection:
    conn = connect(path, mode="ro", immutable=immutable, busy_ms=busy_ms)
    try:
        check_is_ledger(conn, str(path))
        check_version(conn, str(path), may_migrate=False)
        read_identity(conn, path)
    except BaseException:
        conn.close()
        raise
    return conn


@contextmanager
def house_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as the house's."""
    try:
        yield
    except sqlite3.Error as exc:
        mine = translate(exc, str(path))
        if mine is None:
            raise
        raise mine from exc


def real(path: Path) -> Path:
    """The file itself, so that two names of one ledger share one lock."""
    return Path(os.path.realpath(path))
