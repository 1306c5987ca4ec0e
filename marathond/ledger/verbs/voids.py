"""Voids by the daemon, and how many passes they have used up.

Owns the writing of void rows, for the daemon and for :mod:`marathond.ledger.verbs.operator`; the schema moves the trial in the same
statement.  Must not decide what is infrastructure (core/classify.py does).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

from marathond.ledger.verbs.parks import park_for_passes
from marathond.ledger.verbs.sql import changed, dump, must, one, scalar


def write_void(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    code: str,
    reason: str,
    evidence: Mapping[str, Any],
    decided_by: str,
    author: str,
    counts_pass: bool,
    batch: str,
    now_ms: int,
) -> int:
    """The void's row; the schema moves the trial in the same statement.  Returns the void's id."""
    cursor = c.execute(
        """INSERT INTO void (trial_id, code, reason, evidence_json, decided_by, author, at_ms, from_state, score_was_known, counts_pass,
               batch)
           SELECT trial_id, ?2, ?3, ?4, ?5, ?6, ?7, state, known.reward IS NOT NULL, ?8, ?9
           FROM trial JOIN known_reward AS known USING (trial_id) WHERE trial_id = ?1""",
        (trial_id, code, reason, dump(evidence), decided_by, author, now_ms, int(counts_pass), batch),
    )
    changed(cursor, f"trial {trial_id}")
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def void_by_daemon(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    code: str,
    reason: str,
    evidence: Mapping[str, Any],
    counts_pass: bool,
    passes: int,
    now_ms: int,
) -> bool:
    """Infrastructure made this attempt meaningless.  True: the cell's passes are used up and it is parked.

    :param counts_pass: False inside a breaker's window (fault f12).
    :param passes: attempts that infrastructure may cost a cell; counted are standing daemon voids since a person opened the cell last.
    """
    batch = f"d{trial_id}"
    write_void(
        c,
        trial_id,
        code=code,
        reason=reason,
        evidence=evidence,
        decided_by="daemon",
        author="daemon",
        counts_pass=counts_pass,
        batch=batch,
        now_ms=now_ms,
    )
    cell_id = int(must(one(c, "SELECT cell_id FROM trial WHERE trial_id = ?", (trial_id,)), "trial")["cell_id"])
    used = passes_used(c, cell_id)
    if not counts_pass or used < passes:
        return False
    detail = f"{used} of {passes} passes used, the last one by {code}: {reason}"
    return park_for_passes(c, cell_id, detail=detail, author="daemon", now_ms=now_ms)


def passes_used(c: sqlite3.Connection, cell_id: int) -> int:
    """By the order of rows, not by the clock, which may step back (fault e06)."""
    return int(
        scalar(
            c,
            """SELECT count(*) FROM trial JOIN void USING (trial_id)
               WHERE cell_id = ?1 AND decided_by = 'daemon' AND counts_pass AND undone_at_ms IS NULL
                 AND void_id > (SELECT coalesce(max(passes_from_void_id), 0) FROM park WHERE cell_id = ?1)""",
            (cell_id,),
        )
    )


class VoidSeen(NamedTuple):
    void_id: int
    code: str
    task_id: int


def example(c: sqlite3.Connection, code: str) -> tuple[int, str] | None:
    """The trial and the reason of the newest daemon's void of that code that stands; None: there is none (any more)."""
    sql = """SELECT trial_id, reason FROM void WHERE code = ? AND decided_by = 'daemon' AND undone_at_ms IS NULL
             ORDER BY void_id DESC LIMIT 1"""
    row = one(c, sql, (code,))
    return None if row is None else (row["trial_id"], row["reason"])


def voids_after(c: sqlite3.Connection, void_id: int) -> list[VoidSeen]:
    """The daemon's standing voids written after that one, for the breaker: by the order of rows, not by the clock (fault e06)."""
    sql = """SELECT void_id, code, task_id FROM void JOIN trial USING (trial_id) JOIN cell USING (cell_id)
             WHERE void_id > ? AND decided_by = 'daemon' AND undone_at_ms IS NULL ORDER BY void_id"""
    return [VoidSeen(row["void_id"], row["code"], row["task_id"]) for row in c.execute(sql, (void_id,)).fetchall()]


def newest_void(c: sqlite3.Connection) -> int:
    """0 when there is none."""
    return int(scalar(c, "SELECT coalesce(max(void_id), 0) FROM void"))
