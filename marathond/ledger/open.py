"""Making and opening a ledger.

Owns the order of the checks: everything that can be refused is refused, by name, before anything is written (fault f05), and a look that
fails is a refusal, never an empty ledger (fault f11).  Must not run verbs other than the ones of :mod:`marathond.ledger.adopt`.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import LedgerRefused
from marathond.ledger import lock, place
from marathond.ledger.connect import connect, use_wal
from marathond.ledger.migrate import migrate, sync
from marathond.ledger.place import Identity, read_identity
from marathond.ledger.readonly import house_errors, real
from marathond.ledger.version import check_is_ledger, check_version

_GONE = "was moved away or replaced under this daemon"
_TELL = "it ends, running trials go on; say where the ledger is now: marathonctl ledger adopt --moved, then start marathond"


@dataclass(slots=True)
class OpenedLedger:
    """A ledger that this process may write.  ``migrated``: numbers of the migrations this opening applied; ``file``: device and inode."""

    path: Path
    ledger_id: str
    migrated: list[int]
    lock: lock.LedgerLock
    file: tuple[int, int]

    def keep(self) -> bool:
        """Make sure that ledger and lock are still the files under their names; True when the lock had to be taken again.

        Race prevented: a daemon whose ledger was moved away or replaced under it writes into a file that nobody will read.

        :raises LedgerRefused: ``replaced``, the ledger is not there any more; ``in_use``, another daemon has the lock by now.
        """
        try:
            status = self.path.stat()
        except OSError as exc:
            raise LedgerRefused("replaced", f"ledger {self.path} {_GONE}: {exc.strerror}; {_TELL}") from exc
        if (status.st_dev, status.st_ino) != self.file:
            raise LedgerRefused("replaced", f"ledger {self.path} {_GONE}: another file has its name (inode {status.st_ino}); {_TELL}")
        return self.lock.keep()

    def close(self) -> None:
        """Let the next process have it; close the writer first."""
        self.lock.release()


def create(path: Path, *, host: str, now_ms: int, filesystem_type: str = "") -> str:
    """A new ledger at ``path``; returns its id (12 hex digits).

    It is made aside and linked to its name when it is whole, so that nothing that exists is ever overwritten.
    :param filesystem_type: as mountinfo names it; empty: not asked.
    :raises LedgerRefused: ``exists``, ``missing`` (the folder), ``network_filesystem``, ``read_only``, ``disk_full``.
    """
    path = real(path)
    if path.exists():
        raise LedgerRefused("exists", f"{path} exists already; nothing was changed")
    if not path.parent.is_dir():
        raise LedgerRefused("missing", f"ledger {path}: no folder {path.parent}")
    place.refuse_network_filesystem(path, filesystem_type)
    place.probe_room(path)
    import secrets  # here: `status` opens ledgers, too, and must start quickly

    ledger_id = secrets.token_hex(6)
    aside = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        with house_errors(path):
            _build(aside, path, ledger_id, host, now_ms)
        try:
            os.link(aside, path)
        except FileExistsError:
            raise LedgerRefused("exists", f"{path} exists already; nothing was changed") from None
    finally:
        for leftover in (aside, *companions(aside)):
            leftover.unlink(missing_ok=True)
    sync(path.parent)
    return ledger_id


def _build(aside: Path, path: Path, ledger_id: str, host: str, now_ms: int) -> None:
    aside.unlink(missing_ok=True)
    conn = connect(aside, mode="rwc")
    try:
        use_wal(conn, str(path))
        migrate(conn, None)
        status = aside.stat()
        conn.execute(
            "INSERT INTO ledger_identity (singleton, ledger_id, created_at_ms, path, device, inode, host) VALUES (1, ?, ?, ?, ?, ?, ?)",
            (ledger_id, now_ms, str(path), status.st_dev, status.st_ino, host),
        )
        # Here, for close() would do it, too, but tells nobody that the disk was full; the log, all that is whole then, is removed by name.
        if conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise LedgerRefused("busy", f"ledger {path}: somebody reads it while it is made")
    finally:
        conn.close()


def open_for_daemon(
    path: Path,
    *,
    host: str,
    filesystem_type: str,
    now_ms: int,
    pid: int | None = None,
    start_ticks: int | None = None,
    boot_id: str = "",
    what: str = lock.DAEMON,
) -> OpenedLedger:
    """Lock, check, migrate.  The caller then opens the writer (:mod:`marathond.ledger.writer`) on ``.path``.

    ``start_ticks``, ``boot_id`` and ``what`` say in the lock file who this process is (:class:`marathond.ledger.lock.Holder`).

    :param host: name of this host, as recorded when the ledger was made.
    :param filesystem_type: of the ledger's folder, as mountinfo names it.
    :raises LedgerRefused: ``missing``, ``not_a_ledger``, ``network_filesystem``, ``read_only``, ``disk_full``, ``in_use``, ``newer``,
        ``corrupt``, ``copied``, ``busy``; nothing was written then.
    """
    path = real(path)
    place.refuse_missing(path)
    place.refuse_network_filesystem(path, filesystem_type)
    place.refuse_unwritable(path)
    pid = os.getpid() if pid is None else pid
    held = lock.acquire(path, pid=pid, host=host, now_ms=now_ms, start_ticks=start_ticks, boot_id=boot_id, what=what)
    try:
        with house_errors(path):
            identity = _inspect(path, immutable=place.nothing_in_wal(path))
            place.refuse_copied(identity, path, host)
            migrated = _settle(path, identity)
        status = path.stat()
    except BaseException:
        held.release()
        raise
    return OpenedLedger(path, identity.ledger_id, migrated, held, (status.st_dev, status.st_ino))


def look_before(path: Path, *, host: str, filesystem_type: str) -> None:
    """All that would refuse a daemon on this ledger, the lock apart; writes nothing, also beside a daemon that lives.

    :raises LedgerRefused: as :func:`open_for_daemon`.
    """
    path = real(path)
    place.refuse_missing(path)
    place.refuse_network_filesystem(path, filesystem_type)
    place.refuse_unwritable(path)
    with house_errors(path):
        place.refuse_copied(_inspect(path, immutable=False), path, host)


def _inspect(path: Path, *, immutable: bool) -> Identity:
    """All checks that need SQL, on a connection that cannot write: closing it moves nothing from the log into the file."""
    conn = connect(path, mode="ro", immutable=immutable)
    try:
        check_is_ledger(conn, str(path))
        check_version(conn, str(path), may_migrate=True)
        refuse_damaged(conn, path)
        return read_identity(conn, path)
    finally:
        conn.close()


def _settle(path: Path, identity: Identity) -> list[int]:
    """The first writes: WAL, migrations, and a device number that a boot has changed."""
    conn = connect(path, mode="rw")
    try:
        use_wal(conn, str(path))
        migrated = migrate(conn, path)
        status = path.stat()
        if (identity.device, identity.path) != (status.st_dev, str(path)):
            conn.execute("UPDATE ledger_identity SET device = ?, path = ?", (status.st_dev, str(path)))
        return migrated
    finally:
        conn.close()


def refuse_damaged(conn: sqlite3.Connection, path: Path) -> None:
    """:raises LedgerRefused: ``corrupt``."""
    verdict = [str(row[0]) for row in conn.execute("PRAGMA quick_check(3)").fetchall()]
    if verdict != ["ok"]:
        raise LedgerRefused("corrupt", f"ledger {path} is damaged: {'; '.join(verdict)}; restore a backup")


def companions(path: Path) -> tuple[Path, ...]:
    """What SQLite may lay beside a file."""
    return tuple(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))
