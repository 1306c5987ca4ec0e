"""Emptying a folder that somebody hostile may have filled, and may still be filling.

Owns removal without recursion and without following a link: a tree of ten thousand levels must not exhaust our stack or our descriptors
(``shutil.rmtree`` keeps one of each per level), and a rival must not keep us busy for ever.  Must not know what is removed or why.
Needs root, or ownership of all that lies there.  Functions block: call them from a worker thread.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from marathond.tasks.paths import open_folder

ROUNDS = 5
"""Looks at the folder before giving up on a rival that goes on filling it."""
_SUBFOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def empty_folder(folder: Path) -> list[str]:
    """Remove everything in ``folder``, which itself stays; the names that were found at the first look, sorted.

    :raises OSError: not readable, or still not empty after :data:`ROUNDS` looks.
    """
    found: list[str] = []
    with open_folder(folder) as top:
        for attempt in range(ROUNDS):
            names = sorted(_names(top))
            found = names if attempt == 0 else found
            if not names:
                return found
            _flatten(top, names)
        left = _names(top)
    if left:
        raise OSError(None, f"{len(left)} entries after {ROUNDS} rounds of removal: something goes on writing there")
    return found


def remove_tree(folder: Path) -> None:
    """``folder`` and everything in it; absent is success.  Raises OSError as :func:`empty_folder`."""
    try:
        empty_folder(folder)
        folder.rmdir()
    except FileNotFoundError:
        return


def _flatten(top: int, names: list[str]) -> None:
    """Unlink what is no folder; of each folder, move the folders in it up beside it, so that no way is ever longer than two names."""
    queue = list(names)
    while queue:
        name = queue.pop()
        if _unlinked(top, name):
            continue
        try:
            inner = os.open(name, _SUBFOLDER, dir_fd=top)
        except (FileNotFoundError, NotADirectoryError):
            continue  # exchanged meanwhile: the next round sees it
        try:
            for below in _names(inner):
                if not _unlinked(inner, below):
                    aside = f".removing-{secrets.token_hex(8)}"
                    os.rename(below, aside, src_dir_fd=inner, dst_dir_fd=top)
                    queue.append(aside)
        except FileNotFoundError:
            continue
        finally:
            os.close(inner)
        try:
            os.rmdir(name, dir_fd=top)
        except OSError:
            continue  # filled or exchanged meanwhile: the next round sees it, and the last one tells


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as listing:
        return [entry.name for entry in listing]


def _unlinked(folder: int, name: str) -> bool:
    """True when it is gone; False for a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        return False
    return True
