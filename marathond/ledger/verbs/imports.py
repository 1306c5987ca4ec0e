"""Campaigns that were measured elsewhere, as they enter the ledger.

Owns their rows: a campaign of origin ``import``, arms of kind ``imported``, tasks without a folder, and trials that go the short way
(reserved, imported, then scored or voided) inside one transaction per cell, so that none of them is ever found in work.  Must not read
files, nor decide what counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.errors import Refused
from marathond.core.lifecycle import Event
from marathond.core.order import Order
from marathond.ledger.verbs.sql import NEWEST_RUN, dump, must, one, scalar
from marathond.ledger.verbs.trials import Fact, ScoreRow, facts, release_claim, scored
from marathond.ledger.verbs.voids import write_void

KIND = "imported"
VOID_CODE = "imported_void"
IMPORT = "import"
"""Origin of such a campaign; also the author of what the rules of an import decide."""


@dataclass(frozen=True, slots=True)
class Details:
    """What a source says of a trial beyond its score; None: it does not.  ``tokens``: in and out together; money in nano-dollars."""

    model: str | None = None
    started_at_ms: int | None = None
    agent_ms: int | None = None
    ended_by: str | None = None
    tokens: int | None = None
    cost_nusd: int | None = None
    turns: int | None = None


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Why a trial does not count.  ``by_person``: somebody took it back in the source, perhaps knowing its score (fault a08)."""

    reason: str
    by_person: bool = False
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ImportedTrial:
    """``score`` None: it has none, and then it is withdrawn."""

    key: str
    sha256: str
    details: Details
    score: ScoreRow | None = None
    withdrawal: Withdrawal | None = None
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedCell:
    """Trials of one cell that are new: withdrawn ones first, so that the cell is open for the one that counts."""

    task: str
    arm: str
    replicate: int
    trials: tuple[ImportedTrial, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A trial that an earlier reading brought."""

    trial_id: int
    sha256: str
    task: str
    arm: str
    replicate: int
    state: str


def known(c: sqlite3.Connection, name: str) -> dict[str, Known]:
    """By key, of the imported campaign ``name``; empty when there is none of that name."""
    rows = c.execute(
        """SELECT key, trial_id, sha256, task.name AS task, arm.name AS arm, replicate, trial.state
           FROM campaign JOIN cell USING (campaign_id) JOIN trial USING (cell_id) JOIN imported_trial USING (trial_id)
               JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
           WHERE campaign.name = ? ORDER BY trial_id""",
        (name,),
    ).fetchall()
    return {row["key"]: Known(*tuple(row)[1:]) for row in rows}


def check_name(c: sqlite3.Connection, name: str) -> None:
    """:raises Refused: a campaign of that name was run here."""
    if scalar(c, "SELECT origin FROM campaign WHERE name = ?", (name,)) not in (None, IMPORT):
        raise Refused(f"campaign {name} was run by this ledger: give the import another name with --name")


def begin_import(
    c: sqlite3.Connection,
    name: str,
    *,
    kind: str,
    source: str,
    author: str,
    refused: Sequence[Mapping[str, str]],
    conditions: Mapping[str, str],
    planned: int = 0,
    now_ms: int,
) -> int:
    """The reading of ``source``, in a campaign that is made when there is none.  Returns the import's id.

    :param refused: what was listed and not taken.
    :param planned: how many trials are to follow; a reading with fewer was broken off.
    :raises Refused: a campaign of that name was run here.
    """
    check_name(c, name)
    row = one(c, "SELECT campaign_id FROM campaign WHERE name = ?", (name,))
    if row is None:
        c.execute(
            """INSERT INTO campaign (name, origin, created_at_ms, created_by, treatment_hash, treatment_json, config_json, out_dir,
                   cell_order, seed) VALUES (?, ?, ?, ?, ?, '{}', ?, ?, ?, 0)""",
            (name, IMPORT, now_ms, author, _hash(IMPORT, name), dump({IMPORT: dict(conditions)}), source, Order.REPLICATE_MAJOR.value),
        )
    campaign_id = scalar(c, "SELECT campaign_id FROM campaign WHERE name = ?", (name,))
    cursor = c.execute(
        "INSERT INTO import (campaign_id, kind, source, author, at_ms, refused_json, planned) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (campaign_id, kind, source, author, now_ms, dump([dict(each) for each in refused]), planned),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def add_cells(c: sqlite3.Connection, import_id: int, places: Iterable[tuple[str, str, int]]) -> int:
    """Tasks, arms, blocks and cells at ``places`` (task, arm, replicate) that are missing, in that order.  Returns how many cells."""
    campaign_id = _campaign_of(c, import_id)
    tasks, arms = _ids(c, "task", campaign_id), _ids(c, "arm", campaign_id)
    blocks = {
        (row[0], row[1]): row[2] for row in _all(c, "SELECT task_id, replicate, block_id FROM block WHERE campaign_id = ?", campaign_id)
    }
    cells = {tuple(row) for row in _all(c, "SELECT task_id, arm_id, replicate FROM cell WHERE campaign_id = ?", campaign_id)}
    added = 0
    for task, arm, replicate in places:
        task_id = tasks.get(task) or tasks.setdefault(task, _add_task(c, campaign_id, task))
        arm_id = arms.get(arm) or arms.setdefault(arm, _add_arm(c, campaign_id, arm, len(arms) + 1))
        if (task_id, arm_id, replicate) in cells:
            continue
        if (task_id, replicate) not in blocks:
            blocks[task_id, replicate] = _insert(
                c, "INSERT INTO block (campaign_id, task_id, replicate) VALUES (?, ?, ?)", campaign_id, task_id, replicate
            )
        cells.add((task_id, arm_id, replicate))
        sql = "INSERT INTO cell (campaign_id, block_id, task_id, arm_id, replicate, ordinal) VALUES (?, ?, ?, ?, ?, ?)"
        _insert(c, sql, campaign_id, blocks[task_id, replicate], task_id, arm_id, replicate, len(cells))
        added += 1
    return added


def import_cells(c: sqlite3.Connection, import_id: int, cells: Iterable[ImportedCell], *, now_ms: int) -> list[int]:
    """Every trial of ``cells``, which exist (:func:`add_cells`); their ids.

    The schema refuses a second trial in a cell where one stands (``claim_only_open_cell``, fault a09).
    """
    campaign_id = _campaign_of(c, import_id)
    return [
        _import_trial(c, import_id, cell_id, trial, now_ms)
        for cell in cells
        for cell_id in [_cell_id(c, campaign_id, cell)]
        for trial in cell.trials
    ]


def _import_trial(c: sqlite3.Connection, import_id: int, cell_id: int, trial: ImportedTrial, now_ms: int) -> int:
    claim_id = _insert(
        c,
        f"INSERT INTO claim (cell_id, token, run_id, claimed_at_ms) VALUES (?, 'import-' || lower(hex(randomblob(8))), {NEWEST_RUN}, ?)",
        cell_id,
        now_ms,
    )
    trial_id = _insert(
        c,
        f"""INSERT INTO trial (cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms)
            SELECT cell_id, arm_id, ?2, (SELECT coalesce(max(attempt), 0) + 1 FROM trial WHERE cell_id = ?1), {NEWEST_RUN}, 'new', ?3
            FROM cell WHERE cell_id = ?1""",
        cell_id,
        claim_id,
        now_ms,
    )
    d = trial.details
    c.execute(
        """INSERT INTO imported_trial (trial_id, import_id, key, sha256, model, started_at_ms, agent_ms, ended_by, tokens, cost_nusd, turns)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (trial_id, import_id, trial.key, trial.sha256, d.model, d.started_at_ms, d.agent_ms, d.ended_by, d.tokens, d.cost_nusd, d.turns),
    )
    c.execute(
        f"""INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
            VALUES (?, 2, ?, 'reserved', 'verifying', ?, {NEWEST_RUN}, ?)""",
        (trial_id, Event.IMPORTED.value, now_ms, dump({"import_id": import_id, "key": trial.key})),
    )
    facts(c, trial_id, trial.facts, now_ms=now_ms)
    # What a person withdrew keeps its score, so that every report can say that it was known; what a rule leaves aside was decided without.
    if trial.score is not None and (trial.withdrawal is None or trial.withdrawal.by_person):
        scored(c, trial_id, trial.score, now_ms=now_ms)
    if trial.withdrawal is not None:
        write_void(
            c,
            trial_id,
            code=VOID_CODE,
            reason=trial.withdrawal.reason,
            evidence=trial.withdrawal.evidence or {},
            decided_by="operator" if trial.withdrawal.by_person else "daemon",
            author=IMPORT,
            counts_pass=False,
            batch=f"i{import_id}",
            now_ms=now_ms,
        )
    release_claim(c, trial_id, now_ms=now_ms)
    return trial_id


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """Where a trial was read from and what its source says of it; ``at_ms``: when it was read, ``author``: by whom."""

    kind: str
    source: str
    author: str
    at_ms: int
    key: str
    sha256: str
    model: str | None
    started_at_ms: int | None
    agent_ms: int | None
    ended_by: str | None
    tokens: int | None
    cost_nusd: int | None
    turns: int | None


