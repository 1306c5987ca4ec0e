"""How far the clock of each file system that we write to is from ours (fault e05: storage two minutes behind).

Owns the probe file, the observation and the finding ``clock_offset``.  Nothing is decided by it, nor by any mtime: order is the ledger's.
It is for the person who compares times of artifacts with times of the ledger.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog
from anyio import to_thread

from marathond.ledger.verbs import findings, settings

if TYPE_CHECKING:
    from marathond.flow.world import World

CODE = "clock_offset"
OFFSET_MAX_MS = 5000
"""More than any file system's granularity and any healthy network's delay."""
PERIOD_S = 3600.0
PROBE_S = 30.0
"""A root that does not answer in this time is unknown; the thread that hangs on it is left behind."""

log = structlog.get_logger("marathond")


class Times(Protocol):
    @property
    def st_mtime_ns(self) -> int: ...


def offset_ms(
    root: Path, *, stat: Callable[[Path], Times] = os.stat, wall_ns: Callable[[], int] = time.time_ns, name: str = ".marathond-clock"
) -> int:
    """The file system's clock minus ours in milliseconds, 0 while the mtime lies between before and after.  Blocking.

    Writes a file into ``root``, syncs and removes it.

    :raises OSError: it cannot be written there.
    """
    probe = root / f"{name}-{os.getpid()}"
    probe.unlink(missing_ok=True)
    before_ns = wall_ns()
    descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(descriptor, b"clock\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        mtime_ns, after_ns = stat(probe).st_mtime_ns, wall_ns()
    finally:
        probe.unlink(missing_ok=True)
    nearest_ns = min(max(mtime_ns, before_ns), after_ns)
    return round((mtime_ns - nearest_ns) / 1e6)


def record(c: sqlite3.Connection, offsets: Mapping[str, int | None], *, now_ms: int) -> None:
    """The observation, and one finding for each root that is off; None (unknown) leaves what was found before."""
    settings.observe(c, CODE, dict(offsets), now_ms=now_ms)
    for row in findings.open_findings(c):
        if row.code == CODE and row.subject not in offsets:
            findings.close_finding(c, code=CODE, subject=row.subject, now_ms=now_ms)
    for root, offset in offsets.items():
        if offset is None:
            continue
        if abs(offset) <= OFFSET_MAX_MS:
            findings.close_finding(c, code=CODE, subject=root, now_ms=now_ms)
            continue
        side = "behind" if offset < 0 else "ahead of"
        detail = f"files in {root} get times {abs(offset) / 1000:.1f} s {side} this host's clock; order by the ledger, not by file times"
        findings.raise_finding(c, code=CODE, severity="warning", subject=root, detail=detail, campaign_id=None, now_ms=now_ms)


async def watch(world: World) -> None:
    """Now and then hourly, for ever."""
    roots = list(dict.fromkeys((world.fixed.run_root.parent, world.fixed.out_dir)))
    while True:
        offsets = {str(root): await _measure(root) for root in roots}
        await world.ledger.write(record, offsets, now_ms=world.clock.wall_ms())
        await anyio.sleep(PERIOD_S)


async def _measure(root: Path) -> int | None:
    """None: unknown."""
    try:
        with anyio.fail_after(PROBE_S):
            return await to_thread.run_sync(offset_ms, root, abandon_on_cancel=True)
    except OSError as error:  # TimeoutError is one
        log.warning("clock_offset_unknown", root=str(root), error=str(error) or "no answer")
        return None
