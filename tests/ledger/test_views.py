"""The published views: what people will type, executed on a filled ledger, and its values looked at."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator

import pytest
from support.ledgers import ENGINE, T0, arm, bring_to, cell, daemon_void, fill, let_go, memory_ledger, submission, task
from support.spending import spend

from marathond.core.money import NUSD
from marathond.ledger.verbs import admission, agentlog, campaigns, findings, networks, operator, status, treatments, trials
from marathond.ledger.verbs.trials import ScoreRow

COLUMNS = {
    "v_cell": "campaign cell block task arm replicate ordinal state trial trial_state reward partial tests_passed tests_total ended_by "
    "budget_ended attempts voids park_code park_detail test_rate",
    "v_trial": "campaign trial cell block task arm replicate attempt phase state live elapsed_s deadline_in_s limit_s limit_origin "
    "ended_by exit_code oom_killed overrun_s agent_s reward partial tests_passed tests_total reward_source void_code container image "
    "folder created_at_ms created_at changed_at_ms changed_at credit_s test_rate",
    "v_event": "campaign trial seq event from_state to_state at_ms at run detail",
    "v_arm": "campaign arm position kind cells done claimed open parked review voids reward partial test_rate budget_ended",
    "v_pair": "campaign block task replicate arm_a arm_b trial_a trial_b reward_a reward_b partial_a partial_b test_rate_a test_rate_b",
    "v_pool": "engine mode range prefix cap margin capacity ours foreign host leaked free observed_at_ms observed_at",
    "v_void": "campaign void trial cell block task arm replicate attempt code side reason evidence decided_by author at_ms at from_state "
    "score_was_known counts_pass batch standing undone_at_ms undone_at undone_by undone_reason",
    "v_finding": "campaign finding code severity subject detail times opened_at_ms opened_at seen_at_ms seen_at closed_at_ms closed_at "
    "acked_at_ms acked_at acked_by ack_reason",
    "v_usage": "campaign trial task arm replicate state account model requests failed unknown input_tokens cached_tokens "
    "cache_write_tokens output_tokens reasoning_tokens held_s retries cost_usd unpriced",
    "v_contrast": "campaign arm_a arm_b position version scores_known declared_at_ms declared_at",
    "v_disclosure": "campaign code arms text compared_with position version at_ms at",
    "v_treatment": "campaign trial task arm replicate state delivered used calls calls_logged first_call wakes unblocks_model "
    "unblocks_infra unblocks_gate",
    "v_archive": "campaign trial file sha256 size_bytes files content_bytes author at_ms at standing ended_at_ms ended_at ended_by "
    "ended_reason",
    "v_prune": "campaign trial kind path files size_bytes archive unarchived author reason at_ms at done_at_ms done_at rested_at_ms "
    "rested_at",
    "v_verifier_turn": "campaign trial task arm round alone waited_s agents_beside asked_at_ms asked_at granted_at_ms granted_at "
    "ended_at_ms ended_at",
}
"""The interface.  A column may be added at the end of this list; none may change its name or meaning."""

LOOPX = {
    **{"delivered_all": True, "used_any": True, "operator": {"model": 1, "infra": 2, "gate": 3}, "delivered": {"wakes": {"taken": 4}}},
    "used": {"calls": 5, "first": 2, "events": {"agent": {"todo_add": 1, "refresh_state": 2}}},
}
"""What of a receipt of LoopX the view reads."""
UNUSED = {
    **{**LOOPX, "used_any": False, "delivered_all": False, "delivered": {"wakes": None}},
    "used": {"calls": 0, "first": None, "events": None},
}


@pytest.fixture(scope="module")
def c() -> Iterator[sqlite3.Connection]:
    """Two arms, three tasks, two campaigns; everything that a view can show is there."""
    made = memory_ledger()
    fill(made, submission(tasks=[task("zstd"), task("rust", network=False), task("third")]))
    campaigns.submit(made, submission(name="other"), now_ms=T0)
    first = bring_to(made, cell(made, "zstd", "plain"), "preparing", now_ms=T0)
    daemon_void(made, first.trial_id, now_ms=T0 + 1_500)
    let_go(made, first)
    let_go(made, bring_to(made, cell(made, "zstd", "plain"), "scored", reward=1.0, now_ms=T0 + 2_000))
    let_go(made, bring_to(made, cell(made, "zstd", "goal"), "scored", reward=0.0, ended_by="deadline", now_ms=T0 + 3_000))
    let_go(made, bring_to(made, cell(made, "rust", "plain"), "scored", reward=0.5, now_ms=T0 + 4_000))
    bring_to(made, cell(made, "rust", "goal"), "running", now_ms=int(time.time() * 1000) - 60_000)
    withdrawn = bring_to(made, cell(made, "third", "plain"), "scored", reward=1.0, now_ms=T0 + 5_000)
    operator.void_trials(made, [withdrawn.trial_id], code="provider", reason="outage", author="ana", now_ms=T0 + 6_789)
    admission.park_cell(made, cell(made, "third", "goal"), code="task_changed", detail="was d1", author="daemon", now_ms=T0)
    networks.observe_pool(made, ENGINE, total=4096, foreign_used=15, host_used=1, now_ms=T0)
    for trial_id, dollars in ((2, 1.5), (3, 2.25), (4, 0.25)):
        spend(made, trial_id, dollars)
        spend(made, trial_id, account="gate", requests=3)
    spend(made, 5, account="verifier", model="judge", requests=0, unpriced=2, cut=1)
    agentlog.keep_receipt(made, 1, schema=2, data={"loopx": None}, now_ms=T0)
    agentlog.keep_receipt(made, 2, schema=2, data={"loopx": LOOPX}, now_ms=T0)
    agentlog.keep_receipt(made, 3, schema=2, data={"loopx": UNUSED}, now_ms=T0)
    findings.raise_finding(made, code="infra-disparity", severity="warning", subject="plain", detail="d", campaign_id=1, now_ms=T0)
    findings.raise_finding(made, code="over", severity="info", subject="s", detail="d", campaign_id=None, now_ms=T0)
    findings.close_finding(made, code="over", subject="s", now_ms=T0 + 1)
    yield made
    made.close()


def rows(c: sqlite3.Connection, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in c.execute(sql).fetchall()]


@pytest.mark.parametrize("view", COLUMNS)
def test_columns_are_the_published_ones(c: sqlite3.Connection, view: str) -> None:
    assert [row[0] for row in rows(c, f"SELECT name FROM pragma_table_info('{view}')")] == COLUMNS[view].split()


def test_means_by_arm_of_one_campaign(c: sqlite3.Connection) -> None:
    sql = """select arm, count(*) filter (where state='done') done, avg(reward), avg(partial) from v_cell where campaign='x' group by arm"""
    assert rows(c, sql) == [("goal", 1, 0.0, 0.5), ("plain", 2, 0.75, 0.5)]


def test_partial_and_test_rate_side_by_side(c: sqlite3.Connection) -> None:
    sql = "select task, arm, partial, tests_passed*1.0/tests_total from v_cell where state='done' order by task, arm"
    assert rows(c, sql) == [("rust", "plain", 0.5, 0.75), ("zstd", "goal", 0.5, 0.75), ("zstd", "plain", 0.5, 0.75)]


def test_a13_delivered_and_used_are_two_columns(c: sqlite3.Connection) -> None:
    found = rows(c, "select trial, delivered, used, calls, calls_logged, first_call, wakes from v_treatment where campaign='x' order by 1")
    assert found == [("t0002", 1, 1, 5, 3, 2, 4), ("t0003", 0, 0, 0, None, None, None)], "an arm without LoopX has no row"
    sql = (
        "select arm, sum(delivered), sum(used), sum(unblocks_model), sum(unblocks_infra), sum(unblocks_gate) from v_treatment group by arm"
    )
    assert rows(c, sql) == [("goal", 0, 0, 1, 2, 3), ("plain", 1, 1, 1, 2, 3)]
    assert treatments.treated(c, 1) == {"goal": treatments.Treated(1, 0, 0), "plain": treatments.Treated(1, 1, 1)}
    assert treatments.treated(c, 2) == {}


def test_voids_by_code_and_arm(c: sqlite3.Connection) -> None:
    sql = "select code, arm, count(*) from v_void group by code, arm order by 3 desc"
    assert sorted(rows(c, sql)) == [("engine_failed", "plain", 1), ("provider", "plain", 1)]


def test_live_trials_with_what_is_left(c: sqlite3.Connection) -> None:
    ((trial, phase, elapsed_s, deadline_in_s),) = rows(c, "select trial, phase, elapsed_s, deadline_in_s from v_trial where live")
    assert (trial, phase) == ("t0005", "running")
    assert isinstance(elapsed_s, float) and isinstance(deadline_in_s, float)
    assert elapsed_s + deadline_in_s == pytest.approx(600, abs=0.002)
    assert 60 <= elapsed_s < 300


def test_a17_what_was_held_and_not_charged_is_on_top_of_the_limit(c: sqlite3.Connection) -> None:
    c.execute("SAVEPOINT credit")
    trials.credited(c, 5, credit_ms=90_000)
    ((elapsed_s, deadline_in_s, credit_s),) = rows(c, "select elapsed_s, deadline_in_s, credit_s from v_trial where live")
    (live,) = status.live_trials(c, 1)
    c.execute("ROLLBACK TO credit")
    c.execute("RELEASE credit")
    assert isinstance(elapsed_s, float) and isinstance(deadline_in_s, float) and credit_s == 90.0
    assert elapsed_s + deadline_in_s == pytest.approx(690, abs=0.002)
    assert live.limit_ms == 690_000


def test_pool(c: sqlite3.Connection) -> None:
    ((row),) = c.execute("select * from v_pool").fetchall()
    assert (row["engine"], row["capacity"], row["ours"], row["foreign"], row["leaked"], row["free"]) == ("main", 64, 1, 15, 0, 63)
    assert row["observed_at"] == "2026-09-21T14:13:20.000Z"


@pytest.mark.parametrize(
    ("mode", "total", "foreign", "host", "capacity", "free"),
    [
        ("auto", 31, 28, 1, 1, 0),  # one of the two left is the margin; one is ours
        ("auto", 31, 31, 0, 0, 0),
        ("auto", None, 3, 0, None, None),  # cannot see: unknown, never 0
        ("explicit", None, None, None, 64, 63),
        ("explicit", 10, 4, 0, 6, 5),
    ],
)
def test_pool_capacity(
    c: sqlite3.Connection, mode: str, total: int | None, foreign: int | None, host: int | None, capacity: int | None, free: int | None
) -> None:
    c.execute("SAVEPOINT s")
    networks.set_pool(c, ENGINE, mode=mode, range="198.19.0.0/16", prefix=28, cap=64, margin=1 if mode == "auto" else 0)
    networks.observe_pool(c, ENGINE, total=total, foreign_used=foreign, host_used=host, now_ms=T0)
    assert rows(c, "select capacity, free from v_pool") == [(capacity, free)]
    c.execute("ROLLBACK TO s")
    c.execute("RELEASE s")


def test_pairs_hold_cells_done_in_both_arms(c: sqlite3.Connection) -> None:
    sql = "select task, reward_a, reward_b from v_pair where arm_a='plain' and arm_b='goal'"
    assert rows(c, sql) == [("zstd", 1.0, 0.0)]
    assert rows(c, sql.replace("plain", "X").replace("goal", "plain").replace("X", "goal")) == [("zstd", 0.0, 1.0)]


def test_usage_by_arm(c: sqlite3.Connection) -> None:
    """Gates ask no provider and are no usage; what has no price is NULL, which a sum passes over: its column says so."""
    sql = "select arm, sum(input_tokens), sum(cached_tokens), sum(output_tokens), sum(cost_usd) from v_usage group by arm"
    assert rows(c, sql) == [("goal", 2000, 1600, 100, 2.25), ("plain", 2000, 1600, 100, 1.75)]
    assert rows(c, "select trial, cost_usd, unpriced, unknown from v_usage where account = 'verifier'") == [("t0005", None, 2, 1)]


def test_history_of_a_trial(c: sqlite3.Connection) -> None:
    sql = "select trial, event, at from v_event where trial='t0001' order by seq"
    assert rows(c, sql) == [
        ("t0001", "reserved", "2026-09-21T14:13:20.000Z"),
        ("t0001", "environment_up", "2026-09-21T14:13:20.000Z"),
        ("t0001", "voided", "2026-09-21T14:13:21.500Z"),
    ]
    detail = c.execute("select detail from v_event where trial='t0001' and event='voided'").fetchone()[0]
    assert json.loads(detail) == {"void_id": 1, "code": "engine_failed", "by": "daemon"}


def test_open_findings(c: sqlite3.Connection) -> None:
    found = c.execute("select * from v_finding where closed_at is null").fetchall()
    assert [(row["code"], row["campaign"], row["opened_at"]) for row in found] == [("infra-disparity", "x", "2026-09-21T14:13:20.000Z")]


def test_operators_voids(c: sqlite3.Connection) -> None:
    sql = "select author, reason, at, score_was_known from v_void where decided_by='operator'"
    assert rows(c, sql) == [("ana", "outage", "2026-09-21T14:13:26.789Z", 1)]


def test_arms_view_and_status_and_cells_tell_the_same(c: sqlite3.Connection) -> None:
    seen = {row["arm"]: row for row in c.execute("SELECT * FROM v_arm WHERE campaign = 'x'").fetchall()}
    paid = dict(rows(c, "SELECT arm, sum(cost_usd) FROM v_usage GROUP BY arm"))
    for counts in status.counts_by_arm(c, 1):
        row = seen[counts.arm]
        assert counts.valid_nusd + counts.voids_nusd == round((paid[counts.arm] or 0) * NUSD)
        for name in ("done", "open", "claimed", "parked", "review", "voids", "reward", "partial", "test_rate", "budget_ended"):
            assert getattr(counts, name) == row[name], name
        sql = "SELECT state, count(*) FROM v_cell WHERE campaign = 'x' AND arm = ? GROUP BY state"
        states = dict(c.execute(sql, (counts.arm,)).fetchall())
        assert {name: getattr(counts, name) for name in ("done", "open", "claimed", "parked", "review") if getattr(counts, name)} == states
    plain = seen["plain"]
    assert (plain["cells"], plain["done"], plain["claimed"], plain["voids"], plain["reward"]) == (3, 2, 1, 2, 0.75)


def test_a_mean_says_over_how_many_cells_it_is() -> None:
    """A verifier that broke off wrote no partial score and no tests; the reward is over all three cells."""
    made = memory_ledger()
    fill(made, submission(arms=[arm("plain")], tasks=[task("rust"), task("zstd"), task("wasm")]))
    alone = ScoreRow(1, 0.0, "reward.txt", None, None, None, (), [])
    for number, name in enumerate(("rust", "zstd", "wasm")):
        let_go(made, bring_to(made, cell(made, name), "scored", score=None if number else alone))
    (plain,) = status.counts_by_arm(made, 1)
    assert (plain.done, plain.partial, plain.partial_cells, plain.test_rate, plain.test_rate_cells) == (3, 0.5, 2, 0.75, 2)
    made.close()


def test_e02_every_row_names_its_campaign(c: sqlite3.Connection) -> None:
    assert {row[0] for row in rows(c, "SELECT DISTINCT campaign FROM v_cell")} == {"x", "other"}
    for view in ("v_trial", "v_event", "v_void", "v_pair"):
        assert {row[0] for row in rows(c, f"SELECT DISTINCT campaign FROM {view}")} == {"x"}
    assert [(row.arm, row.open) for row in status.counts_by_arm(c, 2)] == [("plain", 2), ("goal", 2)]


def test_ids_read_as_the_command_line_prints_them(c: sqlite3.Connection) -> None:
    assert rows(c, "SELECT cell, block, trial, attempts, voids FROM v_cell WHERE task='zstd' AND arm='plain' AND campaign='x'") == [
        ("c0001", "b0001", "t0002", 2, 1)
    ]
    assert rows(c, "SELECT DISTINCT trial FROM v_cell WHERE state = 'open'") == [(None,)]


def test_times_do_not_lose_a_millisecond() -> None:
    made = memory_ledger()
    for ms in (1, 999, 1_000, 1_790_000_000_001, 1_790_000_000_999, 4_102_444_799_999):
        findings.raise_finding(made, code=str(ms), severity="info", subject="s", detail="d", campaign_id=None, now_ms=ms)
    for ms, text in rows(made, "SELECT opened_at_ms, opened_at FROM v_finding"):
        assert isinstance(ms, int) and isinstance(text, str)
        assert text.endswith(f".{ms % 1000:03d}Z")
    made.close()


def test_an_arm_added_later_has_no_mean_yet() -> None:
    made = memory_ledger()
    fill(made, submission(arms=[arm("plain")]))
    let_go(made, bring_to(made, cell(made), "scored"))
    campaigns.submit(made, submission(arms=[arm("plain"), arm("late")]), now_ms=T0)
    late = status.counts_by_arm(made, 1)[1]
    assert (late.arm, late.done, late.open, late.reward, late.partial, late.test_rate, late.budget_ended) == (
        "late",
        0,
        2,
        None,
        None,
        None,
        None,
    )
    made.close()
