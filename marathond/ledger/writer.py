"""The Ledger port over aiosqlite: one writer and one reader connection, each with its own thread.

Owns transactions: a verb runs as ONE hop to its thread, BEGIN to COMMIT, so no two coroutines share a transaction and none stays open
(fault f03).  The threads serve in order of arrival, so no further lock is needed.  Must not know any verb but ``begin_run``.

aiosqlite 0.22 has no public way to run a function on its thread.  Used are its class ``Connection(connector, iter_chunk_size)`` and one
private method, ``Connection._execute(fn)``, which queues ``fn`` and awaits its result; pyproject.toml pins the minor version and
tests/ledger/test_writer.py holds both.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import aiosqlite
import anyio
import anyio.lowlevel

from marathond.core.errors import LedgerRefused
from marathond.ledger.connect import BUSY_TIMEOUT_MS, connect, use_wal
from marathond.ledger.errors import translate
from marathond.ledger.verbs.runs import begin_run

P = ParamSpec("P")
T = TypeVar("T")

WAL_LIMIT_BYTES = 16 << 20
"""The log is cut back to this after a checkpoint."""


def in_transaction(conn: sqlite3.Connection, begin: str, work: Callable[[], T], where: str) -> T:
    """``begin``, ``work``, COMMIT; whatever goes wrong rolls back and is raised in the house's words."""
    try:
        conn.execute(begin)
        try:
            result = work()
            if not conn.in_transaction:
                raise RuntimeError("a verb ended the transaction that it was called in")
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:  # SQLite itself rolls back on a full disk
                conn.execute("ROLLBACK")
            raise
    except sqlite3.Error as exc:
        mine = translate(exc, where)
        if mine is None:
            raise
        raise mine from exc
    return result


def check_epoch(conn: sqlite3.Connection, run_id: int, where: str) -> None:
    """:raises LedgerRefused: ``old_epoch``: a newer daemon life has begun."""
    newest = conn.execute("SELECT max(run_id) FROM run").fetchone()[0]
    if newest != run_id:
        raise LedgerRefused("old_epoch", f"ledger {where}: run {run_id} was replaced by run {newest}; this process must not write any more")


class SqliteLedger:
    """See :class:`marathond.ports.ledger.Ledger`.  Opened by :meth:`open`; the life begins with :meth:`begin_life`."""

    def __init__(self, path: Path, writer: _Thread, reader: _Thread, run_id: int | None) -> None:
        self.path, self.run_id = path, run_id
        self._writer, self._reader = writer, reader

    @classmethod
    async def open(cls, path: Path, *, run_id: int | None = None, busy_ms: int = BUSY_TIMEOUT_MS) -> Self:
        """On a ledger that :func:`marathond.ledger.open.open_for_daemon` let through.

        :param run_id: a life that has begun already; None: call :meth:`begin_life` before the first write.
        :raises LedgerRefused: the file cannot be opened as it was checked.
        """
        writer = await _Thread.start(path, "rw", busy_ms)
        try:
            reader = await _Thread.start(path, "ro", busy_ms)
        except BaseException:
            await writer.close()
            raise
        return cls(path, writer, reader, run_id)

    async def begin_life(self, *, pid: int, pid_start_ticks: int, host: str, boot_id: str, version: str, now_ms: int) -> int:
        """A new run; from here on every earlier life is refused."""
        verb = partial(begin_run, pid=pid, pid_start_ticks=pid_start_ticks, host=host, boot_id=boot_id, version=version, now_ms=now_ms)
        self.run_id = await self._writer.hop(lambda conn: in_transaction(conn, "BEGIN IMMEDIATE", lambda: verb(conn), str(self.path)))
        return self.run_id

    async def write(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """:raises LedgerRefused: ``old_epoch``, ``busy``, ``disk_full`` …  :raises RuleBroken: the schema refused."""
        run_id, where = self.run_id, str(self.path)
        if run_id is None:
            raise LedgerRefused("old_epoch", f"ledger {where}: no daemon life has begun in this process")

        def whole(conn: sqlite3.Connection) -> T:
            def work() -> T:
                check_epoch(conn, run_id, where)
                return verb(conn, *args, **kwargs)

            return in_transaction(conn, "BEGIN IMMEDIATE", work, where)

        return await self._writer.hop(whole)

    async def read(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        where = str(self.path)
        return await self._reader.hop(lambda conn: in_transaction(conn, "BEGIN", lambda: verb(conn, *args, **kwargs), where))

    async def aclose(self) -> None:
        """Reader first: the last connection moves the log into the file."""
        with anyio.CancelScope(shield=True):
            try:
                await self._reader.close()
            finally:
                await self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


class _Thread:
    """One connection and the thread that alone touches it."""

    def __init__(self, proxy: aiosqlite.Connection, conn: sqlite3.Connection) -> None:
        self._proxy, self._conn = proxy, conn

    @classmethod
    async def start(cls, path: Path, mode: str, busy_ms: int) -> Self:
        made: list[sqlite3.Connection] = []

        def connector() -> sqlite3.Connection:
            conn = connect(path, mode=mode, busy_ms=busy_ms)
            try:
                if mode == "rw":
                    use_wal(conn, str(path))
                    conn.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}").fetchall()
            except BaseException:
                conn.close()
                raise
            made.append(conn)
            return conn

        proxy = aiosqlite.Connection(connector, 64)
        try:
            await proxy
        except sqlite3.Error as exc:
            mine = translate(exc, str(path))
            if mine is None:
                raise
            raise mine from exc
        return cls(proxy, made[0])

    async def hop(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` on the thread; what was begun is finished before a cancellation is delivered.

        anyio's cancellation is held off by the shield; a bare ``task.cancel()`` of asyncio is noted and raised afterwards.
        """
        task = asyncio.ensure_future(self._proxy._execute(work, self._conn))  # type: ignore[no-untyped-call]  # private, see the module
        interrupted: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            while not task.done():
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError as exc:
                    interrupted = exc
        if interrupted is not None:
            task.exception()  # looked at, so that it is not reported as never retrieved; the cancellation goes first
            raise interrupted
        result: T = task.result()
        return result

    async def close(self) -> None:
        await self._proxy.close()


class InlineLedger:
    """The same verbs on the caller's thread, for simulation and tests: no thread, any event loop of anyio.

    :param run_id: this life; None: the epoch is not checked until :meth:`begin_life`.
    """

    def __init__(self, conn: sqlite3.Connection, run_id: int | None = None) -> None:
        self._conn, self.run_id = conn, run_id

    async def begin_life(self, *, pid: int, pid_start_ticks: int, host: str, boot_id: str, version: str, now_ms: int) -> int:
        self.run_id = None
        self.run_id = await self.write(
            begin_run, pid=pid, pid_start_ticks=pid_start_ticks, host=host, boot_id=boot_id, version=version, now_ms=now_ms
        )
        return self.run_id

    async def write(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        await anyio.lowlevel.checkpoint()  # others run here, and a cancellation arrives before anything is begun

        def work() -> T:
            if self.run_id is not None:
                check_epoch(self._conn, self.run_id, "inline")
            return verb(self._conn, *args, **kwargs)

        return in_transaction(self._conn, "BEGIN IMMEDIATE", work, "inline")

    async def read(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        await anyio.lowlevel.checkpoint()
        return in_transaction(self._conn, "BEGIN", lambda: verb(self._conn, *args, **kwargs), "inline")
