"""The practice provider's clock: seconds that may pass faster than the host's, so that an outage of 20 minutes can be practised in 20 s.

Owns the factor.  What is sent to clients (``Retry-After``) is not scaled: they wait by their own clock.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class PracticeClock(Protocol):
    """Obligations: ``now_s`` never goes back; ``sleep`` returns once ``now_s`` has grown by ``seconds``, and is cancellable."""

    def now_s(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class ScaledClock:
    """The host's monotonic clock, ``speed`` times as fast."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def now_s(self) -> float:
        return time.monotonic() * self.speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)
