"""What a task directory holds, and our digests of it.

Owns the one walk over a task directory and our own digests of it.
Must not know what the files mean (:mod:`marathond.tasks.harbor`) and never writes.  Nothing here follows a symlink: a link that
points out of the task, a fifo, a socket or a device is refused, so that reading a strange directory can neither leave it nor block.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from io import FileIO
from pathlib import Path

from marathond.core.errors import ConfigError

MAX_ENTRIES = 200_000
MAX_DEPTH = 64
CHUNK_BYTES = 1 << 20


class Kind(StrEnum):
    """What an entry is; everything else is refused."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the tree.  ``sha256`` of a file's bytes in hex; ``target`` of a link as stored."""

    relative: str
    kind: Kind
    executable: bool = False
    size_bytes: int = 0
    sha256: str = ""
    target: str = ""


@dataclass(frozen=True)
class Tree:
    """A task directory at one moment: entries sorted by the bytes of their path."""

    root: Path
    entries: tuple[Entry, ...]

    def get(self, relative: str) -> Entry | None:
        """The entry at ``relative``, or None."""
        return self._by_path.get(relative)

    @cached_property
    def _by_path(self) -> dict[str, Entry]:
        return {entry.relative: entry for entry in self.entries}

    def resolve(self, relative: str) -> Entry | None:
        """The entry at ``relative``, links followed inside the tree; None when there is nothing."""
        landing = os.path.relpath(os.path.realpath(self.root / relative), self.root)
        return self.get(landing)

    def under(self, folder: str) -> tuple[Entry, ...]:
        """Everything below ``folder``, without the folder itself."""
        return tuple(entry for entry in self.entries if entry.relative.startswith(f"{folder}/"))


def scan(path: Path) -> Tree:
    """Walk and hash the directory ``path`` once.

    :raises ConfigError: something in it must not be there (a link pointing out, a fifo) or cannot be read.
    :raises FileNotFoundError: ``path`` itself is not a directory.
    """
    try:
        found = path.is_dir()
    except OSError as error:
        raise _unreadable(path, error) from error
    if not found:
        raise FileNotFoundError(path)
    root = Path(os.path.realpath(path))
    entries: list[Entry] = []
    for entry in _walk(root, "", 0):
        entries.append(entry)
        if len(entries) > MAX_ENTRIES:
            raise ConfigError(str(path), f"more than {MAX_ENTRIES} entries", "a task directory of fewer files")
    entries.sort(key=lambda entry: os.fsencode(entry.relative))
    return Tree(root, tuple(entries))


def _walk(root: Path, folder: str, depth: int) -> Iterator[Entry]:
    where = root / folder
    if depth > MAX_DEPTH:
        raise ConfigError(str(where), f"more than {MAX_DEPTH} levels of folders", "a shallower task directory")
    try:
        with os.scandir(where) as listing:
            names = sorted(item.name for item in listing)
    except OSError as error:
        raise _unreadable(where, error) from error
    for name in names:
        relative = f"{folder}/{name}" if folder else name
        entry = _entry(root, relative)
        yield entry
        if entry.kind is Kind.FOLDER:
            yield from _walk(root, relative, depth + 1)


def _entry(root: Path, relative: str) -> Entry:
    where = root / relative
    try:
        status = where.lstat()
        if stat.S_ISLNK(status.st_mode):
            return _link(root, relative)
        if stat.S_ISDIR(status.st_mode):
            return Entry(relative, Kind.FOLDER)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(str(where), "a fifo, socket or device", "only files, folders and links inside the task")
        return _file(where, relative)
    except OSError as error:
        raise _unreadable(where, error) from error


def _link(root: Path, relative: str) -> Entry:
    where = root / relative
    target = str(where.readlink())
    landing = Path(os.path.realpath(where))
    if Path(target).is_absolute() or not landing.is_relative_to(root):
        raise ConfigError(str(where), f"a link to {target}, outside the task", "links that stay inside the task directory")
    return Entry(relative, Kind.LINK, target=target)


def _file(where: Path, relative: str) -> Entry:
    with open_regular(where) as stream:
        status = os.fstat(stream.fileno())
        hasher, size_bytes = hashlib.sha256(), 0
        while chunk := stream.read(CHUNK_BYTES):
            hasher.update(chunk)
            size_bytes += len(chunk)
    return Entry(relative, Kind.FILE, bool(status.st_mode & stat.S_IXUSR), size_bytes, hasher.hexdigest())


def open_regular(where: Path) -> FileIO:
    """Open a file of a scanned tree for reading.

    O_NOFOLLOW and O_NONBLOCK: between lstat and open the file may have been exchanged for a link or a fifo.

    :raises OSError: as ``open``.
    :raises ConfigError: it is no regular file (any more).
    """
    descriptor = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(str(where), "changed into something else while it was read", "a regular file")
    return FileIO(descriptor)


def _unreadable(where: Path, error: OSError) -> ConfigError:
    return ConfigError(str(where), f"cannot be read: {error.strerror or error}", "readable files")


def tree_digest(tree: Tree, folder: str = "") -> str:
    """Hex sha256 over (path, kind, executable bit, content hash or link target) of every entry, each field length-prefixed.

    With ``folder`` only what lies below it counts, with paths relative to it: moving the task does not change an image's identity.
    """
    outer = hashlib.sha256(b"marathond tree 1\n")
    for entry in tree.under(folder) if folder else tree.entries:
        relative = entry.relative[len(folder) + 1 :] if folder else entry.relative
        fields = (relative, entry.kind.value, "x" if entry.executable else "-", entry.sha256, entry.target)
        for field in map(os.fsencode, fields):
            outer.update(len(field).to_bytes(4, "big") + field)
    return outer.hexdigest()


def task_digest(path: Path) -> str:
    """Our digest of a whole task directory, as hex sha256.  Raises as :func:`scan`."""
    return tree_digest(scan(path))


def context_digest(path: Path) -> str:
    """Our digest of the task's ``environment/`` alone, as hex sha256; of nothing when there is none.  Raises as :func:`scan`."""
    return tree_digest(scan(path), "environment")
