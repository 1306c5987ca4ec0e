"""One daemon per ledger: a lock file beside it, held for the life of the process.

The kernel's ``flock`` decides, so a crash leaves nothing to clean up; the content only says who holds it (fault f01).  Must not be used
over network file systems (those are refused before).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from marathond.core.errors import LedgerRefused

CONTENT_MAX_BYTES = 4096
_LARGEST = 10**14
"""No pid, no ticks of a boot and no milliseconds until the year 5138 reach it; of more no date can be made."""
DAEMON = "marathond"
"""Who holds a lock that does not say what it is for: only daemons wrote that content."""


def lock_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".lock")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who says that it holds a ledger.  ``since_ms``: wall clock; ``start_ticks``: of ``/proc/PID/stat``; ``what``: which program.

    None and empty: an older version wrote the content, or the process could not tell.
    """

    pid: int
    host: str
    since_ms: int
    start_ticks: int | None = None
    boot_id: str = ""
    what: str = DAEMON


class LedgerLock:
    """A held lock.  Its descriptor is closed on exec: an agent's helper never inherits it."""

    def __init__(self, path: Path, descriptor: int, me: Holder) -> None:
        self.path, self._descriptor, self._me = path, descriptor, me

    def keep(self) -> bool:
        """Take the lock again where the file under its name is no longer the one we hold; True when that had to be done.

        Race prevented: somebody tidies the lock file away, and from then on any second daemon could begin.

        :raises LedgerRefused: ``in_use``, one has begun already; ``read_only`` and the like, there can be no new one.
        """
        if self._descriptor < 0 or _same_file(self._descriptor, self.path):
            return False
        fresh = _take(self.path, self._me)
        os.close(self._descriptor)
        self._descriptor = fresh
        return True

    def release(self) -> None:
        """Idempotent; the file stays, for unlinking it would let two processes lock two files of one name."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def acquire(
    ledger: Path, *, pid: int, host: str, now_ms: int, start_ticks: int | None = None, boot_id: str = "", what: str = DAEMON
) -> LedgerLock:
    """:raises LedgerRefused: ``in_use``, or ``read_only`` when there can be no lock file."""
    path, me = lock_path(ledger), Holder(pid, host, now_ms, start_ticks, boot_id, what)
    return LedgerLock(path, _take(path, me), me)


def _take(path: Path, me: Holder) -> int:
    """Descriptor of the locked file, which names us.

    Race prevented: the file that was opened may be unlinked before it is locked; a lock on a file without a name locks nobody out.
    """
    ledger = path.with_name(path.name.removesuffix(".lock"))
    while True:
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
        if _same_file(descriptor, path):
            break
        os.close(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(me)).encode(), 0)
    except OSError as exc:
        os.close(descriptor)
        code = "disk_full" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else "io"
        raise LedgerRefused(code, f"ledger {ledger}: cannot write {path}: {exc.strerror}") from exc
    return descriptor


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        named = path.lstat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def is_held(ledger: Path) -> bool:
    """Whether somebody holds the lock at this moment, by the kernel's word.

    :raises LedgerRefused: ``read_only``, it cannot be asked.
    """
    path = lock_path(ledger)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise LedgerRefused("read_only", f"ledger {ledger}: cannot look at {path}: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(ledger: Path) -> Holder | None:
    """What the lock file says; None: nothing readable, which says nothing about the lock itself."""
    try:
        with lock_path(ledger).open("rb") as file:
            said = json.loads(file.read(CONTENT_MAX_BYTES))
        pid, since_ms, ticks = said["pid"], said["since_ms"], said.get("start_ticks")
        if not all(type(each) is int and 0 <= each < _LARGEST for each in (pid, since_ms, 0 if ticks is None else ticks)):
            return None
        return Holder(pid, str(said["host"]), since_ms, ticks, str(said.get("boot_id", "")), str(said.get("what", DAEMON)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _in_use(ledger: Path, who: Holder | None) -> str:
    if who is None:
        return f"ledger {ledger} is in use by another process; stop it or choose another ledger"
    since = datetime.fromtimestamp(who.since_ms / 1000, UTC).strftime("%H:%MZ")
    by = f"pid {who.pid}" if who.what == DAEMON else f"{who.what} (pid {who.pid})"
    return f"ledger {ledger} is in use by {by} on host {who.host} since {since}; stop it or choose another ledger"
