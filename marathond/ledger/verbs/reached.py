"""Commands that a person ran in a trial's container (``marathonctl exec``): part of the trial, so they stand in the ledger before they run.

Owns the names and words of their facts, the finding that counts them, and the flag of the trial's score.  Of each: who, when, what, and in
which state the trial was.  Must not know how a command is run; that one was recorded says that it was about to begin.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from marathond.core.errors import Refused
from marathond.core.names import REACHED_INTO, trial_label
from marathond.core.text import printable
from marathond.ledger.verbs.findings import raise_finding
from marathond.ledger.verbs.sql import one, scalar

COMMAND_MAX = 300
"""Characters of a command that are kept."""
EACH_MAX = 200
"""Commands of one trial that are kept one by one; the finding counts all."""

FACT, PERSON = "exec ", "person "
_ANY = f"trial_id = ? AND name >= '{FACT}' AND name < 'exec!' AND origin GLOB '{PERSON}*'"


@dataclass(frozen=True, slots=True)
class Reached:
    """One command.  ``said``: it and the trial's state then."""

    number: int
    at_ms: int
    author: str
    said: str


def reached_into(c: sqlite3.Connection, trial_id: int, *, command: str, user: str, author: str, now_ms: int) -> int:
    """Returns how many there were so far, this one among them.  ``user``: inside the container; empty: the arm's.

    :raises Refused: there is no such trial, or its container is gone by now.
    """
    row = one(
        c,
        """SELECT state, campaign_id, docker_id IS NOT NULL AND gone_at_ms IS NULL AS there
           FROM trial JOIN cell USING (cell_id) LEFT JOIN container USING (trial_id) WHERE trial_id = ?""",
        (trial_id,),
    )
    label = trial_label(trial_id)
    if row is None or not row["there"]:
        raise Refused(f"{label} has no container in which a command could run")
    as_whom = f" as {printable(user, 60)}" if user else ""
    said = f"{row['state']}{as_whom}: {printable(command, COMMAND_MAX)}"
    kept = int(scalar(c, f"SELECT count(*) FROM trial_fact WHERE {_ANY}", (trial_id,)) or 0)
    before = one(c, "SELECT times FROM finding WHERE code = ? AND subject = ? AND closed_at_ms IS NULL", (REACHED_INTO, label))
    number = max(kept, 0 if before is None else int(before["times"])) + 1
    if kept < EACH_MAX:
        sql = "INSERT INTO trial_fact (trial_id, name, value, origin, at_ms) VALUES (?, ?, ?, ?, ?)"
        c.execute(sql, (trial_id, f"{FACT}{kept + 1:03d}", said, PERSON + author, now_ms))
    raise_finding(
        c,
        code=REACHED_INTO,
        severity="warning",
        subject=label,
        detail=f"{author} ran a command in its container while it was {said}" + (f" (the last of {number})" if number > 1 else ""),
        campaign_id=row["campaign_id"],
        now_ms=now_ms,
    )
    return number


def any_of(c: sqlite3.Connection, trial_id: int) -> bool:
    return one(c, f"SELECT 1 FROM trial_fact WHERE {_ANY} LIMIT 1", (trial_id,)) is not None


def in_facts(facts: Iterable[tuple[str, str, str, int]]) -> tuple[Reached, ...]:
    """Of a trial's facts (name, value, origin, time) those that a person's commands are, oldest first."""
    found = sorted(fact for fact in facts if fact[0].startswith(FACT) and fact[2].startswith(PERSON))
    return tuple(Reached(n, at_ms, origin.removeprefix(PERSON), value) for n, (_, value, origin, at_ms) in enumerate(found, start=1))
