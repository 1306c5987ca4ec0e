"""How many cells are in which state, quickly.

``cell_state`` defines the state; here the same numbers come from two indexes, and the view is asked only about cells that are claimed or
parked (a test holds both against each other).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

_CELLS = """
SELECT arm_id, count(*) AS n FROM cell WHERE arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?) GROUP BY arm_id"""

# Over trial_by_arm alone; voided trials are left out, so that each cell is met at most once.
_STANDING = """
SELECT arm_id, state, count(*) AS n FROM trial
WHERE arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?) AND state IN ('scored', 'review') GROUP BY arm_id, state"""

# A cell with a trial in work is always claimed, so claims and parks are all that is left beside standing results.  The + keeps SQLite from
# walking the whole campaign.
_HELD = """
SELECT arm_id, state, count(*) AS n FROM cell_state
WHERE cell_id IN (SELECT cell_id FROM claim WHERE released_at_ms IS NULL UNION SELECT cell_id FROM park WHERE ended_at_ms IS NULL)
    AND +campaign_id = ? AND state IN ('claimed', 'parked') GROUP BY arm_id, state"""


def standing_by_arm(c: sqlite3.Connection, campaign_id: int) -> dict[tuple[int, str], int]:
    """(arm_id, ``scored`` or ``review``) → trials that stand."""
    return {(row["arm_id"], row["state"]): row["n"] for row in c.execute(_STANDING, (campaign_id,)).fetchall()}


def cells_by_arm(c: sqlite3.Connection, campaign_id: int, standing: Mapping[tuple[int, str], int]) -> dict[int, dict[str, int]]:
    """arm_id → cell state → number of cells; ``open`` is always there.

    :param standing: as :func:`standing_by_arm`, for a caller that has counted trials already.
    """
    counts = {int(row["arm_id"]): {"open": int(row["n"])} for row in c.execute(_CELLS, (campaign_id,)).fetchall()}
    found = [(arm_id, "done" if state == "scored" else state, n) for (arm_id, state), n in standing.items()]
    found += [(row["arm_id"], row["state"], row["n"]) for row in c.execute(_HELD, (campaign_id,)).fetchall()]
    for arm_id, state, n in found:
        counts[arm_id][state] = n
        counts[arm_id]["open"] -= n
    return counts
