"""Requests whose model has no price.  Read only, and light: ``status`` asks it; usage.py owns the table."""

from __future__ import annotations

import sqlite3

_UNPRICED = """
SELECT model, sum(unpriced) AS n FROM model_usage INDEXED BY model_usage_unpriced
    CROSS JOIN trial ON trial.trial_id = model_usage.trial_id CROSS JOIN cell ON cell.cell_id = trial.cell_id
WHERE unpriced > 0 AND account <> 'gate' AND campaign_id = ? GROUP BY model ORDER BY model"""


def unpriced(c: sqlite3.Connection, campaign_id: int) -> dict[str, int]:
    """Model without a price → its requests with known usage.  ``''``: a model that neither answer nor request named."""
    return {row["model"]: row["n"] for row in c.execute(_UNPRICED, (campaign_id,)).fetchall()}
