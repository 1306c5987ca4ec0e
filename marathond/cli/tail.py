"""``marathonctl tail``: what happened, as lines in order, and what happens from now on.

Owns how it is followed: the ledger is asked read-only and again and again, so a daemon may come and go meanwhile, and no line is lost or
given twice.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from marathond.cli.happened import line, of_filters, words
from marathond.cli.output import note, print_json_line, screen
from marathond.core.errors import LedgerRefused
from marathond.core.text import clean
from marathond.ledger.verbs.happened import Happening, Marks, marks, newest, since
from marathond.ledger.verbs.happened_sources import Of
from marathond.service.picture.reader import reading

FOLLOW_S = 0.5
"""Between two looks."""

PASSING = frozenset({"busy", "disk_full"})
"""Refusals of a ledger that pass by themselves: somebody migrates it, or copies it back."""

Show = Callable[[Iterable[Happening]], None]


def run(
    ledger: Path,
    most: int,
    *,
    campaign: str | None = None,
    arm: str | None = None,
    task: str | None = None,
    trial: str | None = None,
    follow: bool = False,
    as_json: bool = False,
) -> None:
    """The newest ``most`` lines; with ``follow`` every later one, until it is interrupted.

    :raises CallFailed: exit 2, what the filters name is not there.
    :raises LedgerRefused: the ledger cannot be read; while it is followed, another one has its place.
    """
    show = as_lines if as_json else as_words
    with reading(ledger) as c:
        of = of_filters(c, campaign, arm, task, trial)
        found, here, whose = newest(c, of, most), marks(c), _identity(c)
    show(found)
    if follow:
        follow_on(ledger, of, here, whose, show)


def follow_on(ledger: Path, of: Of, here: Marks, whose: str, show: Show, pause: Callable[[float], None] = time.sleep) -> None:
    """For ever, from the marks ``here`` on; ``whose``: the ledger's identity."""
    quiet = ""
    while True:
        pause(FOLLOW_S)
        try:
            with reading(ledger) as c:
                if (now := _identity(c)) != whose:
                    raise LedgerRefused("replaced", f"ledger {ledger}: another one has its place by now ({now}, was {whose})")
                found, here = since(c, of, here)
        except LedgerRefused as refused:
            if refused.code not in PASSING:
                raise
            if quiet != refused.code:
                note(f"-- {clean(refused)}; going on")
                quiet = refused.code
            continue
        quiet = ""
        show(found)


def as_words(found: Iterable[Happening]) -> None:
    where = screen()
    for one in found:
        print(where.fit(words(one)), flush=True)


def as_lines(found: Iterable[Happening]) -> None:
    for one in found:
        print_json_line(line(one))


def _identity(c: sqlite3.Connection) -> str:
    return str(c.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0])
