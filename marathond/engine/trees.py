"""Directories as tar streams: build contexts and files for ``put_archive``.

Owns the walk, the headers and ``.dockerignore``.  Must not know the engine.  Files are read in worker threads, a batch at a time, so that
neither a slow disk nor a huge file blocks the event loop or fills memory.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from marathond.core.errors import EngineError

BATCH_BYTES = 1 << 18
"""What one hop to a worker thread reads; the stream's memory is about twice this."""

FIXED_MTIME_S = 1577836800
"""2020-01-01: build contexts carry one time for all files, so that equal contents make equal layers.  Later than 1980, which zip needs."""

MAX_ENTRIES = 1_000_000
"""A tree with more entries is refused: it is a mistake such as a whole home directory."""


def read_tree_tar(root: Path, *, prefix: str = "") -> Callable[[], AsyncIterator[bytes]]:
    """A directory's contents as a tar stream, for ``put_archive``; each call of the result reads the tree afresh.

    Symbolic links stay links and are never followed, uid and gid are 0, modes and modification times are kept.
    :param prefix: put in front of every name (``tests`` makes ``tests/test.sh``); empty for the contents themselves.
    :raises EngineError: while iterating, for a socket, pipe or device, or a file that shrinks meanwhile; OSError for an unreadable one.
    """
    return lambda: _batches(lambda: _tar(root, prefix, None, None))


def context_tar(root: Path) -> Callable[[], AsyncIterator[bytes]]:
    """A build context as a tar stream: like :func:`read_tree_tar`, without what ``.dockerignore`` names, and with one fixed time."""
    return lambda: _batches(lambda: _tar(root, "", Ignore.of(root), FIXED_MTIME_S))


async def _batches(make: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
    parts = make()
    while batch := await to_thread.run_sync(_take, parts):
        yield batch


def _take(parts: Iterator[bytes]) -> bytes:
    batch = bytearray()
    for part in parts:
        batch += part
        if len(batch) >= BATCH_BYTES:
            break
    return bytes(batch)


def _tar(root: Path, prefix: str, ignore: Ignore | None, mtime_s: int | None) -> Iterator[bytes]:
    if prefix:
        yield from _entry(root.resolve(), prefix, mtime_s)
    for count, (path, name) in enumerate(_walk(root, "", ignore)):
        if count >= MAX_ENTRIES:
            raise EngineError("tar", 0, f"{root}: more than {MAX_ENTRIES} files")
        yield from _entry(path, f"{prefix}/{name}" if prefix else name, mtime_s)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _walk(folder: Path, below: str, ignore: Ignore | None) -> Iterator[tuple[Path, str]]:
    """Entries in sorted order, folders before what they hold."""
    for entry in sorted(os.scandir(folder), key=lambda item: item.name):
        name = f"{below}{entry.name}"
        inside = entry.is_dir(follow_symlinks=False)
        if ignore is not None and ignore.drops(name):
            if inside and ignore.has_exceptions:
                yield from _walk(Path(entry.path), f"{name}/", ignore)
            continue
        yield Path(entry.path), name
        if inside:
            yield from _walk(Path(entry.path), f"{name}/", ignore)


def _entry(path: Path, name: str, mtime_s: int | None) -> Iterator[bytes]:
    """One header and, for a file, exactly the bytes its header promised."""
    status = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime) if mtime_s is None else mtime_s
    if stat.S_ISREG(status.st_mode):
        yield from _file(path, info)
        return
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    else:
        raise EngineError("tar", 0, f"{path}: neither a file, a folder nor a symbolic link")
    yield _tobuf(info)


def _file(path: Path, info: tarfile.TarInfo) -> Iterator[bytes]:
    # The size in the header is the opened file's: looking at the path twice would race with a writer, or with a link put in its place.
    with open(path, "rb", opener=_no_follow) as file:
        info.size = left = os.fstat(file.fileno()).st_size
        yield _tobuf(info)
        while left:
            part = file.read(min(left, BATCH_BYTES))
            if not part:
                raise EngineError("tar", 0, f"{path}: became shorter while it was read")
            left -= len(part)
            yield part
    yield b"\0" * (-info.size % tarfile.BLOCKSIZE)


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _tobuf(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


@dataclass(frozen=True)
class Ignore:
    """``.dockerignore`` in the form people write: one pattern a line, ``#`` comments, ``!`` exceptions, ``*`` ``?`` ``[…]`` ``**``.

    The last matching line wins, and a pattern that matches a folder drops what it holds.  The Dockerfile and the ignore file itself always
    go along: the builder reads them.
    """

    rules: tuple[tuple[re.Pattern[str], bool], ...]

    @classmethod
    def of(cls, root: Path) -> Ignore:
        """Read ``root/.dockerignore``; without one nothing is ignored."""
        file = root / ".dockerignore"
        if not file.is_file():
            return cls(())
        rules = []
        for line in file.read_text("utf-8", "surrogateescape").splitlines():
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            keep = text.startswith("!")
            pattern = os.path.normpath(text.lstrip("!").strip()).strip("/")
            if pattern not in ("", "."):
                try:
                    rules.append((re.compile(_regex(pattern), re.DOTALL), keep))
                except re.error as exc:
                    raise EngineError("tar", 0, f"{file}: {text!r} is no pattern: {exc}") from exc
        return cls(tuple(rules))

    @property
    def has_exceptions(self) -> bool:
        """A dropped folder must still be searched when some line brings files back."""
        return any(keep for _, keep in self.rules)

    def drops(self, name: str) -> bool:
        """True when ``name`` (relative, with ``/``) stays out of the context."""
        if name in ("Dockerfile", ".dockerignore"):
            return False
        dropped = False
        for pattern, keep in self.rules:
            if pattern.fullmatch(name) or any(pattern.fullmatch(name[:at]) for at, char in enumerate(name) if char == "/"):
                dropped = not keep
        return dropped


def _regex(pattern: str) -> str:
    out, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
            continue
        if pattern.startswith("**", at):
            out, at = out + ".*", at + 2
            continue
        closing = pattern.find("]", at + 1) if char == "[" else -1
        if closing > at:
            out, at = out + pattern[at : closing + 1].replace("[!", "[^", 1), closing + 1
            continue
        out += {"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char)
        at += 1
    return out
