"""What a person decides: voids and their undoing, reviews, retries, parks.

Every decision carries author and reason, may be given twice without harm, and answers with what it did and what it did not.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from marathond.core.errors import Refused
from marathond.core.names import cell_label, trial_label
from marathond.ledger.verbs.as_read import row_as_read
from marathond.ledger.verbs.parks import end_parks_by_person
from marathond.ledger.verbs.selection import Touched, look_at, select_trials
from marathond.ledger.verbs.sql import changed, must, one, scalar
from marathond.ledger.verbs.trials import ScoreRow, scored, unfinished
from marathond.ledger.verbs.voids import write_void

__all__ = [
    "AlreadyVoided",
    "NotDone",
    "RetryResult",
    "Touched",
    "UnvoidResult",
    "VoidResult",
    "check_code",
    "decide_review",
    "look_at",
    "retry",
    "select_trials",
    "unpark",
    "unvoid",
    "void_trials",
    "void_unfinished",
]

OPERATOR_EXTRACTOR = 0
"""Version number of the extractor in scores that a person gave."""


@dataclass(frozen=True, slots=True)
class AlreadyVoided:
    trial: Touched
    author: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class NotDone:
    """A trial that the command left as it was, and why."""

    trial: Touched
    why: str


@dataclass(frozen=True, slots=True)
class VoidResult:
    """``batch`` empty: nothing was voided."""

    batch: str
    voided: tuple[Touched, ...]
    already: tuple[AlreadyVoided, ...]
    refused: tuple[NotDone, ...]


@dataclass(frozen=True, slots=True)
class UnvoidResult:
    """``restored``: (trial, state it is in again)."""

    restored: tuple[tuple[Touched, str], ...]
    refused: tuple[NotDone, ...]


@dataclass(frozen=True, slots=True)
class RetryResult:
    """``outcome``: ``unparked``, or why nothing was to be done: ``open``, ``claimed``."""

    cell_id: int
    outcome: str


def void_trials(c: sqlite3.Connection, trial_ids: Sequence[int], *, code: str, reason: str, author: str, now_ms: int) -> VoidResult:
    """Withdraw trials in one batch: all of those that can be, or none when the schema refuses one.

    A trial in work may be voided, too; whoever runs it must then end it.
    :raises Refused: the code is unknown, or not one that a person may use.
    """
    check_code(c, code)
    batch = ""
    voided, already = [], []
    for trial_id in trial_ids:
        touched = look_at(c, trial_id)
        if touched.state == "voided":
            sql = "SELECT author, reason, at_ms FROM void WHERE trial_id = ? AND undone_at_ms IS NULL"
            row = must(one(c, sql, (trial_id,)), f"void of {trial_label(trial_id)}")
            already.append(AlreadyVoided(touched, row["author"], row["reason"], row["at_ms"]))
            continue
        batch = batch or f"o{scalar(c, 'SELECT coalesce(max(void_id), 0) + 1 FROM void')}"
        _decide(c, trial_id, decision="voided", author=author, reason=reason, now_ms=now_ms)
        write_void(
            c,
            trial_id,
            code=code,
            reason=reason,
            evidence={},
            decided_by="operator",
            author=author,
            counts_pass=False,
            batch=batch,
            now_ms=now_ms,
        )
        voided.append(touched)
    return VoidResult(batch, tuple(voided), tuple(already), ())


def void_unfinished(c: sqlite3.Connection, *, code: str, reason: str, author: str, now_ms: int) -> VoidResult:
    """All trials in work, of all campaigns, chosen in the transaction that voids them: what was scored a moment ago keeps its score."""
    return void_trials(c, unfinished(c), code=code, reason=reason, author=author, now_ms=now_ms)


def check_code(c: sqlite3.Connection, code: str) -> None:
    """:raises Refused: the code is unknown, or not one that a person may use."""
    sides = {row["code"]: row["side"] for row in c.execute("SELECT code, side FROM void_code").fetchall()}
    people = sorted(name for name, side in sides.items() if side == "operator")
    if code not in sides:
        raise Refused(f"--code {code}: unknown; known are {', '.join(people)}")
    if code not in people:
        raise Refused(f"--code {code}: only the daemon says that, from what it saw; a person's are {', '.join(people)}")


def _decide(c: sqlite3.Connection, trial_id: int, *, decision: str, author: str, reason: str, now_ms: int) -> bool:
    """Decide the open review of a trial; False when there is none."""
    sql = "UPDATE review SET decided_at_ms = ?, decision = ?, author = ?, reason = ? WHERE trial_id = ? AND decided_at_ms IS NULL"
    return c.execute(sql, (now_ms, decision, author, reason, trial_id)).rowcount == 1


def unvoid(
    c: sqlite3.Connection,
    *,
    trial_id: int | None = None,
    block_id: int | None = None,
    batch: str | None = None,
    author: str,
    reason: str,
    now_ms: int,
    dry_run: bool = False,
) -> UnvoidResult:
    """Take voids back: of one trial, of a block's newest trials, or of one batch.  A trial comes back as what it was.

    Left alone, with the reason: a trial that is not voided, one that had not come to rest, one whose cell has a later trial.
    :param dry_run: only say what would come of it; reads alone.
    :raises ValueError: not exactly one of the three is given.
    """
    if (trial_id is not None) + (block_id is not None) + (batch is not None) != 1:
        raise ValueError("unvoid takes one trial, one block or one batch")
    if trial_id is not None:
        ids = [trial_id]
    elif block_id is not None:
        newest = "SELECT max(trial_id) FROM cell JOIN trial USING (cell_id) WHERE block_id = ? GROUP BY cell_id"
        ids = [row[0] for row in c.execute(newest, (block_id,)).fetchall()]
    else:
        ids = [row[0] for row in c.execute("SELECT trial_id FROM void WHERE batch = ? ORDER BY trial_id", (batch,)).fetchall()]
    restored, refused = [], []
    for one_id in ids:
        touched = look_at(c, one_id)
        why, void_id, state = _can_unvoid(c, one_id)
        if why:
            refused.append(NotDone(touched, why))
            continue
        if not dry_run:
            _unvoid_one(c, one_id, void_id, state, author=author, reason=reason, now_ms=now_ms)
        restored.append((touched, state))
    return UnvoidResult(tuple(restored), tuple(refused))


def _can_unvoid(c: sqlite3.Connection, trial_id: int) -> tuple[str, int, str]:
    """(why not, its void, state that it would be in again)."""
    void = one(c, "SELECT void_id, from_state FROM void WHERE trial_id = ? AND undone_at_ms IS NULL", (trial_id,))
    if void is None:
        return "it is not voided", 0, ""
    if void["from_state"] not in ("scored", "review"):
        return f"it was {void['from_state']} when it was voided: there is no result to come back to", 0, ""
    later = scalar(
        c,
        """SELECT min(later.trial_id) FROM trial t JOIN trial later ON later.cell_id = t.cell_id AND later.attempt > t.attempt
           WHERE t.trial_id = ?""",
        (trial_id,),
    )
    if later is not None:
        return f"its cell has a later trial {trial_label(later)}", 0, ""
    return "", int(void["void_id"]), str(void["from_state"])


def _unvoid_one(c: sqlite3.Connection, trial_id: int, void_id: int, state: str, *, author: str, reason: str, now_ms: int) -> None:
    if state == "review":
        c.execute(
            """INSERT INTO review (trial_id, code, detail, evidence_json, opened_at_ms)
               SELECT trial_id, code, detail, evidence_json, ? FROM review WHERE trial_id = ? ORDER BY review_id DESC LIMIT 1""",
            (now_ms, trial_id),
        )
    sql = "UPDATE void SET undone_at_ms = ?, undone_by = ?, undone_reason = ? WHERE void_id = ?"
    changed(c.execute(sql, (now_ms, author, reason, void_id)), f"void of {trial_label(trial_id)}")


def decide_review(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    accept: bool,
    reward: float | None,
    reason: str,
    author: str,
    now_ms: int,
    code: str = "operator",
) -> float | None:
    """A person's word on a doubtful trial: a reward of their own, the score as it was read, or void.

    :param reward: None with ``accept``: the score that the verifier wrote and that stands with the review, all its columns.
    :param code: of the void.
    :return: the reward that counts now; None for a void.
    :raises Refused: it is not in review, accepted without a reward that anybody could read, or the code is not a person's.
    """
    label = trial_label(trial_id)
    if (state := look_at(c, trial_id).state) != "review":
        raise Refused(f"{label} is not in review but {state}")
    if not accept:
        check_code(c, code)
    row = None
    if accept and reward is not None:
        row = ScoreRow(OPERATOR_EXTRACTOR, reward, f"operator {author}", flags=("by_operator",))
    elif accept and (row := row_as_read(_evidence(c, trial_id))) is None:
        raise Refused(f"{label}: accepting needs --reward between 0 and 1: nobody could read one")
    if not _decide(c, trial_id, decision="accepted" if accept else "voided", author=author, reason=reason, now_ms=now_ms):
        raise Refused(f"{label} is not in review but {look_at(c, trial_id).state}")
    if row is not None:
        scored(c, trial_id, row, now_ms=now_ms)
        return row.reward
    write_void(
        c,
        trial_id,
        code=code,
        reason=reason,
        evidence={},
        decided_by="operator",
        author=author,
        counts_pass=False,
        batch=f"o{scalar(c, 'SELECT coalesce(max(void_id), 0) + 1 FROM void')}",
        now_ms=now_ms,
    )
    return None


def _evidence(c: sqlite3.Connection, trial_id: int) -> dict[str, object]:
    """Of the open review."""
    sql = "SELECT evidence_json FROM review WHERE trial_id = ? AND decided_at_ms IS NULL"
    evidence: dict[str, object] = json.loads(must(one(c, sql, (trial_id,)), f"review of {trial_label(trial_id)}")["evidence_json"])
    return evidence


def retry(
    c: sqlite3.Connection, *, cell_id: int | None = None, trial_id: int | None = None, author: str, reason: str, now_ms: int
) -> RetryResult:
    """Open a parked cell again, named by itself or by one of its trials.

    :raises Refused: the cell is done or in review, or of an imported campaign.
    """
    if trial_id is not None:
        cell_id = look_at(c, trial_id).cell_id
    if scalar(c, "SELECT origin FROM cell JOIN campaign USING (campaign_id) WHERE cell_id = ?", (cell_id,)) == "import":
        raise Refused(
            f"{cell_label(cell_id or 0)} is of an imported campaign: nothing can run in it; what was run elsewhere is imported again"
        )
    row = must(one(c, "SELECT cell_id, state, trial_id FROM cell_state WHERE cell_id = ?", (cell_id,)), f"cell {cell_id}")
    if row["state"] == "done":
        raise Refused(f"{trial_label(row['trial_id'])} counts for this cell: void it first")
    if row["state"] == "review":
        raise Refused(f"{trial_label(row['trial_id'])} is in review: decide that first")
    if row["state"] == "parked":
        end_parks_by_person(c, [row["cell_id"]], author=author, reason=reason, now_ms=now_ms)
        return RetryResult(row["cell_id"], "unparked")
    return RetryResult(row["cell_id"], row["state"])


def unpark(
    c: sqlite3.Connection,
    *,
    campaign_id: int,
    cell_id: int | None = None,
    task: str | None = None,
    arm: str | None = None,
    author: str,
    reason: str,
    now_ms: int,
) -> int:
    """End standing parks of a cell, a task, an arm, or (none given) of the whole campaign.  Returns how many; passes start anew."""
    rows = c.execute(
        """SELECT park.cell_id FROM park JOIN cell USING (cell_id) JOIN task USING (task_id) JOIN arm USING (arm_id)
           WHERE ended_at_ms IS NULL AND cell.campaign_id = :campaign_id AND (:cell_id IS NULL OR park.cell_id = :cell_id)
             AND (:task IS NULL OR task.name = :task) AND (:arm IS NULL OR arm.name = :arm)""",
        {"campaign_id": campaign_id, "cell_id": cell_id, "task": task, "arm": arm},
    ).fetchall()
    return end_parks_by_person(c, [row[0] for row in rows], author=author, reason=reason, now_ms=now_ms)
