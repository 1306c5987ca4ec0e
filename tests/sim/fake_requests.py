"""One request on its way to the simulated engine, and one client's stream of its events.

Owns nothing but these two.  Must not know what a request does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from marathond.core.errors import EngineError
from marathond.ports.engine import EngineEvent

QUEUE_MAX = 256


class Request:
    """One request on its way; ``subject``: the id or subnet it is about; ``done``: it had its effect."""

    __slots__ = ("call", "done", "effect", "reads", "subject")

    def __init__(self, call: str, effect: Callable[[], Any], *, reads: bool, subject: str) -> None:
        self.call, self.effect, self.reads, self.subject, self.done = call, effect, reads, subject, False

    def complete(self) -> None:
        """With nobody left to hear of it."""
        if not self.done:
            self.done = True
            try:
                self.effect()
            except EngineError:
                return  # refused: nobody hears of that either


class Subscription:
    """One client's stream of events; bounded, the oldest are dropped."""

    def __init__(self) -> None:
        self.queue: deque[EngineEvent] = deque(maxlen=QUEUE_MAX)
        self.ready = trio.Event()

    def put(self, event: EngineEvent) -> None:
        self.queue.append(event)
        self.ready.set()
