"""Which trials of an arm were given its harness, and in which the agent used it (fault a13); from their receipts."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Treated:
    """Trials that are not voided and have a receipt of LoopX; of these."""

    trials: int
    delivered: int
    used: int


def treated(c: sqlite3.Connection, campaign_id: int) -> dict[str, Treated]:
    """By the arm's name; arms without LoopX, and those without a receipt so far, are not there."""
    rows = c.execute(
        """SELECT arm, count(*), sum(delivered), sum(used) FROM v_treatment
           WHERE campaign = (SELECT name FROM campaign WHERE campaign_id = ?) AND state <> 'voided' GROUP BY arm""",
        (campaign_id,),
    )
    return {arm: Treated(*counts) for arm, *counts in rows.fetchall()}
