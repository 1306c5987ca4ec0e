"""What a campaign declares that it will compare.

Owns when a declaration is written anew: when it is not the last one.  Must not know what a comparison computes.  A declaration is never
withdrawn by silence: a configuration that declares none leaves the last one standing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from marathond.core.results import Contrast
from marathond.ledger.verbs.sql import scalar

_SCORES_KNOWN = """
SELECT count(*) FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id
WHERE campaign_id = ? AND EXISTS (SELECT 1 FROM score WHERE score.trial_id = trial.trial_id)"""


def declare(c: sqlite3.Connection, campaign_id: int, pairs: Sequence[tuple[str, str]], *, author: str, now_ms: int) -> Declared | None:
    """Write down the contrasts, and how many scores were known by then; None: there is nothing to write, or it stands there already.

    :param pairs: the names of two arms each, in the order in which they are told; every difference is the first minus the second.
    """
    last = declared(c, campaign_id)
    if not pairs or [(each.a, each.b) for each in last.contrasts] == list(pairs):
        return None
    known, version = scalar(c, _SCORES_KNOWN, (campaign_id,)), last.version + 1
    c.executemany(
        """INSERT INTO contrast (campaign_id, version, position, arm_a, arm_b, scores_known, author, at_ms)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        [(campaign_id, version, position, a, b, known, author, now_ms) for position, (a, b) in enumerate(pairs, start=1)],
    )
    return declared(c, campaign_id)


@dataclass(frozen=True, slots=True)
class Declared:
    """``version`` 0: nothing is declared.  ``scores_known``: when the newest version was.  ``dropped``: of earlier versions alone."""

    version: int = 0
    scores_known: int | None = None
    contrasts: tuple[Contrast, ...] = ()
    dropped: tuple[Contrast, ...] = ()


def declared(c: sqlite3.Connection, campaign_id: int) -> Declared:
    """What is declared now, in its order.  A contrast that an earlier version holds, either way round, is as old as the first that does."""
    rows = c.execute(
        "SELECT version, arm_a, arm_b, at_ms, scores_known FROM contrast WHERE campaign_id = ? ORDER BY version, position", (campaign_id,)
    ).fetchall()
    first: dict[frozenset[str], Contrast] = {}
    for row in rows:
        first.setdefault(_arms(row), Contrast(row["arm_a"], row["arm_b"], row["at_ms"], row["scores_known"]))
    newest = [row for row in rows if row["version"] == rows[-1]["version"]]
    now = [replace(first[_arms(row)], a=row["arm_a"], b=row["arm_b"]) for row in newest]
    stand = {_arms(row) for row in newest}
    dropped = tuple(each for arms, each in first.items() if arms not in stand)
    return Declared(rows[-1]["version"], rows[-1]["scores_known"], tuple(now), dropped) if rows else Declared()


def _arms(row: sqlite3.Row) -> frozenset[str]:
    return frozenset((row["arm_a"], row["arm_b"]))
