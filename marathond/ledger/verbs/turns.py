"""Turns of verifiers: who asked, who holds one, and the granting of the next in the same transaction as the look at the queue.

Owns the rows and what counts as held; who is next is :mod:`marathond.core.turns`'.  A turn is held from its grant until it was ended, and
only while its trial is verified.  A verifier of a life that wrote no turns holds one by its running; that of a trial which was voided
meanwhile, until its container is gone or its limit is over.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.core.turns import Alone, Busy, Turn, Turns, decide
from marathond.ledger.verbs.admission import task_is_open
from marathond.ledger.verbs.sql import LIVE, scalar

GRACE_MS = 60_000
"""After a verifier's limit, for the container's own timer to end it."""

# Containers come first: there are few that are not gone, and this is asked at every look, inside the transaction that grants.
_QUEUE = f"""
WITH verifying AS (SELECT trial_id FROM trial WHERE state IN {LIVE} AND state = 'verifying')
SELECT trial_id, alone, granted_at_ms IS NOT NULL AS held, turn_id FROM verifying JOIN verifier_turn USING (trial_id)
    WHERE ended_at_ms IS NULL
UNION ALL
SELECT trial_id, 'no', 1, 0 FROM verifying JOIN verification USING (trial_id)
    WHERE ended_at_ms IS NULL
        AND NOT EXISTS (SELECT 1 FROM verifier_turn AS t WHERE t.trial_id = verification.trial_id AND t.ended_at_ms IS NULL)
UNION ALL
SELECT trial_id, 'no', 1, 0 FROM container INDEXED BY container_maybe_there CROSS JOIN trial USING (trial_id)
    CROSS JOIN verification USING (trial_id)
    WHERE gone_at_ms IS NULL AND state = 'voided' AND ended_at_ms IS NULL AND verification.started_at_ms + limit_ms + {GRACE_MS} > ?
ORDER BY 4, 1"""

LEAVING_MS = 900_000
"""For a container to be gone after its trial's void."""

_LEAVING = """
SELECT count(*) FROM container INDEXED BY container_maybe_there CROSS JOIN trial USING (trial_id) CROSS JOIN void USING (trial_id)
WHERE gone_at_ms IS NULL AND state = 'voided' AND undone_at_ms IS NULL AND at_ms > ?
    AND NOT EXISTS (SELECT 1 FROM verification WHERE verification.trial_id = trial.trial_id)"""

_ROUNDS = 1 << 31
"""More than there are."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn, for people.  ``waited_ms`` None: it waits still, or its trial ended first."""

    round: int
    alone: str
    asked_at_ms: int
    granted_at_ms: int | None
    agents_beside: int | None
    ended_at_ms: int | None

    @property
    def waited_ms(self) -> int | None:
        return None if self.granted_at_ms is None else self.granted_at_ms - self.asked_at_ms


def in_use(c: sqlite3.Connection) -> bool:
    """Whether a campaign of this ledger has tasks whose verifier runs alone: then every verifier asks for its turn."""
    return bool(scalar(c, "SELECT EXISTS (SELECT 1 FROM campaign WHERE json_extract(treatment_json, '$.exclusive_verifier') IS NOT NULL)"))


def look(c: sqlite3.Connection, *, building: int, now_ms: int) -> Turns:
    """Who may begin, who waits for what, and whether anything may be admitted.

    :param building: images that are being made, which only the daemon knows.
    """
    return decide(_queue(c, now_ms), _busy(c, building, now_ms))


def _queue(c: sqlite3.Connection, now_ms: int) -> list[Turn]:
    return [Turn(row["trial_id"], Alone(row["alone"]), bool(row["held"])) for row in c.execute(_QUEUE, (now_ms,)).fetchall()]


def _busy(c: sqlite3.Connection, building: int, now_ms: int) -> Busy:
    """An agent whose trial was voided goes on until its container is gone; one that cannot be removed is waited for no longer than that."""
    leaving = scalar(c, _LEAVING, (now_ms - LEAVING_MS,))
    counts = dict(c.execute(f"SELECT state, count(*) FROM trial WHERE state IN {LIVE} GROUP BY state").fetchall())
    return Busy(sum(counts.get(state, 0) for state in ("new", "reserved", "preparing")), building, counts.get("running", 0) + leaving)


def lone_runs(c: sqlite3.Connection) -> bool:
    """Whether a verifier that is alone holds its turn now."""
    sql = f"""SELECT EXISTS (SELECT 1 FROM trial JOIN verifier_turn USING (trial_id) WHERE state IN {LIVE} AND state = 'verifying'
              AND alone <> 'no' AND granted_at_ms IS NOT NULL AND ended_at_ms IS NULL)"""
    return bool(scalar(c, sql))


def may_make_image(c: sqlite3.Connection, task_id: int) -> bool:
    """Whether an image that is wanted, and counted as being made, may be begun: its task is open, and no verifier is alone.

    A turn that is granted after the image was counted waits for it; one that was granted before is seen here.
    """
    return task_is_open(c, task_id) and not lone_runs(c)


def take(c: sqlite3.Connection, trial_id: int, *, round: int, alone: Alone, building: int, now_ms: int) -> str:
    """Ask for a turn, or ask again; empty when it is granted, now or before a restart; else what it waits for."""
    row = c.execute("SELECT granted_at_ms FROM verifier_turn WHERE trial_id = ? AND round = ?", (trial_id, round)).fetchone()
    if row is not None and row[0] is not None:
        return ""
    if row is None:
        c.execute(
            "INSERT INTO verifier_turn (trial_id, round, alone, asked_at_ms) VALUES (?, ?, ?, ?)", (trial_id, round, alone.value, now_ms)
        )
    busy = _busy(c, building, now_ms)
    decided = decide(_queue(c, now_ms), busy)
    if trial_id not in decided.granted:
        return decided.waits.get(trial_id, "until its trial is looked at again")
    c.execute(
        "UPDATE verifier_turn SET granted_at_ms = ?, agents_beside = ? WHERE trial_id = ? AND round = ?",
        (now_ms, busy.agents, trial_id, round),
    )
    return ""


def over(c: sqlite3.Connection, trial_id: int, *, now_ms: int, before: int | None = None) -> bool:
    """End the trial's turns, or only those of rounds ``before`` one.  False: it had none."""
    sql = "UPDATE verifier_turn SET ended_at_ms = ? WHERE trial_id = ? AND ended_at_ms IS NULL AND round < ?"
    return c.execute(sql, (now_ms, trial_id, _ROUNDS if before is None else before)).rowcount > 0


def has_open(c: sqlite3.Connection, trial_id: int, *, before: int | None = None) -> bool:
    sql = "SELECT EXISTS (SELECT 1 FROM verifier_turn WHERE trial_id = ? AND ended_at_ms IS NULL AND round < ?)"
    return bool(scalar(c, sql, (trial_id, _ROUNDS if before is None else before)))


def of_trial(c: sqlite3.Connection, trial_id: int) -> tuple[TurnRow, ...]:
    sql = """SELECT round, alone, asked_at_ms, granted_at_ms, agents_beside, ended_at_ms FROM verifier_turn
             WHERE trial_id = ? ORDER BY turn_id"""
    return tuple(TurnRow(**dict(row)) for row in c.execute(sql, (trial_id,)).fetchall())
