"""``marathonctl stage``: how a staging looks while it runs and when it is done.

Owns the display: a bar with bytes on a terminal, a line now and then elsewhere, both on stderr; the result on stdout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.output import flat, note, print_json, say
from marathond.core.errors import StageError
from marathond.core.text import clean, plural
from marathond.service.exits import Exit
from marathond.staging import store
from marathond.staging.manifest import tree_integrity
from marathond.staging.progress import Progress, Say

PROGRAMS = ("codex", "loopx")
"""All that can be staged, by the name under which :mod:`marathond.service.staged` asks for it."""

LINE_EVERY_S = 10.0
"""Off a terminal; a step's begin and end are always told."""

_WORDS = {
    "waiting": "waiting",
    "fetching": "fetching",
    "checking": "checking the hash of",
    "unpacking": "unpacking",
    "reading": "reading",
    "copying": "copying",
    "building": "building",
    "proving": "trying out",
    "compiling": "compiling",
    "verifying": "verifying",
}


@dataclass(frozen=True, slots=True)
class State:
    """:param state: staged, was staged already, verified.
    :param tree_integrity: of the staged tree, in the form of package managers."""

    state: str
    tree_integrity: str


def run(state_dir: Path, asked: Sequence[store.Asked], *, verify_only: bool, as_json: bool) -> int:
    """Stage or verify each of them, and show what there is.

    :raises StageError: one cannot be staged, or is not what was staged; those before it are.
    """
    done = []
    for each in asked:
        with _display() as show:
            done.append(_verified(state_dir, each, show) if verify_only else _staged(state_dir, each, show))
        if not as_json:
            _print(*done[-1])
    if as_json:
        print_json([flat(tree, State(state, tree_integrity(tree.tree_sha256))) for tree, state in done])
    return Exit.OK


def left_out(asked: Collection[str], campaign: str) -> str:
    """What is not staged, and why, in one line; empty: nothing is left out.

    :param asked: names of what the campaign's arms need.
    """
    left = [name for name in PROGRAMS if name not in asked]
    if not left:
        return ""
    return f"left out: {', '.join(left)}: no arm of campaign {clean(campaign)} needs {'it' if len(left) == 1 else 'them'}"


def _print(tree: store.StagedTree, state: str) -> None:
    say(f"{tree.package_id} {state}: {plural(tree.files, 'file')}, {megabytes(tree.bytes)}")
    say(f"  at        {clean(tree.root)}")
    say(f"  from      {clean(tree.source, 1000)}")
    say(f"  integrity {tree.integrity}")
    say(f"  tree      sha256 {tree.tree_sha256}")
    if tree.dropped:
        say(f"  dropped   {clean(', '.join(tree.dropped), 1000)}")


def _staged(state_dir: Path, asked: store.Asked, show: Say) -> tuple[store.StagedTree, str]:
    worked = False

    def told(progress: Progress) -> None:
        nonlocal worked
        worked = worked or progress.step in {"unpacking", "copying"}
        show(progress)

    return store.stage(state_dir, asked, told), "staged" if worked else "was staged already"


def _verified(state_dir: Path, asked: store.Asked, show: Say) -> tuple[store.StagedTree, str]:
    found = store.look(state_dir, asked)
    if found.tree is None:
        raise StageError("absent", f"{found.why}; to stage it: marathonctl stage")
    try:
        store.verify(found.tree, show)
    except StageError as error:
        raise StageError(error.code, f"{error}; to stage it again: marathonctl stage") from error
    return found.tree, "verified"


def megabytes(count: int) -> str:
    """Decimal, as package registries count."""
    return f"{count / 1e6:.1f} MB"


@contextmanager
def _display() -> Iterator[Say]:
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeElapsedColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True, highlight=False)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: Progress) -> None:
            if progress.step == "note":
                bars.console.print(clean(progress.text, 2000), markup=False)
                return
            words = f"{_WORDS[progress.step]} {clean(progress.text, 60)}"
            if words not in tasks:
                tasks[words] = bars.add_task(words, total=progress.total)
            known = progress.total
            bars.update(tasks[words], completed=progress.done, total=None if known is None else max(known, progress.done))

        yield show


class Lines:
    """A step's begin, its end, and a sign of life every :data:`LINE_EVERY_S`."""

    def __init__(self) -> None:
        self._step = ""
        self._last: Progress | None = None
        self._at = 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.step == "note":
            note(clean(progress.text, 2000))
            return
        now = time.monotonic()
        if progress.step != self._step or now - self._at >= LINE_EVERY_S:
            note(self._line(progress))
            self._step, self._at = progress.step, now

    @staticmethod
    def _line(progress: Progress) -> str:
        words = f"{_WORDS[progress.step]} {clean(progress.text, 200)}"
        if not progress.done:
            return f"{words} ({megabytes(progress.total)})" if progress.total else words
        return f"{words}: {megabytes(progress.done)}" + (f" of {megabytes(progress.total)}" if progress.total else "")
