"""Deadlines go by a clock that stands still while the host is suspended (fault e06)."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from marathond.ports.clock import SystemClock

SUSPENDED_S = 30_000
LOOK = "import time; from marathond.ports.clock import SystemClock as C; print(C().mono_ms(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))"


def test_e06_the_clock_of_deadlines_is_the_kernels_monotonic_one() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
    now = SystemClock().mono_ms()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="a time namespace needs root")
def test_e06_a_suspension_moves_no_deadline() -> None:
    """In a time namespace in which the host was suspended for a night: the clock that counts it is ahead by that, ours is not."""
    argv = ["unshare", "--time", "--boottime", str(SUSPENDED_S), "--fork", sys.executable, "-c", LOOK]
    before = SystemClock().mono_ms()
    boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    mono_ms, boot_ns = map(int, subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())
    assert before <= mono_ms <= SystemClock().mono_ms()
    assert boot_ns / 1e9 - boot_s >= SUSPENDED_S
