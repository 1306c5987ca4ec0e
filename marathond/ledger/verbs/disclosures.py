"""What must be told about how a campaign was made, as it is stored.

Owns when it is written anew: when what the campaign's own arms and tasks give is not what was told last.  From the ledger's rows, not from
one configuration: a campaign never shrinks, and neither does what is to be told of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from marathond.core.arms import arm_from_data
from marathond.core.disclosure import Conditions, Disclosure, TaskFacts
from marathond.core.disclosures import disclosures
from marathond.core.errors import Refused
from marathond.core.model import Arm
from marathond.core.names import NetworkPolicy
from marathond.ledger.verbs.sql import dump
from marathond.ledger.verbs.stored import StoredArm, StoredTask, arms_of, tasks_of


@dataclass(frozen=True, slots=True)
class Disclosed:
    """What is told of a campaign since ``at_ms``; ``version`` 0: nothing yet."""

    version: int = 0
    at_ms: int = 0
    rows: tuple[Disclosure, ...] = ()


def disclose(c: sqlite3.Connection, campaign_id: int, on: Conditions, *, now_ms: int) -> bool:
    """Write down what is to be told of the campaign as it is now; False: that is what was told already.

    :param on: what its arms share; the tasks are the ledger's.
    :raises Refused: the row of an arm was not written by this version.
    """
    arms = [_read(row) for row in arms_of(c, campaign_id)]
    made = disclosures(arms, replace(on, tasks=task_facts(tasks_of(c, campaign_id))))
    last = told(c, campaign_id)
    if made == last.rows:
        return False
    c.executemany(
        """INSERT INTO disclosure (campaign_id, version, position, code, arms_json, text, compared_with, at_ms)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        [
            (campaign_id, last.version + 1, position, each.code, dump(list(each.arms)), each.text, each.compared_with, now_ms)
            for position, each in enumerate(made, start=1)
        ],
    )
    return True


def told(c: sqlite3.Connection, campaign_id: int) -> Disclosed:
    """The newest version, in its order."""
    rows = c.execute(
        """SELECT version, at_ms, code, arms_json, text, compared_with FROM disclosure
           WHERE campaign_id = ?1 AND version = (SELECT max(version) FROM disclosure WHERE campaign_id = ?1) ORDER BY position""",
        (campaign_id,),
    ).fetchall()
    if not rows:
        return Disclosed()
    found = tuple(Disclosure(row["code"], tuple(json.loads(row["arms_json"])), row["text"], row["compared_with"]) for row in rows)
    return Disclosed(rows[0]["version"], rows[0]["at_ms"], found)


def task_facts(tasks: Iterable[StoredTask]) -> tuple[TaskFacts, ...]:
    """Of those whose folder could be read when they were stored."""
    return tuple(
        TaskFacts(
            name=task.name,
            network=NetworkPolicy(task.data["network"]),
            network_origin=task.data["network_origin"],
            limit_s=task.data["agent_timeout_s"],
            speaks=tuple(task.data.get("project_files", ())),
            differs=tuple(task.data.get("not_the_benchmarks", ())),
        )
        for task in tasks
        if "network" in task.data
    )


def of_arm(rows: Sequence[Disclosure], name: str) -> list[Disclosure]:
    """Those that concern one arm."""
    return [each for each in rows if name in each.arms]


def _read(row: StoredArm) -> Arm:
    try:
        return arm_from_data(row.data)
    except (KeyError, ValueError, TypeError) as error:
        raise Refused(f"the row of arm {row.name} was not written by this version: {type(error).__name__}: {error}") from error
