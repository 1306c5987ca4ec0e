"""What trials spent on their model: the gateway's journal taken in, and the sums.

Owns gateway_journal, model_request and model_usage.  Must not know where the journal lies.
"""

from __future__ import annotations

import sqlite3

from marathond.ledger.verbs.sql import scalar


def held_ms(c: sqlite3.Connection, trial_id: int, *, now_mono_ms: int) -> int:
    """Milliseconds for which the gateway held requests of the trial's agent, ended or not."""
    return int(scalar(c, "SELECT coalesce(sum(held_ms), 0) FROM model_usage WHERE trial_id = ? AND account = 'agent'", (trial_id,)))


def cost_nusd(c: sqlite3.Connection, trial_id: int) -> int:
    """Nano-dollars that the trial's agent has cost so far, as far as prices and usage are known."""
    return int(scalar(c, "SELECT coalesce(sum(cost_nusd), 0) FROM model_usage WHERE trial_id = ? AND account = 'agent'", (trial_id,)))
