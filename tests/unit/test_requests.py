"""What the gateway's journal tells of requests, read strictly; waits side by side are one wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.requests import (
    HOLD_AT_MOST_MS,
    Aside,
    Begun,
    Ended,
    Held,
    Released,
    Segment,
    Tokens,
    TurnedAway,
    decode,
    union_ms,
)
from marathond.gateway import journal_read
from marathond.gateway.exchange import Exchange, Refusals, bury
from marathond.gateway.files import Listener
from marathond.gateway.journal import Journal
from marathond.gateway.usage import Tokens as Counted
from tests.support.gateway_rig import FakeClock


def listener(**changes: Any) -> Listener:
    fields: dict[str, Any] = {
        **{"name": "t0007", "version": 1, "trial": "t0007", "account": "agent", "container_id": "c", "started_at": "s", "pid": 1},
        **{"start_ticks": 1, "boot_id": "b", "port": 8790, "key_sha256": "0" * 64, "route": "main", "network": "none"},
    }
    return Listener(**{**fields, **changes})


def told(folder: Path) -> list[object]:
    found, _ = journal_read.read_from(folder)
    return [decode(entry.fields) for entry in found if isinstance(entry, journal_read.Record)]


def test_every_record_that_the_gateway_writes_is_read(tmp_path: Path) -> None:
    journal, clock = Journal(tmp_path), FakeClock()
    first = Exchange(listener(), "POST", "/v1/responses", clock.now_ms)
    first.begins(journal, clock)
    first.ready_ms = clock.now_ms + 5
    first.waits(journal, clock)
    first.waits(journal, clock)
    first.sent_ms = clock.now_ms + 1005
    first.answered(journal)
    first.retried["429"] += 2
    first.retried["503"] += 1
    first.status = first.upstream_status = 200
    first.end, first.usage, first.tokens, first.model, first.model_asked = "complete", "known", Counted(9, 4, 1, 3, 2), "m-1", "m"
    clock.now_ms += 2000
    first.ends(journal, clock)
    second = Exchange(listener(), "POST", "/v1/responses", clock.now_ms)
    second.begins(journal, clock)
    bury(journal, clock, "gateway_died", [second.begin])
    refusals = Refusals()
    refusals.count(journal, clock, listener(), 403, "deadline")
    journal.append("life", life="l")
    segment, begun, held, released, ended, begun_too, buried, refused, life = told(tmp_path)
    assert segment == Segment(journal.identity)
    assert isinstance(begun, Begun) and (begun.who.trial_id, begun.who.account, begun.who.number) == (7, "agent", 1)
    assert held == Held(first.begin, 1_000_005)
    assert released == Released(first.begin, 1_001_005)
    assert isinstance(ended, Ended) and ended.begin == first.begin
    assert (ended.held_ms, ended.held_from_mono_ms, ended.held_until_mono_ms) == (1000, 1_000_005, 1_001_005)
    assert (ended.retries, ended.rate_limited, ended.model, ended.model_asked) == (3, 2, "m-1", "m")
    assert ended.tokens == Tokens(input=9, cached=4, cache_write=1, output=3, reasoning=2) and not ended.failed
    assert isinstance(begun_too, Begun) and isinstance(buried, Ended)
    assert (buried.usage, buried.end, buried.failed, buried.tokens) == ("unknown", "gateway_died", True, None)
    assert refused == TurnedAway(7, "agent", "deadline", 1, clock.wall_ms())
    assert life == Aside()
    journal.close()


def record(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        **{"event": "request", "trial": "t0001", "account": "agent", "number": 1, "route": "main", "begin": 2, "wall_ms": 9, "mono_ms": 8},
        **{"end": "complete", "status": 200, "upstream_status": 200, "first_byte_ms": 1, "total_ms": 2, "held_ms": 0, "retries": 0},
        **{"held_from_mono_ms": None, "budget_held_ms": 0, "retried": {}, "retry_after_s": None, "model_asked": "m", "model": "m"},
        **{"usage": "none", "tokens": None, "error_type": None},
    }
    return {**fields, **changes}


@pytest.mark.parametrize("field", [key for key in record() if key not in ("event",)])
def test_e03_a_field_that_was_renamed_is_an_error_and_never_none(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        decode({key: value for key, value in record().items() if key != field})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trial": "../t1"}, "must look like t0871"),
        ({"held_ms": -1}, "held_ms -1: must be a whole number"),
        ({"status": True}, "status True"),
        ({"usage": "guessed"}, "must be known, unknown or none"),
        ({"tokens": {"input": 1}}, "cached None"),
        ({"usage": "known"}, "for the usage is known"),
        ({"tokens": {"input": 1, "cached": 0, "cache_write": 0, "output": 10**13, "reasoning": 0}}, "at most"),
        ({"retried": {"429": "many"}}, "429 'many'"),
        ({"event": "later"}, "'later': no such kind"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(record(**changes))


def test_who_is_told_to_come_back_is_held_until_then() -> None:
    gave_up = decode(record(end="gave_up", status=429, held_from_mono_ms=1000, held_ms=240_000, retry_after_s=5))
    assert isinstance(gave_up, Ended) and gave_up.held_until_mono_ms == 1000 + 240_000 + 5000
    cut = decode(record(end="cut_by_client", held_from_mono_ms=1000, held_ms=10, retry_after_s=5))
    assert isinstance(cut, Ended) and cut.held_until_mono_ms == 1010


def test_waits_side_by_side_are_one_wait() -> None:
    assert union_ms([(0, 10), (5, 12), (20, None)], 25) == 17
    assert union_ms([(0, None)], 10 * HOLD_AT_MOST_MS) == HOLD_AT_MOST_MS
    assert union_ms([(50, 60)], 40) == 0
    assert union_ms([], 5) == 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))), st.integers(0, 80))
def test_the_union_is_the_number_of_milliseconds_in_any_of_them(pairs: list[tuple[int, int]], now: int) -> None:
    intervals = [(min(pair), max(pair)) for pair in pairs]
    counted = {ms for start, end in intervals for ms in range(start, end) if ms < now}
    assert union_ms(intervals, now) == len(counted)
