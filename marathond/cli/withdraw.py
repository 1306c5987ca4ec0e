"""``void`` and ``unvoid`` while no daemon runs, of imported trials alone: no daemon has anything to do with them.

Owns which requests speak of imported trials and of nothing else; those are carried out on the ledger, which is held meanwhile.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marathond.cli import mutate
from marathond.core.errors import LedgerRefused
from marathond.service.picture.reader import campaign_id, reading

VERBS = ("void", "unvoid", "retry")


def without_daemon(ledger: Path, mutation: mutate.Mutation, given: Mapping[str, Any], *, as_json: bool = False) -> int | None:
    """The exit code; None: it is not of imported trials alone, and needs the daemon.

    :raises MarathonError: refused, in one line.
    """
    verb = mutation.verb
    if verb not in VERBS or not ledger.exists():  # without a ledger there is nothing imported, and the daemon's absence is the news
        return None
    try:
        with reading(ledger) as connection:
            if not _imported_only(connection, given):
                return None
    except LedgerRefused:
        return None  # that nobody runs is the news
    from marathond.service.offline_commands import answer

    said = answer(ledger, verb, dict(given))
    if verb == "retry":  # the verb refuses every imported cell
        raise AssertionError(f"retry of an imported trial was answered: {said}")
    return mutation.told(said, given, as_json=as_json)


def _imported_only(c: sqlite3.Connection, given: Mapping[str, Any]) -> bool:
    trials = [*given.get("trials", []), *([given["trial"]] if "trial" in given else [])]
    if trials:
        sql = "trial_id IN (SELECT value FROM json_each(?))"
        return _origins(c, sql, json.dumps(trials)) == {"import"}
    if "cell" in given:
        return _origins(c, "cell.cell_id = ?", given["cell"]) == {"import"}
    if "block" in given:
        return _origins(c, "cell.block_id = ?", given["block"]) == {"import"}
    if "batch" in given:
        return _origins(c, "trial_id IN (SELECT trial_id FROM void WHERE batch = ?)", given["batch"]) == {"import"}
    found = campaign_id(c, given.get("campaign"))
    return found is not None and _origins(c, "cell.campaign_id = ?", found[0]) == {"import"}


def _origins(c: sqlite3.Connection, which: str, value: object) -> set[str]:
    rows = c.execute(
        f"SELECT DISTINCT origin FROM trial JOIN cell USING (cell_id) JOIN campaign USING (campaign_id) WHERE {which}", (value,)
    )
    return {str(row[0]) for row in rows.fetchall()}
