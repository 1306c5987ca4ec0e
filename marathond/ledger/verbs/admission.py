"""Admission: what the planner sees, and the one transaction by which a cell becomes a trial.

Owns the subnet gate's ledger side: claim, trial and network lease are written together or not at all, before any call to the engine.
Must not show an arm to the planner (promise 2).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.core import belongings
from marathond.core.money import Rules
from marathond.core.plan import Holding, Snapshot, Stop
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import probing, settings
from marathond.ledger.verbs.cells import cells_by_arm, standing_by_arm
from marathond.ledger.verbs.money import begun_cells, open_cell, purse
from marathond.ledger.verbs.parks import park_cell, park_task
from marathond.ledger.verbs.sql import NEWEST_RUN, scalar
from marathond.ledger.verbs.stops import StopRow, stops

__all__ = ["Admitted", "StopRow", "admit", "answered", "end_stop", "open_stop", "park_cell", "park_task", "snapshot", "stops"]

ANSWERED = "stop_loss_answered"
"""The observation that keeps how far a person's `resume` reaches."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """``network_name`` None: a task without network."""

    trial_id: int
    claim_id: int
    token: str
    attempt: int
    lease_id: int | None
    container_name: str
    network_name: str | None


# Walks the planned order until the limit is reached.  The three IS NULL follow from 'open'; said here, they spare the further look-ups
# of a cell that is done.
_OPEN_CELLS = """
SELECT cell_state.cell_id, cell_state.task_id, cpus, memory_mb, needs_network, block_id, ordinal FROM cell_state JOIN task USING (task_id)
WHERE cell_state.campaign_id = ? AND state = 'open'
    AND cell_state.trial_id IS NULL AND claim_id IS NULL AND park_id IS NULL ORDER BY ordinal LIMIT ?"""

NO_MONEY = Rules()

_HOLDINGS = """
SELECT cpus, memory_mb FROM claim JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE released_at_ms IS NULL"""


def snapshot(c: sqlite3.Connection, campaign_id: int, *, engine: str, limit: int, money: Rules = NO_MONEY) -> Snapshot:
    """One consistent look for core.plan.

    ``holdings`` are the live claims of all campaigns of this ledger; ``live_leases`` those of ``engine``, leaked ones included.
    """
    rows = c.execute(_OPEN_CELLS, (campaign_id, limit)).fetchall()
    cells = [open_cell(row) for row in rows]
    total = open_total(c, campaign_id) if len(cells) == limit else len(cells)
    seen = purse(c, campaign_id, money, cells)
    if seen is not None and seen.tight and len(cells) < total:
        # When the cap stops new blocks, those that have begun go on: an order that goes arm by arm has their other cells far behind.
        cells += begun_cells(c, campaign_id, after=rows[-1]["ordinal"], most=limit)
    return Snapshot(
        open_cells=tuple(cells),
        open_total=total,
        holdings=tuple(Holding(row["cpus"], row["memory_mb"]) for row in c.execute(_HOLDINGS).fetchall()),
        live_leases=scalar(c, "SELECT count(*) FROM network_lease WHERE engine = ? AND released_at_ms IS NULL", (engine,)),
        stops=tuple(Stop(row.kind, row.detail, row.until_ms, probing.trying(c) if row.kind == "breaker" else None) for row in stops(c)),
        purse=seen,
    )


def open_total(c: sqlite3.Connection, campaign_id: int) -> int:
    """Open cells of the campaign."""
    counts = cells_by_arm(c, campaign_id, standing_by_arm(c, campaign_id))
    return sum(states["open"] for states in counts.values())


def task_is_open(c: sqlite3.Connection, task_id: int) -> bool:
    """Whether a cell of the task may be admitted as far as the cell goes: open, not parked."""
    return bool(scalar(c, "SELECT EXISTS (SELECT 1 FROM cell_state WHERE task_id = ? AND state = 'open')", (task_id,)))


