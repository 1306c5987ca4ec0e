"""The gateway's journal in the ledger: every request once, sums that are the sums of their rows, unknown kept apart from none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledgers import T0, bring_to, cell, fill, memory_ledger, submission, task

from marathond.core.money import Price
from marathond.core.requests import HOLD_AT_MOST_MS, OWN_SURPLUS, Begun, Ended, Event, Held, Released, Segment, Tokens, TurnedAway, Who
from marathond.ledger.verbs import usage

PRICES = {"m": Price(input=1_000_000_000, cached=100_000_000, cache_write=1_000_000_000, output=10_000_000_000)}


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill(made, submission(tasks=[task("one"), task("two")]))
    bring_to(made, cell(made, "one", "plain"), "running")
    usage.meet_journal(made, identity="", segment=0, byte=0, last_seq=0, now_ms=T0)
    yield made
    made.close()


def ended(begin: int, number: int = 1, **changes: object) -> Ended:
    whole = Ended(
        Who(1, "agent", number), begin, T0 + 50, 150, "complete", "known", status=200, total_ms=50, model_asked="m", model="m", route="main"
    )
    return replace(whole, **({"tokens": Tokens(100, 40, 0, 20, 5)} | changes))  # type: ignore[arg-type]


def begun(number: int = 1, trial_id: int = 1) -> Begun:
    return Begun(Who(trial_id, "agent", number), T0, 100)


def take(c: sqlite3.Connection, *events: tuple[int, Event], byte: int = 1) -> usage.Taken:
    return usage.ingest(c, events, segment=1, byte=byte, last_seq=max(seq for seq, _ in events), prices=PRICES, now_ms=T0)


def sums(c: sqlite3.Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in c.execute("SELECT * FROM model_usage ORDER BY trial_id, account, model").fetchall()]


def test_a_request_is_counted_with_its_cost(c: sqlite3.Connection) -> None:
    assert take(c, (1, Segment("j")), (2, begun()), (3, ended(2))).trials == {1}
    row = c.execute("SELECT requests, failed, unknown, input_tokens, cached_tokens, output_tokens, cost_nusd, unpriced FROM model_usage")
    assert [tuple(each) for each in row.fetchall()] == [(1, 0, 0, 100, 40, 20, 60_000 + 4_000 + 200_000, 0)]
    assert usage.cost_nusd(c, 1) == 264_000
    assert usage.journal(c) == usage.JournalRow(1, "j", 1, 1, 3)
    assert [tuple(r) for r in c.execute("select arm, sum(input_tokens), sum(cost_usd) from v_usage group by arm").fetchall()] == [
        ("plain", 100, 0.000264)
    ]


def test_the_same_records_again_change_nothing(c: sqlite3.Connection) -> None:
    batch = [(1, Segment("j")), (2, begun()), (3, ended(2))]
    take(c, *batch)
    before = sums(c)
    take(c, *batch)
    assert sums(c) == before
    assert c.execute("SELECT count(*) FROM model_request").fetchone()[0] == 1


def test_unknown_usage_is_null_and_counted_apart(c: sqlite3.Connection) -> None:
    cut = ended(2, end="cut_by_provider", usage="unknown", tokens=None, error_type="cut_by_provider")
    none = ended(4, 2, usage="none", tokens=None, status=400, model=None, error_type="unknown_parameter")
    unpriced = ended(6, 3, model="other")
    take(c, (2, begun()), (3, cut), (4, begun(2)), (5, none), (6, begun(3)), (7, unpriced))
    rows = c.execute("SELECT input_tokens, cost_nusd, usage FROM model_request ORDER BY begin_seq").fetchall()
    assert [tuple(row) for row in rows] == [(None, None, "unknown"), (None, None, "none"), (100, None, "known")]
    rows = c.execute("SELECT model, requests, failed, unknown, unpriced, cost_nusd FROM model_usage ORDER BY model").fetchall()
    assert [tuple(row) for row in rows] == [("", 1, 1, 0, 0, 0), ("m", 1, 1, 1, 0, 0), ("other", 1, 0, 0, 1, 0)]


def test_an_end_without_its_beginning_is_kept(c: sqlite3.Connection) -> None:
    take(c, (3, ended(2)))
    assert tuple(c.execute("SELECT begin_seq, begun_mono_ms, ended_at_ms FROM model_request").fetchone()) == (2, 100, T0 + 50)


def test_a17_a_wait_is_known_while_it_goes_on_and_counts_once_for_requests_side_by_side(c: sqlite3.Connection) -> None:
    take(c, (2, begun()), (3, Held(2, 1000)))
    assert usage.held_ms(c, 1, now_mono_ms=1500) == 500
    take(c, (4, begun(2)), (5, Held(4, 1200)))
    assert usage.held_ms(c, 1, now_mono_ms=2000) == 1000
    take(c, (6, Released(2, 1800)))
    assert usage.held_ms(c, 1, now_mono_ms=2000) == 1000
    take(c, (7, Released(4, 1900)), (8, ended(4, 2, held_ms=700, held_from_mono_ms=1200)))
    assert usage.held_ms(c, 1, now_mono_ms=9000) == 900
    take(c, (9, ended(2, held_ms=800, held_from_mono_ms=1000)))
    assert usage.held_ms(c, 1, now_mono_ms=9000) == 900
    assert c.execute("SELECT held_ms FROM model_usage").fetchone()[0] == 1500  # of each request for itself


def test_a_wait_that_a_dead_gateway_never_ended_is_bounded(c: sqlite3.Connection) -> None:
    take(c, (2, begun()), (3, Held(2, 1000)))
    assert usage.held_ms(c, 1, now_mono_ms=10 * HOLD_AT_MOST_MS) == HOLD_AT_MOST_MS
    died = ended(2, end="gateway_died", usage="unknown", tokens=None, status=None, mono_ms=5000, error_type="gateway_died")
    take(c, (4, died))
    assert usage.held_ms(c, 1, now_mono_ms=10 * HOLD_AT_MOST_MS) == 4000


def test_refusals_add_up_over_lives_of_the_gateway(c: sqlite3.Connection) -> None:
    def told(*counts: int) -> list[tuple[int, Event]]:
        return [(10 + n, TurnedAway(1, "agent", "deadline", n, T0)) for n in counts]

    take(c, *told(1, 2, 3, 32))
    take(c, *told(1, 2))
    assert tuple(c.execute("SELECT code, count, told FROM model_refusal").fetchone()) == ("deadline", 34, 2)


@pytest.mark.parametrize("code", OWN_SURPLUS)
def test_what_an_agent_was_refused_for_its_own_surplus_counts_if_it_still_goes_on(c: sqlite3.Connection, code: str) -> None:
    def told(number: int, account: str, code: str, at_ms: int) -> tuple[int, Event]:
        return 10 + number, TurnedAway(1, account, code, number, at_ms)

    take(c, told(1, "agent", "gateway_busy", T0 + 9), told(1, "verifier", code, T0 + 9))
    assert usage.own_surplus(c, 1, since_ms=0) == 0
    take(c, told(1, "agent", code, T0), told(7, "agent", code, T0 + 5))
    assert usage.own_surplus(c, 1, since_ms=T0 + 5) == 7
    assert usage.own_surplus(c, 1, since_ms=T0 + 6) == usage.own_surplus(c, 2, since_ms=0) == 0


def test_trials_of_another_ledger_are_named_and_not_counted(c: sqlite3.Connection) -> None:
    taken = take(c, (2, begun(trial_id=77)), (3, replace(ended(2), who=Who(77, "agent", 1))))
    assert taken.foreign == {"t0077"} and sums(c) == []


def test_what_a_journal_holds_at_the_first_meeting_is_not_ours() -> None:
    c = memory_ledger()
    usage.meet_journal(c, identity="older", segment=3, byte=700, last_seq=99, now_ms=T0)
    usage.meet_journal(c, identity="", segment=0, byte=0, last_seq=0, now_ms=T0)
    assert usage.journal(c) == usage.JournalRow(1, "older", 3, 700, 99)
    c.close()


def test_a_journal_made_anew_counts_from_one_again(c: sqlite3.Connection) -> None:
    take(c, (1, Segment("j")), (2, begun()), (3, ended(2)), (4, begun(2)))
    take(c, (1, Segment("k")), (2, begun()), (3, ended(2)), byte=5)
    assert c.execute("SELECT requests, unknown FROM model_usage WHERE model = 'm'").fetchone()[0] == 2
    assert tuple(c.execute("SELECT requests, unknown FROM model_usage WHERE model = ''").fetchone()) == (1, 1)  # its end cannot come
    assert usage.journal(c) == usage.JournalRow(2, "k", 1, 5, 3)


def test_a_request_whose_end_never_came_is_unknown_once_its_trial_rests(c: sqlite3.Connection) -> None:
    second = bring_to(c, cell(c, "two", "plain"), "scored", now_ms=T0)
    take(c, (2, begun()), (3, begun(trial_id=second.trial_id)))
    assert usage.lost_requests(c, now_ms=T0 + 10, rest_ms=60_000) == 0
    assert usage.lost_requests(c, now_ms=T0 + 3_600_000, rest_ms=60_000) == 1
    assert tuple(c.execute("SELECT trial_id, end, usage FROM model_request WHERE end = 'lost'").fetchone()) == (
        second.trial_id,
        "lost",
        "unknown",
    )
    assert usage.lost_requests(c, now_ms=T0 + 3_600_000, rest_ms=60_000) == 0
    assert c.execute("SELECT unknown FROM model_usage").fetchone()[0] == 1


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_batches_may_end_anywhere_and_be_taken_in_again(data: st.DataObject) -> None:
    """A daemon that is killed before its commit reads from the stored position again; whatever the cuts, the ledger is the same."""
    events: list[tuple[int, Event]] = [(1, Segment("j"))]
    seq = 1
    for number in range(1, data.draw(st.integers(1, 6), label="requests") + 1):
        begin = seq + 1
        events.append((begin, begun(number)))
        seq = begin
        if data.draw(st.booleans(), label="held"):
            events += [(seq + 1, Held(begin, 1000 * number)), (seq + 2, Released(begin, 1000 * number + 300))]
            seq += 2
        known = data.draw(st.booleans(), label="known")
        events.append(
            (seq + 1, ended(begin, number, usage="known" if known else "unknown", tokens=Tokens(7, 1, 0, 3, 1) if known else None))
        )
        seq += 1
    cuts = sorted(data.draw(st.sets(st.integers(0, len(events))), label="cuts") | {0, len(events)})
    made = []
    for starts in ([0, len(events)], cuts):
        c = memory_ledger()
        fill(c, submission(tasks=[task("one")]))
        bring_to(c, cell(c, "one", "plain"), "running")
        usage.meet_journal(c, identity="", segment=0, byte=0, last_seq=0, now_ms=T0)
        for start, end in pairwise(starts):
            c.execute("SAVEPOINT life")
            usage.ingest(c, events[start:end], segment=1, byte=end, last_seq=end, prices=PRICES, now_ms=T0)
            c.execute("ROLLBACK TO life")  # killed before the commit
            usage.ingest(c, events[start:end], segment=1, byte=end, last_seq=end, prices=PRICES, now_ms=T0)
            c.execute("RELEASE life")
        made.append((sums(c), usage.held_ms(c, 1, now_mono_ms=10**9), usage.journal(c)))
        c.close()
    assert made[0] == made[1]
