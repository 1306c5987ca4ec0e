"""What happened, as rows in order: trial events, findings, stops, settings, parks, submissions, declarations, imports, lives of the daemon.

Owns the order, and how one goes on from where one was.  Within one kind the ledger's own sequence orders (numbers, which only grow),
whatever the clocks said; kinds are merged by daemon life, then by time, without ever changing the order within a kind.  What is written as
an update of its row (a finding that closes, a stop that ends) has no number of its own: newest ones are ordered by their time, and who
follows sees each once, in the look after it was written, because such a change is final.  Within one millisecond kinds stand in the order
of :data:`~marathond.ledger.verbs.happened_sources.SOURCES`; what does not say its life is the younger one's where two meet in it.  That a
life was lost is told where it ends, behind all that it did, at the time at which it was known: when the next one began.
"""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from marathond.ledger.verbs.happened_sources import SOURCES, Of, Source
from marathond.ledger.verbs.sql import scalar

ALL = -1
"""As a number of rows: no limit."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened; ``key`` names it for ever.

    ``kind``: ``trial, finding, stop, setting, park, campaign, contrasts, import, score, archive, prune, daemon``; ``what``: the past fact.
    ``name``: what of that kind (a finding's code, a knob, a kind of stop).  ``author``: who decided it; None: nobody did, it was seen.
    ``text``: why, or more about it.  ``cells``: how many it was about.  ``life``: the daemon life in which it was written; 0: the ledger
    does not say.
    """

    key: str
    kind: str
    what: str
    at_ms: int
    name: str = ""
    author: str | None = None
    text: str = ""
    campaign: str | None = None
    trial_id: int | None = None
    task: str | None = None
    arm: str | None = None
    replicate: int | None = None
    cells: int | None = None
    life: int = 0
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one has seen a source: up to a number, but for those that were pending; or the numbers that there were."""

    upto: int
    numbers: frozenset[int] = frozenset()


Marks = dict[str, Mark]

_NAMES = frozenset(each.name for each in fields(Happening)) - {"detail"}
Keep = Callable[[Source], bool]


def every(_: Source) -> bool:
    return True


def newest(c: sqlite3.Connection, of: Of, most: int, *, keep: Keep = every) -> list[Happening]:
    """The newest ``most`` happenings, oldest first."""
    asked = {"most": most, "after": None, "ids": None, **of.params()}
    found = _merged(c, [_rows(c, source, asked) for source in SOURCES if keep(source)])
    return found if most == ALL else found[max(0, len(found) - most) :]


def marks(c: sqlite3.Connection) -> Marks:
    """Where one is now; to be asked in the transaction in which the newest ones were."""
    return {source.name: _mark(c, source) for source in SOURCES}


def since(c: sqlite3.Connection, of: Of, before: Marks) -> tuple[list[Happening], Marks]:
    """What is new since ``before``, oldest first, and where one is now.  Nothing is given twice, and nothing is left out."""
    now, found = marks(c), []
    for source in SOURCES:
        was, is_ = before[source.name], now[source.name]
        if was == is_:
            continue
        asked: dict[str, Any] = {"most": ALL, "after": None, "ids": None, **of.params()}
        if source.numbers is not None:
            asked["ids"] = json.dumps(sorted(is_.numbers - was.numbers))
        elif source.pending is None:
            asked["after"] = was.upto
        else:
            met = (was.numbers | set(range(was.upto + 1, is_.upto + 1))) - is_.numbers
            asked["ids"] = json.dumps(sorted(met))
        found.append(_rows(c, source, asked))
    return _merged(c, found), now


def _mark(c: sqlite3.Connection, source: Source) -> Mark:
    upto = int(scalar(c, source.newest_id) or 0) if source.newest_id else 0
    listed = source.pending or source.numbers
    return Mark(upto, frozenset(row[0] for row in c.execute(listed).fetchall()) if listed else frozenset())


def _rows(c: sqlite3.Connection, source: Source, asked: dict[str, Any]) -> list[Happening]:
    """Oldest first."""
    return [_happening(row) for row in reversed(c.execute(source.sql, asked).fetchall())]


def _happening(row: sqlite3.Row) -> Happening:
    known, detail = dict[str, Any](), dict[str, Any]()
    for name in row.keys():  # noqa: SIM118 - a row iterates over its values
        if row[name] is None:
            continue
        if name == "detail_json":
            detail |= json.loads(row[name])
        elif name in _NAMES:
            known[name] = row[name]
        else:
            detail[name] = row[name]
    return Happening(**known, detail=detail)


def _merged(c: sqlite3.Connection, kinds: Iterable[Sequence[Happening]]) -> list[Happening]:
    """By life and time, each kind in its own order."""
    begun = c.execute("SELECT started_at_ms, run_id FROM run ORDER BY run_id").fetchall()
    lives = sorted((row[0], row[1]) for row in begun)
    times = [at_ms for at_ms, _ in lives]

    def place(one: Happening) -> tuple[int, float]:
        if one.kind == "daemon" and one.what == "lost":
            return one.life, math.inf
        if one.life:
            return one.life, one.at_ms
        at = bisect_right(times, one.at_ms)
        return (lives[at - 1][1] if at else 0), one.at_ms

    return list(heapq.merge(*kinds, key=place))
