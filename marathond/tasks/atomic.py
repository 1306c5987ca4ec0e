"""Files that are whole or not there.

Owns writing aside, syncing and renaming, and what errors of the destination mean.  Must not know what is written.  One writer per path is
assumed, so that an attempt repeated after a crash replaces what the crash left half-written.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from marathond.tasks.paths import translate


class Aside:
    """A file written beside ``target`` under another name, and renamed over it by :meth:`keep`; otherwise it leaves no trace.

    The name aside derives from the target's: what a crash left behind is overwritten by the next attempt.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()
        self.path = target.with_name(f".part-{digest[:24]}")
        self.descriptor = -1

    def __enter__(self) -> Aside:
        try:
            with suppress(FileNotFoundError):
                self.path.unlink()
            self.descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise translate(str(self.target), error) from error
        return self

    def write(self, data: bytes) -> None:
        """All of ``data``; a short write is continued."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError as error:
            raise translate(str(self.target), error) from error

    def keep(self) -> None:
        """Sync, close, rename.  On a network file system a full disk may show only here."""
        try:
            os.fsync(self.descriptor)
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
            self.path.replace(self.target)
        except OSError as error:
            raise translate(str(self.target), error) from error

    def __exit__(self, *_: object) -> None:
        # Clean-up after a failure that is already on its way; a second error of the same disk would only hide it.
        with suppress(OSError):
            if self.descriptor >= 0:
                os.close(self.descriptor)
        with suppress(OSError):
            self.path.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable.  EINVAL means that this file system has no such thing for folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise translate(str(folder), error) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader, or the world after a power cut, sees the old content or all of the new one.

    The folder must exist.

    :raises ArtifactError: ``no_space`` or ``io``.
    """
    with Aside(path) as aside:
        aside.write(data)
        aside.keep()
    sync_folder(path.parent)
