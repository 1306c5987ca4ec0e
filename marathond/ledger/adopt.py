"""A ledger that was moved or copied gets its new place.

Owns the difference: a moved ledger keeps its id, so its containers and networks stay its own; a copy gets a new id, and what was alive
belongs to the original and is ended here on paper (fault f14).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from marathond.core.errors import LedgerRefused, Refused
from marathond.ledger import lock, place
from marathond.ledger.connect import connect, use_wal
from marathond.ledger.migrate import migrate
from marathond.ledger.open import refuse_damaged
from marathond.ledger.place import Identity, read_identity
from marathond.ledger.readonly import house_errors, open_readonly
from marathond.ledger.verbs.trials import unfinished
from marathond.ledger.verbs.voids import write_void
from marathond.ledger.version import check_is_ledger, check_version


class How(StrEnum):
    MOVED = "moved"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Adopted:
    """``voided``: trials that belonged to the original; empty for a move."""

    ledger_id: str
    old_ledger_id: str
    voided: tuple[int, ...]


def adopt(path: Path, how: How, *, host: str, filesystem_type: str, author: str, now_ms: int) -> Adopted:
    """Record the present place.  A ledger that is where it was put is left as it is for ``moved``.

    :raises Refused: ``moved`` while the original is still at its old place.
    :raises LedgerRefused: as :func:`marathond.ledger.open.open_for_daemon`, without ``copied``.
    """
    path = Path(os.path.realpath(path))
    place.refuse_missing(path)
    place.refuse_network_filesystem(path, filesystem_type)
    place.refuse_unwritable(path)
    held = lock.acquire(path, pid=os.getpid(), host=host, now_ms=now_ms)
    try:
        with house_errors(path):
            conn = connect(path, mode="rw")
            try:
                check_is_ledger(conn, str(path))
                check_version(conn, str(path), may_migrate=True)
                refuse_damaged(conn, path)
                identity = read_identity(conn, path)
                if how is How.MOVED:
                    _refuse_twins(identity, path)
                use_wal(conn, str(path))
                migrate(conn, path)
                return _settle(conn, path, identity, how, host, author, now_ms)
            finally:
                conn.close()
    finally:
        held.release()


def _refuse_twins(identity: Identity, path: Path) -> None:
    """Two files with one id would fight over the same containers.  What lies on another host cannot be seen: that is the person's word."""
    original = Path(identity.path)
    if not original.exists() or original.samefile(path):
        return
    try:
        conn = open_readonly(original)
    except LedgerRefused as refusal:
        if refusal.code in ("not_a_ledger", "missing"):
            return
        raise Refused(f"cannot tell whether {original} is still the same ledger: {refusal}; move it away first") from refusal
    try:
        other = read_identity(conn, original).ledger_id
    finally:
        conn.close()
    if other == identity.ledger_id:
        raise Refused(f"{original} still holds the same ledger {other}: remove it first, or adopt this one with --copy")


def _settle(conn: sqlite3.Connection, path: Path, identity: Identity, how: How, host: str, author: str, now_ms: int) -> Adopted:
    new_id = identity.ledger_id if how is How.MOVED else secrets.token_hex(6)
    status = path.stat()
    conn.execute("BEGIN IMMEDIATE")
    try:
        voided = () if how is How.MOVED else end_what_lives(conn, author=author, original=identity.ledger_id, now_ms=now_ms)
        conn.execute(
            "UPDATE ledger_identity SET ledger_id = ?, path = ?, device = ?, inode = ?, host = ?",
            (new_id, str(path), status.st_dev, status.st_ino, host),
        )
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise
    return Adopted(new_id, identity.ledger_id, voided)


def end_what_lives(conn: sqlite3.Connection, *, author: str, original: str, now_ms: int) -> tuple[int, ...]:
    """Void live trials and let go of containers, leases and claims without touching an engine.  Returns the trials voided."""
    live = tuple(unfinished(conn))
    for trial_id in live:
        write_void(
            conn,
            trial_id,
            code="ledger_copied",
            reason=f"the trial belongs to ledger {original}",
            evidence={"original": original},
            decided_by="daemon",
            author=author,
            counts_pass=False,
            batch=f"copy-of-{original}",
            now_ms=now_ms,
        )
    conn.execute("UPDATE container SET gone_at_ms = ?, gone_because = 'ledger_copied' WHERE gone_at_ms IS NULL", (now_ms,))
    conn.execute("UPDATE network_lease SET released_at_ms = ?, released_because = 'ledger_copied' WHERE released_at_ms IS NULL", (now_ms,))
    conn.execute("UPDATE claim SET released_at_ms = ? WHERE released_at_ms IS NULL", (now_ms,))
    return live