def admit(
    c: sqlite3.Connection,
    *,
    cell_id: int,
    token: str,
    engine: str,
    subnet: str | None,
    needs_network: bool,
    ledger_id: str,
    now_ms: int,
) -> Admitted:
    """Claim, trial and lease in one transaction; while a breaker tries one, also that this is it.

    The planner has asked the engine since its look, which may take seconds: what a person closed meanwhile is closed.  A breaker is not
    asked for, it lets one through.

    :param token: fences the claim; unique for ever (fault f09).
    :param subnet: CIDR of the lease; None: the engine chooses (auto mode), or no network is needed.
    :raises RuleBroken: ``admission_closed``: a person's stop stands.
    The schema refuses: ``claim_only_open_cell``, ``claim_one_live_per_cell``, ``network_lease_within_cap``,
    ``network_lease_one_live_per_subnet``.
    """
    if closed := scalar(c, "SELECT kind FROM admission_stop WHERE kind IN ('pause', 'drain') AND ended_at_ms IS NULL"):
        raise RuleBroken("admission_closed", str(closed))
    row = c.execute(
        f"INSERT INTO claim (cell_id, token, run_id, claimed_at_ms) VALUES (?, ?, {NEWEST_RUN}, ?) RETURNING claim_id",
        (cell_id, token, now_ms),
    ).fetchall()
    claim_id = int(row[0]["claim_id"])
    row = c.execute(
        f"""INSERT INTO trial (cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms)
            SELECT cell_id, arm_id, ?2, (SELECT coalesce(max(attempt), 0) + 1 FROM trial WHERE cell_id = ?1), {NEWEST_RUN}, 'new', ?3
            FROM cell WHERE cell_id = ?1
            RETURNING trial_id, attempt""",
        (cell_id, claim_id, now_ms),
    ).fetchall()
    trial_id, attempt = int(row[0]["trial_id"]), int(row[0]["attempt"])
    lease_id = network_name = None
    if needs_network:
        network_name = belongings.network_name(ledger_id, trial_id)
        lease_id = c.execute(
            "INSERT INTO network_lease (engine, trial_id, subnet, network_name, leased_at_ms) VALUES (?, ?, ?, ?, ?)",
            (engine, trial_id, subnet, network_name, now_ms),
        ).lastrowid
    probing.probe_admitted(c, trial_id, now_ms=now_ms)
    return Admitted(trial_id, claim_id, token, attempt, lease_id, belongings.container_name(ledger_id, trial_id), network_name)


def open_stop(c: sqlite3.Connection, kind: str, *, detail: str, author: str, until_ms: int | None, now_ms: int) -> bool:
    """Close admission for one reason; False, and nothing changed, when that kind stands already."""
    if scalar(c, "SELECT 1 FROM admission_stop WHERE kind = ? AND ended_at_ms IS NULL", (kind,)):
        return False
    sql = "INSERT INTO admission_stop (kind, detail, author, at_ms, until_ms) VALUES (?, ?, ?, ?, ?)"
    c.execute(sql, (kind, detail, author, now_ms, until_ms))
    return True


def end_stop(c: sqlite3.Connection, kind: str, *, author: str, now_ms: int) -> bool:
    """False when no such stop stands.  After a stop-loss, what the ledger holds by now is answered: see :func:`answered`."""
    sql = "UPDATE admission_stop SET ended_at_ms = ?, ended_by = ? WHERE kind = ? AND ended_at_ms IS NULL"
    ended = c.execute(sql, (now_ms, author, kind)).rowcount == 1
    if ended and kind == "stop_loss":
        settings.observe(c, ANSWERED, scalar(c, "SELECT coalesce(max(event_id), 0) FROM trial_event"), now_ms=now_ms)
    return ended


def answered(c: sqlite3.Connection) -> int:
    """The newest event of a trial when a person last ended a stop-loss; 0: nobody ever did."""
    said = settings.observations(c).get(ANSWERED)
    return 0 if said is None else int(said.value)
