"""Shapes of trials' first requests, as the gateway saw them (fault a14).

Owns first_request.  Must not know what a shape means.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marathond.ledger.verbs.sql import dump, scalar


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """One trial's; ``arm`` and ``task`` by their names."""

    trial_id: int
    arm: str
    task: str
    shape: dict[str, Any]


def keep(c: sqlite3.Connection, trial_id: int, shape: Mapping[str, Any], *, now_ms: int) -> None:
    """The first that is told counts."""
    sql = "INSERT INTO first_request (trial_id, shape_json, at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    c.execute(sql, (trial_id, dump(dict(shape)), now_ms))


def count(c: sqlite3.Connection) -> int:
    """In the whole ledger; it only grows."""
    return int(scalar(c, "SELECT count(*) FROM first_request"))


def shapes(c: sqlite3.Connection, campaign_id: int) -> list[ShapeRow]:
    """Of the campaign's codex arms, in the order of their trials, voided ones included."""
    rows = c.execute(
        """SELECT f.trial_id, arm.name, task.name, f.shape_json FROM first_request AS f JOIN trial USING (trial_id)
           JOIN arm USING (arm_id) JOIN cell USING (cell_id) JOIN task USING (task_id)
           WHERE arm.campaign_id = ? AND arm.kind = 'codex' ORDER BY f.trial_id""",
        (campaign_id,),
    )
    return [ShapeRow(row[0], row[1], row[2], json.loads(row[3])) for row in rows.fetchall()]
