"""Which glibc programs and libraries need: the newest version that a file's symbols name.

Owns the reading of those names; a file that needs no glibc names none.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable
from pathlib import Path

_NEEDED = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")


def needs_glibc(files: Iterable[Path]) -> str:
    """``2.34``, or empty when none of them needs one.  Raises OSError."""
    newest = (0, 0)
    for file in files:
        with file.open("rb") as stream:
            if stream.read(4) != b"\x7fELF":
                continue
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                newest = max([newest, *((int(found[1]), int(found[2])) for found in _NEEDED.finditer(content))])
    return "" if newest == (0, 0) else f"{newest[0]}.{newest[1]}"
