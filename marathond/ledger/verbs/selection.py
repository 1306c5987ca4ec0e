"""Which trials a person's command speaks of."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from marathond.core.names import trial_label
from marathond.ledger.verbs.sql import must, one


@dataclass(frozen=True, slots=True)
class Touched:
    """A trial that a command met.  ``state``: before the command.

    ``reward``: of its newest score, or what was read and waits for a person; None: nobody knew one (``score_was_known`` says the same).
    """

    trial_id: int
    cell_id: int
    block_id: int
    task: str
    arm: str
    replicate: int
    state: str
    score_was_known: bool
    reward: float | None = None


_TOUCHED = """
SELECT trial.trial_id, trial.cell_id, block_id, task.name AS task, arm.name AS arm, replicate, trial.state,
    known.reward IS NOT NULL AS score_was_known, known.reward
FROM trial JOIN known_reward AS known ON known.trial_id = trial.trial_id
    JOIN cell ON cell.cell_id = trial.cell_id JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
WHERE trial.trial_id = ?"""


def look_at(c: sqlite3.Connection, trial_id: int) -> Touched:
    fields = dict(must(one(c, _TOUCHED, (trial_id,)), f"trial {trial_label(trial_id)}"))
    fields["score_was_known"] = bool(fields["score_was_known"])
    return Touched(**fields)


def select_trials(
    c: sqlite3.Connection,
    *,
    campaign_id: int,
    trial: int | None = None,
    pair: bool = False,
    arm: str | None = None,
    task: str | None = None,
    replicate: int | None = None,
    states: Sequence[str] | None = None,
    since_ms: int | None = None,
    block_id: int | None = None,
) -> list[int]:
    """Trials that a command speaks of, by id.

    Filters meet trials that are not voided, unless ``states`` asks for them; ``trial`` meets that one whatever it is.
    :param pair: with it every standing trial of the same blocks (fault a08), whichever trial of a block was named: where that one was
        voided before and its cell has run again, the later trial is what counts now, and left alone it would be one side of a pair.
    :param since_ms: only trials created at or after it.
    """
    filters = ["cell.campaign_id = :campaign_id"]
    if trial is not None:
        filters.append("trial.trial_id = :trial")
    if states is None and trial is None:
        filters.append("trial.state <> 'voided'")
    for value, clause in (
        (arm, "arm.name = :arm"),
        (task, "task.name = :task"),
        (replicate, "cell.replicate = :replicate"),
        (block_id, "cell.block_id = :block_id"),
    ):
        if value is not None:
            filters.append(clause)
    if states is not None:
        filters.append("trial.state IN (SELECT value FROM json_each(:states))")
    if since_ms is not None:
        filters.append("trial.created_at_ms >= :since_ms")
    rows = c.execute(
        f"""SELECT trial.trial_id, cell.block_id FROM trial JOIN cell ON cell.cell_id = trial.cell_id
            JOIN arm ON arm.arm_id = cell.arm_id JOIN task ON task.task_id = cell.task_id WHERE {" AND ".join(filters)}""",
        {
            "campaign_id": campaign_id,
            "trial": trial,
            "arm": arm,
            "task": task,
            "replicate": replicate,
            "block_id": block_id,
            "states": None if states is None else "[" + ",".join(f'"{s}"' for s in states) + "]",
            "since_ms": since_ms,
        },
    ).fetchall()
    chosen = {int(row["trial_id"]) for row in rows}
    if pair:
        for block in sorted({row["block_id"] for row in rows}):
            mates = c.execute(
                "SELECT trial_id FROM cell JOIN trial USING (cell_id) WHERE block_id = ? AND trial.state <> 'voided'", (block,)
            )
            chosen.update(int(row["trial_id"]) for row in mates.fetchall())
    return sorted(chosen)
