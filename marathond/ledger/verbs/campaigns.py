"""What is compared: campaigns, arms, tasks, cells.

Owns submission, which only ever adds: it may be repeated, and a second one brings arms, tasks and replicates into a running campaign.
What defines the treatment is fixed by hash; a change of it needs a new campaign (fault a18).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from marathond.core.differing import Differing
from marathond.core.disclosure import Conditions
from marathond.core.errors import Refused
from marathond.core.model import Unrunnable
from marathond.core.mounts import HELD, refusal
from marathond.core.text import printable
from marathond.ledger.verbs.context import TrialContext, cell_context, task_of_trial
from marathond.ledger.verbs.contrasts import declare
from marathond.ledger.verbs.differing import differing
from marathond.ledger.verbs.disclosures import disclose
from marathond.ledger.verbs.mounts import remounted
from marathond.ledger.verbs.ordering import reorder
from marathond.ledger.verbs.parks import TASK_CODES, end_task_parks, park_task, park_without_solution
from marathond.ledger.verbs.sql import one, scalar
from marathond.ledger.verbs.stored import (
    CampaignRow,
    StoredArm,
    StoredTask,
    arms_of,
    campaign_by_name,
    campaigns,
    progress,
    tasks_of,
    void_sides,
)

__all__ = [
    "ArmRow",
    "CampaignRow",
    "StoredArm",
    "StoredTask",
    "Submission",
    "SubmitResult",
    "TaskRow",
    "TrialContext",
    "arms_of",
    "campaign_by_name",
    "campaigns",
    "cell_context",
    "changed_since",
    "progress",
    "reorder",
    "submit",
    "task_of_trial",
    "tasks_of",
    "void_sides",
]

SUBMIT_AUTHOR = "daemon"


@dataclass(frozen=True, slots=True)
class ArmRow:
    """``data_json`` holds the whole arm (core.model.Arm as JSON); ``treatment_hash`` is over it.

    ``held``: what its mounts hold now, target to value (core.mounts); kept beside the arm when it is new.  Empty: nobody looked, as when
    a daemon starts: running agents must not lose it over a file that somebody edited, or over a file system that hangs (fault f06).
    """

    name: str
    kind: str
    treatment_hash: str
    data_json: str
    held: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """``digest`` None: the directory cannot be read, and then ``unrunnable`` says why; ``declared_limit_ms`` None: no limit."""

    name: str
    path: str
    digest: str | None
    context_digest: str | None
    declared_limit_ms: int | None
    cpus: float | None
    memory_mb: int | None
    needs_network: bool
    data_json: str
    unrunnable: Unrunnable | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A whole campaign as its configuration describes it now.  ``order``: a name of core.order.Order.

    ``conditions``: what its arms share and a reader must be told; None: nothing is told of it.  ``contrasts``: what it declares that it
    will compare; none: what was declared before stands.
    """

    name: str
    author: str
    treatment_hash: str
    treatment_json: str
    config_json: str
    out_dir: str
    seed: int
    order: str
    replicates: int
    arms: tuple[ArmRow, ...]
    tasks: tuple[TaskRow, ...]
    conditions: Conditions | None = None
    contrasts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """``needs_restart``: keys of the configuration that changed and that count only from the daemon's next start.

    ``declared``: version of the contrasts, if they were declared anew, when ``declared_after`` scores were known; else 0.
    ``differing``: tasks whose files are not those that the campaign was submitted with, whatever became of their cells before.
    ``notes``: what was tolerated in tasks, a line each: an unknown key is a limit that nobody has, as often as not.
    """

    campaign_id: int
    created: bool
    added_arms: int
    added_tasks: int
    added_cells: int
    parked: int
    unparked: int
    needs_restart: tuple[str, ...] = ()
    declared: int = 0
    declared_after: int = 0
    differing: tuple[Differing, ...] = ()
    notes: tuple[str, ...] = ()


_KNOWN = "SELECT campaign_id, name, treatment_hash, treatment_json, out_dir, origin FROM campaign WHERE name = ?"


