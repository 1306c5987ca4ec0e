"""What a person decides: done once, said twice, never half."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from support import ledgers as help
from support.ledgers import ENGINE, T0, arm, bring_to, cell, daemon_void, fill, let_go, memory_ledger, start_verifier, submission

from marathond.core.errors import Refused
from marathond.ledger.verbs import admission, findings, networks, operator, pools, show, status, trials
from marathond.ledger.verbs.networks import NetworkSeen


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill(made, submission(arms=[arm("plain"), arm("goal"), arm("hb")], replicates=2))
    yield made
    made.close()


def state(c: sqlite3.Connection, cell_id: int) -> str:
    return str(c.execute("SELECT state FROM cell_state WHERE cell_id = ?", (cell_id,)).fetchone()[0])


def block(c: sqlite3.Connection) -> dict[str, int]:
    """Trials of one whole block, scored and let go, by arm."""
    made = {}
    for name in ("plain", "goal", "hb"):
        admitted = bring_to(c, cell(c, "zstd", name), "scored")
        let_go(c, admitted)
        made[name] = admitted.trial_id
    return made


def void(c: sqlite3.Connection, ids: list[int], reason: str = "outage", author: str = "ana") -> operator.VoidResult:
    return operator.void_trials(c, ids, code="provider", reason=reason, author=author, now_ms=T0)


def test_a08_pair_voids_the_whole_block_and_records_who_when_why_and_whether_the_score_was_known(c: sqlite3.Connection) -> None:
    mates = block(c)
    bring_to(c, cell(c, "zstd", "plain", 2), "scored")  # another block
    chosen = operator.select_trials(c, campaign_id=1, trial=mates["goal"], pair=True)
    assert chosen == sorted(mates.values())
    done = void(c, chosen)
    assert {t.arm: (t.state, t.score_was_known) for t in done.voided} == dict.fromkeys(mates, ("scored", True))
    rows = c.execute("SELECT author, reason, at_ms, score_was_known, decided_by, batch FROM v_void").fetchall()
    assert {tuple(row) for row in rows} == {("ana", "outage", T0, 1, "operator", done.batch)}
    assert [state(c, cell(c, "zstd", name)) for name in mates] == ["open"] * 3
    assert state(c, cell(c, "zstd", "plain", 2)) == "done"


def test_voiding_again_says_who_did_it(c: sqlite3.Connection) -> None:
    mates = block(c)
    void(c, operator.select_trials(c, campaign_id=1, trial=mates["goal"], pair=True))
    again = void(c, operator.select_trials(c, campaign_id=1, trial=mates["goal"], pair=True), "other", "bob")
    assert (again.voided, again.batch) == ((), "")
    assert [(row.trial.trial_id, row.author, row.reason, row.at_ms) for row in again.already] == [(mates["goal"], "ana", "outage", T0)]


def test_unknown_code_is_refused(c: sqlite3.Connection) -> None:
    with pytest.raises(Refused, match="--code bad_luck: unknown; known are operator, provider, stop_now"):
        operator.void_trials(c, [], code="bad_luck", reason="r", author="ana", now_ms=T0)
    with pytest.raises(Refused, match="--code container_lost: only the daemon says that"):
        operator.void_trials(c, [], code="container_lost", reason="r", author="ana", now_ms=T0)


def test_selection_by_filters(c: sqlite3.Connection) -> None:
    early = bring_to(c, cell(c, "zstd", "plain"), "scored", now_ms=T0)
    late = bring_to(c, cell(c, "zstd", "plain", 2), "running", now_ms=T0 + 5_000)
    other = bring_to(c, cell(c, "rust", "goal"), "review", now_ms=T0 + 9_000)
    gone = bring_to(c, cell(c, "rust", "plain"), "voided", now_ms=T0)

    def ids(**filters: object) -> list[int]:
        return operator.select_trials(c, campaign_id=1, **filters)  # type: ignore[arg-type]

    assert ids() == [early.trial_id, late.trial_id, other.trial_id]
    assert ids(arm="plain") == [early.trial_id, late.trial_id]
    assert ids(task="zstd", replicate=2) == [late.trial_id]
    assert ids(states=["running", "voided"]) == [late.trial_id, gone.trial_id]
    assert ids(since_ms=T0 + 5_000) == [late.trial_id, other.trial_id]
    assert ids(trial=gone.trial_id) == [gone.trial_id]
    assert ids(trial=999) == [] and ids(arm="nobody") == []
    assert operator.select_trials(c, campaign_id=2) == []


def test_unvoid_by_trial_block_and_batch(c: sqlite3.Connection) -> None:
    mates = block(c)
    ids = list(mates.values())
    block_id = c.execute("SELECT block_id FROM cell WHERE cell_id = ?", (cell(c),)).fetchone()[0]
    for selector in ("trial", "block", "batch"):
        batch = void(c, ids).batch
        if selector == "trial":
            results = [operator.unvoid(c, trial_id=each, author="bob", reason="oops", now_ms=T0) for each in ids]
            restored = [row for result in results for row in result.restored]
        elif selector == "block":
            restored = list(operator.unvoid(c, block_id=block_id, author="bob", reason="oops", now_ms=T0).restored)
        else:
            restored = list(operator.unvoid(c, batch=batch, author="bob", reason="oops", now_ms=T0).restored)
        assert sorted((touched.trial_id, now) for touched, now in restored) == [(each, "scored") for each in sorted(ids)]
        assert [state(c, cell(c, "zstd", name)) for name in mates] == ["done"] * 3
    rows = c.execute("SELECT DISTINCT undone_by, undone_reason, standing FROM v_void").fetchall()
    assert [tuple(row) for row in rows] == [("bob", "oops", 0)]
    with pytest.raises(ValueError, match="one trial, one block or one batch"):
        operator.unvoid(c, trial_id=1, batch="x", author="bob", reason="r", now_ms=T0)


def test_a09_unvoid_is_refused_once_the_cell_has_a_later_trial(c: sqlite3.Connection) -> None:
    first = block(c)["plain"]
    void(c, [first])
    later = bring_to(c, cell(c), "reserved")
    refused = operator.unvoid(c, trial_id=first, author="bob", reason="r", now_ms=T0)
    assert refused.restored == ()
    assert [row.why for row in refused.refused] == [f"its cell has a later trial t{later.trial_id:04d}"]


def test_unvoid_of_what_had_no_result_is_refused(c: sqlite3.Connection) -> None:
    running = bring_to(c, cell(c), "running")
    void(c, [running.trial_id])
    assert (
        "it was running when it was voided"
        in operator.unvoid(c, trial_id=running.trial_id, author="b", reason="r", now_ms=T0).refused[0].why
    )
    fine = bring_to(c, cell(c, "zstd", "goal"), "scored")
    assert operator.unvoid(c, trial_id=fine.trial_id, author="b", reason="r", now_ms=T0).refused[0].why == "it is not voided"


def test_d02_unreadable_twice_is_review_never_zero_and_a_person_decides(c: sqlite3.Connection) -> None:
    trial = bring_to(c, cell(c), "verifying")
    trials.verification_ended(c, trial.trial_id, 1, outcome="exited", exit_code=0, now_ms=T0)
    trials.verify_again(c, trial.trial_id, cause="unreadable", now_ms=T0)
    with pytest.raises(sqlite3.IntegrityError, match="verify_again_only_once"):
        trials.verify_again(c, trial.trial_id, cause="deadline", now_ms=T0)
    trials.verify_again(c, trial.trial_id, cause="interrupted", now_ms=T0)  # the daemon's own absence is not counted
    start_verifier(c, trial.trial_id, round=2)
    trials.verification_ended(c, trial.trial_id, 2, outcome="exited", exit_code=0, now_ms=T0)
    trials.doubted(c, trial.trial_id, code="unreadable", detail="no reward file", evidence={"seen": ["test-stdout.txt"]}, now_ms=T0)
    assert state(c, cell(c)) == "review"
    row = c.execute("SELECT state, reward FROM v_cell WHERE task = 'zstd' AND arm = 'plain' AND replicate = 1").fetchone()
    assert tuple(row) == ("review", None)
    assert status.counts_by_arm(c, 1)[0].reward is None
    with pytest.raises(Refused, match="accepting needs --reward"):
        operator.decide_review(c, trial.trial_id, accept=True, reward=None, reason="r", author="ana", now_ms=T0)
    operator.decide_review(c, trial.trial_id, accept=True, reward=0.25, reason="read by hand", author="ana", now_ms=T0)
    shown = show.show(c, trial.trial_id)
    assert shown.cell_state == "done" and (shown.scores[0].reward, shown.scores[0].reward_source) == (0.25, "operator ana")
    assert (shown.reviews[0].decision, shown.reviews[0].author, shown.reviews[0].evidence) == (
        "accepted",
        "ana",
        {"seen": ["test-stdout.txt"]},
    )
    with pytest.raises(Refused, match="is not in review but scored"):
        operator.decide_review(c, trial.trial_id, accept=False, reward=None, reason="r", author="ana", now_ms=T0)


def test_review_voided_comes_back_as_review(c: sqlite3.Connection) -> None:
    trial = bring_to(c, cell(c), "review")
    operator.decide_review(c, trial.trial_id, accept=False, reward=None, reason="broken grader", author="ana", now_ms=T0)
    assert state(c, cell(c)) == "claimed"
    let_go(c, trial)
    assert state(c, cell(c)) == "open"
    assert operator.unvoid(c, trial_id=trial.trial_id, author="bob", reason="r", now_ms=T0).restored[0][1] == "review"
    assert state(c, cell(c)) == "review"
    operator.decide_review(c, trial.trial_id, accept=True, reward=1.0, reason="r", author="ana", now_ms=T0)
    assert state(c, cell(c)) == "done"


def test_retry(c: sqlite3.Connection) -> None:
    done = block(c)["plain"]
    with pytest.raises(Refused, match="counts for this cell: void it first"):
        operator.retry(c, trial_id=done, author="ana", reason="r", now_ms=T0)
    review = bring_to(c, cell(c, "rust", "goal"), "review")
    with pytest.raises(Refused, match="is in review: decide that first"):
        operator.retry(c, trial_id=review.trial_id, author="ana", reason="r", now_ms=T0)
    free = cell(c, "rust", "plain")
    assert operator.retry(c, cell_id=free, author="ana", reason="r", now_ms=T0).outcome == "open"
    admitted = bring_to(c, free, "reserved")
    assert operator.retry(c, cell_id=free, author="ana", reason="r", now_ms=T0).outcome == "claimed"
    daemon_void(c, admitted.trial_id, passes=1)
    let_go(c, admitted)
    assert state(c, free) == "parked"
    assert operator.retry(c, trial_id=admitted.trial_id, author="ana", reason="r", now_ms=T0).outcome == "unparked"
    assert state(c, free) == "open"


def test_unpark_by_cell_task_arm_and_all(c: sqlite3.Connection) -> None:
    def park_all() -> None:
        for (cell_id,) in c.execute("SELECT cell_id FROM cell").fetchall():
            admission.park_cell(c, cell_id, code="by_hand", detail="d", author="ana", now_ms=T0)

    for selector, expected in (({"cell_id": cell(c)}, 1), ({"task": "zstd"}, 6), ({"arm": "goal"}, 4), ({}, 12)):
        park_all()
        assert operator.unpark(c, campaign_id=1, author="bob", reason="fixed", now_ms=T0, **selector) == expected  # type: ignore[arg-type]
    assert operator.unpark(c, campaign_id=1, author="bob", reason="again", now_ms=T0) == 0
    assert {tuple(r) for r in c.execute("SELECT ended_by FROM park").fetchall()} == {("bob",)}


def test_f07_every_attempt_keeps_its_row(c: sqlite3.Connection) -> None:
    ids = []
    for _ in range(3):
        admitted = bring_to(c, cell(c), "running")
        daemon_void(c, admitted.trial_id, passes=9)
        let_go(c, admitted)
        ids.append(admitted.trial_id)
    final = bring_to(c, cell(c), "scored")
    shown = show.show(c, final.trial_id)
    assert [(row.trial_id, row.attempt, row.state, row.void_code) for row in shown.attempts] == [
        *((trial_id, n, "voided", "engine_failed") for n, trial_id in enumerate(ids, start=1)),
        (final.trial_id, 4, "scored", None),
    ]
    assert len({row[0] for row in c.execute("SELECT name FROM container").fetchall()}) == 4


def test_f09_a_claim_is_not_released_while_its_trial_or_container_is_there(c: sqlite3.Connection) -> None:
    admitted = bring_to(c, cell(c), "running")
    with pytest.raises(sqlite3.IntegrityError, match="claim_released_only_after"):
        trials.release_claim(c, admitted.trial_id, now_ms=T0 + 10**9)  # however slow it is
    with pytest.raises(sqlite3.IntegrityError, match="claim_only_open_cell"):
        help.admit(c, cell(c))
    daemon_void(c, admitted.trial_id)
    with pytest.raises(sqlite3.IntegrityError, match="claim_released_only_after_container"):
        trials.release_claim(c, admitted.trial_id, now_ms=T0)
    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE constraint failed: claim\.cell_id"):
        help.admit(c, cell(c))
    assert trials.loose_claims(c) == []
    assert [row.trial_id for row in trials.loose_containers(c, ENGINE)] == [admitted.trial_id]
    assert trials.live_tokens(c) == {admitted.token}
    trials.container_gone(c, admitted.trial_id, now_ms=T0)
    assert trials.loose_claims(c) == [admitted.trial_id]
    assert trials.release_claim(c, admitted.trial_id, now_ms=T0) is True
    assert trials.release_claim(c, admitted.trial_id, now_ms=T0) is False


def test_b03_b04_lease_outlives_trial_and_claim_until_the_network_is_seen_gone(c: sqlite3.Connection) -> None:
    admitted = bring_to(c, cell(c), "scored")
    trials.container_gone(c, admitted.trial_id, now_ms=T0)
    trials.release_claim(c, admitted.trial_id, now_ms=T0)
    (lease,) = networks.leases(c, ENGINE)
    assert (lease.trial_id, lease.trial_state, lease.leaked_at_ms) == (admitted.trial_id, "scored", None)
    assert networks.removal_failed(c, lease.lease_id, now_ms=T0 + 1) == 1
    assert networks.removal_failed(c, lease.lease_id, now_ms=T0 + 2) == 2
    pool = pools.pool(c, ENGINE)
    assert (pool.live, pool.leaked) == (1, 1)
    (lease,) = networks.leases(c, ENGINE)
    assert (lease.leaked_at_ms, lease.removal_failed_at_ms, lease.remove_attempts) == (T0 + 1, T0 + 2, 2)
    assert networks.release_lease(c, lease.lease_id, because="seen_gone", now_ms=T0) is True
    assert networks.release_lease(c, lease.lease_id, because="seen_gone", now_ms=T0) is False
    assert networks.leases(c, ENGINE) == []


def test_b01_no_admission_beyond_the_cap_and_nothing_of_it_remains(c: sqlite3.Connection) -> None:
    networks.set_pool(c, ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=1, margin=0)
    help.admit(c, cell(c, "zstd", "plain"))
    before = list(c.iterdump())
    c.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="network_lease_within_cap"):
        help.admit(c, cell(c, "zstd", "goal"))
    c.execute("ROLLBACK")
    assert list(c.iterdump()) == before  # neither claim nor trial
    help.admit(c, cell(c, "rust", "goal"))  # a task without network needs no lease


def test_swap_of_a_refused_subnet(c: sqlite3.Connection) -> None:
    admitted = help.admit(c, cell(c), subnet_n=1)
    assert admitted.lease_id is not None and admitted.network_name == f"mn-{help.LEDGER_ID}-t{admitted.trial_id:04d}"
    new = networks.swap_lease(
        c, admitted.lease_id, new_subnet=help.subnet(2), quarantine_until_ms=T0 + 100, detail="Pool overlaps", now_ms=T0
    )
    assert (new.trial_id, new.subnet, new.network_name) == (admitted.trial_id, help.subnet(2), f"{admitted.network_name}-2")
    third = networks.swap_lease(c, new.lease_id, new_subnet=help.subnet(3), quarantine_until_ms=T0 + 100, detail="again", now_ms=T0)
    assert third.network_name == f"{admitted.network_name}-3"
    assert [row.lease_id for row in networks.leases(c, ENGINE)] == [third.lease_id]
    assert networks.quarantined(c, ENGINE, now_ms=T0) == [help.subnet(1), help.subnet(2)]
    assert networks.quarantined(c, ENGINE, now_ms=T0 + 100) == []


def test_networks_seen_are_replaced_as_a_whole(c: sqlite3.Connection) -> None:
    one, two = (NetworkSeen(f"id{n}", f"net{n}", "foreign", "proj", "172.17.0.0/16", T0) for n in (1, 2))
    networks.replace_networks_seen(c, ENGINE, [one, two], now_ms=T0)
    networks.replace_networks_seen(c, ENGINE, [two], now_ms=T0 + 1)
    assert networks.networks_seen(c) == [(ENGINE, two, T0 + 1)]


def test_findings_are_counted_closed_and_acknowledged(c: sqlite3.Connection) -> None:
    def see(detail: str = "d", now_ms: int = T0) -> int:
        return findings.raise_finding(
            c, code="lease_leaked", severity="warning", subject="t0001", detail=detail, campaign_id=1, now_ms=now_ms
        )

    first = see()
    assert see("worse", T0 + 5) == first
    assert findings.ack(c, "lease_leaked", author="ana", reason="known", now_ms=T0 + 6) == 1
    assert findings.ack(c, first, author="bob", reason="too", now_ms=T0 + 7) == 0
    (row,) = findings.open_findings(c)
    assert (row.times, row.detail, row.opened_at_ms, row.seen_at_ms, row.acked_by) == (2, "worse", T0, T0 + 5, "ana")
    assert findings.close_finding(c, code="lease_leaked", subject="t0001", now_ms=T0) is True
    assert findings.close_finding(c, code="lease_leaked", subject="t0001", now_ms=T0) is False
    assert see() != first
    findings.raise_finding(c, code="bad", severity="stop_loss", subject="x", detail="d", campaign_id=None, now_ms=T0)
    assert [row.code for row in findings.open_findings(c)] == ["bad", "lease_leaked"]


def test_agent_end_by_budget_is_its_own_event(c: sqlite3.Connection) -> None:
    own = bring_to(c, cell(c, "zstd", "plain"), "scored")
    budget = bring_to(c, cell(c, "zstd", "goal"), "scored", ended_by="deadline")
    events = {row[0]: row[1] for row in c.execute("SELECT trial_id, event FROM trial_event WHERE seq = 4").fetchall()}
    assert events == {own.trial_id: "agent_ended", budget.trial_id: "budget_spent"}
    context = show.show(c, budget.trial_id).context
    assert context.agent is not None and (context.agent.ended_by, context.agent.limit_origin) == ("deadline", "task 600 x 1.0")
    assert [(row.arm, row.budget_ended) for row in status.counts_by_arm(c, 1)][:2] == [("plain", 0.0), ("goal", 1.0)]
