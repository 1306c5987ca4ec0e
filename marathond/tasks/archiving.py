"""A finished trial's artifacts in one file, and their folder's removal.

Owns what may be in such a folder, packing it, proving the pack against the hashes that were recorded at the export, and removing the
folder.  Must not know the ledger, nor decide what is old.  A folder holds what agents and verifiers wrote, copied by us; somebody may have
put other things there since: links, devices and files that nobody recorded are refused by name, never followed and never removed.
All functions block: call them from a worker thread.  One packer and one remover at a time are assumed (the caller's lock).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from marathond.core.errors import ArtifactError
from marathond.tasks.artifacts import CHUNK_BYTES, read_bounded
from marathond.tasks.atomic import Aside, sync_folder
from marathond.tasks.paths import kind_of, open_file, open_folder, open_subfolder, translate
from marathond.tasks.removal import remove_tree

DOCUMENTS = ("config.json", "result.json")
"""What the exporter writes beside the artifacts, from the ledger; it changes when a trial is withdrawn, so nobody recorded its hash."""
DOCUMENT_BYTES = 64 << 20
MANIFEST = "marathond-archive.json"
"""The first entry: what the archive is of, with the hash of every other one."""
PARTS = ("agent", "verifier", "artifacts")
"""Folders of Harbor's layout, which stand also while they hold nothing."""
ENTRIES_AT_MOST = 200_000
NAMED_AT_MOST = 5
ASIDE = re.compile(r"\.part-[0-9a-f]{24}")
"""A document that is being written, or was when its writer was killed (tasks/atomic.py)."""
GZIP_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Recorded:
    """One exported file, as it was recorded: path below the trial's folder, hash, size."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Packed:
    """``sha256``, ``size_bytes``: of the archive; ``files``, ``content_bytes``: in it, its own first entry left out."""

    sha256: str
    size_bytes: int
    files: int
    content_bytes: int


def _go_on() -> None:
    return


def strange(folder: Path, recorded: Sequence[Recorded], checkpoint: Callable[[], None] = _go_on) -> list[str]:
    """What keeps the folder from being exactly what was exported, a line each; names and kinds alone, no content is read.

    :raises ArtifactError: ``io``: the folder is not there or cannot be read.
    """
    problems, missing = _differing(folder, recorded, checkpoint)
    return problems + [f"{path}: is missing" for path in missing]


def put_there(aside: Path, recorded: Sequence[Recorded], checkpoint: Callable[[], None] = _go_on) -> list[str]:
    """What lies in a folder beside all that was exported, a line each; nothing of a folder that is not whole: its removal has begun.

    :raises ArtifactError: ``io``: the folder cannot be read.
    """
    if not aside.exists():
        return []
    problems, missing = _differing(aside, recorded, checkpoint)
    return [] if missing else problems


def _differing(folder: Path, recorded: Sequence[Recorded], checkpoint: Callable[[], None]) -> tuple[list[str], list[str]]:
    """(what was not exported, in words; paths that are missing)."""
    known = {one.path for one in recorded}
    folders = {str(parent) for path in known for parent in PurePosixPath(path).parents}
    found: set[str] = set()
    problems: list[str] = []
    try:
        with open_folder(folder) as root:
            for count, (path, kind) in enumerate(_entries(root, checkpoint)):
                if count >= ENTRIES_AT_MOST:
                    return [f"more than {ENTRIES_AT_MOST} entries: not what was exported"], []
                name = PurePosixPath(path).name
                if kind == "file" and path in known:
                    found.add(path)
                elif kind == "file" and not (path in DOCUMENTS or ASIDE.fullmatch(name)):
                    problems.append(f"{path}: was not written by marathond")
                elif kind != "file" and not (kind == "folder" and (path in folders or path in PARTS)):
                    problems.append(f"{path}: is a {kind}, which nobody exported")
    except OSError as error:
        raise translate(str(folder), error) from error
    return problems, sorted(known - found)


def _entries(root: int, checkpoint: Callable[[], None]) -> Iterator[tuple[str, str]]:
    """(path, kind) of everything below, no link followed, without recursion; a folder that went meanwhile is skipped."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        try:
            with open_subfolder(root, parts, "/".join(parts)) as folder, os.scandir(folder) as listing:
                seen = [(item.name, kind_of(item.stat(follow_symlinks=False).st_mode)) for item in listing]
        except FileNotFoundError:
            continue
        for name, kind in sorted(seen):
            checkpoint()
            yield os.fsencode("/".join((*parts, name))).decode(errors="backslashreplace"), kind
            if kind == "folder":
                waiting.append((*parts, name))


