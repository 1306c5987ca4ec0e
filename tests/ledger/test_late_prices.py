"""Prices that come later (fault f13)."""

from __future__ import annotations

import sqlite3

from support.ledgers import T0, fill, memory_ledger
from support.spending import run_cell, spend

from marathond.core.money import NUSD, Price, nusd
from marathond.ledger.verbs import pricing, usage
from marathond.ledger.verbs.unpriced import unpriced

PRICES = {"gpt-x": Price(nusd(1), nusd(1), nusd(1), nusd(1))}


def request(c: sqlite3.Connection, trial_id: int, number: int, model: str | None, asked: str = "gpt-x") -> None:
    usage.meet_journal(c, identity="j", segment=0, byte=0, last_seq=0, now_ms=T0)
    c.execute(
        """INSERT INTO model_request (journal_id, begin_seq, trial_id, account, number, begun_at_ms, begun_mono_ms, ended_at_ms, end, usage,
               model, model_asked, input_tokens, output_tokens)
           VALUES (1, ?, ?, 'agent', ?, 1, 1, 2, 'complete', 'known', ?, ?, 600000, 400000)""",
        (number, trial_id, number, model, asked),
    )


def test_f13_a_price_that_comes_later_is_applied_and_opens_admission() -> None:
    c = memory_ledger()
    fill(c)
    trial_id = run_cell(c, "zstd", "plain", 1.0)
    for number, model in enumerate(("late", "late", "later", None), start=1):
        request(c, trial_id, number, model, asked="late" if model is None else "gpt-x")
        spend(c, trial_id, requests=0, unpriced=1, model=usage.OTHERS if model == "later" else model or "")
    assert unpriced(c, 1) == {"": 1, "(others)": 1, "late": 2}
    assert pricing.reprice(c, PRICES) == 0
    assert pricing.reprice(c, {**PRICES, "late": Price(NUSD, NUSD, NUSD, NUSD)}) == 3
    assert unpriced(c, 1) == {"(others)": 1}
    assert c.execute("SELECT cost_nusd FROM trial WHERE trial_id = ?", (trial_id,)).fetchone()[0] == 4 * NUSD
    assert pricing.reprice(c, {"later": Price(NUSD, 0, 0, 0)}) == 1
    assert unpriced(c, 1) == {}
    assert pricing.reprice(c, {"later": Price(9 * NUSD, 0, 0, 0)}) == 0, "what has a cost keeps it"
