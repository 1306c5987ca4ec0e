"""What a source of our counts is, and where it is looked at.

Owns the words and shapes; the looks are in :mod:`marathond.service.doctor.sources` and the modules beside it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from marathond.core.money import MODEL_KINDS
from marathond.core.text import duration
from marathond.ledger.verbs import stored
from marathond.ledger.verbs.sql import LIVE, marks, scalar

OK, DEAD, UNKNOWN, NOTHING = "ok", "dead", "unknown", "nothing yet"
"""``nothing yet``: there is nothing that this source could have told of so far."""
FRESH_MS = 60_000
"""What a living daemon says all the time is not older."""
HOUSE = "(house)"
"""In place of a campaign's name where a source is of all campaigns of the ledger."""
RESTED_MS = 30 * 60_000
"""So long after its end a trial's artifacts may be on their way."""


@dataclass(frozen=True, slots=True)
class Source:
    """``seen`` of ``total`` ``things`` of ``campaign``; None: not known.  ``verdict``: one of the four words above."""

    name: str
    campaign: str
    verdict: str
    seen: int | None
    total: int | None
    things: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Daemon:
    """``alive`` None: nobody can tell from here.  ``why``: in words, where it is not."""

    alive: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """What is looked at.  ``campaign``: id and name; None: none was ever submitted."""

    c: sqlite3.Connection
    campaign: tuple[int, str] | None
    state_dir: Path
    now_ms: int
    daemon: Daemon

    @property
    def name(self) -> str:
        return HOUSE if self.campaign is None else self.campaign[1]

    def count(self, sql: str, *values: object) -> int:
        """Of the campaign, whose id is the first value."""
        return 0 if self.campaign is None else int(scalar(self.c, sql, (self.campaign[0], *values)))


def ago(ms: int) -> str:
    return duration(max(0, ms) / 1000)


def live_trials(place: Place, kinds: tuple[str, ...]) -> list[int]:
    """Trials of the ledger whose agents may be asking a model now."""
    sql = f"""SELECT trial_id FROM trial JOIN arm USING (arm_id) WHERE state IN {LIVE} AND state = 'running' AND kind IN ({marks(kinds)})
              ORDER BY trial_id"""
    return [int(row[0]) for row in place.c.execute(sql, kinds).fetchall()]


def asks_model(place: Place) -> bool:
    """Whether an arm of the campaign does."""
    return place.campaign is not None and bool(stored.arm_kinds(place.c, place.campaign[0]) & MODEL_KINDS)
