"""The Host port over this machine's own files and the `ip` command, in worker threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from anyio import to_thread

from marathond.core.subnets import Occupied
from marathond.engine import host
from marathond.ports.host import Disk

CACHE_MS = 1000
"""Routes are read at most this often: a burst of admissions asks once per trial."""


class SystemHost:
    def __init__(self, mono_ms: Callable[[], int]) -> None:
        self._mono_ms = mono_ms
        self._occupied: Sequence[Occupied] = ()
        self._read_at_ms: int | None = None

    async def occupied(self) -> Sequence[Occupied]:
        now_ms = self._mono_ms()
        if self._read_at_ms is None or now_ms - self._read_at_ms >= CACHE_MS:
            self._occupied = await to_thread.run_sync(host.occupied)
            self._read_at_ms = now_ms
        return self._occupied

    async def disk(self, path: Path) -> Disk:
        free, total = await to_thread.run_sync(host.disk_free, path)
        kind, at = await to_thread.run_sync(host.filesystem, path)
        return Disk(str(path), free, total, f"{kind} at {at}")