def imported_row(c: sqlite3.Connection, trial_id: int) -> ImportedRow | None:
    """None: it was run here."""
    row = one(
        c,
        """SELECT kind, source, author, at_ms, key, sha256, model, started_at_ms, agent_ms, ended_by, tokens, cost_nusd, turns
           FROM imported_trial JOIN import USING (import_id) WHERE trial_id = ?""",
        (trial_id,),
    )
    return None if row is None else ImportedRow(**dict(row))


def _campaign_of(c: sqlite3.Connection, import_id: int) -> int:
    return int(must(one(c, "SELECT campaign_id FROM import WHERE import_id = ?", (import_id,)), f"import {import_id}")[0])


def _cell_id(c: sqlite3.Connection, campaign_id: int, cell: ImportedCell) -> int:
    row = one(
        c,
        """SELECT cell_id FROM task JOIN cell USING (task_id) JOIN arm USING (arm_id)
           WHERE task.campaign_id = ? AND task.name = ? AND arm.campaign_id = task.campaign_id AND arm.name = ? AND replicate = ?""",
        (campaign_id, cell.task, cell.arm, cell.replicate),
    )
    return int(must(row, f"cell {cell.task} / {cell.arm} / {cell.replicate}")[0])


def _add_task(c: sqlite3.Connection, campaign_id: int, name: str) -> int:
    sql = "INSERT INTO task (campaign_id, name, path, needs_network, data_json) VALUES (?, ?, '', 0, '{}')"
    return _insert(c, sql, campaign_id, name)


def _add_arm(c: sqlite3.Connection, campaign_id: int, name: str, position: int) -> int:
    sql = "INSERT INTO arm (campaign_id, name, position, kind, treatment_hash, data_json) VALUES (?, ?, ?, ?, ?, '{}')"
    return _insert(c, sql, campaign_id, name, position, KIND, _hash(KIND, name))


def _hash(*parts: str) -> str:
    """Stands where a treatment's hash would: nothing is known of the treatment but its name."""
    import hashlib  # here: status reads imported campaigns, too, and must start quickly

    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _ids(c: sqlite3.Connection, table: str, campaign_id: int) -> dict[str, int]:
    return {row[0]: row[1] for row in _all(c, f"SELECT name, {table}_id FROM {table} WHERE campaign_id = ?", campaign_id)}


def _all(c: sqlite3.Connection, sql: str, *params: object) -> list[sqlite3.Row]:
    return c.execute(sql, params).fetchall()


def _insert(c: sqlite3.Connection, sql: str, *params: object) -> int:
    cursor = c.execute(sql, params)
    assert cursor.lastrowid is not None
    return cursor.lastrowid
