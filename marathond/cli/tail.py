"""``marathonctl tail``: what happened, as lines in order, and what happens from now on.

Owns how it is followed: the ledger is asked read-only and again and again, so a daemon may come and go meanwhile, and no line is lost or
given twice.  And the line by which a campaign ends, which no row of the ledger is.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.happened import line, of_filters, words
from marathond.cli.output import note, print_json_line, screen
from marathond.core.errors import LedgerRefused
from marathond.core.text import clean
from marathond.ledger.verbs.ended import Rest, at_rest, end_of
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
        found, place, whose = newest(c, of, most), Place(marks(c), at_rest(c, of)), _identity(c)
        if place.rest is not None:
            found = with_end(found, end_of(c, place.rest), most)
    show(found)
    if follow:
        follow_on(ledger, of, place, whose, show)


def with_end(found: Sequence[Happening], end: Happening, most: int) -> list[Happening]:
    """``found`` with ``end`` at its time, the newest ``most`` of them."""
    at = next((index for index in range(len(found), 0, -1) if found[index - 1].at_ms <= end.at_ms), 0)
    whole = [*found[:at], end, *found[at:]]
    return whole[max(0, len(whole) - most) :]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one is: what is seen, and the campaign whose end is told, while it has ended."""

    here: Marks
    rest: Rest | None


def follow_on(ledger: Path, of: Of, place: Place, whose: str, show: Show, pause: Callable[[float], None] = time.sleep) -> None:
    """For ever, from ``place`` on; ``whose``: the ledger's identity."""
    quiet = ""
    while True:
        pause(FOLLOW_S)
        try:
            with reading(ledger) as c:
                if (now := _identity(c)) != whose:
                    raise LedgerRefused("replaced", f"ledger {ledger}: another one has its place by now ({now}, was {whose})")
                # One assignment: a look that is refused half-way is made again from where one was.
                found, place = _look(c, of, place)
        except LedgerRefused as refused:
            if refused.code not in PASSING:
                raise
            if quiet != refused.code:
                note(f"-- {clean(refused)}; going on")
                quiet = refused.code
            continue
        quiet = ""
        show(found)


def _look(c: sqlite3.Connection, of: Of, place: Place) -> tuple[list[Happening], Place]:
    found, here = since(c, of, place.here)
    rest = at_rest(c, of)
    if rest is not None and ended_since(rest, place.rest):
        found = [*found, end_of(c, rest)]
    return found, Place(here, rest)


def ended_since(rest: Rest, before: Rest | None) -> bool:
    """What happens to a campaign at rest, a review that is decided say, ends it no second time; cells that were added do."""
    return before is None or (before.campaign_id, before.cells.total) != (rest.campaign_id, rest.cells.total)


def as_words(found: Iterable[Happening]) -> None:
    where = screen()
    for one in found:
        print(where.fit(words(one)), flush=True)


def as_lines(found: Iterable[Happening]) -> None:
    for one in found:
        print_json_line(line(one))


def _identity(c: sqlite3.Connection) -> str:
    return str(c.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0])
