"""What a live page shows beyond ``status``: the grid of cells, recent events, open reviews; and the sums that a monitor asks for.

Must not decide what is healthy.  Each question is bounded by the campaign's cells or by a limit, never by the number of requests.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marathond.ledger.verbs.happened_sources import EVENT_OF, EVENT_SAYS
from marathond.ledger.verbs.sql import one
from marathond.ledger.verbs.usage import SUMS


@dataclass(frozen=True, slots=True)
class CellMark:
    """One cell.  ``state``: the cell's; ``trial_state``: that of the trial that stands, ``voided`` of the last one when none does.

    Both None: it was never tried.  ``reward``: of a trial that was scored.
    """

    task_id: int
    arm_id: int
    replicate: int
    state: str
    trial_id: int | None
    trial_state: str | None
    reward: float | None


@dataclass(frozen=True, slots=True)
class CellCount:
    """All cells of one task and arm that look alike; ``reward``: the mean over them, None: none of them has one."""

    task_id: int
    arm_id: int
    state: str
    trial_state: str | None
    cells: int
    reward: float | None


@dataclass(frozen=True, slots=True)
class Named:
    """A task or an arm."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Extent:
    """How large a campaign is."""

    cells: int
    replicates: int


def extent(c: sqlite3.Connection, campaign_id: int) -> Extent:
    row = one(c, "SELECT count(*), coalesce(max(replicate), 0) FROM cell WHERE campaign_id = ?", (campaign_id,))
    assert row is not None
    return Extent(int(row[0]), int(row[1]))


def tasks(c: sqlite3.Connection, campaign_id: int, *, limit: int) -> list[Named]:
    """By name."""
    rows = c.execute("SELECT task_id, name FROM task WHERE campaign_id = ? ORDER BY name LIMIT ?", (campaign_id, limit))
    return [Named(row[0], row[1]) for row in rows.fetchall()]


def arms(c: sqlite3.Connection, campaign_id: int) -> list[Named]:
    """In their order."""
    rows = c.execute("SELECT arm_id, name FROM arm WHERE campaign_id = ? ORDER BY position", (campaign_id,))
    return [Named(row[0], row[1]) for row in rows.fetchall()]


def task_count(c: sqlite3.Connection, campaign_id: int) -> int:
    row = one(c, "SELECT count(*) FROM task WHERE campaign_id = ?", (campaign_id,))
    return 0 if row is None else int(row[0])


_LAST = "(SELECT trial_id FROM trial AS t WHERE t.cell_id = s.cell_id ORDER BY attempt DESC LIMIT 1)"


def cell_marks(c: sqlite3.Connection, campaign_id: int) -> list[CellMark]:
    """Every cell, in no order.  A cell without a standing trial shows the last one, which was voided."""
    rows = c.execute(
        f"""SELECT task_id, arm_id, replicate, state, coalesce(trial_id, {_LAST}) AS trial_id,
                coalesce(trial_state, iif({_LAST} IS NULL, NULL, 'voided')) AS trial_state, iif(state = 'done', reward, NULL) AS reward
            FROM cell_state AS s WHERE campaign_id = ?""",
        (campaign_id,),
    )
    return [CellMark(*row) for row in rows.fetchall()]


def cell_counts(c: sqlite3.Connection, campaign_id: int) -> list[CellCount]:
    """The same, counted."""
    rows = c.execute(
        f"""SELECT task_id, arm_id, state, coalesce(trial_state, iif({_LAST} IS NULL, NULL, 'voided'))
                AS trial_state, count(*) AS cells, avg(iif(state = 'done', reward, NULL)) AS reward
            FROM cell_state AS s WHERE campaign_id = ? GROUP BY 1, 2, 3, 4""",
        (campaign_id,),
    )
    return [CellCount(*row) for row in rows.fetchall()]


@dataclass(frozen=True, slots=True)
class Happened:
    """One event of a trial's life.  ``name``, ``author``, ``text``, ``detail``: as :class:`~marathond.ledger.verbs.happened.Happening`."""

    event_id: int
    trial_id: int
    event: str
    to_state: str
    at_ms: int
    task: str
    arm: str
    name: str
    author: str | None
    text: str
    detail: dict[str, Any]


LOOKED_AT = 2_000
"""Newest events that are looked through for those of one campaign."""


