"""The Host port: what the machine under the engine says of itself.

Obligation: a question that cannot be answered raises; it never answers empty or zero (fault f11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from marathond.core.subnets import Occupied


@dataclass(frozen=True, slots=True)
class Disk:
    """One watched file system, in bytes."""

    path: str
    free_bytes: int
    total_bytes: int


class Host(Protocol):
    async def occupied(self) -> Sequence[Occupied]:
        """Subnets of the host's routes, interfaces and resolvers."""
        ...

    async def disk(self, path: Path) -> Disk: ...
