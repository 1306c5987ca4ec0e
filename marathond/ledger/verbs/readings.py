"""Where an imported campaign was read from.  Read only, and light: ``status`` asks it; imports.py owns the table."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """One reading of a source into a campaign.  ``refused``: entries that it listed and did not take; ``planned``: trials that it was to
    bring."""

    import_id: int
    kind: str
    source: str
    author: str
    at_ms: int
    trials: int
    refused: int
    planned: int = 0

    @property
    def broken_off(self) -> str:
        """Words behind the number of trials; empty: it came to its end."""
        return broken_off(self.trials, self.planned)


def broken_off(trials: int, planned: int) -> str:
    return f" of {planned}, then it was broken off," if trials < planned else ""


def readings(c: sqlite3.Connection, campaign_id: int) -> list[ReadingRow]:
    """Of an imported campaign, oldest first; empty: it was run here."""
    rows = c.execute(
        """SELECT import_id, kind, source, author, at_ms,
               (SELECT count(*) FROM imported_trial WHERE imported_trial.import_id = import.import_id) AS trials,
               json_array_length(refused_json) AS refused, planned
           FROM import WHERE campaign_id = ? ORDER BY import_id""",
        (campaign_id,),
    ).fetchall()
    return [ReadingRow(**dict(row)) for row in rows]
