"""A score that was read and is doubted, as it is kept in the evidence of its review: so that a person may accept it as it was read.

Owns the two directions.  Must not decide whether it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from marathond.ledger.verbs.trials import ScoreRow

READ = "read"
"""Key of the evidence."""
ACCEPTED = "accepted_as_read"
"""Flag of a score whose numbers are the extractor's, and whose counting is a person's word."""


def as_read(row: ScoreRow) -> dict[str, Any]:
    return {**asdict(row), "flags": list(row.flags), "parts": [list(part) for part in row.parts]}


def row_as_read(evidence: Mapping[str, Any]) -> ScoreRow | None:
    """None: nobody could read it, or an earlier version did not keep it."""
    kept = evidence.get(READ)
    if not isinstance(kept, Mapping):
        return None
    row = ScoreRow(**{**kept, "flags": tuple(kept["flags"]), "parts": [(name, value, source) for name, value, source in kept["parts"]]})
    return replace(row, flags=(*(flag for flag in row.flags if flag != ACCEPTED), ACCEPTED))
