"""Emptying a folder that somebody hostile may have filled, and may still be filling.

Owns removal without recursion and without following a link: a tree of ten thousand levels must not exhaust our stack or our descriptors
(``shutil.rmtree`` keeps one of each per level), a million names must not fill our memory, and a rival must not keep us busy for ever.
Must not know what is removed or why.  Needs root, or ownership of all that lies there.  Functions block: call them from a worker thread.
"""

from __future__ import annotations

import heapq
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from marathond.tasks.paths import open_folder

ROUNDS = 5
"""Looks at the folder before giving up on a rival that goes on filling it."""
NAMES_KEPT = 100
"""Of what was found, the first in the order of names."""
ASIDE_AT_MOST = 1000
"""Folders of one folder that wait beside each other for their turn; the others stay where they are until then."""
_SUBFOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _go_on() -> None:
    return


@dataclass(frozen=True, slots=True)
class Found:
    """What lay in a folder: its first names, sorted, and how many there were."""

    names: tuple[str, ...]
    count: int


def empty_folder(folder: Path, checkpoint: Callable[[], None] = _go_on) -> Found:
    """Remove everything in ``folder``, which itself stays; what was found at the first look.

    :param checkpoint: called before each entry; what it raises ends the removal in the middle.
    :raises OSError: not readable, or still not empty after :data:`ROUNDS` looks.
    """
    found = Found((), 0)
    with open_folder(folder) as top:
        for attempt in range(ROUNDS):
            seen = _look(top)
            found = seen if attempt == 0 else found
            if not seen.count:
                return found
            _flatten(top, seen.count, checkpoint)
        left = _look(top).count
    if left:
        raise OSError(None, f"{left} entries after {ROUNDS} rounds of removal: something goes on writing there")
    return found


def remove_tree(folder: Path, checkpoint: Callable[[], None] = _go_on) -> None:
    """``folder`` and everything in it; absent is success.  Raises OSError as :func:`empty_folder`."""
    try:
        empty_folder(folder, checkpoint)
        folder.rmdir()
    except FileNotFoundError:
        return


def _flatten(top: int, count: int, checkpoint: Callable[[], None]) -> None:
    """Unlink what is no folder; of each folder, move the folders in it up beside it, so that no way is ever longer than two names.

    Never more entries of one folder than it had when it was first looked at: what a rival adds meanwhile is the next round's.
    """
    for name in islice(_names(top), count):
        waiting: list[tuple[str, int | None]] = [(name, None)]
        while waiting:
            checkpoint()
            one, left = waiting.pop()
            if left is None and _unlinked(top, one):
                continue
            try:
                inner = os.open(one, _SUBFOLDER, dir_fd=top)
            except (FileNotFoundError, NotADirectoryError):
                continue  # exchanged meanwhile: the next round sees it
            try:
                left, aside = _emptied(top, inner, _look(inner).count if left is None else left, checkpoint)
            finally:
                os.close(inner)
            if left:
                waiting.append((one, left))  # its turn comes again after those of its folders that were moved
            else:
                _gone(top, one)  # filled or exchanged meanwhile: the next round sees it, and the last one tells
            waiting += [(each, None) for each in aside]


def _emptied(top: int, inner: int, count: int, checkpoint: Callable[[], None]) -> tuple[int, list[str]]:
    """How many of the ``count`` entries of ``inner`` are left for later, and the new names in ``top`` of the folders among them."""
    aside = list[str]()
    for number, below in enumerate(islice(_names(inner), count), start=1):
        checkpoint()
        if _unlinked(inner, below) or _gone(inner, below):
            continue
        name = f".removing-{secrets.token_hex(8)}"
        try:
            os.rename(below, name, src_dir_fd=inner, dst_dir_fd=top)
        except FileNotFoundError:
            continue
        aside.append(name)
        if len(aside) == ASIDE_AT_MOST:
            return count - number, aside
    return 0, aside


def _look(folder: int) -> Found:
    count = 0

    def counted() -> Iterator[str]:
        nonlocal count
        for name in _names(folder):
            count += 1
            yield name

    return Found(tuple(heapq.nsmallest(NAMES_KEPT, counted())), count)


def _names(folder: int) -> Iterator[str]:
    with os.scandir(folder) as listing:
        for entry in listing:
            yield entry.name


def _unlinked(folder: int, name: str) -> bool:
    """True when it is gone; False for a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        return False
    return True


def _gone(folder: int, name: str) -> bool:
    """An empty folder goes at once."""
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
