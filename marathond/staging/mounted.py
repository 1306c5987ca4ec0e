"""What lies in the folders and files that arms mount: a value of :mod:`marathond.core.mounts` for each, never an exception.

Owns the walk, its bounds and what is remembered between two looks.  A look has a thread of its own, which nobody waits for longer than he
wants: a file system that hangs keeps that thread, one for each source, and nothing else.  Must not know who compares values.

Nothing is followed and nothing opened that is no regular file; a container that may write there can exchange names at any moment.
What a file held is remembered by device, inode, size and both its times, and only once two looks have read the same there, since a file
that is written twice within one tick of its file system's clock looks the same.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from marathond.core.mounts import APART, NAMES, UNREAD, WHOLE

READ_MAX, BYTES_MAX = 20_000, 1 << 30
"""Names and bytes below one source that are read whole; of more, names, sizes and times are."""
NAMES_MAX = 200_000
DEPTH_MAX = 64
CHUNK_BYTES = 1 << 20
ALIKE = 2
"""Looks that must have read the same before a file is not read again."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PINNED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _NoDigest(Exception):
    """Its words are the value."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """``path``: empty for the source itself.  ``seen``: what must be the same for its bytes to be."""

    path: str
    kind: str
    mode: int
    size: int = 0
    target: str = ""
    seen: tuple[int, ...] = ()


@dataclass(slots=True)
class _Known:
    seen: tuple[int, ...]
    sha256: str
    looks: int = 1


@dataclass(slots=True)
class Look:
    """One reading of one source, under way or over.  ``give_up``: whoever asked has stopped waiting."""

    source: str
    value: str = f"{UNREAD}no answer"
    over: Event = field(default_factory=Event)
    give_up: Event = field(default_factory=Event)


class Mounted:
    """Looks at sources, one at a time for each, and remembers what they read.  Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: set[str] = set()
        self._known: dict[str, dict[str, _Known]] = {}

    def begin(self, source: str) -> Look | None:
        """A look that begins now; None while an earlier one at that source is under way, which may have seen what was before."""
        with self._lock:
            if source in self._under_way:
                return None
            self._under_way.add(source)
        look = Look(source)
        try:
            Thread(target=self._look, args=(look,), name="look at a mount", daemon=True).start()
        except RuntimeError as error:  # no more threads: a limit of the host
            look.value = f"{UNREAD}{error}"
            self._ended(look)
        return look

    def wait(self, source: str, until: float) -> str:
        """The value, by :func:`time.monotonic` ``until`` at the latest.  Blocks: for commands, which have nothing else to do."""
        while (look := self.begin(source)) is None:
            if monotonic() >= until:
                return f"{UNREAD}an earlier look has not ended"
            Event().wait(0.01)
        if not look.over.wait(max(0.0, until - monotonic())):
            look.give_up.set()
            return f"{UNREAD}no answer in time"
        return look.value

    def _look(self, look: Look) -> None:
        try:
            look.value = self._value(look)
        except _NoDigest as why:
            look.value = str(why)
        except OSError as error:
            look.value = f"{UNREAD}{(error.strerror or str(error)).lower()}"
        except Exception as bug:  # noqa: BLE001 - whoever waits must hear of it
            look.value = f"{UNREAD}{type(bug).__name__}: {bug}"
        finally:
            self._ended(look)

    def _ended(self, look: Look) -> None:
        with self._lock:
            self._under_way.discard(look.source)
        look.over.set()

    def _value(self, look: Look) -> str:
        root = os.path.realpath(look.source)  # what the engine mounts, too: a link's target
        entries: list[_Entry] = []
        total = 0
        for entry in _walk(root, look):
            entries.append(entry)
            total += entry.size
            if len(entries) > NAMES_MAX:
                raise _NoDigest(f"{UNREAD}more than {NAMES_MAX} names")
        if len(entries) > READ_MAX or total > BYTES_MAX:
            self._known.pop(look.source, None)
            # Without inodes and times of change: a copy that keeps its times is the same.
            return NAMES + _digest((entry, ",".join(map(str, entry.seen[2:4]))) for entry in entries)
        known = self._known.setdefault(look.source, {})
        value = WHOLE + _digest((entry, self._content(root, entry, known, look)) for entry in entries)
        for path in known.keys() - {entry.path for entry in entries}:
            del known[path]
        return value

    def _content(self, root: str, entry: _Entry, known: dict[str, _Known], look: Look) -> str:
        if entry.kind != "file":
            return ""
        _go_on(look)
        before = known.get(entry.path)
        if before is not None and before.seen == entry.seen and before.looks >= ALIKE:
            return before.sha256
        sha256 = _read(root, entry, look)
        again = before is not None and before.seen == entry.seen and before.sha256 == sha256
        known[entry.path] = _Known(entry.seen, sha256, before.looks + 1 if before is not None and again else 1)
        return sha256


