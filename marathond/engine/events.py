"""One shared subscription to the engine's events, read by ourselves, for ever.

Owns the stream, its reconnects and the fan-out.  Must not know what an event is good for: events are hints, never evidence.

Why not aiodocker's own: after its stream ends a new subscription delivers nothing until ``events.stop()``, which itself raises, and a line
over 512 KiB kills its task (measured).  Docker keeps the last 256 events only and loses them at a restart, so nothing is replayed here:
whoever waits looks again after every reconnect.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator

import structlog

from marathond.core.errors import EngineError
from marathond.engine.client import EngineClient, json_lines
from marathond.engine.decode import event
from marathond.ports.engine import EngineEvent

QUEUE_MAX = 1024
"""Events kept for one slow subscriber; the oldest are dropped (they are hints)."""

RECONNECT_MIN_S, RECONNECT_MAX_S = 0.1, 5.0
"""Pause between attempts to subscribe, doubling."""

RESYNC = EngineEvent("marathond", "resync", "", {})
"""Sent to subscribers after every (re)connect: events may have been missed, look again."""

CUT = EngineEvent("marathond", "cut", "", {})
"""Sent to subscribers when a stream that was open has ended: the engine went away, or is about to."""

_FILTERS = json.dumps({"type": ["container", "network"]})

_log = structlog.get_logger(__name__)


class _Subscriber:
    def __init__(self) -> None:
        self.queue: deque[EngineEvent] = deque(maxlen=QUEUE_MAX)
        self.ready = asyncio.Event()

    def put(self, item: EngineEvent) -> None:
        self.queue.append(item)
        self.ready.set()


class EventHub:
    """Starts its reader with the first subscriber or watcher and keeps it until :meth:`aclose`."""

    def __init__(self, name: str, client: EngineClient) -> None:
        self._name, self._client = name, client
        self._task: asyncio.Task[None] | None = None
        self._subscribers: set[_Subscriber] = set()
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._closed = False
        self.connected = False

    def _start(self) -> None:
        if self._closed:
            raise RuntimeError(f"the events of engine {self._name} are closed")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"engine-events:{self._name}")

    async def subscribe(self) -> AsyncIterator[EngineEvent]:
        """Every event from now on, and :data:`RESYNC` after each (re)connect; ends only with :meth:`aclose`."""
        subscriber = _Subscriber()
        self._subscribers.add(subscriber)
        try:
            self._start()
            if self.connected:
                subscriber.put(RESYNC)
            while not self._closed:
                subscriber.ready.clear()
                while subscriber.queue:
                    yield subscriber.queue.popleft()
                if not self._closed:
                    await subscriber.ready.wait()
        finally:
            self._subscribers.discard(subscriber)

    def watch(self, key: str) -> asyncio.Event:
        """A flag that is set whenever an event concerns ``key`` (an exec id), and after each reconnect.  Pair with :meth:`unwatch`."""
        self._start()
        flag = asyncio.Event()
        self._watchers.setdefault(key, set()).add(flag)
        return flag

    @property
    def watched(self) -> int:
        """How many keys somebody waits for."""
        return len(self._watchers)

    def unwatch(self, key: str, flag: asyncio.Event) -> None:
        """Forget a flag of :meth:`watch`."""
        flags = self._watchers.get(key, set())
        flags.discard(flag)
        if not flags:
            self._watchers.pop(key, None)

    def _publish(self, item: EngineEvent) -> None:
        for subscriber in self._subscribers:
            subscriber.put(item)
        if item is RESYNC:
            touched = [flag for flags in self._watchers.values() for flag in flags]
        else:
            touched = list(self._watchers.get(item.attributes.get("execID", ""), ())) if item.action == "exec_die" else []
        for flag in touched:
            flag.set()

    async def _run(self) -> None:
        pause_s = RECONNECT_MIN_S
        while True:
            try:
                if await self._read_stream():
                    pause_s = RECONNECT_MIN_S
            except EngineError as exc:
                _log.info("engine events unavailable", engine=self._name, error=str(exc), retry_s=pause_s)
            finally:
                was, self.connected = self.connected, False
            if was:
                self._publish(CUT)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RECONNECT_MAX_S)

    async def _read_stream(self) -> bool:
        """Read until the stream ends; True when it had been open."""
        opened = False
        # The deadline covers the answer's head only; the stream itself is endless and its silence means nothing.
        with self._client.guard("events", reads_only=True) as scope:
            async with self._client.stream("GET", "events", params={"filters": _FILTERS}) as response:
                scope.deadline = float("inf")
                opened = self.connected = True
                self._publish(RESYNC)
                async for raw in json_lines("events", response):
                    item = event(raw)
                    if item is not None:
                        self._publish(item)
        return opened

    async def aclose(self) -> None:
        """End the reader and every subscription."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("engine events had died", engine=self._name, error=repr(error))
        for subscriber in self._subscribers:
            subscriber.ready.set()
