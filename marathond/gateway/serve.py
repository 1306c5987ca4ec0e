"""The gateway's process: one instance per folder, from its start to its orderly end.

Owns the loop: settings read again when they change, listener files polled, the journal synced, a sign of life written.  SIGTERM stops
accepting, lets streams end for a bounded time, and cuts the rest (recorded as unknown).  After kill -9 the next life ends in the journal
what the dead one had begun, and opens every listener again from its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from marathond.core.errors import ArtifactError, ConfigError, Refused
from marathond.gateway import netns
from marathond.gateway.budget import Budget
from marathond.gateway.config import GatewayConfig, Route, load
from marathond.gateway.exchange import bury
from marathond.gateway.files import write_json
from marathond.gateway.house import House, Way
from marathond.gateway.journal import Journal
from marathond.gateway.listeners import Listeners, OpenSocket, StillThere
from marathond.gateway.turnstile import Sleep, Turnstile
from marathond.gateway.upstream import Upstream
from marathond.ports.clock import Clock, SystemClock

log = structlog.get_logger("marathond.gateway")
ALIVE_EVERY_S = 2.0


def _nothing() -> None:
    """Nobody wants to know."""


class Gateway:
    """Everything that one life of the process holds.  Made by :func:`opened`."""

    def __init__(self, folder: Path, config: GatewayConfig, clock: Clock, sleep: Sleep) -> None:
        self.folder, self.life = folder, uuid.uuid4().hex[:16]
        self._clock, self._sleep = clock, sleep
        self._dirty = asyncio.Event()
        self._config_seen: tuple[int, int, int] | None = _signature(folder / "gateway.json")
        self.config_error = ""
        self.retired: list[Upstream] = []
        bounds = config.bounds
        journal = Journal(folder / "journal", segment_bytes=bounds.segment_bytes, segments_at_most=bounds.segments)
        ways = {name: self._way(name, route, config) for name, route in config.routes.items()}
        self.house = House(config, ways, journal, clock, sleep, self._dirty.set)
        self.listeners = Listeners(folder, self.house, self.life)

    def _way(self, name: str, route: Route, config: GatewayConfig) -> Way:
        turnstile = Turnstile(Budget(route.requests_per_min, route.tokens_per_min), self._clock, self._sleep)
        return Way(Upstream(name, route, config.bounds, self._clock), turnstile)

    def begin_life(self) -> None:
        """Tell the journal what the last life left: torn lines, and requests that never ended."""
        journal = self.house.journal
        journal.append("life", life=self.life, pid=os.getpid(), boot_id=self._clock.boot_id, wall_ms=self._clock.wall_ms())
        for torn in journal.torn:
            log.warning("journal_torn", segment=torn.segment, byte=torn.byte, length=torn.length)
            journal.append("torn", segment=torn.segment, byte=torn.byte, length=torn.length)
        buried = bury(journal, self._clock, "gateway_died", list(journal.open_requests))
        journal.sync()
        log.info("gateway_started", life=self.life, buried=buried, torn=len(journal.torn))

    async def poll(self) -> None:
        """One look at settings and listeners."""
        await self._reload()
        await self.listeners.poll()
        try:
            self.house.tell_untold()
        except ArtifactError as err:
            log.error("journal_refuses_lines", error=str(err))

    async def _reload(self) -> None:
        seen = _signature(self.folder / "gateway.json")
        if seen == self._config_seen:
            return
        self._config_seen = seen
        try:
            config = load(self.folder)
            await self._apply(config)
        except (ConfigError, ArtifactError, OSError) as err:
            self.config_error = str(err)
            log.error("settings_refused", error=str(err), kept="the settings before")
            return
        self.config_error = ""
        log.info("settings_reloaded", routes=sorted(config.routes))

    async def _apply(self, config: GatewayConfig) -> None:
        """New limits count at once.  A route whose way out changed gets new connections; requests under way end on the old ones."""
        ways = self.house.ways
        old_bounds = self.house.config.bounds
        fresh: dict[str, Way] = {}
        for name, route in config.routes.items():
            way = ways.get(name)
            if way is None:
                fresh[name] = self._way(name, route, config)
            elif way.upstream.route == route and old_bounds == config.bounds:
                fresh[name] = way
            else:
                way.turnstile.budget.reconfigure(route.requests_per_min, route.tokens_per_min, self._clock.mono_ms())
                fresh[name] = Way(Upstream(name, route, config.bounds, self._clock), way.turnstile)
        dropped = [way.upstream for name, way in ways.items() if fresh.get(name) is None or fresh[name].upstream is not way.upstream]
        self.house.ways.clear()
        self.house.ways.update(fresh)
        self.house.config = config
        self.retired = [upstream for upstream in self.retired if not upstream.closed] + dropped
        for upstream in dropped:
            await upstream.retire()

    async def sync_loop(self) -> None:
        """Many records, one fsync, in a thread: no stream waits for the disk."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await asyncio.to_thread(self.house.journal.sync)
            except OSError as err:
                log.error("journal_not_synced", error=str(err))

    async def alive_loop(self) -> None:
        while True:
            self.sign_of_life()
            await asyncio.sleep(ALIVE_EVERY_S)

    def sign_of_life(self) -> None:
        """``alive.json``: who lives, since when it last looked, what it serves; ``config_error`` when newer settings were refused,
        ``journal_error`` while nothing can be recorded, ``key_errors`` by route where the key cannot be read."""
        if self.house.journal.error:
            with contextlib.suppress(ArtifactError):
                self.house.journal.append("recovered", wall_ms=self._clock.wall_ms())
        told = {
            "life": self.life,
            "pid": os.getpid(),
            "start_ticks": netns.start_ticks(os.getpid()),
            "boot_id": self._clock.boot_id,
            "mono_ms": self._clock.mono_ms(),
            "listening": self.listeners.listening,
            "not_opened": self.listeners.beyond,
            "streams": self.house.streams,
            "waiting": {name: way.turnstile.budget.waiting for name, way in self.house.ways.items()},
            "tokens_per_min": {
                name: used
                for name, way in self.house.ways.items()
                if (used := way.turnstile.budget.tokens_used(self._clock.mono_ms())) is not None
            },
            "journal": self.house.journal.identity,
            "config_error": self.config_error,
            "journal_error": self.house.journal.error,
            "key_errors": {name: problem for name, way in self.house.ways.items() if (problem := way.upstream.key.problem())},
        }
        try:
            write_json(self.folder / "alive.json", told, durable=False)
        except ArtifactError as err:
            log.error("alive_not_written", error=str(err))

    async def drain(self) -> None:
        """Accept nothing, wait for streams at most ``drain_s``."""
        self.listeners.stop_accepting()
        self.house.closing = True
        log.info("draining", streams=self.house.streams)
        try:
            async with asyncio.timeout(self.house.config.bounds.drain_s):
                while self.house.streams:
                    self.house.quiet.clear()
                    await self.house.quiet.wait()
        except TimeoutError:
            log.warning("streams_cut", streams=self.house.streams)


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
    open_socket: OpenSocket = netns.open_listening,
    still_there: StillThere = netns.still_there,
) -> AsyncIterator[Gateway]:
    """A gateway that owns ``folder`` and has looked at its files once.  The caller polls.

    :raises Refused: another gateway lives in this folder.
    :raises ConfigError: ``gateway.json`` is missing or wrong.
    :raises ArtifactError: the folder or the journal cannot be written.
    """
    config = load(folder)
    with _only_one(folder):
        gateway = Gateway(folder, config, clock or SystemClock(), sleep)
        gateway.listeners = Listeners(folder, gateway.house, gateway.life, open_socket, still_there)
        loops: list[asyncio.Task[None]] = []
        try:
            gateway.begin_life()
            await gateway.listeners.poll()
            loops = [
                asyncio.create_task(gateway.sync_loop(), name="gateway-sync"),
                asyncio.create_task(gateway.alive_loop(), name="gateway-alive"),
            ]
            yield gateway
        finally:
            gateway.house.closing = True
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await gateway.listeners.close()
            for upstream in [way.upstream for way in gateway.house.ways.values()] + gateway.retired:
                await upstream.close()
            gateway.house.journal.close()


async def serve(folder: Path, *, on_ready: Callable[[], object] = _nothing, on_poll: Callable[[], object] = _nothing) -> None:
    """Serve until SIGTERM or SIGINT.  ``on_ready`` after the first look at every file, ``on_poll`` after each (a watchdog's ping).

    :raises Refused: another gateway lives in this folder, or this process may not enter namespaces.
    :raises ConfigError: ``gateway.json`` is missing or wrong.
    :raises ArtifactError: the folder or the journal cannot be written.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with opened(folder) as gateway:
        on_ready()
        while not stop.is_set():
            await gateway.poll()
            on_poll()
            await _wait(stop, gateway.house.config.poll_ms / 1000)
        await gateway.drain()


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size)


class _only_one:
    """A lock that ends with the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise Refused(f"{self._path}: another gateway serves this folder") from None

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
