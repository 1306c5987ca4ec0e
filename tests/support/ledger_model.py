"""What tests/ledger/test_stateful.py believes of the ledger, and how it touches it.  No test of its own."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field

from marathond.core.errors import Refused
from marathond.ledger.errors import rule_of
from marathond.ledger.verbs.admission import Admitted

REACHED: Counter[str] = Counter()
"""Verbs done and rules met over the whole walk."""


@dataclass
class Attempt:
    """What the model believes of one trial."""

    admitted: Admitted
    cell_id: int
    subnet: int | None
    state: str = "reserved"
    claim: bool = True
    container: bool = False
    before_void: str = ""
    counts: bool = False
    by_daemon: bool = False
    rounds: int = 0
    again: bool = False
    reward: float | None = None


@dataclass
class Model:
    attempts: list[Attempt] = field(default_factory=list)
    parked: dict[int, str] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    """Trial → subnet of its live lease."""

    def of(self, cell_id: int) -> list[Attempt]:
        return [each for each in self.attempts if each.cell_id == cell_id]

    def state(self, cell_id: int) -> str:
        standing = [each for each in self.of(cell_id) if each.state != "voided"]
        if standing and standing[0].state == "scored":
            return "done"
        if standing and standing[0].state == "review":
            return "review"
        if any(each.claim for each in self.of(cell_id)):
            return "claimed"
        return "parked" if cell_id in self.parked else "open"


class LedgerHands:
    """Runs verbs as the writer does, and sees to it that a refused one changes nothing."""

    c: sqlite3.Connection
    now: int

    def tick(self) -> int:
        """Wall time: it also steps back."""
        self.now += 1_000 if self.now % 7 else -9_000
        return self.now

    def do(self, verb: object, *args: object, **kwargs: object) -> object:
        """One verb in one transaction, as the writer runs it."""
        assert callable(verb)
        self.c.execute("BEGIN IMMEDIATE")
        try:
            result = verb(self.c, *args, **kwargs)
        except BaseException:
            self.c.execute("ROLLBACK")
            raise
        self.c.execute("COMMIT")
        REACHED[f"did {verb.__name__}"] += 1
        return result

    def refused(self, verb: object, *args: object, **kwargs: object) -> None:
        before = self.dump()
        try:
            self.do(verb, *args, **kwargs)
        except (sqlite3.IntegrityError, Refused, LookupError) as error:
            assert self.dump() == before
            REACHED[rule_of(error) if isinstance(error, sqlite3.IntegrityError) else type(error).__name__] += 1
            return
        raise AssertionError(f"{verb} was not refused")

    def dump(self) -> list[tuple[object, ...]]:
        tables = ("claim", "trial", "trial_event", "container", "network_lease", "void", "park", "score", "review")
        return [tuple(row) for table in tables for row in self.c.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()]
