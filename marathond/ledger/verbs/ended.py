"""The end of a campaign, as something that happened: every cell has come to rest.

Owns when it was.  It is no row: a void or a retry opens the campaign again, and then it has not ended.  Therefore it is no source of
:mod:`.happened`, whose rows are final; who follows compares two looks.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.core.notices import Progress, rest_words
from marathond.ledger.verbs.happened import Happening
from marathond.ledger.verbs.happened_sources import Of
from marathond.ledger.verbs.notices import progress
from marathond.ledger.verbs.sql import one, scalar


@dataclass(frozen=True, slots=True)
class Rest:
    """A campaign of which no cell is open or claimed."""

    campaign_id: int
    name: str
    cells: Progress


def at_rest(c: sqlite3.Connection, of: Of) -> Rest | None:
    """The campaign that is asked for, else the newest that runs here; None: it has not ended, or a part of one is asked for.

    Asked at each look: while anything is claimed nothing is counted.
    """
    if of.narrow:
        return None
    row = one(
        c,
        """SELECT campaign_id, name FROM campaign WHERE origin = 'run' AND (?1 IS NULL OR campaign_id = ?1)
           ORDER BY campaign_id DESC LIMIT 1""",
        (of.campaign_id,),
    )
    if row is None:
        return None
    cells = progress(c, row["campaign_id"])
    return Rest(row["campaign_id"], row["name"], cells) if cells.at_rest else None


_LAST = """SELECT max(at_ms) FROM (
    SELECT max(e.at_ms) AS at_ms FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id
        CROSS JOIN trial_event AS e ON e.trial_id = trial.trial_id WHERE cell.campaign_id = ?1
    UNION ALL
    SELECT max(park.at_ms) FROM cell CROSS JOIN park ON park.cell_id = cell.cell_id
        WHERE cell.campaign_id = ?1 AND park.ended_at_ms IS NULL)"""


def end_of(c: sqlite3.Connection, rest: Rest) -> Happening:
    """Its end, at the time of the last that happened to one of its trials, or parked one of its cells."""
    cells, at_ms = rest.cells, int(scalar(c, _LAST, (rest.campaign_id,)) or 0)
    counts = {"done": cells.done, "parked": cells.parked, "review": cells.review}
    key = f"campaign:{rest.campaign_id}:ended:{at_ms}"
    words = rest_words(cells)
    return Happening(key, "campaign", "ended", at_ms, rest.name, text=words, campaign=rest.name, cells=cells.total, detail=counts)