def recent_events(c: sqlite3.Connection, campaign_id: int, *, limit: int) -> list[Happened]:
    """Newest first; of the newest events of the whole ledger."""
    rows = c.execute(
        f"""SELECT e.event_id, e.trial_id, e.event, e.to_state, e.at_ms, task.name AS task, arm.name AS arm, trial.attempt, e.detail_json,
               {EVENT_SAYS}
           FROM (SELECT * FROM trial_event ORDER BY event_id DESC LIMIT ?) AS e
               CROSS JOIN trial ON trial.trial_id = e.trial_id CROSS JOIN cell ON cell.cell_id = trial.cell_id
               CROSS JOIN task ON task.task_id = cell.task_id CROSS JOIN arm ON arm.arm_id = cell.arm_id
               {EVENT_OF}
           WHERE cell.campaign_id = ? ORDER BY e.event_id DESC LIMIT ?""",
        (LOOKED_AT, campaign_id, limit),
    )
    return [_happened(dict(row)) for row in rows.fetchall()]


def _happened(row: dict[str, Any]) -> Happened:
    known = {name: row.pop(name) for name in Happened.__slots__ if name != "detail"}
    detail = json.loads(row.pop("detail_json"))
    return Happened(**known, detail=detail | {name: value for name, value in row.items() if value is not None})


@dataclass(frozen=True, slots=True)
class OpenReview:
    """A trial that waits for a person's word."""

    trial_id: int
    task: str
    arm: str
    code: str
    detail: str
    opened_at_ms: int


def open_reviews(c: sqlite3.Connection, campaign_id: int, *, limit: int) -> list[OpenReview]:
    """The longest waiting first."""
    rows = c.execute(
        """SELECT trial.trial_id, task.name, arm.name, code, detail, opened_at_ms
           FROM trial INDEXED BY trial_in_review CROSS JOIN cell ON cell.cell_id = trial.cell_id JOIN task ON task.task_id = cell.task_id
               JOIN arm ON arm.arm_id = cell.arm_id CROSS JOIN review ON review.trial_id = trial.trial_id AND decided_at_ms IS NULL
           WHERE trial.state = 'review' AND cell.campaign_id = ? ORDER BY opened_at_ms LIMIT ?""",
        (campaign_id, limit),
    )
    return [OpenReview(*row) for row in rows.fetchall()]


# ── for a monitor ──


@dataclass(frozen=True, slots=True)
class ArmUsage:
    """What the agents of one arm asked of their model, all trials, by the gateway's count.  ``sums``: of each of SUMS."""

    arm: str
    sums: Mapping[str, int]


def usage_by_arm(c: sqlite3.Connection, campaign_id: int) -> list[ArmUsage]:
    """An arm without a request is not there."""
    rows = c.execute(
        f"""SELECT arm.name, {", ".join(f"sum(u.{name})" for name in SUMS)}
           FROM model_usage AS u JOIN trial ON trial.trial_id = u.trial_id JOIN arm ON arm.arm_id = trial.arm_id
           WHERE account = 'agent' AND arm.campaign_id = ? GROUP BY arm.arm_id ORDER BY arm.position""",
        (campaign_id,),
    )
    return [ArmUsage(row[0], dict(zip(SUMS, tuple(row)[1:], strict=True))) for row in rows.fetchall()]


def voids_by_code(c: sqlite3.Connection, campaign_id: int) -> list[tuple[str, str, int]]:
    """(arm, code, standing voids)."""
    rows = c.execute(
        """SELECT arm.name, code, count(*) FROM void JOIN trial ON trial.trial_id = void.trial_id JOIN arm ON arm.arm_id = trial.arm_id
           WHERE undone_at_ms IS NULL AND arm.campaign_id = ? GROUP BY arm.arm_id, code ORDER BY arm.position, code""",
        (campaign_id,),
    )
    return [(row[0], row[1], row[2]) for row in rows.fetchall()]


def request_times(c: sqlite3.Connection, *, since_ms: int, limit: int) -> list[tuple[int | None, int | None, int]]:
    """(first byte, whole, held), in milliseconds, of the agents' requests that ended, newest first.

    Of the newest journal; of ``limit`` requests at most, begun since ``since_ms``.
    """
    rows = c.execute(
        """SELECT first_byte_ms, total_ms, held_ms FROM (
               SELECT * FROM model_request WHERE journal_id = (SELECT max(journal_id) FROM gateway_journal) ORDER BY begin_seq DESC LIMIT ?)
           WHERE ended_at_ms IS NOT NULL AND account = 'agent' AND begun_at_ms >= ?""",
        (limit, since_ms),
    )
    return [(row[0], row[1], row[2]) for row in rows.fetchall()]
