"""What the ledger holds of our own side's doings while a verifier ran, for core/classify.py; and of other trials of the same task.

Reads only, by key.  Of other trials it tells how they ended and whether they are the reference solution's, never their arms.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from marathond.core.ourside import JudgeRequest, OtherTrial

REQUESTS_AT_MOST = 2_000
"""Newest ones of one verification: of a judge that was asked more often, the end of the story."""


@dataclass(frozen=True, slots=True)
class JudgeSeen:
    """Of one run of the verifier.  ``open``: requests whose end the gateway has not told yet."""

    requests: tuple[JudgeRequest, ...]
    turned_away: dict[str, int]
    open: int


def judge_seen(c: sqlite3.Connection, trial_id: int, *, since_mono_ms: int) -> JudgeSeen:
    """Requests on the verifier's own account that began at or after ``since_mono_ms``, oldest first."""
    rows = c.execute(
        """SELECT end, status, error_type, held_ms, first_byte_ms FROM model_request
           WHERE trial_id = ? AND account = 'verifier' AND begun_mono_ms >= ? ORDER BY number DESC LIMIT ?""",
        (trial_id, since_mono_ms, REQUESTS_AT_MOST),
    ).fetchall()
    ended = [row for row in reversed(rows) if row["end"] is not None]
    # The gateway tells of refusals at the door once in a while, without a request: of all rounds together.
    away = c.execute("SELECT code, count FROM model_refusal WHERE trial_id = ? AND account = 'verifier'", (trial_id,)).fetchall()
    requests = tuple(
        JudgeRequest(row["end"], row["status"], row["error_type"], held=row["held_ms"] > 0, answered=row["first_byte_ms"] is not None)
        for row in ended
    )
    return JudgeSeen(requests, {row["code"]: int(row["count"]) for row in away}, len(rows) - len(ended))


def other_trials(c: sqlite3.Connection, trial_id: int) -> list[OtherTrial]:
    """Every other trial of the same task and campaign that has been scored or is in review.

    None of an arm that does nothing: it fails in its own way, and beside it nothing could be said to have hit everybody.
    """
    rows = c.execute(
        """SELECT arm.kind = 'oracle' AS oracle, iif(other.state = 'scored', other.reward, NULL) AS reward,
               (SELECT flags_json FROM score WHERE score.trial_id = other.trial_id ORDER BY score_id DESC LIMIT 1) AS flags,
               (SELECT code FROM review WHERE review.trial_id = other.trial_id AND decided_at_ms IS NULL) AS review,
               (SELECT evidence_json FROM review WHERE review.trial_id = other.trial_id AND decided_at_ms IS NULL) AS evidence
           FROM trial JOIN cell USING (cell_id) JOIN cell AS near ON near.task_id = cell.task_id
               JOIN trial AS other ON other.cell_id = near.cell_id JOIN arm ON arm.arm_id = other.arm_id
           WHERE trial.trial_id = ?1 AND other.trial_id <> ?1 AND other.state IN ('scored', 'review')
               AND arm.kind <> 'nop' ORDER BY other.trial_id""",
        (trial_id,),
    ).fetchall()
    return [OtherTrial(bool(row["oracle"]), row["reward"], _flags(row), row["review"]) for row in rows]


def _flags(row: sqlite3.Row) -> tuple[str, ...]:
    """Of its newest score; of one in review, what the verifier said by then."""
    if row["review"] is None:
        return tuple(json.loads(row["flags"] or "[]"))
    evidence = json.loads(row["evidence"])
    said = [f"log:{word['code']}" for word in evidence.get("log", []) if isinstance(word, dict) and "code" in word]
    return (*map(str, evidence.get("flags", [])), *said)


def disks_low(c: sqlite3.Connection, *, since_ms: int) -> tuple[str, ...]:
    """File systems that were below the floor at some time since ``since_ms``, in words."""
    rows = c.execute(
        """SELECT subject || ': ' || detail FROM finding WHERE code = 'disk_low' AND detail LIKE 'below the floor%'
           AND (closed_at_ms IS NULL OR closed_at_ms >= ?) ORDER BY finding_id""",
        (since_ms,),
    )
    return tuple(str(row[0]).replace(": below the floor: ", ": ") for row in rows.fetchall())