def altered(folder: Path, recorded: Sequence[Recorded], checkpoint: Callable[[], None] = _go_on) -> list[str]:
    """Files that are not what was exported, by their hashes, a line each.  Reads all of them.

    :raises ArtifactError: ``io``: the folder cannot be read.
    """
    problems = []
    try:
        with open_folder(folder) as root:
            for one in recorded:
                try:
                    with _opened(root, one) as stream:
                        for _ in stream.chunks(checkpoint):
                            pass
                        stream.prove()
                except ArtifactError as error:
                    problems.append(f"{one.path}: {error.detail}")
    except OSError as error:
        raise translate(str(folder), error) from error
    return problems


class _Stream:
    """One recorded file while it is read: never more than its recorded size and one byte."""

    def __init__(self, raw: IO[bytes], one: Recorded) -> None:
        self._raw, self._one = raw, one
        self._hasher, self._count = hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        left = self._one.size_bytes + 1 - self._count
        try:
            data = self._raw.read(min(left, CHUNK_BYTES if size < 0 else size))
        except OSError as error:
            raise translate(self._one.path, error) from error
        self._hasher.update(data)
        self._count += len(data)
        return data

    def chunks(self, checkpoint: Callable[[], None]) -> Iterator[bytes]:
        while data := self.read():
            checkpoint()
            yield data

    def prove(self) -> None:
        """:raises ArtifactError: ``altered``: it is not the file that was exported."""
        self.read(1)
        if self._count != self._one.size_bytes or self._hasher.hexdigest() != self._one.sha256:
            raise ArtifactError("altered", self._one.path, f"is not what was exported (sha256 {self._one.sha256[:12]}…)")


@contextmanager
def _opened(root: int, one: Recorded) -> Iterator[_Stream]:
    *above, name = PurePosixPath(one.path).parts
    try:
        with open_subfolder(root, tuple(above), one.path) as folder:
            descriptor = open_file(folder, name, one.path)
    except FileNotFoundError as error:
        raise ArtifactError("altered", one.path, "is missing") from error
    except OSError as error:
        raise translate(one.path, error) from error
    with os.fdopen(descriptor, "rb", buffering=0) as raw:
        yield _Stream(raw, one)


class _Counted(io.RawIOBase):
    """Writes to the file aside, through our own errors."""

    def __init__(self, aside: Aside) -> None:
        self._aside = aside

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._aside.write(bytes(data))
        return len(data)


