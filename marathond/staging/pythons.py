"""A relocatable Python: from a folder, from a tar archive, or installed by uv into a folder of ours.

Owns which of its files are staged.  Whether it really runs somewhere else is for :mod:`marathond.staging.proof`.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from marathond.core.errors import StageError
from marathond.core.text import printable
from marathond.staging import children, tree
from marathond.staging.pins_loopx import UV
from marathond.staging.progress import Meter, Say

INSTALL_S = 1800.0
LEAST = 11
"""Of 3.NN: what LoopX needs."""

_NAME = re.compile(r"python3\.(\d{1,2})")
_DEEP = 3
_KEPT = ("bin", "lib", "lib64")
_LEFT_OUT = ("test", "idlelib", "turtledemo", "tkinter", "ensurepip", "lib2to3", "pydoc_data")
"""Of the standard library: what neither LoopX nor anything that it imports needs."""

_LEFT_OUT_OF_LIB = re.compile(r"pkgconfig|cmake|(tcl|tk|itcl|thread|tdbc|sqlite)\d.*|.*\.a")


@dataclass(frozen=True, slots=True)
class Python:
    """``home``: the folder with ``bin/`` and ``lib/``; ``name``: ``python3.12``."""

    home: Path
    name: str

    def skips(self, path: str) -> bool:
        """Whether a path below ``home`` is left out."""
        parts = PurePosixPath(path).parts
        if parts[0] not in _KEPT or "__pycache__" in parts:
            return True
        if parts[0] == "bin" or len(parts) == 1:
            return parts[1:] not in {(), (self.name,)}
        if len(parts) == 2:
            return (parts[1].startswith("python") and parts[1] != self.name) or _LEFT_OUT_OF_LIB.fullmatch(parts[1]) is not None
        return len(parts) == 3 and parts[1] == self.name and (parts[2] in _LEFT_OUT or parts[2].startswith("config-"))


def python(wanted: str, folder: Path, say: Say) -> Python:
    """The Python that ``loopx.python`` names.

    :param folder: new, for what is unpacked or installed.
    :raises StageError: there is none, it is too old, or it cannot be unpacked or installed.
    """
    tree.make_folder(folder)
    if wanted.startswith(UV):
        return found(_installed(wanted.removeprefix(UV), folder, say), wanted)
    path = Path(wanted)
    if path.is_dir():
        return found(path, wanted)
    if not path.is_file():
        raise StageError("python", f"loopx.python: {path}: no such folder or archive")
    _unpack(path, folder / "archive", say)
    return found(folder / "archive", wanted)


def found(root: Path, wanted: str) -> Python:
    """In ``root``, or where archives of Python have it: below their one folder, below ``install`` or ``usr``.

    :raises StageError: there is none, or it is too old.
    """
    for _ in range(_DEEP):
        names = [entry.name for entry in sorted((root / "bin").glob("python3.*")) if _NAME.fullmatch(entry.name)]
        if names:
            name = max(names, key=lambda each: int(each.removeprefix("python3.")))
            if int(name.removeprefix("python3.")) < LEAST:
                raise StageError("python", f"loopx.python: {wanted}: is {name}, LoopX needs at least python3.{LEAST}")
            return Python(root, name)
        folders = [entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink()]
        named = [entry for entry in folders if entry.name in {"install", "usr"}]
        below = named or folders
        if len(below) != 1:
            break
        root = below[0]
    raise StageError("python", f"loopx.python: {wanted}: has no bin/python3.NN")


def _installed(version: str, folder: Path, say: Say) -> Path:
    """By uv, as it is configured; nothing of it lands in the home folder."""
    if shutil.which("uv") is None:
        raise StageError(
            "uv", f"uv is not on PATH, it installs Python {version}: install it, or set loopx.python to a folder or an archive"
        )
    own = {"UV_PYTHON_INSTALL_DIR": str(folder / "uv"), "UV_CACHE_DIR": str(folder / "cache"), "UV_PYTHON_INSTALL_BIN": "0"}
    argv = ["uv", "python", "install", "--no-progress", version]
    meter = Meter(say, "fetching", f"Python {version} by uv")
    ended = children.run(
        argv, folder, folder / "uv.log", INSTALL_S, environ={**os.environ, **own}, look=lambda: meter.reached(children.arrived(folder))
    )
    made = [program.parents[1] for program in sorted((folder / "uv").glob("*/bin/python3.*")) if not program.parents[1].is_symlink()]
    if ended.status != 0 or not made:
        raise children.failed(f"uv could not install Python {version}", "uv", ended, folder, INSTALL_S)
    return made[0]


def _unpack(archive: Path, target: Path, say: Say) -> None:
    """Files, folders and links; links are made last, so that nothing is written through one."""
    tree.make_folder(target)
    meter = Meter(say, "unpacking", str(archive))
    links: list[tuple[Path, str]] = []
    count = total = 0
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                count, total = count + 1, total + member.size
                if count > tree.FILES_MAX or total > tree.BYTES_MAX:
                    raise StageError("python", f"{archive}: holds more than {tree.FILES_MAX} files or {tree.BYTES_MAX >> 30} GB")
                where = target.joinpath(*_parts(archive, member))
                if member.isdir():
                    where.mkdir(parents=True, exist_ok=True)
                elif member.issym():
                    links.append((where, member.linkname))
                elif (source := opened.extractfile(member)) is not None:  # a hard link, too: its content once more
                    where.parent.mkdir(parents=True, exist_ok=True)
                    tree.write_file(where, source, 0o755 if member.mode & 0o100 else 0o644, member.size, meter)
                else:
                    raise StageError("python", f"{archive}: {printable(member.name, 200)} is neither a file nor a folder nor a link")
        for where, linked in links:
            where.parent.mkdir(parents=True, exist_ok=True)
            where.symlink_to(linked)
    except (tarfile.TarError, EOFError, zlib.error, KeyError, ValueError) as error:
        raise StageError("python", f"{archive}: cannot be unpacked: {printable(str(error), 300)}") from error
    except OSError as error:
        raise tree.io_error(archive, error) from error


def _parts(archive: Path, member: tarfile.TarInfo) -> tuple[str, ...]:
    parts = tuple(part for part in PurePosixPath(member.name).parts if part != ".")
    if ".." in parts or member.name.startswith("/"):
        raise StageError("python", f"{archive}: {printable(member.name, 200)} leads out of the archive")
    return parts


def copy(source: Python, target: Path, say: Say) -> tuple[str, ...]:
    """What is needed of it, into the new folder ``target``; what is left out, a folder with a slash.

    :raises StageError: as :func:`tree.survey` and :func:`tree.copy`.
    """
    dropped: list[str] = []

    def skip(path: str) -> bool:
        if not source.skips(path):
            return False
        dropped.append(path)
        return True

    kept = tuple(map(tree.settled, tree.survey(source.home, skip)))
    size = sum(entry.size for entry in kept)
    reading = Meter(say, "reading", str(source.home), size)
    entries = tuple(tree.hashed(source.home, entry, reading) for entry in kept)
    tree.copy(source.home, entries, target, Meter(say, "copying", str(source.home), size))
    return tuple(sorted(set(_told(source.home, dropped))))


def _told(home: Path, dropped: list[str]) -> Iterator[str]:
    for path in dropped:
        if path.endswith("__pycache__"):
            yield "**/__pycache__/"
        else:
            yield path + ("/" if (home / path).is_dir() and not (home / path).is_symlink() else "")
