"""Opening what somebody else may have arranged.

Owns the way from a trusted folder down to one entry without following a symbolic link, leaving the folder or blocking on a pipe.  Must not
know what is read or why.  The folder itself is the caller's word: give the outermost one that no container can exchange.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from marathond.core.errors import ArtifactError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_LINK_SIGNS = (errno.ELOOP, errno.ENOTDIR)


def translate(path: str, error: OSError) -> ArtifactError:
    """The house's error for the system's: ``no_space``, or ``io`` with its name (ESTALE, EIO, EPERM of a squashed root)."""
    code = "no_space" if error.errno in _NO_SPACE else "io"
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return ArtifactError(code, path, f"{error.strerror or error} [{name}]")


def _open(path: str | Path, flags: int, folder: int | None = None) -> int:
    """As os.open, without a trace where that is allowed: reading must not even move a time of somebody's file.

    The kernel lets only the owner, or root, ask for that; for others it is an ordinary look.
    """
    try:
        return os.open(path, flags | os.O_NOATIME, dir_fd=folder)
    except PermissionError:
        return os.open(path, flags, dir_fd=folder)
    except ValueError as error:
        raise OSError(errno.EINVAL, "a NUL byte in its name") from error


def kind_of(mode: int) -> str:
    """What an ``st_mode`` says, in one word."""
    names = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "folder",
        stat.S_IFLNK: "symbolic link",
        stat.S_IFIFO: "fifo",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "device",
        stat.S_IFBLK: "device",
    }
    return names.get(stat.S_IFMT(mode), "unknown kind")


def parts_of(relative: str) -> tuple[str, ...]:
    """The names on the way to ``relative``.

    :raises ArtifactError: ``unsafe_path`` when it is empty, absolute, or goes up.
    """
    path = PurePosixPath(relative)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in relative:
        raise ArtifactError("unsafe_path", relative, "must be a path below the folder")
    return path.parts


@contextmanager
def open_folder(root: Path) -> Iterator[int]:
    """A descriptor of the folder ``root``.  Raises OSError; a link in its place is refused (ENOTDIR)."""
    descriptor = _open(root, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_subfolder(folder: int, parts: tuple[str, ...], shown: str) -> Iterator[int]:
    """A descriptor of the folder at ``parts`` below ``folder``; ``folder`` itself for no parts.

    :raises FileNotFoundError: something on the way is absent.
    :raises ArtifactError: something on the way is a link (``unsafe_path``) or no folder (``not_regular``).
    """
    descriptor = os.dup(folder)
    try:
        for name in parts:
            try:
                below = _open(name, _FOLDER, descriptor)
            except OSError as error:
                if error.errno in _LINK_SIGNS:
                    kind = kind_of(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)
                    raise _obstacle(kind, name, shown) from error
                raise
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _obstacle(kind: str, name: str, shown: str) -> ArtifactError:
    return ArtifactError("unsafe_path" if kind == "symbolic link" else "not_regular", shown, f"{name} is a {kind}")


def open_file(folder: int, name: str, shown: str) -> int:
    """A descriptor of the regular file ``name`` in ``folder``, for reading; the caller closes it.

    What it is gets pinned and looked at first: opening a device can do things, if only for a moment between a look and an open.

    :raises OSError: absent or not readable.
    :raises ArtifactError: a link (``unsafe_path``), or another thing that is no regular file (``not_regular``).
    """
    pinned = os.open(name, _LOOK, dir_fd=folder)
    try:
        if (kind := kind_of(os.fstat(pinned).st_mode)) != "file":
            raise _obstacle(kind, name, shown)
        return _open(f"/proc/self/fd/{pinned}", _FILE)  # proc(5): the very file that was pinned, whatever its name leads to by now
    finally:
        os.close(pinned)
