"""Which columns of a score a campaign has, for screens that read no cells (fault d11).

Owns the counting; the words are :mod:`marathond.core.columns`'.  Light: ``status`` asks it.
"""

from __future__ import annotations

import json
import sqlite3

from marathond.core.columns import NAMES, counted
from marathond.core.results import Column
from marathond.ledger.verbs.sql import one

_PROFILE = """
SELECT json_extract(config_json, '$.profile.name') AS name, json_extract(config_json, '$.profile.scores') AS scores
FROM campaign WHERE campaign_id = ?"""

# Over the index trial_by_arm, which holds every column asked for.
_KNOWN = """
SELECT count(*) AS done, count(reward) AS reward, count(partial) AS partial,
    count(coalesce(test_rate, tests_passed * 1.0 / tests_total)) AS test_rate
FROM trial WHERE state = 'scored' AND arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?)"""


def columns_of(c: sqlite3.Connection, campaign_id: int) -> tuple[Column, ...]:
    """``reward``, ``partial``, ``test_rate``, by the campaign's profile and the scores that stand.

    :raises LookupError: no such campaign.
    """
    profile, known = one(c, _PROFILE, (campaign_id,)), one(c, _KNOWN, (campaign_id,))
    if profile is None or known is None:
        raise LookupError(f"campaign {campaign_id}")
    scores = None if profile["scores"] is None else json.loads(profile["scores"])
    return counted({column: known[column] for column in NAMES}, known["done"], scores, profile["name"])
