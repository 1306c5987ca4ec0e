"""The ledger's log (``-wal``): how large it is, and who keeps it from being taken into the file.

Owns the look from outside, without SQL.  A reader holds a shared lock on one of the bytes 123 to 127 of ``-shm`` for as long as its
transaction is open (https://www.sqlite.org/walformat.html, "WAL locks"); ``/proc/locks`` tells whose.  Must not end anybody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

READ_LOCKS = range(123, 128)
PROC = Path("/proc")


def look(ledger: Path, large_bytes: int) -> tuple[int | None, tuple[str, ...]]:
    """:func:`size`, and of a log that is larger than ``large_bytes`` the :func:`readers`."""
    found = size(ledger)
    return found, readers(ledger) if found is not None and found > large_bytes else ()


def size(ledger: Path) -> int | None:
    """Bytes of the log; 0: there is none, for nobody has the ledger open; None: it cannot be looked at."""
    try:
        return _beside(ledger, "-wal").stat().st_size
    except FileNotFoundError:
        return 0
    except OSError:
        return None


def readers(ledger: Path) -> tuple[str, ...]:
    """Other processes that read at this moment, such as ``pid 4121 (sqlite3)``; where locks tell nothing, those that have it open.

    Empty: none is to be seen, which proves nothing (another user's, another pid namespace's).
    """
    found = sorted({*_locking(ledger)} - {os.getpid()}) or sorted({*_having_open(ledger)} - {os.getpid()})
    return tuple(f"pid {pid} ({_name(pid)})" for pid in found)


def _locking(ledger: Path) -> Iterator[int]:
    """Rows such as ``5: POSIX  ADVISORY  READ  4121 00:1b:5678 124 124``."""
    try:
        status = _beside(ledger, "-shm").stat()
        rows = (PROC / "locks").read_text().splitlines()
    except OSError:
        return
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for row in rows:
        fields = row.split()
        if len(fields) == 8 and fields[1] == "POSIX" and fields[3] == "READ" and fields[5] == file and fields[4].isdigit():
            first, last = int(fields[6]), int(fields[7]) if fields[7].isdigit() else READ_LOCKS.stop
            if first < READ_LOCKS.stop and last >= READ_LOCKS.start and int(fields[4]) > 0:
                yield int(fields[4])


def _having_open(ledger: Path) -> Iterator[int]:
    try:
        wanted = ledger.stat()
    except OSError:
        return
    for process in PROC.iterdir():
        if not process.name.isdigit():
            continue
        try:
            for descriptor in (process / "fd").iterdir():
                status = descriptor.stat()
                if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
                    yield int(process.name)
                    break
        except OSError:
            continue  # it has ended, or is another user's


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text("utf-8", "replace").strip() or "?"
    except OSError:
        return "?"


def _beside(ledger: Path, suffix: str) -> Path:
    return ledger.with_name(ledger.name + suffix)
