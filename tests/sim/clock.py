"""The clocks of a simulated host: virtual time, a wall clock that steps, boots.

Owns what the wall and the monotonic clock say at a virtual instant.  Must not know who asks.
"""

from __future__ import annotations

import trio

T0 = 1_790_000_000_000
"""2026-09-21T14:13:20Z."""


class SimClock:
    """See :class:`marathond.ports.clock.Clock`.  Monotonic time starts anew with every boot, and does not count suspension."""

    def __init__(self) -> None:
        self.boot_id = "boot-1"
        self._boots, self._booted_s, self._wall_offset_ms = 1, -30.0, T0
        self.steps = 0

    def virtual_ms(self) -> int:
        """Since the seed began; steps and boots do not touch it."""
        return round(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return self._wall_offset_ms + self.virtual_ms()

    def mono_ms(self) -> int:
        return round((trio.current_time() - self._booted_s) * 1000)

    def step_wall(self, by_ms: int) -> None:
        """Somebody sets the clock, or the host was suspended for so long (then only forwards)."""
        self._wall_offset_ms += by_ms
        self.steps += 1

    def boot(self) -> None:
        """The host was started anew just now."""
        self._boots += 1
        self.boot_id = f"boot-{self._boots}"
        self._booted_s = trio.current_time() - 5.0
