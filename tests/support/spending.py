"""Usage of trials in a ledger, as the gateway's journal would have left it.  No test of its own."""

from __future__ import annotations

import sqlite3

from marathond.core.money import NUSD

from .ledgers import bring_to, cell, let_go


def spend(
    c: sqlite3.Connection,
    trial_id: int,
    dollars: float = 0.0,
    *,
    account: str = "agent",
    model: str = "gpt-x",
    requests: int = 1,
    cut: int = 0,
    unpriced: int = 0,
    failed: int = 0,
    tokens: tuple[int, int, int] = (1000, 800, 50),
) -> None:
    """``requests`` that were answered and cost ``dollars`` together, and beside them ``cut``, ``unpriced`` and ``failed`` ones.

    :param tokens: input, of which cached, output; of all answered requests.
    """
    c.execute(
        """INSERT INTO model_usage (trial_id, account, model, requests, failed, unknown, unpriced, cost_nusd, input_tokens, cached_tokens,
               output_tokens)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, failed = failed + excluded.failed,
               unknown = unknown + excluded.unknown, unpriced = unpriced + excluded.unpriced, cost_nusd = cost_nusd + excluded.cost_nusd,
               input_tokens = input_tokens + excluded.input_tokens, cached_tokens = cached_tokens + excluded.cached_tokens,
               output_tokens = output_tokens + excluded.output_tokens""",
        (trial_id, account, model, requests + cut + unpriced + failed, failed + cut, cut, unpriced, round(dollars * NUSD), *tokens),
    )


def run_cell(c: sqlite3.Connection, task: str, arm: str, dollars: float, *, state: str = "scored", replicate: int = 1) -> int:
    """A trial of the cell, come to ``state`` and let go, that has cost so much; its id."""
    admitted = bring_to(c, cell(c, task, arm, replicate), state)
    spend(c, admitted.trial_id, dollars)
    if state in ("scored", "voided", "review"):
        let_go(c, admitted)
    return admitted.trial_id