def submit(c: sqlite3.Connection, submission: Submission, *, now_ms: int) -> SubmitResult:
    """Create the campaign, or add what is new in it; the same submission again changes nothing.

    A task whose digest is no longer the campaign's parks its cells as ``task_changed`` until the digest is what it was.
    Counted as ``unparked`` are cells that are not parked any more; one that only changes its reason counts as ``parked``.

    :raises Refused: the treatment, or an arm, is not what the campaign began with.
    """
    campaign_id, created = _campaign(c, submission, now_ms)
    added_arms = sum(_arm(c, campaign_id, arm) for arm in submission.arms)
    verdicts = [_task(c, campaign_id, task) for task in submission.tasks]
    if submission.conditions is not None:
        disclose(c, campaign_id, submission.conditions, now_ms=now_ms)
    said = declare(c, campaign_id, submission.contrasts, author=submission.author, now_ms=now_ms)
    added_cells = _cells(c, campaign_id, submission.replicates)
    reorder(c, campaign_id, order=submission.order, seed=submission.seed)
    before, parked = _parked(c, campaign_id), 0
    for verdict in verdicts:
        why = verdict.unrunnable
        ended = tuple(code for code in TASK_CODES if why is None or code != why.code)
        end_task_parks(c, verdict.task_id, codes=ended, reason="submitted again", now_ms=now_ms)
        if why is not None:
            parked += park_task(c, verdict.task_id, code=why.code, detail=why.detail, author=SUBMIT_AUTHOR, now_ms=now_ms)
    parked += park_without_solution(c, campaign_id, author=SUBMIT_AUTHOR, now_ms=now_ms)
    unparked = len(before - _parked(c, campaign_id))
    added_tasks = sum(v.added for v in verdicts)
    digests = {task.name: task.digest for task in submission.tasks if task.digest is not None}
    result = SubmitResult(
        campaign_id,
        created,
        added_arms,
        added_tasks,
        added_cells,
        parked,
        unparked,
        differing=differing(c, submission.name, digests),
    )
    return result if said is None else replace(result, declared=said.version, declared_after=said.scores_known or 0)


def _parked(c: sqlite3.Connection, campaign_id: int) -> set[int]:
    """Cells with a standing park."""
    sql = "SELECT cell_id FROM park JOIN cell USING (cell_id) WHERE ended_at_ms IS NULL AND campaign_id = ?"
    return {int(row[0]) for row in c.execute(sql, (campaign_id,)).fetchall()}


def _campaign(c: sqlite3.Connection, s: Submission, now_ms: int) -> tuple[int, bool]:
    if s.replicates < 1:
        raise Refused(f"campaign {s.name}: replicates = {s.replicates}: must be at least 1")
    row = one(c, _KNOWN, (s.name,))
    if row is None:
        cursor = c.execute(
            """INSERT INTO campaign (name, created_at_ms, created_by, treatment_hash, treatment_json, config_json, out_dir, cell_order,
                   seed)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (s.name, now_ms, s.author, s.treatment_hash, s.treatment_json, s.config_json, s.out_dir, s.order, s.seed),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid, True
    for why in _refusals(c, row, s.treatment_hash, s.treatment_json, s.out_dir):
        raise Refused(why)
    c.execute("UPDATE campaign SET config_json = ?, out_dir = ? WHERE campaign_id = ?", (s.config_json, s.out_dir, row["campaign_id"]))
    return int(row["campaign_id"]), False


def changed_since(
    c: sqlite3.Connection, name: str, *, treatment_hash: str, treatment_json: str, out_dir: str, arms: Sequence[ArmRow]
) -> tuple[str, ...]:
    """Why a submission would be refused, a sentence each and each in the refusal's own words; of a campaign that is not there, nothing.

    Whoever only looks asks this beforehand; what arms mount is :mod:`.mounts`'.
    """
    row = one(c, _KNOWN, (name,))
    if row is None:
        return ()
    whole = tuple(_refusals(c, row, treatment_hash, treatment_json, out_dir))
    if row["origin"] != "run":
        return whole
    sql = "SELECT treatment_hash, data_json FROM arm WHERE campaign_id = ? AND name = ?"
    known = [(one(c, sql, (row["campaign_id"], arm.name)), arm) for arm in arms]
    changed = (_arm_changed(stored, arm) for stored, arm in known if stored is not None)
    return (*whole, *(why for why in changed if why is not None))


def _refusals(c: sqlite3.Connection, row: sqlite3.Row, treatment_hash: str, treatment_json: str, out_dir: str) -> Iterator[str]:
    """Of the campaign as a whole."""
    if row["origin"] != "run":
        yield f"campaign {row['name']}: that name is an imported campaign's, in which nothing runs: choose another"
        return
    if row["treatment_hash"] != treatment_hash:
        changed = _changed(row["treatment_json"], treatment_json)
        was = f"was {_short(row['treatment_hash'])}, now {_short(treatment_hash)}"
        yield f"campaign {row['name']}: treatment {was}{changed}: needs a new campaign"
    if row["out_dir"] != out_dir and scalar(c, "SELECT EXISTS (SELECT 1 FROM artifact_export)"):
        yield f"campaign {row['name']}: out_dir was {row['out_dir']}, now {out_dir}: finished artifacts lie in the first one"


def _arm_changed(stored: sqlite3.Row, arm: ArmRow) -> str | None:
    if stored["treatment_hash"] == arm.treatment_hash:
        return None
    changed = _changed(stored["data_json"], arm.data_json)
    was = f"was {_short(stored['treatment_hash'])}, now {_short(arm.treatment_hash)}"
    return f"arm {arm.name} {was}{changed}: needs a new campaign (or another name)"


def _arm(c: sqlite3.Connection, campaign_id: int, arm: ArmRow) -> bool:
    """True when it is new."""
    stored = one(c, "SELECT treatment_hash, data_json FROM arm WHERE campaign_id = ? AND name = ?", (campaign_id, arm.name))
    if stored is None:
        data_json = json.dumps({**json.loads(arm.data_json), HELD: dict(arm.held)}, sort_keys=True) if arm.held else arm.data_json
        c.execute(
            """INSERT INTO arm (campaign_id, name, position, kind, treatment_hash, data_json)
               SELECT ?1, ?2, coalesce(max(position), 0) + 1, ?3, ?4, ?5 FROM arm WHERE campaign_id = ?1""",
            (campaign_id, arm.name, arm.kind, arm.treatment_hash, data_json),
        )
        return True
    if (why := _arm_changed(stored, arm)) is not None:
        raise Refused(why)
    other = [each for each in remounted(c, campaign_id, {arm.name: arm.held}) if each.sure]
    if other:
        # Not for names, sizes and times alone: a copy of the same files has other times.  That, too, is a warning.
        raise Refused("; ".join(refusal(each) for each in other))
    return False


@dataclass(frozen=True, slots=True)
class _Verdict:
    task_id: int
    added: bool
    unrunnable: Unrunnable | None


def _task(c: sqlite3.Connection, campaign_id: int, t: TaskRow) -> _Verdict:
    """Store a new task, fill in one that could not be read before, and say whether its cells must be parked."""
    facts = (t.path, t.digest, t.context_digest, t.declared_limit_ms, t.cpus, t.memory_mb, int(t.needs_network), t.data_json)
    row = one(c, "SELECT task_id, digest FROM task WHERE campaign_id = ? AND name = ?", (campaign_id, t.name))
    if row is None:
        cursor = c.execute(
            """INSERT INTO task (path, digest, context_digest, declared_limit_ms, cpus, memory_mb, needs_network, data_json, campaign_id,
                   name)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (*facts, campaign_id, t.name),
        )
        assert cursor.lastrowid is not None
        return _Verdict(cursor.lastrowid, True, t.unrunnable)
    task_id = int(row["task_id"])
    if row["digest"] is None:
        c.execute(
            """UPDATE task SET path = ?, digest = ?, context_digest = ?, declared_limit_ms = ?, cpus = ?, memory_mb = ?, needs_network = ?,
               data_json = ? WHERE task_id = ?""",
            (*facts, task_id),
        )
    elif t.digest is not None and t.digest != row["digest"]:
        detail = f"digest was {_short(row['digest'])}, now {_short(t.digest)}: put the task back or start a new campaign"
        return _Verdict(task_id, False, Unrunnable(t.name, t.path, "task_changed", detail))
    elif t.digest is not None:
        c.execute("UPDATE task SET path = ?, data_json = ? WHERE task_id = ?", (t.path, t.data_json, task_id))
    return _Verdict(task_id, False, t.unrunnable)


