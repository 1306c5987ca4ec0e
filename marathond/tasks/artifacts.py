"""Artifacts out of a run directory: read safely, written atomically.

Owns copying, hashing and durability.  Must not know what the files mean, nor the ledger.  A run directory is written by agents and must be
taken for hostile; the destination is ours, and may be a network file system.  All functions block: call them from a worker thread.
One writer per destination is assumed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from marathond.core.errors import ArtifactError
from marathond.tasks.atomic import Aside, sync_folder, write_atomic
from marathond.tasks.paths import kind_of, open_file, open_folder, open_subfolder, parts_of, translate

__all__ = ["ArtifactRecord", "export_tree", "read_bounded", "read_ends", "write_atomic"]

CHUNK_BYTES = 1 << 20
MAX_DEPTH = 32
FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """One entry of a run directory, by its relative path.  ``skipped`` is why it was not copied; there is no hash then."""

    path: str
    sha256: str
    size_bytes: int
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """An entry as the walk saw it; it may be another thing by the time it is opened."""

    parts: tuple[str, ...]
    size_bytes: int
    skipped: str = ""

    @property
    def path(self) -> str:
        return "/".join(self.parts)


Wanted = Callable[[tuple[str, ...], str], bool]
"""Whether an entry, by its names below the source and its kind (``file``, ``folder``, ``symbolic link`` …), is copied or listed at all."""


def everything(parts: tuple[str, ...], kind: str) -> bool:
    return True


def export_tree(
    source: Path,
    dest: Path,
    *,
    max_bytes: int,
    max_files: int,
    checkpoint: Callable[[], None] = lambda: None,
    wanted: Wanted = everything,
) -> list[ArtifactRecord]:
    """Copy the regular files below ``source`` to ``dest``; every other entry is listed as skipped, with the reason.

    Small files go first, so that a huge one cannot use up ``max_bytes`` (of all files together) before the results are safe.  At most
    ``max_files`` entries are looked at, wanted or not: writers that do not trust each other get a call each.  A source that is gone is one
    skipped record.

    :param checkpoint: called before each entry and each piece; what it raises ends the copy, and the file in work leaves no trace.
    :param wanted: a folder that is not wanted is not looked into.
    :return: records sorted by path; each copied file is complete, synced and under its final name.
    :raises ArtifactError: the destination failed (``no_space``, ``io``).  Trouble with the source is a skipped record.
    """
    try:
        with open_folder(source) as root:
            found = list(_Walk(root, max_files, wanted, checkpoint).entries())
            records = _copy_all(root, found, dest, max_bytes, checkpoint)
    except FileNotFoundError:
        return [ArtifactRecord("", "", 0, "the folder is gone")]
    except OSError as error:
        return [ArtifactRecord("", "", 0, f"the folder cannot be read: {error.strerror}")]
    return sorted(records, key=lambda record: record.path)


class _Walk:
    """One walk below ``root``, which looks at no more than ``max_files`` entries, wanted or not."""

    def __init__(self, root: int, max_files: int, wanted: Wanted, checkpoint: Callable[[], None]) -> None:
        self._root, self._max_files, self._wanted, self._checkpoint = root, max_files, wanted, checkpoint
        self._left, self._full = max_files, False

    def entries(self) -> Iterator[_Found]:
        yield from self._below(())
        if self._full:
            yield _Found((), 0, f"more than {self._max_files} entries: the rest was not looked at")

    def _below(self, parts: tuple[str, ...]) -> Iterator[_Found]:
        """Everything below ``parts``, folders before what they hold.  No folder stays open meanwhile."""
        try:
            with open_subfolder(self._root, parts, "/".join(parts)) as folder:
                seen = [_look(folder, parts, name) for name in self._names(folder)]
        except (OSError, ArtifactError) as error:
            yield _Found(parts, 0, _why(error))
            return
        for found in seen:
            if not self._wanted(found.parts, found.skipped or "file"):
                continue
            if found.skipped != FOLDER:
                yield found
            elif len(found.parts) >= MAX_DEPTH:
                yield _Found(found.parts, 0, f"more than {MAX_DEPTH} levels deep")
            else:
                yield from self._below(found.parts)

    def _names(self, folder: int) -> list[str]:
        """Sorted; of a folder with more of them than are left to look at, those that the system names first."""
        names: list[str] = []
        with os.scandir(folder) as listing:
            for item in listing:
                self._checkpoint()
                if self._left == 0:
                    self._full = True
                    break
                self._left -= 1
                names.append(item.name)
        return sorted(names)


def _look(folder: int, parts: tuple[str, ...], name: str) -> _Found:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode(errors="backslashreplace")
        return _Found((*parts, shown), 0, "its name is not UTF-8")
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        return _Found((*parts, name), 0, _why(error))
    kind = kind_of(status.st_mode)
    return _Found((*parts, name), status.st_size, "" if kind == "file" else kind)


def _copy_all(root: int, found: list[_Found], dest: Path, max_bytes: int, checkpoint: Callable[[], None]) -> list[ArtifactRecord]:
    records = [ArtifactRecord(item.path, "", item.size_bytes, item.skipped) for item in found if item.skipped]
    folders: set[Path] = set()
    left = max_bytes
    for item in sorted((item for item in found if not item.skipped), key=lambda item: (item.size_bytes, item.parts)):
        record = _copy(root, item, dest, left, folders, checkpoint)
        left -= 0 if record.skipped else record.size_bytes
        records.append(record)
    for folder in sorted(folders):
        sync_folder(folder)
    return records


def _copy(root: int, item: _Found, dest: Path, left: int, folders: set[Path], checkpoint: Callable[[], None]) -> ArtifactRecord:
    if item.size_bytes > left:
        return ArtifactRecord(item.path, "", item.size_bytes, f"too large: {left} bytes were left to copy")
    try:
        with open_subfolder(root, item.parts[:-1], item.path) as folder:
            descriptor = open_file(folder, item.parts[-1], item.path)
    except (OSError, ArtifactError) as error:
        return ArtifactRecord(item.path, "", item.size_bytes, _why(error))
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        target = dest.joinpath(*item.parts)
        _make_folders(target.parent, dest, folders)
        return _pour(stream, item, target, left, checkpoint)


def _pour(stream: BinaryIO, item: _Found, target: Path, left: int, checkpoint: Callable[[], None]) -> ArtifactRecord:
    """Copy until the end; a file that grows beyond what is left, or breaks while it is read, is not kept."""
    hasher, size_bytes, skipped = hashlib.sha256(), 0, ""
    with Aside(target) as aside:
        while not skipped:
            checkpoint()
            try:
                chunk = stream.read(CHUNK_BYTES)
            except OSError as error:
                skipped = _why(error)
                break
            if not chunk:
                aside.keep()
                return ArtifactRecord(item.path, hasher.hexdigest(), size_bytes)
            size_bytes += len(chunk)
            if size_bytes > left:
                skipped = f"too large: it grew beyond the {left} bytes that were left to copy"
            else:
                hasher.update(chunk)
                aside.write(chunk)
    return ArtifactRecord(item.path, "", size_bytes, skipped)


def _make_folders(folder: Path, top: Path, folders: set[Path]) -> None:
    if folder in folders:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise translate(str(folder), error) from error
    while True:
        folders.add(folder)
        if folder in (top, folder.parent):
            break
        folder = folder.parent
    folders.add(top.parent)


def _why(error: OSError | ArtifactError) -> str:
    if isinstance(error, FileNotFoundError):
        return "it vanished"
    if isinstance(error, ArtifactError):
        return error.detail
    return f"cannot be read: {error.strerror or error}"


def read_bounded(root: Path, relative: str, max_bytes: int) -> bytes | None:
    """The bytes of a small file below ``root``; None when it, or anything on the way to it, is absent.

    :raises ArtifactError: ``unsafe_path`` (a link on the way, a path that goes up), ``not_regular``, ``too_large``, ``io``.
    """
    *above, name = parts_of(relative)
    try:
        with open_folder(root) as top, open_subfolder(top, tuple(above), relative) as folder:
            descriptor = open_file(folder, name, relative)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            return _read_at_most(stream, relative, max_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise translate(relative, error) from error


def read_ends(root: Path, relative: str, *, head: int, tail: int) -> bytes | None:
    """The first ``head`` and the last ``tail`` bytes of a file below ``root`` (all of a smaller one); None when it is absent.

    A piece that is left out is a line break: what stands on either side of it does not become one line.
    :raises ArtifactError: ``unsafe_path``, ``not_regular``, ``io``.
    """
    *above, name = parts_of(relative)
    try:
        with open_folder(root) as top, open_subfolder(top, tuple(above), relative) as folder:
            descriptor = open_file(folder, name, relative)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            first = _piece(stream, head)
            if size <= head:
                return first
            stream.seek(max(head, size - tail))
            return first + (b"\n" if size > head + tail else b"") + _piece(stream, tail)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise translate(relative, error) from error


def _piece(stream: BinaryIO, wanted: int) -> bytes:
    """At most ``wanted`` bytes; fewer only at the end."""
    data = bytearray()
    while len(data) < wanted and (chunk := stream.read(min(CHUNK_BYTES, wanted - len(data)))):
        data += chunk
    return bytes(data)


def _read_at_most(stream: BinaryIO, relative: str, max_bytes: int) -> bytes:
    data = bytearray()
    while len(data) <= max_bytes:
        chunk = stream.read(min(CHUNK_BYTES, max_bytes + 1 - len(data)))
        if not chunk:
            return bytes(data)
        data += chunk
    raise ArtifactError("too_large", relative, f"more than {max_bytes} bytes")
