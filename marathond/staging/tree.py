"""A folder as data: what lies in it, its digest, a copy of it that is on the disk when the call returns.

Owns the digest's definition and which trees are accepted at all.  Must not know packages, manifests or where trees come from.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

from marathond.core.errors import StageError

FILES_MAX = 10_000
BYTES_MAX = 4 << 30
"""Of one tree.  Twice LoopX's files and ten times codex's bytes; whoever names ``/usr`` by mistake is told so."""

CHUNK_BYTES = 1 << 20
NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Tick = Callable[[int], None]
"""Told the bytes of each chunk."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name below a tree's root; the root itself is none.

    :param mode: permission bits, 0 for a link.
    :param size: bytes of a file, else 0.
    :param mtime_ns: of a file, else 0.  Never part of a digest.
    :param sha256: hex, of a file that was read, else empty.
    :param target: of a link, else empty.
    """

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    size: int = 0
    mtime_ns: int = 0
    sha256: str = ""
    target: str = ""


def io_error(where: Path | str, error: OSError) -> StageError:
    """A foreign error as one line of ours."""
    code = "no_space" if error.errno in NO_SPACE else "io"
    return StageError(code, f"{where}: {(error.strerror or str(error)).lower()}")


def survey(root: Path, skip: Callable[[str], bool] | None = None) -> tuple[Entry, ...]:
    """Everything below ``root`` in the order of the names' bytes, contents unread.

    :param skip: of a path below ``root``: it and all below it are left out, whatever they are.
    :raises StageError: unreadable, too much of it, or something that is neither file, folder nor a link that stays inside.
    """
    entries: list[Entry] = []
    pending, total = [""], 0
    real_root = Path(os.path.realpath(root))
    try:
        while pending:
            folder = pending.pop()
            with os.scandir(root / folder) as listing:
                for found in listing:
                    path = f"{folder}/{found.name}" if folder else found.name
                    if skip is not None and skip(path):
                        continue
                    entry = _entry(root, real_root, path, found.stat(follow_symlinks=False))
                    entries.append(entry)
                    total += entry.size
                    if entry.kind == "folder":
                        pending.append(path)
            if len(entries) > FILES_MAX or total > BYTES_MAX:
                raise StageError("folder", f"{root}: holds more than {FILES_MAX} files or {BYTES_MAX >> 30} GB; name the tree itself")
    except OSError as error:
        raise io_error(error.filename or root, error) from error
    return tuple(sorted(entries, key=lambda entry: os.fsencode(entry.path)))


def _entry(root: Path, real_root: Path, path: str, status: os.stat_result) -> Entry:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode):
        return Entry(path, "file", mode, status.st_size, status.st_mtime_ns)
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, "folder", mode)
    if not stat.S_ISLNK(status.st_mode):
        raise StageError("folder", f"{root / path}: is neither a file nor a folder nor a link")
    target = str((root / path).readlink())
    # In a container the tree lies somewhere else: what points out of it would point at something else there.
    if target.startswith("/") or not Path(os.path.realpath(root / path)).is_relative_to(real_root):
        raise StageError("folder", f"{root / path}: links to {target}, outside the tree")
    return Entry(path, "link", 0, target=target)


def settled(entry: Entry) -> Entry:
    """As it is staged: whoever runs it in a container may not be its owner, and a umask must not change a digest."""
    if entry.kind == "link":
        return entry
    return replace(entry, mode=0o755 if entry.kind == "folder" or entry.mode & stat.S_IXUSR else 0o644)


def hashed(root: Path, entry: Entry, tick: Tick) -> Entry:
    """The entry with its content's hash; whatever is no file as it is.  Raises StageError when it cannot be read."""
    if entry.kind != "file":
        return entry
    hasher = hashlib.sha256()
    try:
        descriptor = os.open(root / entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                hasher.update(chunk)
                tick(len(chunk))
    except OSError as error:
        raise io_error(root / entry.path, error) from error
    return replace(entry, sha256=hasher.hexdigest())


def digest(entries: Iterable[Entry]) -> str:
    """Hex sha256 over (path, kind, permission bits, content hash or link target), in order, each field length-prefixed."""
    outer = hashlib.sha256(b"marathond staged tree 1\n")
    for entry in entries:
        for field in map(os.fsencode, (entry.path, entry.kind, f"{entry.mode:o}", entry.sha256, entry.target)):
            outer.update(len(field).to_bytes(4, "big") + field)
    return outer.hexdigest()


def difference(expected: Sequence[Entry], found: Sequence[Entry]) -> str | None:
    """The first difference as words that start with the file's path; None when there is none.

    Times are compared when both know them, contents when both were read.
    """
    want, have = {entry.path: entry for entry in expected}, {entry.path: entry for entry in found}
    for path in sorted({*want, *have}):
        if path not in have:
            return f"{path} is missing"
        if path not in want:
            return f"{path} does not belong there"
        if change := _change(want[path], have[path]):
            return f"{path} {change}"
    return None


def _change(want: Entry, have: Entry) -> str | None:
    if want.kind != have.kind:
        return f"is a {have.kind}, a {want.kind} was staged"
    if want.size != have.size:
        return f"has {have.size} bytes, {want.size} were staged"
    if want.mode != have.mode:
        return f"has mode {have.mode:o}, {want.mode:o} was staged"
    if want.target != have.target:
        return f"links to {have.target}, {want.target} was staged"
    if want.sha256 and have.sha256:  # read: the time says nothing that the content does not
        return None if want.sha256 == have.sha256 else "has other content than was staged"
    return None if want.mtime_ns == have.mtime_ns or not (want.mtime_ns and have.mtime_ns) else "was written to after it was staged"


def digest_of(file: Path, kind: str, tick: Tick) -> bytes:
    """Of one file's bytes; ``kind``: ``sha256``, ``sha512``.  Raises StageError ``io``."""
    hasher = hashlib.new(kind)
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                hasher.update(chunk)
                tick(len(chunk))
    except OSError as error:
        raise io_error(file, error) from error
    return hasher.digest()


def write_file(target: Path, source: IO[bytes], mode: int, size: int, tick: Tick) -> str:
    """Make a new file of ``source``'s whole content, synced; its hash.

    :raises StageError: no room for ``size`` bytes, it exists, or another error of the disk.
    """
    hasher = hashlib.sha256()
    try:
        room = os.statvfs(target.parent)
        if (free := room.f_bavail * room.f_frsize) < size:  # before the disk is full for everybody else on it, the ledger included
            raise StageError("no_space", f"{target}: needs {size} bytes, {free} are free")
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as sink:
            while chunk := source.read(CHUNK_BYTES):
                hasher.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[sink.write(view) :]
                tick(len(chunk))
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
    except OSError as error:
        raise io_error(target, error) from error
    return hasher.hexdigest()


def make_folder(target: Path) -> None:
    """A new folder, whatever the umask."""
    try:
        target.mkdir()
        target.chmod(0o755)
    except OSError as error:
        raise io_error(target, error) from error


def copy(root: Path, entries: Sequence[Entry], target: Path, tick: Tick) -> None:
    """Copy surveyed and settled entries below ``target``, which is made.

    :raises StageError: as :func:`write_file`; or a file's content is not the one whose hash the entry carries.
    """
    make_folder(target)
    for entry in entries:
        where = target / entry.path
        if entry.kind == "folder":
            make_folder(where)
        elif entry.kind == "link":
            try:
                where.symlink_to(entry.target)
            except OSError as error:
                raise io_error(where, error) from error
        elif _copy_file(root / entry.path, where, entry, tick) != entry.sha256:
            raise StageError("folder", f"{root / entry.path}: changed while it was copied")
    sync_folders(target)


def _copy_file(source: Path, target: Path, entry: Entry, tick: Tick) -> str:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise io_error(source, error) from error
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        return write_file(target, stream, entry.mode, entry.size, tick)


def sync_tree(root: Path) -> None:
    """Make everything below ``root`` durable that others than :func:`write_file` wrote there."""
    try:
        for folder, _, names in os.walk(root):
            for name in names:
                if not (where := Path(folder) / name).is_symlink():
                    descriptor = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
    except OSError as error:
        raise io_error(error.filename or root, error) from error
    sync_folders(root)


def sync_folders(root: Path) -> None:
    """Make the names in ``root`` and in every folder below it durable."""
    for folder, _, _ in os.walk(root):
        sync_folder(Path(folder))


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system has no such thing for folders
            raise io_error(folder, error) from error
