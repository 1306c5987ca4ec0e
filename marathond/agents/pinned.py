"""Opens a file that a container could have replaced by anything.

Owns that opening does nothing: a container may make device nodes, and some devices act when they are opened.  Must not know what is read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO | None:
    """``path`` for reading; None: it is no regular file.  What it is gets pinned before it is opened, so that nothing can come in between.

    :raises OSError: absent or not readable.
    """
    pinned = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(pinned).st_mode):
            return None
        return Path(f"/proc/self/fd/{pinned}").open("rb")  # proc(5): the very file that was pinned
    finally:
        os.close(pinned)


def written_ms(path: Path) -> int | None:
    """When a regular file was last written, in ms since 1970, by the host's clock or whoever set it; None: there is none."""
    try:
        stream = open_regular(path)
    except OSError:
        return None
    if stream is None:
        return None
    with stream:
        return os.fstat(stream.fileno()).st_mtime_ns // 1_000_000
