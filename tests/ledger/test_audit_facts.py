"""What the audit reads from a ledger: each value from its table, each statement over an index, and a bound on all of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator

import pytest
from support.big_ledger import fill_big
from support.ledgers import T0, memory_ledger

from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.score import RefusedValue
from marathond.ledger.verbs import audit, findings, operator, trials
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.doctor.planted import ARMS, TASKS, Told, Usage
from marathond.service.doctor.scratch import Scratch

LATER = T0 + 10**9


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with Scratch() as made:
        yield made


@pytest.mark.parametrize(("turns", "cut"), [(0, 1), (3, 1), (2, 0)])
def test_a_turn_that_its_deadline_cut_off_is_a_turn(scratch: Scratch, turns: int, cut: int) -> None:
    """An arm of one turn that its deadline ends would have none otherwise, and differ from all others in that."""
    trial_id = scratch.trial(task=TASKS[0], arm="plain", ended_by="deadline", receipt=Told(turns=turns, open=cut, commands=5))
    assert one(scratch, trial_id).turns == turns + cut


def read(scratch: Scratch, **values: int) -> Facts:
    return audit.facts(scratch.c, scratch.campaign_id, now_ms=scratch.now_ms, **values)


def one(scratch: Scratch, trial_id: int) -> TrialFact:
    return next(trial for trial in read(scratch).trials if trial.trial_id == trial_id)


def test_a_scored_trial_s_values_come_from_where_they_stand(scratch: Scratch) -> None:
    statuses = (200, 400, 200, 429, 502, 200)
    asked = Usage(statuses=statuses, input_tokens=100, output_tokens=10, first_byte_ms=700, held_ms=50)
    trial = one(
        scratch,
        scratch.trial(
            task=TASKS[0],
            arm="heartbeat",
            reward=0.0,
            partial=0.25,
            tests=(10, 40),
            flags=("build_failed",),
            ended_by="deadline",
            limit_ms=1_000_000,
            credit_ms=5_000,
            overrun_ms=70,
            receipt=Told(turns=7, commands=3, silent=2, delivered=True, used=False),
            usage=asked,
            outcomes=("lost", "exited"),
        ),
    )
    assert (trial.task, trial.arm, trial.replicate, trial.attempt, trial.state) == (TASKS[0], "heartbeat", 1, 1, "scored")
    assert (trial.infra, trial.void_code, trial.asks_model, trial.loopx) == (False, None, True, True)
    assert (trial.reward, trial.partial, trial.test_rate, trial.flags, trial.by_person) == (0.0, 0.25, 0.25, ("build_failed",), False)
    assert (trial.ended_by, trial.budget_ended, trial.limit_ms, trial.overrun_ms) == ("deadline", True, 1_005_000, 70)
    assert (trial.requests, trial.failed, trial.bad_requests) == (6, 3, 1)
    assert (trial.input_tokens, trial.output_tokens, trial.first_byte_ms, trial.held_ms) == (300, 30, 700.0, 300)
    assert (trial.turns, trial.commands, trial.silent_turns, trial.delivered, trial.used) == (7, 3, 2, True, False)
    assert (trial.verifier_rounds, trial.verify_agains, trial.exported) == (2, ("interrupted",), True)
    assert trial.outputs and trial.outputs_bytes and trial.parts and trial.rested_at_ms and trial.models


def test_the_rules_by_which_a_score_was_read(scratch: Scratch) -> None:
    parts = [
        ("rule:reward", "a.json:b", "configuration"),
        ("rule:partial", "a.json:c", "configuration"),
        ("gate:x", "true", "metrics.json:x"),
    ]
    assert one(scratch, scratch.trial(parts=parts)).score_rules == "partial = a.json:c, reward = a.json:b"
    assert one(scratch, scratch.trial(arm="plain")).score_rules == ""


def test_d09_what_was_refused_of_the_newest_score_alone_is_told(scratch: Scratch) -> None:
    refused = [("refused 1", "above 1: 50", "metrics.json:partial_score")]
    trial_id = scratch.trial(state="verifying")
    trials.scored(scratch.c, trial_id, ScoreRow(1, 0.0, "reward.txt", parts=refused), now_ms=scratch.now_ms)
    assert one(scratch, trial_id).refused == (RefusedValue("partial", "metrics.json:partial_score", "above 1: 50", ("partial",)),)
    trials.scored(scratch.c, trial_id, ScoreRow(2, 0.0, "reward.txt", 0.5, parts=[("partial", "0.5", "m.json:x")]), now_ms=scratch.now_ms)
    assert one(scratch, trial_id).refused == ()


def test_what_an_agent_s_own_words_earned_is_no_bad_request(scratch: Scratch) -> None:
    long = Usage(statuses=(400, 400), error_type="context_length_exceeded")
    assert one(scratch, scratch.trial(arm="plain", usage=long)).bad_requests == 0
    assert one(scratch, scratch.trial(arm="plain", usage=None)).bad_requests is None


def test_which_voids_are_failures_of_infrastructure(scratch: Scratch) -> None:
    infra = {code: one(scratch, scratch.trial(state="voided", void_code=code)).infra for code in ("gate_failed", "accepted", "operator")}
    assert infra == {"gate_failed": True, "accepted": False, "operator": False}
    by_hand = one(scratch, scratch.trial(state="voided", void_code="provider"))
    assert (by_hand.void_by, by_hand.void_side, by_hand.score_known) == ("operator", "operator", True)
    live = one(scratch, scratch.trial(state="running", usage=Usage(last_ms=scratch.now_ms - 9_000, open=1)))
    assert (live.infra, live.rested_at_ms, live.last_request_ms, live.open_requests) == (None, None, 9_000, 1)
    assert live.running_ms is not None and live.running_ms > 0


def test_a_void_that_was_undone_is_none(scratch: Scratch) -> None:
    trial_id = scratch.trial(state="voided", void_code="operator")
    operator.unvoid(scratch.c, trial_id=trial_id, author="ana", reason="a mistake", now_ms=scratch.now_ms)
    assert (one(scratch, trial_id).state, one(scratch, trial_id).void_code) == ("scored", None)


def test_a_person_s_reward_and_a_life_s_takeover_are_told(scratch: Scratch) -> None:
    doubted = scratch.trial(state="review", review_code="deadline")
    assert one(scratch, doubted).review_code == "deadline"
    assert [(each.trial_id, each.code) for each in read(scratch).reviews] == [(doubted, "deadline")]
    operator.decide_review(scratch.c, doubted, accept=True, reward=1.0, reason="read", author="ana", now_ms=scratch.now_ms)
    assert one(scratch, doubted).by_person
    running = scratch.trial(state="running")
    trials.reattached(scratch.c, running, detail={}, now_ms=scratch.now_ms)
    assert one(scratch, running).reattached == 1


def test_the_house_is_read_with_its_ages(scratch: Scratch) -> None:
    scratch.finding("engine_blind", ago_ms=5_000)
    scratch.trial(leaked=True, rested_at_ms=scratch.now_ms - 60_000)
    seen = read(scratch, wal_bytes=7)
    assert (seen.campaign, seen.arms, seen.tasks, seen.cells) == ("scratch", ARMS, TASKS, 120)
    assert seen.open_codes["engine_blind"] == 1
    assert [(each.code, each.age_ms, each.acked) for each in seen.findings if each.code == "engine_blind"] == [
        ("engine_blind", 5_000, False)
    ]
    assert [lease.leaked_ms for lease in seen.leases] == [60_000]
    assert (seen.wal_bytes, seen.daemon_alive, seen.kinds["oracle"], seen.origin) == (7, True, "oracle", "run")
    assert seen.observations["engine"][1] == 0
    assert audit.facts(scratch.c, scratch.campaign_id, now_ms=scratch.now_ms + 120_000).daemon_alive is None
    with pytest.raises(LookupError, match="campaign"):
        audit.facts(scratch.c, 99, now_ms=scratch.now_ms)


def test_what_is_over_is_counted(scratch: Scratch) -> None:
    before = read(scratch)
    assert (before.leases_released, before.reviews_decided, before.findings_closed) == (0, 0, 0)
    doubted = scratch.trial(state="review", review_code="deadline")
    scratch.trial(leaked=True)
    scratch.trial()
    operator.decide_review(scratch.c, doubted, accept=True, reward=1.0, reason="read", author="ana", now_ms=scratch.now_ms)
    scratch.finding("engine_blind", "warning", "engine")
    findings.close_finding(scratch.c, code="engine_blind", subject="engine", now_ms=scratch.now_ms)
    after = read(scratch)
    assert (after.leases_released, after.reviews_decided, len(after.leases)) == (2, 1, 1)
    assert after.findings_closed == 1


def test_500_trials_are_read_well_under_a_tenth_of_a_second() -> None:
    """The processor's time: others' load on the machine is no property of ours."""
    with Scratch(replicates=21) as scratch:
        scratch.clean()
        scratch.commit()
        took = 1.0
        for _ in range(20):  # a core that is shared gives even the processor's time now and then
            took = min(took, _took(scratch.c, scratch.campaign_id, scratch.now_ms))
            if took < 0.1:
                break
        count = len(read(scratch).trials)
    print(f"{count} trials in {took * 1000:.0f} ms")
    assert count >= 500 and took < 0.1


def test_a_large_campaign_is_read_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AT_MOST", 1_500)
    c = memory_ledger()
    campaign_id = fill_big(c, 2_000)
    seen = audit.facts(c, campaign_id, now_ms=LATER)
    assert (len(seen.trials), seen.left_out) == (1_500, 500)
    newest = [row[0] for row in c.execute("SELECT trial_id FROM trial ORDER BY trial_id DESC LIMIT 1500")]
    assert [trial.trial_id for trial in seen.trials] == sorted(newest)


def _took(c: sqlite3.Connection, campaign_id: int, now_ms: int) -> float:
    began = time.process_time()
    audit.facts(c, campaign_id, now_ms=now_ms)
    return time.process_time() - began


SMALL = ("arm", "task", "network_pool", "observation", "run", "network_lease", "finding", "cell", "(subquery")
"""What has a row per arm, task or engine, or a handful; findings and leases are read by the open ones."""


def test_no_statement_walks_through_a_table_that_grows() -> None:
    c = memory_ledger()
    campaign_id = fill_big(c, 1_000)
    c.execute("ANALYZE")
    statements: list[str] = []
    c.set_trace_callback(statements.append)
    audit.facts(c, campaign_id, now_ms=LATER)
    c.set_trace_callback(None)
    assert len(statements) < 60  # one for each running trial
    walks = []
    for statement in statements:
        for row in c.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall():
            step = str(row["detail"])
            if step.startswith("SCAN") and "USING INDEX trial_in_review" not in step and not step.split()[1].startswith(SMALL):
                walks.append((step, statement))
    assert walks == []
