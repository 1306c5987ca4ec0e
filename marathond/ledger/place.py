"""Where a ledger lies, and whether it may be used there.

Owns the checks that need no SQL beyond one row: file system, writability, room on disk, and the ledger's knowledge of its own place
(fault f14: a copy sweeps the original's containers).  Writes nothing but a probe file that it removes.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import LedgerRefused

PROBE_BYTES = 1 << 20
"""Room that must be left for a start; far above what the first transactions need."""

_MAGIC = b"SQLite format 3\x00"

NETWORK_TYPES = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"ocfs2", "orangefs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf"}
)
"""File systems over which SQLite's locks or shared memory cannot be relied upon; every ``fuse.*`` besides."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The row ``ledger_identity``: which ledger this is and where it was put."""

    ledger_id: str
    created_at_ms: int
    path: str
    device: int
    inode: int
    host: str


def refuse_network_filesystem(path: Path, filesystem_type: str) -> None:
    """:param filesystem_type: as mountinfo names it (``ext4``, ``nfs4``, ``fuse.sshfs``); the caller has looked.

    :raises LedgerRefused: ``network_filesystem``.
    """
    if filesystem_type in NETWORK_TYPES or filesystem_type.startswith("fuse."):
        raise LedgerRefused(
            "network_filesystem", f"ledger {path} lies on {filesystem_type}, where locks cannot be relied upon: put it on a local disk"
        )


def refuse_missing(path: Path) -> None:
    """A missing ledger is not a new empty one, and neither is an empty file.

    :raises LedgerRefused: ``missing``, ``not_a_ledger``, ``read_only`` (not to be read at all).
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise LedgerRefused("missing", f"no ledger at {path}; make one with: marathonctl init") from None
    except OSError as exc:
        raise LedgerRefused("read_only", f"ledger {path}: {exc.strerror}") from exc
    if not stat.S_ISREG(status.st_mode):
        raise LedgerRefused("not_a_ledger", f"{path} is not a regular file")
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as exc:
        raise LedgerRefused("read_only", f"ledger {path} cannot be read: {exc.strerror}") from exc
    if head != _MAGIC:
        raise LedgerRefused("not_a_ledger", f"{path} is not an SQLite database" + ("" if head else " (it is empty)"))


def refuse_unwritable(path: Path) -> None:
    """Really opens the file for writing and really writes beside it.

    :raises LedgerRefused: ``read_only``, ``disk_full``, ``io``.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as exc:
        raise LedgerRefused("read_only", f"ledger {path} cannot be written: {exc.strerror}") from exc
    probe_room(path)


def probe_room(path: Path) -> None:
    """Write, sync and remove :data:`PROBE_BYTES` in the folder of ``path``."""
    probe = path.with_name(f".{path.name}.probe-{os.getpid()}")
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            left = PROBE_BYTES
            while left > 0:
                left -= os.write(descriptor, bytes(min(left, 65536)))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LedgerRefused("disk_full", f"ledger {path}: no room for {PROBE_BYTES >> 20} MB in {path.parent}: {exc.strerror}") from exc
        code = "read_only" if exc.errno in (errno.EROFS, errno.EACCES, errno.EPERM) else "io"
        raise LedgerRefused(code, f"ledger {path}: cannot write in {path.parent}: {exc.strerror}") from exc


def nothing_in_wal(path: Path) -> bool:
    """True: the database file alone is the whole ledger."""
    wal = path.with_name(path.name + "-wal")
    try:
        return wal.stat().st_size == 0
    except FileNotFoundError:
        return True


def read_identity(conn: sqlite3.Connection, path: Path) -> Identity:
    """:raises LedgerRefused: the row is not there."""
    row = conn.execute("SELECT ledger_id, created_at_ms, path, device, inode, host FROM ledger_identity").fetchone()
    if row is None:
        raise LedgerRefused("not_a_ledger", f"ledger {path} does not know who it is (ledger_identity is empty)")
    return Identity(*tuple(row))


def is_elsewhere(identity: Identity, path: Path, host: str) -> str:
    """How the place differs from the one the ledger knows, or empty.

    A device number alone proves nothing: many file systems get another one at every boot.  So with path, inode and host unchanged it may
    differ.
    """
    status = path.stat()
    if identity.host != host:
        return f"it was put on host {identity.host}, this is {host}"
    if identity.inode != status.st_ino:
        return f"it was put at {identity.path} as inode {identity.inode}, this is inode {status.st_ino}"
    if identity.device != status.st_dev and identity.path != str(path):
        return f"it was put at {identity.path} on device {identity.device}, this is device {status.st_dev}"
    return ""


def refuse_copied(identity: Identity, path: Path, host: str) -> None:
    """:raises LedgerRefused: ``copied``."""
    how = is_elsewhere(identity, path, host)
    if how:
        raise LedgerRefused(
            "copied",
            f"ledger {path} was copied or moved: {how}; say which: marathonctl ledger adopt --moved, or --copy (ends its live trials)",
        )
