"""The Clock port: wall time for people, monotonic time for deadlines.

Obligations: ``mono_ms`` never goes back within a boot and does not count suspension (CLOCK_MONOTONIC); ``wall_ms`` may step either way and
decides nothing but what is printed; ``boot_id`` changes with every boot of the host, and monotonic readings compare only within one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    boot_id: str

    def wall_ms(self) -> int: ...

    def mono_ms(self) -> int: ...


class SystemClock:
    """The host's clocks (Linux)."""

    def __init__(self) -> None:
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
