"""The shared budget: fair order, reservation, settlement, holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.gateway import budget as budgets
from marathond.gateway.budget import MINUTE_MS, Budget, QueueFull, Ticket


def admitted(budget: Budget, now_ms: int) -> list[str]:
    return [ticket.trial for ticket in budget.admit(now_ms)]


def test_without_limits_all_go_at_once() -> None:
    budget = Budget(None, None)
    for trial in "abc":
        budget.ask(trial, 10**9, 0)
    assert admitted(budget, 0) == ["a", "b", "c"]
    assert budget.next_ms(0) is None


def test_requests_per_minute_refill_steadily() -> None:
    budget = Budget(60, None)
    for _ in range(62):
        budget.ask("a", 0, 0)
    assert len(budget.admit(0)) == 60
    assert budget.next_ms(0) == 1000
    assert admitted(budget, 999) == []
    assert admitted(budget, 1000) == ["a"]


def test_a01_turns_go_round_between_trials_and_in_order_within_one() -> None:
    budget = Budget(1, None)
    tickets = [budget.ask("a", n, 0) for n in range(3)] + [budget.ask("b", n, 0) for n in range(3)]
    order: list[Ticket] = []
    for minute in range(6):
        order += budget.admit(minute * MINUTE_MS)
    assert [(ticket.trial, ticket.tokens) for ticket in order] == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [ticket.held_ms for ticket in tickets] == [0, 2 * MINUTE_MS, 4 * MINUTE_MS, MINUTE_MS, 3 * MINUTE_MS, 5 * MINUTE_MS]


def test_a17_long_context_is_not_overtaken_by_small_ones() -> None:
    budget = Budget(None, 1000)
    budget.ask("small", 900, 0)
    assert admitted(budget, 0) == ["small"]
    budget.ask("long", 1000, 0)
    budget.ask("small", 10, 0)
    assert admitted(budget, 30_000) == []  # ten would fit by now
    assert admitted(budget, 54_000) == ["long"]
    assert admitted(budget, 54_600) == ["small"]


def test_request_larger_than_a_minute_waits_for_a_full_bucket_and_goes() -> None:
    budget = Budget(None, 1000)
    budget.ask("a", 5000, 0)
    assert admitted(budget, 0) == ["a"]
    budget.ask("b", 5000, 0)
    assert budget.next_ms(0) == 5 * MINUTE_MS  # overdrawn by four minutes' worth, then a full bucket


def test_settlement_gives_back_and_takes_more() -> None:
    budget = Budget(None, 1000)
    ticket = budget.ask("a", 1000, 0)
    budget.admit(0)
    budget.settle(ticket, 400, 0)
    budget.ask("b", 600, 0)
    assert admitted(budget, 0) == ["b"]
    other = budget.ask("a", 500, 30_000)
    budget.admit(30_000)
    budget.settle(other, 2000, 30_000)
    budget.ask("b", 0, 30_000)
    assert budget.next_ms(30_000) == 90_000


def test_a01_one_miscounted_answer_does_not_hold_everybody_up_for_hours() -> None:
    budget = Budget(None, 1000)
    ticket = budget.ask("a", 100, 0)
    budget.admit(0)
    budget.settle(ticket, 10**12, 0)
    budget.ask("b", 1000, 0)
    assert budget.next_ms(0) == 11 * MINUTE_MS  # ten minutes' worth is owed, then a full bucket


def test_unknown_usage_keeps_the_estimate() -> None:
    budget = Budget(None, 1000)
    ticket = budget.ask("a", 1000, 0)
    budget.admit(0)
    budget.settle(ticket, None, 0)
    budget.ask("b", 500, 0)
    assert budget.next_ms(0) == 30_000


def test_refund_gives_the_tokens_back() -> None:
    budget = Budget(None, 1000)
    ticket = budget.ask("a", 1000, 0)
    budget.admit(0)
    budget.refund(ticket, 0)
    budget.ask("b", 1000, 0)
    assert admitted(budget, 0) == ["b"]


def test_refund_gives_the_place_back() -> None:
    budget = Budget(1, None)
    budget.ask("b", 0, 0)
    assert admitted(budget, 0) == ["b"]
    turned_away = budget.ask("a", 0, 0)
    assert admitted(budget, MINUTE_MS) == ["a"]
    budget.refund(turned_away, MINUTE_MS)
    budget.ask("b", 0, MINUTE_MS)
    budget.ask("a", 0, MINUTE_MS)
    assert admitted(budget, 2 * MINUTE_MS) == ["a"]


def test_who_leaves_makes_room_and_keeps_seniority() -> None:
    budget = Budget(1, None)
    budget.ask("b", 0, 0)
    assert admitted(budget, 0) == ["b"]
    leaver = budget.ask("a", 0, 0)
    budget.ask("b", 0, 0)
    budget.cancel(leaver)
    assert budget.waiting == 1
    budget.ask("a", 0, 0)
    assert admitted(budget, MINUTE_MS) == ["a"]


def test_pause_is_everybodys_and_never_shortened() -> None:
    budget = Budget(None, None)
    budget.pause(5000)
    budget.pause(100)
    budget.ask("a", 0, 0)
    assert budget.next_ms(0) == 5000
    assert admitted(budget, 4999) == []
    assert admitted(budget, 5000) == ["a"]


def test_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "WAITING_AT_MOST", 2)
    budget = Budget(1, None)
    budget.ask("a", 0, 0)
    budget.ask("a", 0, 0)
    with pytest.raises(QueueFull):
        budget.ask("b", 0, 0)


def test_new_limits_count_at_once() -> None:
    budget = Budget(1, None)
    budget.ask("a", 0, 0)
    budget.ask("a", 0, 0)
    assert admitted(budget, 0) == ["a"]
    budget.reconfigure(None, 1000, 0)
    assert admitted(budget, 0) == ["a"]


def test_clock_that_steps_back_gives_nothing_away() -> None:
    budget = Budget(1, None)
    budget.ask("a", 0, 1000)
    assert admitted(budget, 1000) == ["a"]
    budget.ask("a", 0, 0)
    assert admitted(budget, 0) == []


asks = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3000), st.integers(0, 2000)), min_size=1, max_size=60)


@given(asks=asks, rpm=st.integers(1, 20), tpm=st.integers(1, 5000))
def test_everybody_is_served_and_no_minute_gets_more_than_its_share(asks: list[tuple[int, int, int]], rpm: int, tpm: int) -> None:
    budget = Budget(rpm, tpm)
    now_ms, served = 0, []
    for trial, tokens, later_ms in asks:
        now_ms += later_ms
        budget.ask(str(trial), tokens, now_ms)
        served += budget.admit(now_ms)
    for _ in range(10 * len(asks)):
        if (wait_ms := budget.next_ms(now_ms)) is None:
            break
        now_ms += wait_ms
        served += budget.admit(now_ms)
    assert len(served) == len(asks)
    times = [ticket.admitted_ms or 0 for ticket in served]
    assert times == sorted(times)
    for start, first_ms in enumerate(times):
        in_minute = [ticket for ticket in served[start:] if (ticket.admitted_ms or 0) < first_ms + MINUTE_MS]
        assert len(in_minute) <= 2 * rpm + 1  # a full bucket, and what came in meanwhile
    for trial in {ticket.trial for ticket in served}:
        asked = [ticket.asked_ms for ticket in served if ticket.trial == trial]
        assert asked == sorted(asked)


@given(st.integers(2, 6), st.integers(1, 30))
def test_a01_while_all_wait_nobody_gets_two_turns_ahead(trials: int, each: int) -> None:
    budget = Budget(1, None)
    for n in range(trials):
        for _ in range(each):
            budget.ask(str(n), 1, 0)
    counts = dict.fromkeys(map(str, range(trials)), 0)
    for minute in range(trials * each):
        for ticket in budget.admit(minute * MINUTE_MS):
            counts[ticket.trial] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


def test_how_much_of_the_running_minute_is_used() -> None:
    budget = Budget(None, 600)
    assert budget.tokens_used(0) == (0, 600)
    ticket = budget.ask("t", 200, 0)
    assert budget.admit(0) == [ticket] and budget.tokens_used(0) == (200, 600)
    budget.settle(ticket, 700, 0)
    assert budget.tokens_used(0) == (700, 600), "more than was thought: overdrawn"
    assert budget.tokens_used(30_000) == (400, 600)
    assert Budget(5, None).tokens_used(0) is None
