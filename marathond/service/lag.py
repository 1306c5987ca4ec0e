"""How late the daemon's event loop is: whoever asks it for a moment's sleep, how long after that moment does he go on?

Owns the measurement and its summary, which is written as observation ``loop``.  Must not know who reads it.  One sleeper of 100 ms costs
about a thousandth of a core; asyncio rounds a sleep up to the next millisecond, so that an idle loop shows about one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio

from marathond.core.errors import PASSING, LedgerRefused
from marathond.ledger.verbs.settings import observe
from marathond.ports.clock import Clock
from marathond.ports.ledger import Ledger

KEY = "loop"
"""Of the observation."""
PERIOD_S, WINDOW_S, TELL_S = 0.1, 60, 10.0
"""Between two looks; how far back the summary goes; how often it is written."""
RING = int(WINDOW_S / PERIOD_S)


def missed(late_s: float) -> list[float]:
    """The lag of one look that came ``late_s`` late, and of every look that should have been taken while the loop stood still.

    Without those a loop that stood still for half a minute would show one late look among hundreds in time (coordinated omission, as
    HdrHistogram corrects for it).  At most a window's.
    """
    looks = min(RING, 1 + int(late_s / PERIOD_S))
    return [max(0.0, late_s - number * PERIOD_S) for number in range(looks)]


def summary(lags_s: Sequence[float]) -> dict[str, Any] | None:
    """``p50_ms``, ``p99_ms`` (nearest rank) and ``max_ms`` of the window, to a hundredth; ``samples`` behind them.  None: no look yet."""
    if not lags_s:
        return None
    ordered = sorted(lags_s)

    def rank(percent: int) -> float:
        return round(1000 * ordered[-(-percent * len(ordered) // 100) - 1], 2)

    return {"p50_ms": rank(50), "p99_ms": rank(99), "max_ms": rank(100), "samples": len(ordered), "window_s": WINDOW_S}


class LoopLag:
    """The looks of the last minute."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=RING)

    async def measure(self) -> None:
        """Until cancelled."""
        before = time.monotonic()
        while True:
            await anyio.sleep(PERIOD_S)
            now = time.monotonic()
            self._lags.extend(missed(max(0.0, now - before - PERIOD_S)))
            before = now

    async def tell(self, ledger: Ledger, clock: Clock) -> None:
        """Writes the summary, until cancelled; a ledger without room misses one, which nobody waits for."""
        while True:
            await anyio.sleep(TELL_S)
            if (seen := summary(self._lags)) is None:
                continue
            try:
                await ledger.write(observe, KEY, seen, now_ms=clock.wall_ms())
            except LedgerRefused as refused:
                if refused.code not in PASSING:
                    raise
