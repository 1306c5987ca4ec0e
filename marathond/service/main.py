"""One daemon life, from the ledger's lock to the last word: what the command ``marathond`` runs.

Owns opening and closing (lock, ledger, engine, control socket), signals and the one error that is shown.  What happens in between is
:mod:`marathond.service.daemon`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup

from marathond import __version__
from marathond.core.errors import PASSING, LedgerRefused, MarathonError
from marathond.engine.docker import DockerEngine
from marathond.engine.host import filesystem_type
from marathond.engine.processes import read_stat
from marathond.ledger.open import open_for_daemon
from marathond.ledger.verbs import replaced, runs
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service import takeover
from marathond.service.commands import Commands
from marathond.service.control import ControlServer
from marathond.service.daemon import Daemon
from marathond.service.departure import Departure
from marathond.service.logs import configure
from marathond.service.settings import Settings

log = structlog.get_logger("marathond")

CLOSE_S = 0.5
"""For the connections to the engine: the process ends in a moment, and they with it."""


def main(settings: Settings, *, take_over: bool = False) -> int:
    """Run one daemon life in the foreground.  Exit status 0: stopped as asked.

    :param take_over: end the daemon that holds the ledger first.
    :raises MarathonError: refused or broken, in one line.
    """
    configure(settings.daemon.log_level, settings.daemon.log_format)
    taken = None
    if take_over:
        here = takeover.Here(os.getpid(), socket.gethostname(), SystemClock().boot_id)
        taken = takeover.take_over(settings.daemon.ledger, here)
    # What was imported lives as long as the process: looking through it again and again cost the event loop 0.1 s at a time.
    gc.collect()
    gc.freeze()
    try:
        anyio.run(_live, settings, taken)
    except BaseExceptionGroup as group:
        raise _first(group) from group
    return 0


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The house's own word if there is one: the others are what it caused."""
    leaves: list[BaseException] = []
    queue: list[BaseException] = [group]
    while queue:
        error = queue.pop(0)
        if isinstance(error, BaseExceptionGroup):
            queue.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, MarathonError)), leaves[0])


async def _live(settings: Settings, taken: takeover.Taken | None) -> None:
    async with living(settings, taken=taken) as daemon, anyio.create_task_group() as signals:
        assert daemon.ledger.run_id is not None
        departure = Departure(daemon.ledger.path, daemon.ledger.run_id, daemon.clock, daemon.last_words)
        daemon.departs, daemon.departed = departure.begin, departure.ended
        signals.start_soon(_struck, daemon, departure, name="stop signals")
        signals.start_soon(_reloads, daemon, name="signals")
        await daemon.run(serve_control)
        signals.cancel_scope.cancel()


@asynccontextmanager
async def living(settings: Settings, *, gates_only: bool = False, taken: takeover.Taken | None = None) -> AsyncIterator[Daemon]:
    """A daemon life on the configured ledger, written down there; the caller runs it.

    :param taken: how the daemon before this one was ended for it.

    :raises LedgerRefused: the ledger is not there, in use, or not to be used.
    """
    clock, host, path = SystemClock(), socket.gethostname(), settings.daemon.ledger
    folder = next((parent for parent in path.parents if parent.exists()), path.parent)
    stat = read_stat(os.getpid())
    opened = open_for_daemon(
        path,
        host=host,
        filesystem_type=filesystem_type(folder),
        now_ms=clock.wall_ms(),
        start_ticks=stat.start_ticks if stat is not None else None,
        boot_id=clock.boot_id,
    )
    try:
        async with await SqliteLedger.open(opened.path) as ledger:
            await ledger.begin_life(
                pid=os.getpid(),
                pid_start_ticks=stat.start_ticks if stat is not None else 0,
                host=host,
                boot_id=clock.boot_id,
                version=__version__,
                now_ms=clock.wall_ms(),
            )
            if taken is not None:
                old, now_ms = taken.target, clock.wall_ms()
                ended = partial(replaced.taken_over, pid=old.pid, pid_start_ticks=old.start_ticks, boot_id=clock.boot_id, how=taken.how)
                await ledger.write(ended, now_ms=now_ms)
            engine = DockerEngine(settings.engine.name, settings.engine.url, call_timeout_s=settings.engine.call_timeout_s)
            daemon = Daemon(settings, opened, ledger, engine, clock, gates_only=gates_only)
            try:
                yield daemon
            finally:
                with anyio.move_on_after(CLOSE_S, shield=True):
                    await engine.aclose()
            asked, undone = daemon.last_words()
            try:
                log.info("ended", said=await ledger.write(runs.part, asked=asked, undone=undone, now_ms=clock.wall_ms()))
            except LedgerRefused as refused:
                if refused.code not in PASSING:
                    raise
                log.error("ended", said=asked, not_written=str(refused))  # a life without an end is no obstacle for the next one
        daemon.departed()
    finally:
        opened.close()


async def serve_control(daemon: Daemon, group: TaskGroup) -> None:
    commands = Commands(daemon.ledger, daemon, daemon.clock, config=lambda: daemon.settings.config_path)
    earlier = await daemon.ledger.read(replaced.earlier_lives, boot_id=daemon.clock.boot_id)

    def was_ours(pid: int) -> bool:
        """A life of this very ledger, which this one has replaced: stopped or hanging it may hold the socket, and is refused any write."""
        stat = read_stat(pid)
        return stat is not None and (pid, stat.start_ticks) in earlier

    server = ControlServer(daemon.settings.daemon.control_socket, commands.handle, deadline_s=commands.deadline_s, replaced=was_ours)
    await group.start(server.serve)


async def _struck(daemon: Daemon, departure: Departure) -> None:
    """SIGTERM and SIGINT end the daemon and leave trials running, also while the event loop itself hangs, and however often they come.

    Never given back: one that comes after the loop's end must not kill a process that is just closing its ledger.
    """
    loop, struck, names = asyncio.get_running_loop(), asyncio.Event(), list[str]()

    def strike(number: int, _frame: object) -> None:
        departure.begin()
        names.append(signal.Signals(number).name)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the end is here already
            loop.call_soon_threadsafe(struck.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, strike)
    await struck.wait()
    daemon.request_stop("term", "signal", names[0])


async def _reloads(daemon: Daemon) -> None:
    """SIGHUP reads the configuration again."""
    with anyio.open_signal_receiver(signal.SIGHUP) as received:
        async for _ in received:
            try:
                result = await daemon.submit("signal")
            except MarathonError as error:
                log.error("reload_refused", error=str(error))
            except OSError as error:  # of a disk with tasks: no reason to end what runs
                log.error("reload_refused", error=str(error), exc_info=error)
            else:
                log.info("reloaded", cells_added=result.added_cells)
