"""What a standing breaker tries is in the ledger: with the admission itself, for the next life, and for this stop alone (fault f12)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from support.ledgers import T0, arm, bring_to, cell, daemon_void, fill, memory_ledger, start_agent, submission

from marathond.core.breaker import Trying, Verdict, verdict
from marathond.ledger.verbs import admission, findings, probing, trials, voids
from marathond.ledger.verbs.trials import Fact


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill(made, submission(arms=[arm("plain"), arm("goal")], replicates=2))
    yield made
    made.close()


def close(c: sqlite3.Connection) -> Trying:
    probing.close(c, detail="5 x", until_ms=T0 + 5, words="closed", now_ms=T0)
    found = probing.trying(c)
    assert found is not None
    return found


def test_f12_the_admission_itself_names_the_probe_and_only_the_first_one(c: sqlite3.Connection) -> None:
    assert probing.trying(c) is None
    before = close(c)
    assert before == Trying(1)
    bring_to(c, cell(c), "reserved")  # closed: whoever admits all the same is no probe
    assert probing.trying(c) == before
    probing.half_open(c, before, words="one", now_ms=T0)
    one = bring_to(c, cell(c, arm_name="goal"), "reserved")
    bring_to(c, cell(c, replicate=2), "reserved")
    assert probing.trying(c) == Trying(1, half_open=True, probe=one.trial_id)
    (stop,) = admission.snapshot(c, 1, engine="local", limit=9).stops
    assert stop.trying == probing.trying(c)


def test_f12_a_failed_probe_closes_for_longer_and_is_remembered(c: sqlite3.Connection) -> None:
    probing.half_open(c, close(c), words="one", now_ms=T0)
    one = bring_to(c, cell(c), "reserved")
    daemon_void(c, one.trial_id, code="healthcheck_failed", counts=False)
    trying = probing.trying(c)
    assert trying is not None and verdict(probing.probe(c, one.trial_id)) is Verdict.BAD
    probing.close_again(c, trying, tried=(1,), until_ms=T0 + 99, words="again", now_ms=T0)
    assert probing.trying(c) == Trying(1, failed=1, tried=(1,))
    assert [stop.until_ms for stop in admission.stops(c)] == [T0 + 99]
    assert [(row.code, row.detail, row.times) for row in findings.open_findings(c)] == [("breaker", "again", 3)]
    probing.open_again(c, now_ms=T0)
    assert admission.stops(c) == [] and findings.open_findings(c) == []


def test_f12_whoever_opens_it_between_a_look_and_a_step_has_the_last_word(c: sqlite3.Connection) -> None:
    before = close(c)
    admission.end_stop(c, "breaker", author="ana", now_ms=T0)
    findings.close_finding(c, code="breaker", subject="admission", now_ms=T0)
    probing.half_open(c, before, words="one", now_ms=T0)
    probing.close_again(c, before, tried=(), until_ms=T0 + 9, words="again", now_ms=T0)
    assert probing.trying(c) is None and findings.open_findings(c) == []


def test_f12_what_was_tried_under_an_earlier_stop_means_nothing(c: sqlite3.Connection) -> None:
    probing.close_again(c, close(c), tried=(1, 2), until_ms=T0, words="again", now_ms=T0)
    assert admission.end_stop(c, "breaker", author="ana", now_ms=T0)
    assert probing.trying(c) is None
    assert close(c) == Trying(2)


def test_f12_an_agent_runs_when_it_was_seen_to(c: sqlite3.Connection) -> None:
    one = bring_to(c, cell(c), "preparing").trial_id
    start_agent(c, one)
    assert verdict(probing.probe(c, one)) is Verdict.NOT_YET  # its row comes before the start
    trials.facts(c, one, [Fact("agent session", "4711", "engine")], now_ms=T0)
    assert verdict(probing.probe(c, one)) is Verdict.GOOD
    two = bring_to(c, cell(c, arm_name="goal"), "running").trial_id
    trials.reattached(c, two, detail={}, now_ms=T0)
    assert verdict(probing.probe(c, two)) is Verdict.GOOD
    assert verdict(probing.probe(c, bring_to(c, cell(c, replicate=2), "scored").trial_id)) is Verdict.GOOD


def test_f12_cells_that_could_tell_more(c: sqlite3.Connection) -> None:
    every = [number for (number,) in c.execute("SELECT cell_id FROM cell ORDER BY cell_id")]
    assert probing.others_open(c, 1, every[1:])
    assert not probing.others_open(c, 1, every)
    bring_to(c, every[0], "reserved")
    assert not probing.others_open(c, 1, every[1:])


def test_f12_the_example_of_a_breaker_is_the_newest_void_of_its_code_that_the_daemon_decided(c: sqlite3.Connection) -> None:
    assert voids.example(c, "engine_failed") is None
    first, second, third = (
        bring_to(c, cell(c, task, of), "preparing") for task, of in (("zstd", "plain"), ("zstd", "goal"), ("rust", "plain"))
    )
    for one, code in ((first, "engine_failed"), (second, "engine_failed"), (third, "network_failed")):
        daemon_void(c, one.trial_id, code=code)
    assert voids.example(c, "engine_failed") == (second.trial_id, "it broke")
