"""What lies in the folders and files that arms mount: a value of :mod:`marathond.core.mounts` for each, never an exception.

Owns the walk, its bounds, who shares a look and what is remembered between two.  Looks have a thread of their own, which nobody waits for
longer than he wants: a file system that hangs keeps that thread, one for each source, and nothing else.  Must not know who compares values.

Not looked at, for it changes by itself and is no part of a harness: what is named ``.git``, ``__pycache__``, ``*.pyc`` or ``*.swp``.

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
from marathond.core.text import LINE_MAX, printable

READ_MAX, BYTES_MAX = 20_000, 1 << 30
"""Names and bytes below one source that are read whole; of more, names, sizes and times are."""
NAMES_MAX = 200_000
DEPTH_MAX = 64
CHUNK_BYTES = 1 << 20
ALIKE = 2
"""Looks that must have read the same before a file is not read again."""
AGAIN_S, AGAIN = 300.0, "asked again after five minutes"
"""How long a source that could not be read in time is not asked again: every trial would wait for it anew."""
APART_NAMES, APART_ENDINGS = frozenset((".git", "__pycache__")), (".pyc", ".swp")

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PINNED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _NoDigest(Exception):
    """Its words are the value."""


class _TooMany(_NoDigest):
    """It took long to find out, and will again."""


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


@dataclass(slots=True, eq=False)
class Look:
    """One reading of one source: asked for, under way or over.

    ``asked_s`` and ``began_s`` by :func:`time.monotonic`.  ``waiters``: 0 once it has begun: nobody wants it any more.
    """

    source: str
    value: str = f"{UNREAD}no answer"
    asked_s: float = field(default_factory=monotonic)
    began_s: float | None = None
    waiters: int = 0
    over: Event = field(default_factory=Event)

    def late(self, patience_s: float) -> bool:
        """Not over, ``patience_s`` after its beginning; or not begun so long after it was asked for, for the one before hangs."""
        since = self.asked_s if self.began_s is None else self.began_s
        return not self.over.is_set() and monotonic() >= since + patience_s


@dataclass(frozen=True, slots=True)
class _PutOff:
    until_s: float
    value: str


class Mounted:
    """Looks at sources, one at a time for each, and remembers what they read.  Any thread may ask.

    Whoever asks has a look that begins after he asked: an earlier one may have seen what was before.  All who ask before it begins share
    it, so that nobody waits for more than two, however many ask.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked: dict[str, list[Look]] = {}
        """By source, for as long as its thread lives: the look under way, if one is, and the next, if somebody wants one."""
        self._put_off: dict[str, _PutOff] = {}
        self._known: dict[str, dict[str, _Known]] = {}

    def ask(self, source: str) -> Look:
        """A look that has not begun, or the answer that there is none for now.  Every asker leaves it: :meth:`leave`."""
        look = Look(source)
        with self._lock:
            put_off = self._put_off.get(source)
            if put_off is not None and monotonic() < put_off.until_s:
                look.value = put_off.value
                look.over.set()
                return look
            self._put_off.pop(source, None)
            asked = self._asked.get(source)
            if asked and asked[-1].began_s is None:
                look = asked[-1]
            else:
                self._asked.setdefault(source, []).append(look)
            look.waiters += 1
            if asked is not None:
                return look
        try:
            Thread(target=self._looks, args=(source,), name="look at a mount", daemon=True).start()
        except RuntimeError as error:  # no more threads: a limit of the host
            with self._lock:
                for each in self._asked.pop(source):
                    _end(each, f"{UNREAD}{error}")
        return look

    def leave(self, look: Look) -> None:
        """The asker does not want it any more; of one that is over it says nothing."""
        with self._lock:
            look.waiters -= 1

    def put_off(self, look: Look, why: str) -> str:
        """It is late: who asks from now on, and who waits for the next, hears so at once, for a while.  The value to tell."""
        with self._lock:
            return look.value if look.over.is_set() else self._put_off_now(look.source, why)

    def _put_off_now(self, source: str, why: str) -> str:
        value = _fit(f"{UNREAD}{why}, {AGAIN}")
        self._put_off[source] = _PutOff(monotonic() + AGAIN_S, value)
        asked = self._asked.get(source, [])
        for each in [each for each in asked if each.began_s is None]:
            asked.remove(each)
            _end(each, value)
        return value

    def answer(self, look: Look, until_s: float) -> str:
        """The value, by :func:`time.monotonic` ``until_s`` at the latest.  Blocks: for commands, which have nothing else to do."""
        try:
            if look.over.wait(max(0.0, until_s - monotonic())):
                return look.value
            return f"{UNREAD}{'an earlier look has not ended' if look.began_s is None else 'no answer in time'}"
        finally:
            self.leave(look)

    def _looks(self, source: str) -> None:
        """The thread's: one look after another while somebody wants one."""
        while (look := self._next(source)) is not None:
            value, many = self._told(look)
            with self._lock:
                self._asked[source].remove(look)
                _end(look, self._put_off_now(source, value) if many else value)

    def _next(self, source: str) -> Look | None:
        with self._lock:
            for look in [each for each in self._asked[source] if each.waiters <= 0]:
                self._asked[source].remove(look)
                _end(look, look.value)
            if not self._asked[source]:
                del self._asked[source]
                return None
            look = self._asked[source][0]
            look.began_s = monotonic()  # inside the lock: who asks from here on gets the next
            return look

    def _told(self, look: Look) -> tuple[str, bool]:
        """The value; and whether it is rather why the source must be put off."""
        try:
            return self._value(look), False
        except _TooMany as why:
            return str(why), True
        except _NoDigest as why:
            return str(why), False
        except OSError as error:
            return f"{UNREAD}{(error.strerror or str(error)).lower()}", False
        except Exception as bug:  # noqa: BLE001 - whoever waits must hear of it
            return f"{UNREAD}{type(bug).__name__}: {bug}", False

    def _value(self, look: Look) -> str:
        root = os.path.realpath(look.source)  # what the engine mounts, too: a link's target
        entries: list[_Entry] = []
        total = 0
        for entry in _walk(root, look):
            entries.append(entry)
            total += entry.size
            if len(entries) > NAMES_MAX:
                raise _TooMany(f"more than {NAMES_MAX} names")
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


def _end(look: Look, value: str) -> None:
    look.value = _fit(value)
    look.over.set()


def _fit(value: str) -> str:
    """For the ledger and a screen: names of files are bytes, and those that are no UTF-8 can be bound to no statement."""
    return printable(value, LINE_MAX)


def _go_on(look: Look) -> None:
    if look.waiters <= 0:  # nobody joins a look that has begun
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
        names = sorted((found.name for found in listing if not _apart(found.name)), key=os.fsencode)
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


def _apart(name: str) -> bool:
    return name in APART_NAMES or name.endswith(APART_ENDINGS)


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
    """Hex sha256.  What was exchanged or written to since it was walked over has none: the descriptor must be the very file of then.

    Nor has what the kernel makes up as it is read (proc, sysfs, cgroup), whose size says nothing.
    """
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
    raise _NoDigest(f"{UNREAD}{entry.path or Path(root).name} changed while it was read, or is no plain file")


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