def _go_on(look: Look) -> None:
    if look.give_up.is_set():
        raise _NoDigest(f"{UNREAD}no answer in time")


def _walk(root: str, look: Look) -> Iterator[_Entry]:
    """The source itself, then everything below it in the order of the names' bytes, a folder before what is in it."""
    pinned = os.open(root, _PINNED)
    try:
        entry = _entry("", os.fstat(pinned), "")
    finally:
        os.close(pinned)
    yield entry
    if entry.kind == "folder":
        descriptor = os.open(root, _FOLDER)
        try:
            yield from _below(descriptor, "", 0, look)
        finally:
            os.close(descriptor)


def _below(folder: int, path: str, depth: int, look: Look) -> Iterator[_Entry]:
    if depth > DEPTH_MAX:
        raise _NoDigest(f"{UNREAD}more than {DEPTH_MAX} levels of folders")
    with os.scandir(folder) as listing:
        names = sorted((found.name for found in listing), key=os.fsencode)
    for name in names:
        _go_on(look)
        below = f"{path}/{name}" if path else name
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        entry = _entry(below, status, os.readlink(name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else "")
        yield entry
        if entry.kind == "folder":
            descriptor = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from _below(descriptor, below, depth + 1, look)
            finally:
                os.close(descriptor)


def _entry(path: str, status: os.stat_result, target: str) -> _Entry:
    if stat.S_ISDIR(status.st_mode):
        return _Entry(path, "folder", 0)
    if stat.S_ISLNK(status.st_mode):
        return _Entry(path, "link", 0, target=target)
    if not stat.S_ISREG(status.st_mode):
        kind = "a socket" if stat.S_ISSOCK(status.st_mode) else "a pipe" if stat.S_ISFIFO(status.st_mode) else "a device"
        raise _NoDigest(f"{APART}holds {kind}, {path}" if path else f"{APART}is {kind}")
    return _Entry(path, "file", status.st_mode & 0o111, status.st_size, seen=_seen(status))


def _read(root: str, entry: _Entry, look: Look) -> str:
    """Hex sha256.  What was exchanged or written to since it was walked over has none: the descriptor must be the very file of then."""
    with suppress(FileNotFoundError, NotADirectoryError):
        pinned = os.open(f"{root}/{entry.path}" if entry.path else root, _PINNED)
        try:
            if _seen(os.fstat(pinned)) == entry.seen:
                hasher, read = hashlib.sha256(), 0
                with open(f"/proc/self/fd/{pinned}", "rb", buffering=0, opener=_open) as stream:
                    while read <= entry.size and (chunk := stream.read(CHUNK_BYTES)):
                        _go_on(look)
                        hasher.update(chunk)
                        read += len(chunk)
                if read == entry.size and _seen(os.fstat(pinned)) == entry.seen:
                    return hasher.hexdigest()
        finally:
            os.close(pinned)
    raise _NoDigest(f"{UNREAD}{entry.path or Path(root).name} was written to while it was read")


def _open(path: str, _flags: int) -> int:
    return os.open(path, _FILE)


def _seen(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _digest(entries: Iterator[tuple[_Entry, str]]) -> str:
    """Hex sha256 over (path, kind, executable bits, content, link's target) of each, every field length-prefixed."""
    outer = hashlib.sha256(b"marathond mount 1\n")
    for entry, content in entries:
        for part in map(os.fsencode, (entry.path, entry.kind, f"{entry.mode:o}", content, entry.target)):
            outer.update(len(part).to_bytes(4, "big") + part)
    return outer.hexdigest()
