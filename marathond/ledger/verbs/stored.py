"""Campaigns, arms and tasks as they are stored."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from marathond.ledger.verbs.sql import one, scalar


@dataclass(frozen=True, slots=True)
class CampaignRow:
    campaign_id: int
    name: str
    created_at_ms: int
    created_by: str
    treatment_hash: str
    treatment: dict[str, Any]
    config: dict[str, Any]
    out_dir: str
    order: str
    seed: int
    replicates: int


@dataclass(frozen=True, slots=True)
class StoredArm:
    arm_id: int
    name: str
    position: int
    kind: str
    treatment_hash: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredTask:
    task_id: int
    name: str
    path: str
    digest: str | None
    context_digest: str | None
    declared_limit_ms: int | None
    cpus: float | None
    memory_mb: int | None
    needs_network: bool
    data: dict[str, Any]


_CAMPAIGN = """SELECT campaign_id, name, created_at_ms, created_by, treatment_hash, treatment_json, config_json, out_dir, cell_order, seed,
    coalesce((SELECT max(replicate) FROM block WHERE block.campaign_id = campaign.campaign_id), 0) AS replicates FROM campaign"""


def campaign_by_name(c: sqlite3.Connection, name: str) -> CampaignRow | None:
    row = one(c, f"{_CAMPAIGN} WHERE name = ?", (name,))
    return None if row is None else _campaign_row(row)


def campaigns(c: sqlite3.Connection) -> list[CampaignRow]:
    """All campaigns of the ledger, oldest first."""
    return [_campaign_row(row) for row in c.execute(f"{_CAMPAIGN} ORDER BY campaign_id").fetchall()]


def _campaign_row(row: sqlite3.Row) -> CampaignRow:
    return CampaignRow(
        row["campaign_id"],
        row["name"],
        row["created_at_ms"],
        row["created_by"],
        row["treatment_hash"],
        json.loads(row["treatment_json"]),
        json.loads(row["config_json"]),
        row["out_dir"],
        row["cell_order"],
        row["seed"],
        row["replicates"],
    )


def arms_of(c: sqlite3.Connection, campaign_id: int) -> list[StoredArm]:
    """In the order in which they were added."""
    sql = "SELECT arm_id, name, position, kind, treatment_hash, data_json FROM arm WHERE campaign_id = ? ORDER BY position"
    rows = c.execute(sql, (campaign_id,)).fetchall()
    return [StoredArm(**_with_data(row)) for row in rows]


def arm_kinds(c: sqlite3.Connection, campaign_id: int) -> frozenset[str]:
    """Kinds of the campaign's arms."""
    return frozenset(row[0] for row in c.execute("SELECT DISTINCT kind FROM arm WHERE campaign_id = ?", (campaign_id,)).fetchall())


def tasks_of(c: sqlite3.Connection, campaign_id: int) -> list[StoredTask]:
    rows = c.execute(
        """SELECT task_id, name, path, digest, context_digest, declared_limit_ms, cpus, memory_mb, needs_network, data_json
           FROM task WHERE campaign_id = ? ORDER BY name""",
        (campaign_id,),
    ).fetchall()
    return [StoredTask(**_with_data(row)) for row in rows]


def _with_data(row: sqlite3.Row) -> dict[str, Any]:
    fields: dict[str, Any] = dict(row)
    fields["data"] = json.loads(fields.pop("data_json"))
    if "needs_network" in fields:
        fields["needs_network"] = bool(fields["needs_network"])
    return fields


def void_sides(c: sqlite3.Connection) -> dict[str, str]:
    """Void code to its side, ``infrastructure`` or ``operator``."""
    return {row["code"]: row["side"] for row in c.execute("SELECT code, side FROM void_code").fetchall()}


def progress(c: sqlite3.Connection, campaign_id: int) -> dict[str, int | None]:
    """``running`` cells, ``pending`` ones (open or parked) and ``finished_at_ms``: the last event, once nothing is open or claimed."""
    row = one(
        c,
        """SELECT count(*) FILTER (WHERE state = 'claimed') AS running, count(*) FILTER (WHERE state IN ('open', 'parked')) AS pending,
               count(*) FILTER (WHERE state IN ('open', 'claimed')) AS left FROM cell_state WHERE campaign_id = ?""",
        (campaign_id,),
    )
    assert row is not None
    last = """SELECT max(at_ms) FROM trial_event JOIN trial USING (trial_id) JOIN cell USING (cell_id) WHERE cell.campaign_id = ?"""
    finished = None if row["left"] else scalar(c, last, (campaign_id,))
    return {"running": row["running"], "pending": row["pending"], "finished_at_ms": finished}
