"""Everything a trial's coroutine, or recovery, needs to know about one trial, in one look."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from marathond.ledger.verbs.sql import must, one, scalar


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """``started_at`` is the engine's StartedAt text; ``gone_at_ms`` set: seen gone (or never there), see ``gone_because``."""

    engine: str
    name: str
    docker_id: str | None
    image_id: str
    context_digest: str
    started_at: str | None
    gone_at_ms: int | None
    gone_because: str | None


@dataclass(frozen=True, slots=True)
class TrialLease:
    """The trial's live lease."""

    lease_id: int
    engine: str
    subnet: str | None
    network_name: str
    network_id: str | None
    leaked_at_ms: int | None


@dataclass(frozen=True, slots=True)
class AgentRow:
    """The agent's start and end.  ``*_mono_ms`` count within ``boot_id`` only; ``limit_ms`` None: unlimited; ``credit_ms`` on top of it."""

    exec_id: str | None
    started_at_ms: int
    started_mono_ms: int
    boot_id: str
    limit_ms: int | None
    limit_origin: str
    limit_loser: str
    credit_ms: int
    ended_at_ms: int | None
    ended_mono_ms: int | None
    ended_by: str | None
    exit_code: int | None
    exit_source: str | None
    oom_killed: bool | None
    overrun_ms: int | None
    processes: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class VerificationRow:
    round: int
    exec_id: str | None
    started_at_ms: int
    started_mono_ms: int
    boot_id: str
    limit_ms: int
    limit_origin: str
    ended_at_ms: int | None
    outcome: str | None
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class TrialContext:
    """``claim_live``: the trial still holds its cell.  ``treatment``: its own campaign's.  ``verify_agains``: events of that name."""

    trial_id: int
    cell_id: int
    claim_id: int
    token: str
    claim_live: bool
    attempt: int
    state: str
    created_at_ms: int
    campaign_id: int
    campaign: str
    treatment: dict[str, Any]
    out_dir: str
    task_id: int
    task: str
    task_path: str
    task_digest: str | None
    context_digest: str | None
    declared_limit_ms: int | None
    cpus: float | None
    memory_mb: int | None
    needs_network: bool
    task_data: dict[str, Any]
    arm_id: int
    arm: str
    arm_data: dict[str, Any]
    replicate: int
    block_id: int
    container: ContainerRow | None
    lease: TrialLease | None
    agent: AgentRow | None
    verifications: tuple[VerificationRow, ...]
    verify_agains: int


_TRIAL = """
SELECT trial.trial_id, trial.cell_id, trial.claim_id, token, released_at_ms IS NULL AS claim_live, attempt, state, trial.created_at_ms,
    cell.campaign_id, campaign.name AS campaign, treatment_json AS treatment, out_dir,
    cell.task_id, task.name AS task, task.path AS task_path,
    task.digest AS task_digest, task.context_digest, declared_limit_ms, cpus, memory_mb, needs_network, task.data_json AS task_data,
    cell.arm_id, arm.name AS arm, arm.data_json AS arm_data, replicate, block_id
FROM trial JOIN claim ON claim.claim_id = trial.claim_id JOIN cell ON cell.cell_id = trial.cell_id
    JOIN campaign ON campaign.campaign_id = cell.campaign_id JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
WHERE trial.trial_id = ?"""


def cell_context(c: sqlite3.Connection, trial_id: int) -> TrialContext:
    """:raises LookupError: no such trial."""
    fields: dict[str, Any] = dict(must(one(c, _TRIAL, (trial_id,)), f"trial {trial_id}"))
    for name in ("treatment", "task_data", "arm_data"):
        fields[name] = json.loads(fields[name])
    for name in ("claim_live", "needs_network"):
        fields[name] = bool(fields[name])
    return TrialContext(
        **fields,
        container=container_of(c, trial_id),
        lease=lease_of(c, trial_id),
        agent=agent_of(c, trial_id),
        verifications=verifications_of(c, trial_id),
        verify_agains=scalar(c, "SELECT count(*) FROM trial_event WHERE trial_id = ? AND event = 'verify_again'", (trial_id,)),
    )


task_of_trial = cell_context


def container_of(c: sqlite3.Connection, trial_id: int) -> ContainerRow | None:
    sql = """SELECT engine, name, docker_id, image_id, context_digest, started_at, gone_at_ms, gone_because
             FROM container WHERE trial_id = ?"""
    row = one(c, sql, (trial_id,))
    return None if row is None else ContainerRow(**dict(row))


def lease_of(c: sqlite3.Connection, trial_id: int) -> TrialLease | None:
    sql = """SELECT lease_id, engine, subnet, network_name, network_id, leaked_at_ms FROM network_lease
             WHERE trial_id = ? AND released_at_ms IS NULL"""
    row = one(c, sql, (trial_id,))
    return None if row is None else TrialLease(**dict(row))


def agent_of(c: sqlite3.Connection, trial_id: int) -> AgentRow | None:
    row = one(c, "SELECT * FROM trial_agent WHERE trial_id = ?", (trial_id,))
    if row is None:
        return None
    fields: dict[str, Any] = dict(row)
    del fields["trial_id"]
    fields["processes"] = json.loads(fields.pop("processes_json") or "[]")
    fields["oom_killed"] = None if fields["oom_killed"] is None else bool(fields["oom_killed"])
    return AgentRow(**fields)


def verifications_of(c: sqlite3.Connection, trial_id: int) -> tuple[VerificationRow, ...]:
    """Rounds in order."""
    sql = """SELECT round, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms, limit_origin, ended_at_ms, outcome, exit_code
             FROM verification WHERE trial_id = ? ORDER BY round"""
    return tuple(VerificationRow(**dict(row)) for row in c.execute(sql, (trial_id,)).fetchall())
