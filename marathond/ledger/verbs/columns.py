"""Which columns of a score a campaign has, for screens that read no cells (fault d11).

Owns the counting; the words are :mod:`marathond.core.columns`'.  Light: ``status`` asks it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from marathond.core.columns import NAMES, Column, counted, expected
from marathond.ledger.verbs.sql import one

_PROFILE = """
SELECT json_extract(config_json, '$.profile.name') AS name, json_extract(config_json, '$.profile.scores') AS scores
FROM campaign WHERE campaign_id = ?"""

# Over the index trial_by_arm, which holds every column asked for.
_KNOWN = """
SELECT count(*) AS done, count(reward) AS reward, count(partial) AS partial,
    count(coalesce(test_rate, tests_passed * 1.0 / tests_total)) AS test_rate
FROM trial WHERE state = 'scored' AND arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?)"""


def columns_of(
    c: sqlite3.Connection, campaign_id: int, *, done: int | None = None, held: Mapping[str, bool] | None = None
) -> tuple[Column, ...]:
    """``reward``, ``partial``, ``test_rate``, by the campaign's profile and the scores that stand.

    :param done: how many done cells there are, from who has counted them; with
    :param held: column → whether one of them holds it.  Then scores are counted only where the profile denies a column that is there.
    :raises LookupError: no such campaign.
    """
    name, scores = _profile(c, campaign_id)
    if done is not None and held is not None:
        denied = {column.name for column in expected(scores, name) if not column.exists}
        if not any(held[column] for column in denied):
            return counted({column: int(held[column]) for column in NAMES}, done, scores, name)
    known = one(c, _KNOWN, (campaign_id,))
    assert known is not None
    return counted({column: known[column] for column in NAMES}, known["done"], scores, name)


def expected_of(c: sqlite3.Connection, campaign_id: int) -> tuple[Column, ...]:
    """The same by the profile alone: a look-up by key, whatever the campaign's size.

    :raises LookupError: no such campaign.
    """
    name, scores = _profile(c, campaign_id)
    return expected(scores, name)


def _profile(c: sqlite3.Connection, campaign_id: int) -> tuple[str | None, dict[str, Any] | None]:
    row = one(c, _PROFILE, (campaign_id,))
    if row is None:
        raise LookupError(f"campaign {campaign_id}")
    return row["name"], None if row["scores"] is None else json.loads(row["scores"])
