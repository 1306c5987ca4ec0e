"""Which tasks are not as they were when their campaign was submitted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping

from marathond.core.differing import Differing


def differing(
    c: sqlite3.Connection, campaign: str, digests: Mapping[str, str], *, arms: Collection[str] = (), replicates: int = 0
) -> tuple[Differing, ...]:
    """Those of ``digests`` that the ledger knows by another one, by name; of a campaign that is not there or was imported, none.

    :param digests: name of a task to its folder's digest, hex sha256; left out where it cannot be read, which parks it by another code.
    :param arms, replicates: of the configuration: what a submission of it would add is left to run, too.
    """
    row = c.execute("SELECT campaign_id FROM campaign WHERE name = ? AND origin = 'run'", (campaign,)).fetchone()
    if row is None:
        return ()
    stored = c.execute("SELECT task_id, name, digest FROM task WHERE campaign_id = ? AND digest IS NOT NULL ORDER BY name", (row[0],))
    other = [each for each in stored.fetchall() if digests.get(each["name"], each["digest"]) != each["digest"]]
    if not other:
        return ()
    known = {arm[0] for arm in c.execute("SELECT name FROM arm WHERE campaign_id = ?", (row[0],)).fetchall()}
    begun = c.execute("SELECT coalesce(max(replicate), 0) FROM block WHERE campaign_id = ?", (row[0],)).fetchone()[0]
    cells = len(known | set(arms)) * max(begun, replicates)
    done = {
        each[0]: each[1]
        for each in c.execute(
            """SELECT task_id, count(*) FROM cell_state WHERE state = 'done' AND task_id IN (SELECT value FROM json_each(?))
               GROUP BY task_id""",
            (json.dumps([each["task_id"] for each in other]),),
        ).fetchall()
    }
    return tuple(
        Differing(
            each["name"],
            campaign,
            each["digest"],
            digests[each["name"]],
            scored := done.get(each["task_id"], 0),
            cells - scored,
        )
        for each in other
    )