def pack(
    folder: Path,
    recorded: Sequence[Recorded],
    target: Path,
    *,
    about: Mapping[str, Any],
    at_s: int,
    checkpoint: Callable[[], None] = _go_on,
) -> Packed:
    """Write ``folder`` to the file ``target`` (``.tar.gz``), which is whole and proven under its name, or not there.

    Written aside, synced, read back entry by entry from the disk against the recorded hashes, then renamed.  The same content gives the
    same bytes, so a repetition after a crash replaces what there was by its like.

    :param about: goes into the first entry; :param at_s: modification time of the entries, by the ledger.
    :raises ArtifactError: ``altered`` (by name: what was put there or changed since the export), ``io``, ``no_space``.
    """
    if problems := strange(folder, recorded, checkpoint):
        raise ArtifactError("altered", str(folder), _some(problems))
    documents = {name: data for name in DOCUMENTS if (data := read_bounded(folder, name, DOCUMENT_BYTES)) is not None}
    sums = {one.path: (one.sha256, one.size_bytes) for one in recorded}
    sums |= {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in documents.items()}
    files = {path: {"sha256": digest, "bytes": size} for path, (digest, size) in sorted(sums.items())}
    manifest = json.dumps({"format": 1, **about, "files": files}, indent=1, sort_keys=True).encode() + b"\n"
    with Aside(target) as aside:
        with gzip.GzipFile("", "wb", GZIP_LEVEL, cast(Any, _Counted(aside)), mtime=0) as packed, _tar(packed) as tar:
            _add(tar, f"{folder.name}/{MANIFEST}", len(manifest), at_s, io.BytesIO(manifest))
            for name, data in sorted(documents.items()):
                _add(tar, f"{folder.name}/{name}", len(data), at_s, io.BytesIO(data))
            with open_folder(folder) as root:
                for one in sorted(recorded, key=lambda one: one.path):
                    checkpoint()
                    with _opened(root, one) as stream:
                        _add(tar, f"{folder.name}/{one.path}", one.size_bytes, at_s, cast(IO[bytes], stream))
                        stream.prove()
        try:
            os.fsync(aside.descriptor)
            os.posix_fadvise(aside.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # what is proven below comes from the disk
        except OSError as error:
            raise translate(str(target), error) from error
        digest, size = prove(aside.path, folder.name, sums, checkpoint)
        aside.keep()
    sync_folder(target.parent)
    return Packed(digest, size, len(sums), sum(size for _, size in sums.values()))


def _tar(packed: IO[bytes] | gzip.GzipFile) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast(IO[bytes], packed), mode="w", format=tarfile.PAX_FORMAT)


def _add(tar: tarfile.TarFile, name: str, size: int, at_s: int, content: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, at_s, 0o644
    try:
        tar.addfile(info, content)
    except OSError as error:  # tarfile's own word for a file that is shorter than it was
        raise ArtifactError("altered", name, f"is not what was exported: {error}") from error


class _Hashing(io.RawIOBase):
    """A file that is read once, hashed in passing."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self.hasher, self.count = raw, hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self.hasher.update(data)
        self.count += len(data)
        return len(data)


def prove(archive: Path, top: str, sums: Mapping[str, tuple[str, int]], checkpoint: Callable[[], None] = _go_on) -> tuple[str, int]:
    """Read the archive entry by entry; its own hash and size.

    :param sums: path below ``top`` to (sha256, bytes) of every entry but the manifest: no more and no fewer.
    :raises ArtifactError: ``altered``: an entry is missing, too many, of another kind or content; ``io``.
    """
    left = dict(sums)
    try:
        with archive.open("rb", buffering=0) as raw:
            hashing = _Hashing(cast(IO[bytes], raw))
            with gzip.GzipFile(fileobj=io.BufferedReader(hashing, CHUNK_BYTES)) as packed:
                with tarfile.open(fileobj=packed, mode="r|") as tar:
                    for info in tar:
                        checkpoint()
                        _prove_entry(tar, info, top, left)
                while data := packed.read(CHUNK_BYTES):  # to the very end, where the sum of the whole stands
                    if data.strip(b"\0"):
                        raise ArtifactError("altered", str(archive), "goes on after its end")
            while hashing.read(CHUNK_BYTES):
                pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ArtifactError("altered", str(archive), f"cannot be unpacked: {error}") from error
    except OSError as error:
        raise translate(str(archive), error) from error
    if left:
        raise ArtifactError("altered", str(archive), f"lacks {_some(sorted(left))}")
    return hashing.hasher.hexdigest(), hashing.count


def _prove_entry(tar: tarfile.TarFile, info: tarfile.TarInfo, top: str, left: dict[str, tuple[str, int]]) -> None:
    name = info.name.removeprefix(f"{top}/")
    if name == MANIFEST:
        return
    wanted = left.pop(name, None)
    content = tar.extractfile(info) if info.isreg() else None
    if wanted is None or content is None:
        raise ArtifactError("altered", info.name, "is an entry that nobody packed")
    hasher = hashlib.sha256()
    while data := content.read(CHUNK_BYTES):
        hasher.update(data)
    if (hasher.hexdigest(), info.size) != wanted:
        raise ArtifactError("altered", info.name, "is not what was packed")


def archive_of(file: Path) -> tuple[str, str] | None:
    """(ledger id, trial) by the archive's own first entry; None: it is no archive of ours."""
    try:
        with tarfile.open(file, "r:gz") as tar:
            info = tar.next()
            content = tar.extractfile(info) if info is not None and info.isreg() and info.size <= DOCUMENT_BYTES else None
            if info is None or content is None or not info.name.endswith(f"/{MANIFEST}"):
                return None
            manifest = json.loads(content.read())
            return str(manifest["ledger"]), str(manifest["trial"])
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError, zlib.error):
        return None