def _cells(c: sqlite3.Connection, campaign_id: int, replicates: int) -> int:
    """Blocks and cells that are missing; a campaign never shrinks, and what is added gets as many replicates as the rest."""
    known = scalar(c, "SELECT max(replicate) FROM block WHERE campaign_id = ?", (campaign_id,)) or 0
    c.execute(
        """WITH RECURSIVE number (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM number WHERE n < ?2)
           INSERT INTO block (campaign_id, task_id, replicate)
           SELECT ?1, task_id, n FROM task CROSS JOIN number
           WHERE campaign_id = ?1 AND NOT EXISTS (SELECT 1 FROM block WHERE block.task_id = task.task_id AND replicate = n)
           ORDER BY task_id, n""",
        (campaign_id, max(known, replicates)),
    )
    return c.execute(
        """INSERT INTO cell (campaign_id, block_id, task_id, arm_id, replicate, ordinal)
           SELECT ?1, block_id, block.task_id, arm_id, replicate, 0 FROM block JOIN arm USING (campaign_id)
           WHERE campaign_id = ?1 AND NOT EXISTS
               (SELECT 1 FROM cell WHERE cell.task_id = block.task_id AND cell.arm_id = arm.arm_id AND cell.replicate = block.replicate)
           ORDER BY block_id, arm_id""",
        (campaign_id,),
    ).rowcount


CHANGED_MAX = 8
"""Keys named in one refusal."""


def _changed(old_json: str, new_json: str) -> str:
    """`` (changed: argv, env.MODE)``: the keys alone, since a value may be a secret; empty when the data does not tell."""
    old, new = _flat(json.loads(old_json)), _flat(json.loads(new_json))
    old = {key: value for key, value in old.items() if not key.startswith(f"{HELD}.")}
    keys = [key for key in sorted({*old, *new}) if (key in old, old.get(key)) != (key in new, new.get(key))]
    more = f" and {len(keys) - CHANGED_MAX} more" if len(keys) > CHANGED_MAX else ""
    return f" (changed: {', '.join(printable(key, 60) for key in keys[:CHANGED_MAX])}{more})" if keys else ""


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Tables by dotted key; a list is one value."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= {f"{key}.{name}": item for name, item in _flat(value).items()} if isinstance(value, dict) else {key: value}
    return found


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
