"""Writing the ledger while no daemon lives: what ``marathonctl regrade`` and ``marathonctl import`` do beside the daemon's own verbs.

Owns the life of such a command in the ledger: its lock, a run row of its own (the epoch of everything it writes) and that row's end.  The
next daemon begins another life after it, as after any other.  Must not know what the commands write.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from marathond import __version__
from marathond.core.errors import LedgerRefused, MarathonError
from marathond.engine.host import filesystem_type
from marathond.engine.processes import read_stat
from marathond.ledger.connect import connect, use_wal
from marathond.ledger.open import open_for_daemon
from marathond.ledger.readonly import house_errors
from marathond.ledger.verbs import runs
from marathond.ledger.writer import check_epoch, in_transaction
from marathond.ports.clock import SystemClock

P = ParamSpec("P")
T = TypeVar("T")


class OfflineWriter:
    """Runs verbs, each in a transaction of its own.  ``run_id``: this command's epoch."""

    def __init__(self, path: Path, conn: sqlite3.Connection, run_id: int) -> None:
        self.path, self.run_id = path, run_id
        self._conn = conn

    def write(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """:raises LedgerRefused: ``old_epoch``, ``disk_full`` …  :raises RuleBroken: the schema refused; nothing of the verb stays."""

        def work() -> T:
            check_epoch(self._conn, self.run_id, str(self.path))
            return verb(self._conn, *args, **kwargs)

        return in_transaction(self._conn, "BEGIN IMMEDIATE", work, str(self.path))

    def read(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return in_transaction(self._conn, "BEGIN", lambda: verb(self._conn, *args, **kwargs), str(self.path))


@contextmanager
def offline_writer(ledger: Path, what: str) -> Iterator[OfflineWriter]:
    """The ledger at ``ledger``, for this process alone until the block ends.

    :param what: the command, such as ``marathonctl import``: named in refusals and, with how it ended, in the run's row.
    :raises LedgerRefused: ``in_use`` (a daemon lives, or another such command), or all that refuses a daemon; nothing was written then.
    """
    clock, host = SystemClock(), socket.gethostname()
    folder = next((parent for parent in ledger.parents if parent.exists()), ledger.parent)
    stat = read_stat(os.getpid())
    try:
        opened = open_for_daemon(
            ledger,
            host=host,
            filesystem_type=filesystem_type(folder),
            now_ms=clock.wall_ms(),
            start_ticks=stat.start_ticks if stat is not None else None,
            boot_id=clock.boot_id,
            what=what,
        )
    except LedgerRefused as error:
        if error.code == "in_use":
            raise LedgerRefused("in_use", f"{what} needs the ledger for itself: {_stop_first(str(error))}") from error
        raise
    try:
        with house_errors(opened.path), closing(connect(opened.path, mode="rw")) as conn:
            use_wal(conn, str(opened.path))
            begin = partial(
                runs.begin_offline,
                conn,
                what=what,
                pid=os.getpid(),
                pid_start_ticks=stat.start_ticks if stat is not None else 0,
                host=host,
                boot_id=clock.boot_id,
                version=__version__,
                now_ms=clock.wall_ms(),
            )
            writer = OfflineWriter(opened.path, conn, in_transaction(conn, "BEGIN IMMEDIATE", begin, str(opened.path)))
            try:
                yield writer
            except BaseException:
                with suppress(MarathonError):  # what went wrong first is the news; a life without an end is no obstacle
                    writer.write(runs.end_run, reason=f"{what}: broken off", now_ms=clock.wall_ms())
                raise
            writer.write(runs.end_run, reason=what, now_ms=clock.wall_ms())
    finally:
        opened.close()


def _stop_first(refusal: str) -> str:
    """The lock's words end with a choice that a command on this very ledger does not have."""
    return f"{refusal.removesuffix('; stop it or choose another ledger')}; stop it first"
