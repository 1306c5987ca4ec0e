"""What the reads of ``status`` and the scheduler cost, in SQLite's own steps: no clock, so no flaky bound.

A step is one instruction of SQLite's virtual machine, some 10 to 30 ns.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator

import pytest
from support.big_ledger import LIVE, check, fill_big
from support.ledgers import ENGINE, T0, cell, memory_ledger
from support.ledgers import admit as admit_one

from marathond.core.columns import NAMES
from marathond.core.money import Rules, nusd
from marathond.ledger.verbs import admission, findings, money, networks, settings, show, status, trials, turns
from marathond.ledger.verbs.columns import columns_of
from marathond.ledger.verbs.runs import last_run
from marathond.ledger.verbs.unpriced import unpriced

TRIALS = 10_000
CAMPAIGN = 1
CAP = Rules({}, nusd(100), nusd(40))

READS: dict[str, tuple[Callable[[sqlite3.Connection], object], int]] = {
    "counts_by_arm": (lambda c: status.counts_by_arm(c, CAMPAIGN), 50 * TRIALS),
    "columns_of": (lambda c: columns_of(c, CAMPAIGN), 13 * TRIALS),
    "columns_of, counted": (lambda c: columns_of(c, CAMPAIGN, done=1, held=dict.fromkeys(NAMES, True)), 1_000),
    "live_trials": (lambda c: status.live_trials(c, CAMPAIGN), 10_000),
    "durations": (lambda c: status.durations(c, CAMPAIGN), 60_000),
    "parked_by_code": (lambda c: status.parked_by_code(c, CAMPAIGN), 10_000),
    "pools": (status.pools, 10_000),
    "open_findings": (findings.open_findings, 1_000),
    "last_run": (last_run, 1_000),
    "stops": (admission.stops, 1_000),
    "observations": (settings.observations, 1_000),
    "show": (lambda c: show.show(c, TRIALS // 2), 2_000),
    "snapshot": (lambda c: admission.snapshot(c, CAMPAIGN, engine=ENGINE, limit=64), 48 * TRIALS),
    "snapshot below a cap": (lambda c: admission.snapshot(c, CAMPAIGN, engine=ENGINE, limit=64, money=CAP), 180 * TRIALS),
    "spent": (lambda c: money.spent(c, CAMPAIGN), 25 * TRIALS),
    "unpriced": (lambda c: unpriced(c, CAMPAIGN), 1_000),
    "forecast": (lambda c: money.forecast(c, CAMPAIGN, CAP), 60_000),
    "leases": (lambda c: networks.leases(c, ENGINE), 10_000),
    "unfinished": (trials.unfinished, 1_000),
    "loose_containers": (lambda c: trials.loose_containers(c, ENGINE), 1_000),
    "loose_claims": (trials.loose_claims, 10_000),
    "live_tokens": (trials.live_tokens, 1_000),
    "newest_void": (trials.newest_void, 1_000),
    "verifiers' turns": (lambda c: turns.look(c, building=0, now_ms=T0), 3_000),
    "a lone verifier": (turns.lone_runs, 1_000),
    "v_trial where live": (lambda c: c.execute("SELECT trial, phase, elapsed_s FROM v_trial WHERE live").fetchall(), 10_000),
}
"""Read → (function, bound of steps).  Only the first two see every trial, and each in one pass over one index; the snapshot walks past what
is done."""
NEWEST_FIRST = ("durations", "forecast", "snapshot below a cap")
"""They walk over trials by key, the newest first, until their limit."""
OURS = {"o", "b", "begun", "verifying"}
"""What a statement has made itself: the open cells, their blocks, those that have begun; the trials that are verified."""


@pytest.fixture(scope="module")
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill_big(made, TRIALS)
    yield made
    made.close()


def steps(c: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    """Upper bound of the virtual machine's steps, to a hundred per statement."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    c.set_progress_handler(tick, 100)
    try:
        work(c)
    finally:
        c.set_progress_handler(None, 0)
    return (count + 1) * 100


def test_big_ledger_is_as_the_triggers_would_have_left_it(c: sqlite3.Connection) -> None:
    assert check(c) == []
    counts = dict(c.execute("SELECT state, count(*) FROM trial GROUP BY state").fetchall())
    assert counts == {"voided": TRIALS // 10, "running": LIVE, "scored": TRIALS * 9 // 10 - LIVE}
    assert c.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone() == (
        memory_ledger().execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()
    )


def test_big_ledger_catches_a_planted_fault(c: sqlite3.Connection) -> None:
    c.execute("SAVEPOINT s")
    c.execute("DROP TRIGGER trial_state_follows_events")
    c.execute("UPDATE trial SET state = 'running' WHERE trial_id = 5000")
    assert any(line.startswith("state is not the last event's") for line in check(c))
    c.execute("ROLLBACK TO s")
    c.execute("RELEASE s")
    assert check(c) == []


@pytest.mark.parametrize("name", READS)
def test_reads_stay_within_their_steps(c: sqlite3.Connection, name: str) -> None:
    work, bound = READS[name]
    assert steps(c, work) <= bound


@pytest.mark.parametrize("name", READS)
def test_reads_scan_no_table(c: sqlite3.Connection, name: str) -> None:
    """EXPLAIN QUERY PLAN of every statement that the read runs: the tables that grow are only met through an index or a key."""
    seen: list[str] = []
    c.set_trace_callback(seen.append)
    try:
        READS[name][0](c)
    finally:
        c.set_trace_callback(None)
    assert seen
    for statement in seen:
        for row in c.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall():
            match = re.match(r"SCAN (\w+)(?! USING)$", row["detail"])
            table = match[1] if match else ""
            allowed = {"trial"} if name in NEWEST_FIRST else set()
            assert table in allowed | {"arm", "campaign", "task", "admission_stop", "observation", "run", "p", "network_pool", ""} | OURS, (
                row["detail"],
                statement,
            )


def test_admission_costs_the_same_in_a_large_ledger(c: sqlite3.Connection) -> None:
    """Claim, trial, lease, event and all their triggers: nothing in it grows with the ledger."""
    small = memory_ledger()
    fill_big(small, 1000)
    costs = []
    for ledger in (small, c):
        open_cell = ledger.execute("SELECT cell_id FROM cell_state WHERE state = 'open' LIMIT 1").fetchone()[0]
        costs.append(steps(ledger, lambda c, one=open_cell: admit_one(c, one, subnet_n=4000)))  # type: ignore[misc]
    assert costs[1] <= costs[0] + 500 and costs[1] < 5_000
    assert cell(small, "task-00", "plain") == 1
    small.close()
