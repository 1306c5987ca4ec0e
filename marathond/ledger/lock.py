"""One daemon per ledger: a lock file beside it, held for the life of the process.

The kernel's ``flock`` decides, so a crash leaves nothing to clean up; the content only says who holds it (fault f01).  Must not be used
over network file systems (those are refused before).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from marathond.core.errors import LedgerRefused

CONTENT_MAX_BYTES = 4096


def lock_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".lock")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who says that it holds a ledger.  ``since_ms``: wall clock."""

    pid: int
    host: str
    since_ms: int


class LedgerLock:
    """A held lock.  Its descriptor is closed on exec: an agent's helper never inherits it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Idempotent; the file stays, for unlinking it would let two processes lock two files of one name."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def acquire(ledger: Path, *, pid: int, host: str, now_ms: int) -> LedgerLock:
    """:raises LedgerRefused: ``in_use``, or ``read_only`` when there can be no lock file."""
    path = lock_path(ledger)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as exc:
        code = "disk_full" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else "read_only"
        raise LedgerRefused(code, f"ledger {ledger}: cannot make {path}: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise LedgerRefused("in_use", _in_use(ledger, holder(ledger))) from exc
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": pid, "host": host, "since_ms": now_ms}).encode(), 0)
    except OSError as exc:
        os.close(descriptor)
        code = "disk_full" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else "io"
        raise LedgerRefused(code, f"ledger {ledger}: cannot write {path}: {exc.strerror}") from exc
    return LedgerLock(path, descriptor)


def holder(ledger: Path) -> Holder | None:
    """What the lock file says; None: nothing readable, which says nothing about the lock itself."""
    try:
        with lock_path(ledger).open("rb") as file:
            said = json.loads(file.read(CONTENT_MAX_BYTES))
        return Holder(int(said["pid"]), str(said["host"]), int(said["since_ms"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _in_use(ledger: Path, who: Holder | None) -> str:
    if who is None:
        return f"ledger {ledger} is in use by another process; stop it or choose another ledger"
    since = datetime.fromtimestamp(who.since_ms / 1000, UTC).strftime("%H:%MZ")
    return f"ledger {ledger} is in use by pid {who.pid} on host {who.host} since {since}; stop it or choose another ledger"
