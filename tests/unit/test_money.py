"""Prices, costs, the forecast and the rule of the campaign's cap (fault f13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.agents.registry import AGENTS
from marathond.core.money import (
    MODEL_KINDS,
    NUSD,
    Forecast,
    Price,
    Purse,
    Rules,
    Sample,
    Spent,
    Till,
    Work,
    concerns,
    cost_nusd,
    dollars,
    nusd,
    price_of,
    request_cost_nusd,
    whole_blocks,
)
from marathond.core.plan import Host, Limits, OpenCell, Snapshot, plan

PRICE = Price(input=nusd(1.25), cached=nusd(0.125), cache_write=nusd(1.5), output=nusd(10))
PRICES = {"gpt-x": PRICE, "gpt-x-2026-02-01": Price(1, 1, 1, 1)}


def test_each_kind_of_token_has_its_price() -> None:
    # 1,000,000 input tokens, of which 600,000 were cached and 100,000 written to the cache; 50,000 out.
    found = cost_nusd(PRICE, input_tokens=1_000_000, cached_tokens=600_000, cache_write_tokens=100_000, output_tokens=50_000)
    assert found == nusd(0.3 * 1.25 + 0.6 * 0.125 + 0.1 * 1.5 + 0.05 * 10)


def test_one_cached_token_of_a_cheap_model_costs_something() -> None:
    assert cost_nusd(Price(0, nusd(0.025), 0, 0), input_tokens=1, cached_tokens=1) == 25


def test_f13_no_price_is_unknown_and_never_0() -> None:
    assert price_of(PRICES, "other", "gpt-x") is None, "another model answered: the price of the one asked for says nothing"
    assert request_cost_nusd(PRICES, "agent", "other", "gpt-x", input_tokens=5) is None
    assert request_cost_nusd({}, "agent", None, None, input_tokens=5) is None
    assert Spent(cut=2).cut_nusd is None


@pytest.mark.parametrize(
    ("model", "asked", "price"),
    [
        ("gpt-x", "other", PRICE),
        (None, "gpt-x", PRICE),
        ("", "gpt-x", PRICE),
        ("gpt-x-2026-01-31", None, PRICE),
        ("gpt-x-20260131", None, PRICE),
        ("gpt-x-2026-02-01", None, Price(1, 1, 1, 1)),
        ("gpt-x-mini", None, None),
    ],
)
def test_a_price_is_found_by_the_model_that_answered(model: str | None, asked: str | None, price: Price | None) -> None:
    assert price_of(PRICES, model, asked) == price


def test_scripted_answers_of_the_gates_cost_nothing() -> None:
    assert request_cost_nusd(PRICES, "gate", "gpt-x", "gpt-x", input_tokens=10**6) == 0


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_cost_is_never_negative_and_grows_with_its_tokens(tokens: int, cached: int, written: int, out: int) -> None:
    def cost(output: int) -> int:
        found = cost_nusd(PRICE, input_tokens=tokens, cached_tokens=cached, cache_write_tokens=written, output_tokens=output)
        assert found is not None
        return found

    assert 0 <= cost(out) <= cost(out + 1)


def test_cut_requests_are_taken_to_be_like_the_others() -> None:
    assert Spent(valid_nusd=90, voids_nusd=10, priced=10, cut=2).cut_nusd == 20
    assert Spent(priced=0, cut=0).cut_nusd == 0


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (4112 * NUSD, "$4,112"),
        (nusd(12.345), "$12.35"),
        (nusd(0.0031), "$0.0031"),
        (25, "$0.000000"),
        (0, "$0.00"),
        (nusd(0.00002), "$0.000020"),
    ],
)
def test_dollars(amount: int, text: str) -> None:
    assert dollars(amount) == text


# ── forecast ──

RULES = Rules(PRICES, campaign_cap_nusd=100, trial_cap_nusd=50, expected_trial_nusd=20)


def forecast(*samples: Sample, rules: Rules = RULES) -> Forecast:
    return Forecast(samples, rules, model_arms={1, 2})


def test_the_same_task_first_then_the_campaign_then_the_cap_then_the_expectation() -> None:
    seen = forecast(Sample(1, 1, 10), Sample(1, 1, 20), Sample(2, 1, 60))
    assert seen.of([Work(1, 1, 2)]).nusd == 30
    assert seen.of([Work(1, 1, 2)]).basis == "mean of 3 ended trials, by task"
    assert seen.of([Work(9, 1, 1)]).nusd == 30
    assert seen.of([Work(9, 1, 1)]).basis == "mean of 3 ended trials, of any task"
    assert seen.of([Work(1, 2, 1)]).nusd == 50
    assert seen.of([Work(1, 2, 1)]).basis == "the trial's cap where none has ended"
    without_cap = forecast(rules=Rules(PRICES, expected_trial_nusd=20))
    assert without_cap.of([Work(1, 2, 3)]).nusd == 60
    assert forecast(rules=Rules(PRICES)).of([Work(1, 2, 3)]).nusd is None


def test_an_arm_that_ends_early_and_cheap_does_not_make_the_others_cheap() -> None:
    """A mean over whatever has ended would promise 2 for the block; the arm that still runs is held to its cap."""
    assert forecast(Sample(1, 1, 1)).of([Work(1, 1, 1), Work(1, 2, 1)]).nusd == 51


def test_an_arm_without_a_model_costs_nothing_until_one_of_its_trials_did() -> None:
    assert forecast().of([Work(1, 3, 5)]).nusd == 0
    assert forecast(Sample(1, 3, 4)).of([Work(2, 3, 5)]).nusd == 20
    assert {kind for kind, agent in AGENTS.items() if agent.needs_model} == MODEL_KINDS & AGENTS.keys()


def test_what_trials_in_work_have_cost_is_taken_off_and_never_below_nothing() -> None:
    seen = forecast(Sample(1, 1, 10))
    assert seen.of([Work(1, 1, 1, spent_nusd=4)]).nusd == 6
    assert seen.of([Work(1, 1, 1, spent_nusd=40), Work(1, 1, 1)]).nusd == 10


# ── the rule of whole blocks ──


def test_f13_a_new_block_begins_only_if_the_whole_of_it_fits() -> None:
    till = Till(Purse(cap_nusd=100, spent_nusd=40, promised_nusd=10, blocks={1: 30, 2: 30}))
    assert till.lacks(1) is None
    till.take(1)
    till.take(1)  # a second cell of the same block promises nothing more
    assert till.lacks(1) is None
    lack = till.lacks(2)
    assert lack is not None and lack.startswith("MONEY ")


def test_f13_a_block_that_has_begun_is_always_finished() -> None:
    till = Till(Purse(cap_nusd=100, spent_nusd=500, promised_nusd=10, blocks={2: 0}))
    assert till.lacks(1) is None
    assert till.lacks(2) is not None


def test_a_block_of_unknown_cost_does_not_begin() -> None:
    assert Till(Purse(100, 0, 0, {1: None})).lacks(1) == "MONEY (what a block will cost is unknown)"


def test_without_a_cap_everything_may_begin() -> None:
    till = Till(None)
    till.take(1)
    assert till.lacks(1) is None


@given(
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 300),
    st.dictionaries(st.integers(1, 20), st.integers(0, 200), max_size=20),
)
def test_what_begins_never_promises_more_than_the_cap(cap: int, spent: int, promised: int, blocks: dict[int, int]) -> None:
    till = Till(Purse(cap, spent, promised, blocks))
    begun = 0
    for block_id, cost in blocks.items():
        if till.lacks(block_id) is None:
            till.take(block_id)
            begun += cost
            assert spent + promised + begun <= cap


def test_how_many_whole_blocks_a_cap_is_good_for() -> None:
    assert whole_blocks(100, 20, [30, 30, 30, 1]) == 2
    assert whole_blocks(100, 0, [30, None, 1]) == 1
    assert whole_blocks(10, 0, []) == 0


# ── what a person must know ──


def codes(purse: Purse | None, unpriced: dict[str, int] | None = None, *, stopped: str = "", idle: bool = False) -> list[tuple[str, str]]:
    return [(one.code, one.severity) for one in concerns(RULES, unpriced or {}, purse, stopped=stopped, idle=idle)]


def test_f13_money_is_told_at_80_percent_of_the_cap() -> None:
    assert codes(Purse(100, 79, 0)) == []
    assert codes(Purse(100, 80, 0)) == [("money_80", "warning")]


def test_f13_the_cap_is_called_reached_only_when_nothing_can_come_back() -> None:
    stopped = "MONEY $70.00 spent of $100, next block $40.00"
    assert codes(Purse(100, 70, 0), stopped=stopped) == [], "a trial in work may cost less than what is promised to it"
    assert codes(Purse(100, 70, 0), stopped=stopped, idle=True) == [("money_cap", "warning")]


def test_f13_a_model_without_a_price_is_an_error_where_a_cap_hangs_on_it() -> None:
    assert codes(None, {"m": 3}) == [("price_missing", "warning")]
    purse = Purse(100, 70, 0, unknown="no price for m")
    assert codes(purse, {"m": 3}, stopped="MONEY unknown (no price for m)", idle=True) == [("price_missing", "error")]


def test_f13_the_plan_stops_new_blocks_and_lets_begun_ones_pass() -> None:
    cells = tuple(OpenCell(number, number, 1, 100, False, block) for number, block in enumerate((1, 2, 3, 2, 4)))
    snapshot = Snapshot(cells, 5, (), 0, purse=Purse(100, 60, 0, {1: 30, 3: 50, 4: 1}))
    decided = plan(snapshot, Limits(concurrency=9), Host(64, 64_000, 9, 9), ready_tasks=range(9), now_ms=0)
    assert [cell.block_id for cell in decided.admissions] == [1, 2, 2]
    assert [(w.code, w.count) for w in decided.waiting] == [("MONEY", 2)], "the cheaper block 4 does not overtake"


def test_f13_cells_that_money_stops_and_cells_that_want_slots_are_told_apart() -> None:
    cells = tuple(OpenCell(number, number, 1, 100, False, block) for number, block in enumerate((1, 2, 2, 2)))
    snapshot = Snapshot(cells, 9, (), 0, purse=Purse(100, 60, 0, {1: 50}))
    decided = plan(snapshot, Limits(concurrency=1), Host(64, 64_000, 9, 9), ready_tasks=range(9), now_ms=0)
    assert [(w.code, w.count) for w in decided.waiting] == [("MONEY", 1), ("CONCURRENCY", 7)]
