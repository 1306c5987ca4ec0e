"""Parks: cells set aside with a reason and an end.  Shared by submission, admission and the operator's commands."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from marathond.ledger.verbs.sql import marks

PASSES_EXHAUSTED = "passes_exhausted"

TASK_CODES = (
    "task_missing",
    "task_broken",
    "task_unsupported",
    "task_changed",
    "host_too_small",
    "image_missing",
    "image_build_failed",
    "image_needs_buildkit",
    "runtime_unfit",
)
"""Codes that speak of the task directory, its image or its size; they end by themselves when a later submission finds the task fine."""


def park_task(c: sqlite3.Connection, task_id: int, *, code: str, detail: str, author: str, now_ms: int) -> int:
    """Park every cell of the task that has no result yet and is not parked already; returns how many.

    A cell in work is parked, too: its trial goes on and counts, but if it is voided the cell is not tried again.
    """
    return c.execute(
        """INSERT INTO park (cell_id, code, detail, author, at_ms)
           SELECT cell_id, ?, ?, ?, ? FROM cell_state
           WHERE task_id = ? AND park_id IS NULL AND state <> 'done'""",
        (code, detail, author, now_ms, task_id),
    ).rowcount


def park_cell(c: sqlite3.Connection, cell_id: int, *, code: str, detail: str, author: str, now_ms: int) -> bool:
    """Park one cell; False when a park stands already (the first reason stays)."""
    return (
        c.execute(
            """INSERT INTO park (cell_id, code, detail, author, at_ms)
               SELECT cell_id, ?, ?, ?, ? FROM cell
               WHERE cell_id = ? AND NOT EXISTS (SELECT 1 FROM park WHERE park.cell_id = cell.cell_id AND ended_at_ms IS NULL)""",
            (code, detail, author, now_ms, cell_id),
        ).rowcount
        == 1
    )


def park_for_passes(c: sqlite3.Connection, cell_id: int, *, detail: str, author: str, now_ms: int) -> bool:
    """Park a cell whose passes are used up; False when another park stands that only a person ends, who opens it with new passes.

    In place of a park that ends by itself (its task changed while the trial ran, say): the cell would go on beyond its passes then.
    """
    c.execute(
        f"""UPDATE park SET ended_at_ms = ?, ended_by = 'daemon', ended_reason = 'its passes are used up meanwhile'
            WHERE cell_id = ? AND ended_at_ms IS NULL AND code IN ({marks(TASK_CODES)})""",
        (now_ms, cell_id, *TASK_CODES),
    )
    return park_cell(c, cell_id, code=PASSES_EXHAUSTED, detail=detail, author=author, now_ms=now_ms)


def park_without_solution(c: sqlite3.Connection, campaign_id: int, *, author: str, now_ms: int) -> int:
    """Park the oracle's cells of tasks that have no solution: they would fail a gate once per pass, on one arm alone."""
    return c.execute(
        """INSERT INTO park (cell_id, code, detail, author, at_ms)
           SELECT cell_id, 'no_solution', task.path || ': the oracle needs solution/solve.sh, and there is none', ?, ?
           FROM cell_state JOIN task USING (task_id) JOIN arm USING (arm_id)
           WHERE cell_state.campaign_id = ? AND arm.kind = 'oracle' AND json_extract(task.data_json, '$.has_solution') = 0
             AND park_id IS NULL AND state = 'open'""",
        (author, now_ms, campaign_id),
    ).rowcount


def end_task_parks(c: sqlite3.Connection, task_id: int, *, codes: Sequence[str], reason: str, now_ms: int) -> int:
    """The daemon ends parks of a task whose cause is gone; passes used so far stay used."""
    return c.execute(
        f"""UPDATE park SET ended_at_ms = ?, ended_by = 'daemon', ended_reason = ?
            WHERE ended_at_ms IS NULL AND code IN ({marks(codes)}) AND cell_id IN (SELECT cell_id FROM cell WHERE task_id = ?)""",
        (now_ms, reason, *codes, task_id),
    ).rowcount


def end_parks_by_person(c: sqlite3.Connection, cell_ids: Sequence[int], *, author: str, reason: str, now_ms: int) -> int:
    """A person opens the cells again; voids up to now use up no passes any more."""
    ended = 0
    for cell_id in cell_ids:
        ended += c.execute(
            """UPDATE park SET ended_at_ms = ?, ended_by = ?, ended_reason = ?,
                   passes_from_void_id = (SELECT coalesce(max(void_id), 0) FROM void)
               WHERE cell_id = ? AND ended_at_ms IS NULL""",
            (now_ms, author, reason, cell_id),
        ).rowcount
    return ended
