"""One look for all who watch: what is shown is made at most every two seconds, in a thread that nobody waits for at the end.

Owns how often and where a look is made.  Must not know what is looked at.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from marathond.core.errors import Refused

T = TypeVar("T")

LEAST_S = 2.0
SHARE = 0.05
"""Of one core that looks of one kind may take: one of half a second is made every ten."""
PAUSE_MAX_S = 60.0
QUEUE_MAX = 64


class Worker:
    """A thread that makes one look after the other.  Not waited for when the process ends: a file system may hang for ever."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

    def put(self, job: Callable[[], None]) -> None:
        """One that nobody waits for, and that raises nothing."""
        self._queue.put(job)

    def close(self) -> None:
        """After what it does now."""
        self._queue.put(None)

    async def run(self, look: Callable[[], T]) -> T:
        """What ``look`` returns or raises.

        :raises Refused: so many wait already that it must hang.
        """
        if self._queue.qsize() >= QUEUE_MAX:
            raise Refused("what was asked for before hangs; look at the file system behind it")
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)

        def job() -> None:
            value, error = None, None
            try:
                value = look()
            except BaseException as caught:  # noqa: BLE001 - it is the awaiter's
                error = caught
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, error)

        self._queue.put(job)
        result: T = await done
        return result


class Kept(Generic[T]):
    """The last look's result, made anew for who asks once it is old enough.  An error is told to who waits for it, and not kept."""

    def __init__(self, worker: Worker, look: Callable[[], T], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker, self._look, self._clock = worker, look, clock
        self._making: asyncio.Task[T] | None = None
        self._value: tuple[T] | None = None
        self._due_s = 0.0
        self.pause_s = LEAST_S
        """Until the next look makes sense."""

    async def get(self) -> T:
        """Who comes while a look is made gets that one's result; who goes away ends none, so that a look that hangs is one look."""
        if self._value is not None and self._clock() < self._due_s:
            return self._value[0]
        if self._making is None:
            self._making = asyncio.create_task(self._make(), name="page-look")
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    async def _make(self) -> T:
        began_s = self._clock()
        value, cpu_s = await self._worker.run(lambda: _measured(self._look))
        # By the processor's time: on a busy host a look takes longer, and is no heavier.
        self.pause_s = min(PAUSE_MAX_S, max(LEAST_S, cpu_s / SHARE, self._clock() - began_s))
        self._value, self._due_s = (value,), began_s + self.pause_s
        return value

    def _made(self, task: asyncio.Task[T]) -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # looked at, also when everybody has gone away


def _measured(look: Callable[[], T]) -> tuple[T, float]:
    """With the seconds that it kept this thread's processor busy, SQLite's included."""
    began_s = time.thread_time()
    value = look()
    return value, time.thread_time() - began_s