def file_sum(path: Path, checkpoint: Callable[[], None] = _go_on) -> tuple[str, int]:
    """sha256 and size of a regular file.

    :raises ArtifactError: ``io`` (absent, unreadable), ``unsafe_path``, ``not_regular``.
    """
    hasher, count = hashlib.sha256(), 0
    try:
        with open_folder(path.parent) as folder:
            descriptor = open_file(folder, path.name, str(path))
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while data := stream.read(CHUNK_BYTES):
                checkpoint()
                hasher.update(data)
                count += len(data)
    except OSError as error:
        raise translate(str(path), error) from error
    return hasher.hexdigest(), count


def aside_name(folder: Path) -> Path:
    """Where a folder is moved for its removal: beside it, so that it goes at one instant."""
    return folder.with_name(f".pruned-{folder.name}")


def move_aside(folder: Path) -> bool:
    """One rename; False: it was not there (any more).  Raises ArtifactError ``io``."""
    try:
        folder.rename(aside_name(folder))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise translate(str(folder), error) from error
    sync_folder(folder.parent)
    return True


def move_back(folder: Path) -> None:
    """What :func:`move_aside` moved has its own name again.  Raises ArtifactError ``io``."""
    try:
        aside_name(folder).rename(folder)
    except OSError as error:
        raise translate(str(folder), error) from error
    sync_folder(folder.parent)


def remove_aside(folder: Path, checkpoint: Callable[[], None] = _go_on) -> None:
    """What :func:`move_aside` moved; absent is success.  Raises ArtifactError ``io``."""
    try:
        remove_tree(aside_name(folder), checkpoint)
    except OSError as error:
        raise translate(str(folder), error) from error
    if folder.parent.is_dir():
        sync_folder(folder.parent)


def tree_size(folder: Path, *, at_most: int = ENTRIES_AT_MOST) -> tuple[int, int, bool]:
    """(files, bytes on disk, whether all entries were looked at) below ``folder``; absent is nothing.  No link is followed."""
    files = size = seen = 0
    try:
        with open_folder(folder) as root:
            waiting: list[tuple[str, ...]] = [()]
            while waiting:
                parts = waiting.pop()
                try:
                    with open_subfolder(root, parts, "/".join(parts)) as inner, os.scandir(inner) as listing:
                        for item in listing:
                            seen += 1
                            try:
                                size += item.stat(follow_symlinks=False).st_blocks * 512
                            except FileNotFoundError:
                                continue  # it went meanwhile; the others are counted all the same
                            if seen > at_most:
                                return files, size, False
                            if item.is_dir(follow_symlinks=False):
                                waiting.append((*parts, item.name))
                            else:
                                files += 1
                except (FileNotFoundError, ArtifactError):
                    continue
    except FileNotFoundError:
        return 0, 0, True
    except OSError as error:
        raise translate(str(folder), error) from error
    return files, size, True


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return "; ".join(names[:NAMED_AT_MOST]) + more
