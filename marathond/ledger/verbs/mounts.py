"""What the ledger knows of what arms mount: at the submission, and in each trial."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from marathond.core.mounts import AT_END, FACT, HELD, UNREAD, Held, Reading, changed, known
from marathond.core.names import trial_label

NEVER = f"{UNREAD}an earlier version ran it"


def remounted(c: sqlite3.Connection, campaign_id: int, now: Mapping[str, Mapping[str, str]]) -> tuple[Held, ...]:
    """Mounts whose content is not what the arm's first trial had; before there is one that knows, not what it was submitted with.

    What ran counts: of an arm that was edited after its submission and before its first trial, the older content would be another arm.

    :param now: arm to target to value; what is not known is left out.
    """
    found: list[Held] = []
    for arm_id, name, data in _arms(c, campaign_id, now):
        mounts = data.get("mounts") or []
        was = {target: value for target, value in submitted(data).items() if known(value)} | first_held(c, arm_id, mounts)
        found += changed(name, mounts, was, now[name])
    return tuple(found)


def submitted(data: Mapping[str, Any]) -> dict[str, str]:
    """Of a stored arm; empty: it mounts nothing, or was submitted by an earlier version."""
    held = data.get(HELD)
    return dict(held) if isinstance(held, Mapping) else {}


def first_held(c: sqlite3.Connection, arm_id: int, mounts: Collection[Mapping[str, Any]]) -> dict[str, str]:
    """Target to the value of the arm's first trial that has one."""
    found = {}
    for mount in mounts:
        row = c.execute(
            """SELECT value FROM trial AS t CROSS JOIN trial_fact AS f ON f.trial_id = t.trial_id AND f.name = ?
               WHERE t.arm_id = ? AND t.state <> 'voided' ORDER BY t.trial_id LIMIT 1""",
            (f"{FACT}{mount['target']}", arm_id),
        ).fetchone()
        if row is not None and known(row[0]):
            found[mount["target"]] = row[0]
    return found


def readings(c: sqlite3.Connection, campaign_id: int) -> tuple[Reading, ...]:
    """Of trials whose agent has started, by arm, mount and first trial; before them the submission's value, where no trial had it.

    A trial during which it changed counts at both values.
    """
    found = []
    for arm_id, name, data in _arms(c, campaign_id, None):
        began = submitted(data)
        for mount in data.get("mounts") or []:
            target = mount["target"]
            rows = c.execute(
                """SELECT coalesce(f.value, ?) AS held, count(*), min(t.trial_id)
                   FROM trial AS t CROSS JOIN trial_agent AS a ON a.trial_id = t.trial_id
                       LEFT JOIN trial_fact AS f ON f.trial_id = t.trial_id AND f.name IN (?, ?)
                   WHERE t.arm_id = ? AND t.state <> 'voided' GROUP BY held ORDER BY 3""",
                (NEVER, f"{FACT}{target}", f"{FACT}{target}{AT_END}", arm_id),
            ).fetchall()
            with_it = began.get(target)
            if with_it is not None and all(row[0] != with_it for row in rows):
                found.append(Reading(name, target, with_it, 0, None, True))
            found += [Reading(name, target, value, trials, trial_label(first), value == with_it) for value, trials, first in rows]
    return tuple(found)


def noted(c: sqlite3.Connection, trial_id: int, targets: Collection[str]) -> dict[str, str]:
    """Target to what it held when the trial's agent started."""
    names = {f"{FACT}{target}": target for target in targets}
    rows = c.execute("SELECT name, value FROM trial_fact WHERE trial_id = ?", (trial_id,)).fetchall()
    return {names[row[0]]: row[1] for row in rows if row[0] in names}


def _arms(c: sqlite3.Connection, campaign_id: int, names: Collection[str] | None) -> list[tuple[int, str, dict[str, Any]]]:
    rows = c.execute("SELECT arm_id, name, data_json FROM arm WHERE campaign_id = ? ORDER BY position", (campaign_id,)).fetchall()
    return [(row[0], row[1], json.loads(row[2])) for row in rows if names is None or row[1] in names]
