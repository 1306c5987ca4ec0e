"""Operational knobs changed while running, with author and reason; and the daemon's latest observations."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from marathond.ledger.verbs.sql import NEWEST_RUN, dump


def overrides(c: sqlite3.Connection) -> dict[str, Any]:
    """Key → the value set last; a key whose last value is null is back to its configuration and is left out."""
    return {key: each.value for key, each in turned(c).items()}


class Turned(NamedTuple):
    """A knob's value that a person set and that still stands."""

    value: Any
    author: str
    reason: str
    at_ms: int


def turned(c: sqlite3.Connection) -> dict[str, Turned]:
    """As :func:`overrides`, with who set it, why and when."""
    rows = c.execute(
        """SELECT key, new_json, author, reason, at_ms FROM setting_change
           WHERE change_id IN (SELECT max(change_id) FROM setting_change GROUP BY key) ORDER BY key"""
    )
    found = {row["key"]: Turned(json.loads(row["new_json"]), row["author"], row["reason"], row["at_ms"]) for row in rows.fetchall()}
    return {key: each for key, each in found.items() if each.value is not None}


def set_value(c: sqlite3.Connection, key: str, *, old: Any, new: Any, author: str, reason: str, now_ms: int) -> None:
    """``new`` None: back to the configuration."""
    c.execute(
        f"INSERT INTO setting_change (key, old_json, new_json, author, reason, at_ms, run_id) VALUES (?, ?, ?, ?, ?, ?, {NEWEST_RUN})",
        (key, dump(old), dump(new), author, reason, now_ms),
    )


def observe(c: sqlite3.Connection, key: str, value: Any, *, now_ms: int) -> None:
    """The daemon's latest word on something that only it can see."""
    c.execute(
        f"""INSERT INTO observation (key, value_json, at_ms, run_id) VALUES (?, ?, ?, {NEWEST_RUN})
            ON CONFLICT (key) DO UPDATE SET value_json = excluded.value_json, at_ms = excluded.at_ms, run_id = excluded.run_id""",
        (key, dump(value), now_ms),
    )


class Observation(NamedTuple):
    """``run_id``: the daemon life that saw it."""

    value: Any
    at_ms: int
    run_id: int


def observations(c: sqlite3.Connection) -> dict[str, Observation]:
    """By key; whoever prints one decides from its age and its daemon life whether it still means anything."""
    rows = c.execute("SELECT key, value_json, at_ms, run_id FROM observation ORDER BY key").fetchall()
    return {row["key"]: Observation(json.loads(row["value_json"]), row["at_ms"], row["run_id"]) for row in rows}
