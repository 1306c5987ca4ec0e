"""The Host port: what the machine under the engine says of itself.

Obligation: a question that cannot be answered raises HostUnknown; it never answers empty or zero (fault f11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from marathond.core.errors import MarathonError
from marathond.core.subnets import Occupied


class HostUnknown(MarathonError):
    """This machine could not be asked.  A caller that needs the answer must say ``unknown``.

    :param what: what was asked (``routes``).
    :param partial: what could be seen all the same; too little to hand out subnets by.
    """

    def __init__(self, what: str, detail: str, partial: Sequence[Occupied] = ()) -> None:
        self.what, self.detail, self.partial = what, detail, tuple(partial)
        super().__init__(f"{what} of this host are unknown: {detail}")


@dataclass(frozen=True, slots=True)
class Disk:
    """One watched file system, in bytes.  ``filesystem``: its type and mount point, in words."""

    path: str
    free_bytes: int
    total_bytes: int
    filesystem: str = ""


class Host(Protocol):
    async def occupied(self) -> Sequence[Occupied]:
        """Subnets of the host's routes, interfaces and resolvers.  Raises HostUnknown."""
        ...

    async def disk(self, path: Path) -> Disk:
        """Of the file system that holds ``path``.  Raises HostUnknown, also when there is no such path."""
        ...
