"""Money in the ledger: sums with their voids, the forecast, and what the planner sees (fault f13)."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator

import pytest
from support.ledgers import ENGINE, T0, arm, bring_to, cell, daemon_void, fill, let_go, memory_ledger, submission, task
from support.spending import run_cell, spend

from marathond.core.money import NUSD, Price, Rules, nusd
from marathond.core.plan import Host, Limits, Plan, plan
from marathond.ledger.verbs import admission, money, operator, usage

CODEX = [dataclasses.replace(arm(name), kind="codex") for name in ("plain", "goal")]
PRICES = {"gpt-x": Price(nusd(1), nusd(1), nusd(1), nusd(1))}
HOST = Host(64, 64_000, 64, 64)


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill(made, submission(arms=CODEX, tasks=[task(name) for name in ("a", "b", "c")], replicates=2))
    yield made
    made.close()


def rules(cap: float | None = 100.0, trial: float | None = 10.0) -> Rules:
    return Rules(PRICES, None if cap is None else nusd(cap), None if trial is None else nusd(trial))


def decide(c: sqlite3.Connection, wanted: Rules, *, slots: int = 50, limit: int = 200) -> Plan:
    seen = admission.snapshot(c, 1, engine=ENGINE, limit=limit, money=wanted)
    return plan(seen, Limits(concurrency=slots, cpu_overcommit=9, memory_overcommit=9), HOST, ready_tasks=range(1, 99), now_ms=T0)


def blocks(decided: Plan) -> list[int]:
    return [each.block_id for each in decided.admissions]


# ── sums ──


def test_a_trials_row_repeats_its_usage_without_the_gates(c: sqlite3.Connection) -> None:
    trial_id = run_cell(c, "a", "plain", 1.5, state="running")
    spend(c, trial_id, 0.25, account="verifier", model="judge", cut=2)
    spend(c, trial_id, 0.0, account="gate", requests=7)
    spend(c, trial_id, 0.5)
    row = c.execute("SELECT cost_nusd, priced, cut FROM trial WHERE trial_id = ?", (trial_id,)).fetchone()
    assert tuple(row) == (nusd(2.25), 3, 2)


def test_f13_the_cost_of_voids_stands_apart(c: sqlite3.Connection) -> None:
    run_cell(c, "a", "plain", 3.0, state="running")
    withdrawn = run_cell(c, "b", "plain", 2.0)
    operator.void_trials(c, [withdrawn], code="provider", reason="outage", author="ana", now_ms=T0)
    found = money.spent(c, 1)
    assert (found.valid_nusd, found.voids_nusd, found.known_nusd) == (3 * NUSD, 2 * NUSD, 5 * NUSD)
    assert money.spent(c, 2) == money.Spent()


def test_f13_a_trials_cap_meets_requests_that_were_cut_too(c: sqlite3.Connection) -> None:
    """Two answered requests cost 8; two more were cut, and are taken to be like them."""
    trial_id = run_cell(c, "a", "plain", 8.0, state="running")
    assert usage.cost_nusd(c, trial_id) == nusd(8.0)
    spend(c, trial_id, 0.0, requests=1, cut=2)
    assert usage.cost_nusd(c, trial_id) == nusd(16.0)


# ── the planner's view ──


def test_f13_whole_blocks_alone_are_admitted_and_the_reason_is_data(c: sqlite3.Connection) -> None:
    decided = decide(c, rules(cap=45))
    assert len(decided.admissions) == 4 and len(set(blocks(decided))) == 2, "two blocks of two trials at 10 each"
    assert [(w.code, w.count) for w in decided.waiting] == [("MONEY", 8)]
    assert decided.waiting[0].text == "MONEY $0.00 spent + $40.00 promised of $45.00, next block $20.00"


def test_f13_a_begun_block_is_finished_whatever_it_has_cost(c: sqlite3.Connection) -> None:
    run_cell(c, "a", "plain", 500.0)
    decided = decide(c, rules(cap=45))
    assert [each.cell_id for each in decided.admissions] == [cell(c, "a", "goal")]
    assert [(w.code, w.count) for w in decided.waiting] == [("MONEY", 10)]


def test_f13_a_voided_trial_of_a_begun_block_is_tried_again_beyond_the_cap(c: sqlite3.Connection) -> None:
    for name in ("plain", "goal"):
        run_cell(c, "a", name, 30.0)
    voided = bring_to(c, cell(c, "b", "plain"), "reserved")
    daemon_void(c, voided.trial_id)
    let_go(c, voided)
    decided = decide(c, rules(cap=45))
    assert sorted(each.cell_id for each in decided.admissions) == sorted([cell(c, "b", "plain"), cell(c, "b", "goal")])


def test_what_begun_blocks_still_need_is_set_aside(c: sqlite3.Connection) -> None:
    """Spent 4 of the running trial's 10, its neighbour's 10 to come: 20 in all, and another block of 20 fits below 40 but not 39."""
    run_cell(c, "a", "plain", 4.0, state="running")
    purse = money.purse(c, 1, rules(cap=40), [])
    assert purse is not None and (purse.spent_nusd, purse.promised_nusd) == (nusd(4), nusd(16))
    assert len(decide(c, rules(cap=40)).admissions) == 3
    assert len(decide(c, rules(cap=39.99)).admissions) == 1


def test_the_forecast_goes_by_what_has_ended(c: sqlite3.Connection) -> None:
    for name, cost in (("plain", 1.0), ("goal", 2.0)):
        run_cell(c, "a", name, cost)
        run_cell(c, "b", name, cost * 10)
    seen = money.forecast(c, 1, rules())
    works = {block: list(each) for block, each in money.new_blocks(c, range(1, 7)).items()}
    assert {block: seen.of(each).nusd for block, each in works.items()} == {2: nusd(3), 4: nusd(30), 5: nusd(16.5), 6: nusd(16.5)}
    assert seen.of(works[2]).basis == "mean of 4 ended trials, by task"


def test_f13_no_price_closes_admission_for_all_and_is_never_0(c: sqlite3.Connection) -> None:
    spend(c, run_cell(c, "a", "plain", 1.0), 0.0, model="surprise", requests=0, unpriced=3)
    decided = decide(c, rules())
    assert decided.admissions == ()
    assert [(w.code, w.count, w.text) for w in decided.waiting] == [("MONEY", 11, "MONEY unknown (no price for surprise)")]
    assert len(decide(c, rules(cap=None)).admissions) == 11, "without a cap nothing hangs on it"


def test_f13_cut_requests_count_like_the_others(c: sqlite3.Connection) -> None:
    spend(c, run_cell(c, "a", "plain", 10.0), 0.0, requests=0, cut=3)
    purse = money.purse(c, 1, rules(), [])
    assert purse is not None and purse.spent_nusd == nusd(40)


def test_f13_cut_requests_alone_are_taken_for_a_whole_trial(c: sqlite3.Connection) -> None:
    spend(c, bring_to(c, cell(c, "a", "plain"), "running").trial_id, requests=0, cut=3)
    purse = money.purse(c, 1, rules(), [])
    assert purse is not None and purse.spent_nusd == nusd(10)


def test_an_order_by_arm_finishes_begun_blocks_behind_the_look_ahead() -> None:
    c = memory_ledger()
    fill(c, submission(arms=CODEX, tasks=[task(name) for name in "abcdef"], order="arm-major"))
    for name in "ab":
        run_cell(c, name, "plain", 40.0)
    decided = decide(c, rules(cap=45), limit=2)
    assert sorted(each.cell_id for each in decided.admissions) == sorted(cell(c, name, "goal") for name in "ab")
    assert sum(waiting.count for waiting in decided.waiting) == 8
    c.close()


def test_cells_without_a_price_to_go_by_do_not_begin(c: sqlite3.Connection) -> None:
    assert decide(c, rules(trial=None)).waiting[0].text == "MONEY (what a block will cost is unknown)"


def test_usage_of_one_trial_by_account_and_model(c: sqlite3.Connection) -> None:
    trial_id = run_cell(c, "a", "plain", 1.0)
    spend(c, trial_id, account="verifier", model="judge", requests=0, unpriced=1)
    spend(c, trial_id, account="gate")
    assert [(row.account, row.model, row.cost_nusd, row.cached_tokens) for row in money.usage_of(c, trial_id)] == [
        ("agent", "gpt-x", NUSD, 800),
        ("verifier", "judge", None, 800),
    ]
