"""What the store asks of whoever makes a package: the protocol between :mod:`store` and its makers.

Owns the words between them.  Must not know any package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from marathond.core.errors import StageError
from marathond.staging.manifest import Manifest, Origin, StagedTree
from marathond.staging.progress import Say


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a maker works.

    :param aside: a folder of its own, removed afterwards however it ends.
    :param target: the tree is made here; nothing is there yet.
    :param there: the same tree if it is staged and whole already, which then learns one more origin.
    """

    aside: Path
    target: Path
    say: Say
    there: Callable[[Manifest, Origin], StagedTree | None]


@dataclass(frozen=True, slots=True)
class Made:
    """A tree in ``target``, proven and on the disk.

    :param hashes: hex sha256 by path of those files whose bytes were hashed when they were written; the others are read.
    """

    origin: Origin
    hashes: Mapping[str, str] = field(default_factory=dict)


class Maker(Protocol):
    """One package that the configuration asks for.  All of it blocks; ``make`` alone fetches, runs or writes anything."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def problem(self) -> StageError | None:
        """Why it cannot be staged at all."""
        ...

    def seen(self) -> str:
        """Fingerprint of the local files that it would be made from, empty when there are none.  Raises StageError."""
        ...

    def matching(self, manifest: Manifest, seen: str) -> Origin | None:
        """The origin that is asked for, None when the tree is another one."""
        ...

    def make(self, ground: Ground) -> Made | StagedTree:
        """Fetch or copy, check against the pins, try out.  Raises StageError, one clear line."""
        ...
