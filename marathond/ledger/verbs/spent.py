"""What one trial's agent spent on its model, model by model, as the gateway counted it.  Read only; usage.py owns the tables."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.ports.agent import Spent


@dataclass(frozen=True, slots=True)
class AgentSpent:
    """``models``: none, when the agent never asked.  ``answers``: requests whose usage is known; ``open``: whose end is not known yet."""

    models: tuple[Spent, ...]
    answers: int
    open: int


def agent_spent(c: sqlite3.Connection, trial_id: int) -> AgentSpent:
    rows = c.execute(
        """SELECT model, requests, failed, unknown, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
                  iif(unpriced > 0, NULL, cost_nusd)
           FROM model_usage WHERE trial_id = ? AND account = 'agent' ORDER BY model""",
        (trial_id,),
    ).fetchall()
    answers, still = c.execute(
        """SELECT count(*) FILTER (WHERE usage = 'known'), count(*) FILTER (WHERE ended_at_ms IS NULL)
           FROM model_request WHERE trial_id = ? AND account = 'agent'""",
        (trial_id,),
    ).fetchone()
    return AgentSpent(tuple(Spent(*row) for row in rows), answers, still)
