"""Prices that came later: requests that were counted without one get the price that there is by now.

Owns that change alone.  Must not touch a cost that is known: that was paid.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from marathond.core.money import Price, request_cost_nusd
from marathond.ledger.verbs.usage import COST_AT_MOST, OTHERS

_TO_PRICE = """
SELECT journal_id, begin_seq, trial_id, account, coalesce(model, '') AS model, model_asked, input_tokens,
    coalesce(cached_tokens, 0) AS cached_tokens, coalesce(cache_write_tokens, 0) AS cache_write_tokens, output_tokens
FROM model_request WHERE cost_nusd IS NULL AND usage = 'known'"""

_COUNT = """
UPDATE model_usage SET cost_nusd = cost_nusd + ?, unpriced = unpriced - 1
WHERE trial_id = ? AND account = ? AND model = ? AND unpriced > 0"""


def reprice(c: sqlite3.Connection, prices: Mapping[str, Price]) -> int:
    """How many requests found a price."""
    done = 0
    for row in c.execute(_TO_PRICE).fetchall():
        tokens = {key: row[key] for key in ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")}
        cost = request_cost_nusd(prices, row["account"], row["model"], row["model_asked"], **tokens)
        if cost is None or cost > COST_AT_MOST:
            continue
        # A model beyond those that are told apart was counted among the others.
        counted = any(c.execute(_COUNT, (cost, row["trial_id"], row["account"], name)).rowcount for name in (row["model"], OTHERS))
        assert counted, "a request without a price is counted as one"
        c.execute(
            "UPDATE model_request SET cost_nusd = ? WHERE journal_id = ? AND begin_seq = ?", (cost, row["journal_id"], row["begin_seq"])
        )
        done += 1
    return done
