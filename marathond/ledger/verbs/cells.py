"""How many cells are in which state, quickly.

``cell_state`` defines the state; here the same numbers come from two indexes, and the view is asked only about cells that are claimed or
parked (a test holds both against each other).
"""

from __future__ import annotations

import sqlite3

_CELLS = """
SELECT arm_id, count(*) AS n FROM cell WHERE arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?) GROUP BY arm_id"""

# Over trial_by_arm alone; voided trials are left out, so that each cell is met at most once.
_STANDING = """
SELECT arm_id, iif(state = 'scored', 'done', 'review') AS state, count(*) AS n FROM trial
WHERE arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?) AND state IN ('scored', 'review') GROUP BY arm_id, state"""

# A cell with a trial in work is always claimed, so claims and parks are all that is left beside standing results.
_HELD = """
SELECT arm_id, state, count(*) AS n FROM cell_state
WHERE cell_id IN (SELECT cell_id FROM claim WHERE released_at_ms IS NULL UNION SELECT cell_id FROM park WHERE ended_at_ms IS NULL)
    AND campaign_id = ? AND state IN ('claimed', 'parked') GROUP BY arm_id, state"""


def cells_by_arm(c: sqlite3.Connection, campaign_id: int) -> dict[int, dict[str, int]]:
    """arm_id → cell state → number of cells; ``open`` is always there."""
    counts = {int(row["arm_id"]): {"open": int(row["n"])} for row in c.execute(_CELLS, (campaign_id,)).fetchall()}
    for sql in (_STANDING, _HELD):
        for row in c.execute(sql, (campaign_id,)).fetchall():
            counts[row["arm_id"]][row["state"]] = row["n"]
            counts[row["arm_id"]]["open"] -= row["n"]
    return counts
