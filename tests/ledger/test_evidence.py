"""What the ledger tells of our own side beside a verification, and of other trials of the same task: counts, and no arm."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from marathond.core import ourside
from marathond.core.ourside import JudgeRequest, OtherTrial
from marathond.ledger.verbs import evidence, findings, operator, trials
from marathond.ledger.verbs.as_read import READ, as_read, row_as_read
from marathond.ledger.verbs.results import read_results
from marathond.ledger.verbs.trials import ScoreRow
from tests.support import ledgers as have
from tests.support.ledgers import T0


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = have.memory_ledger()
    arms = [have.arm("plain"), have.arm("goal"), have.ArmRow("ref", "oracle", "h1", "{}"), have.ArmRow("idle", "nop", "h1", "{}")]
    have.fill(made, have.submission(arms=arms, replicates=2))
    yield made
    made.close()


def score(c: sqlite3.Connection, arm: str, reward: float, *flags: str, replicate: int = 1) -> int:
    trial_id = have.bring_to(c, have.cell(c, "zstd", arm, replicate), "verifying").trial_id
    trials.scored(c, trial_id, ScoreRow(1, reward, "reward.txt", flags=flags), now_ms=T0)
    return trial_id


def doubt(c: sqlite3.Connection, arm: str, code: str, shown: dict[str, object], replicate: int = 1) -> int:
    trial_id = have.bring_to(c, have.cell(c, "zstd", arm, replicate), "verifying").trial_id
    trials.doubted(c, trial_id, code=code, detail="d", evidence=shown, now_ms=T0)
    return trial_id


def ask(c: sqlite3.Connection, trial_id: int, number: int, **over: object) -> None:
    c.execute("INSERT OR IGNORE INTO gateway_journal (journal_id, identity, segment, byte, last_seq, at_ms) VALUES (1, 'j', 1, 0, 0, 1)")
    row: dict[str, object] = {
        "journal_id": 1,
        "begin_seq": trial_id * 100 + number,
        "trial_id": trial_id,
        "account": "verifier",
        "number": number,
        "begun_at_ms": 1,
        "begun_mono_ms": 70_000,
        "ended_at_ms": 2,
        "end": "complete",
        "usage": "none",
        "status": 200,
        **over,
    }
    c.execute(f"INSERT INTO model_request ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def test_d06_other_trials_are_counted_with_their_failures_and_no_arm(c: sqlite3.Connection) -> None:
    mine = have.bring_to(c, have.cell(c, "zstd", "plain"), "verifying").trial_id
    score(c, "goal", 0.0, "log:dns")
    score(c, "plain", 1.0, "log:dns", replicate=2)
    score(c, "ref", 0.0, "log:dns")
    doubt(c, "goal", "infrastructure_suspected", {"log": [{"code": "dns"}], "flags": ["setup_error"]}, replicate=2)
    have.bring_to(c, have.cell(c, "zstd", "ref", 2), "running")
    have.bring_to(c, have.cell(c, "rust", "plain"), "scored")  # another task
    others = evidence.other_trials(c, mine)
    assert others == [
        OtherTrial(False, 0.0, ("log:dns",)),
        OtherTrial(False, 1.0, ("log:dns",)),
        OtherTrial(True, 0.0, ("log:dns",)),
        OtherTrial(False, None, ("setup_error", "log:dns"), "infrastructure_suspected"),
    ]
    counted = ourside.alike(others)
    assert (counted.others, counted.failures) == (3, {"log:dns": 2, "setup_error": 1})
    assert (counted.oracles, counted.oracle_failures) == (1, {"log:dns": 1})


def test_d06_an_arm_that_does_nothing_does_not_hide_what_hit_all_the_others(c: sqlite3.Connection) -> None:
    mine = have.bring_to(c, have.cell(c, "zstd", "plain"), "verifying").trial_id
    score(c, "idle", 0.0)
    score(c, "goal", 0.0, "log:dns")
    score(c, "plain", 0.0, "log:dns", replicate=2)
    assert ourside.alike(evidence.other_trials(c, mine)).everywhere("log:dns")


def test_a_voided_trial_is_no_other_trial(c: sqlite3.Connection) -> None:
    mine = have.bring_to(c, have.cell(c, "zstd", "plain"), "verifying").trial_id
    gone = score(c, "goal", 0.0, "log:dns")
    operator.void_trials(c, [gone], code="provider", reason="r", author="ana", now_ms=T0)
    assert evidence.other_trials(c, mine) == []


def test_d06_the_gateways_word_on_the_judge_is_of_this_run_and_this_account(c: sqlite3.Connection) -> None:
    mine = have.bring_to(c, have.cell(c, "zstd", "plain"), "verifying").trial_id
    ask(c, mine, 1, begun_mono_ms=61_000, end="gave_up", status=429, error_type="held_http")  # an earlier run of the verifier
    ask(c, mine, 2, account="agent", status=500)
    ask(c, mine, 3, end="gave_up", status=429, error_type="held_http", held_ms=9_000)
    ask(c, mine, 4, first_byte_ms=5)
    ask(c, mine, 5, ended_at_ms=None, end=None, usage=None, status=None)
    c.execute("INSERT INTO model_refusal VALUES (?, 'verifier', 'gateway_busy', 3, 3, 1, 2)", (mine,))
    c.execute("INSERT INTO model_refusal VALUES (?, 'agent', 'deadline', 9, 9, 1, 2)", (mine,))
    seen = evidence.judge_seen(c, mine, since_mono_ms=62_000)
    assert seen.requests == (
        JudgeRequest("gave_up", 429, "held_http", held=True),
        JudgeRequest("complete", 200, None, answered=True),
    )
    assert (seen.turned_away, seen.open) == ({"gateway_busy": 3}, 1)
    told = ourside.judge(seen.requests, seen.turned_away)
    assert (told.asked, told.ours, told.own, told.last_failed) == (5, 4, 0, False)


def test_d06_only_disks_below_the_floor_during_the_verification_are_evidence(c: sqlite3.Connection) -> None:
    for subject, detail, opened, closed in (
        ("/early", "below the floor: 3 MB free (0.1 %)", T0, T0 + 5),
        ("/then", "below the floor: 4 MB free (0.2 %)", T0, T0 + 50),
        ("/still", "below the floor: 5 MB free (0.3 %)", T0 + 20, None),
        ("/dark", "unknown, so nothing is admitted: no answer", T0, None),
    ):
        findings.raise_finding(c, code="disk_low", severity="error", subject=subject, detail=detail, campaign_id=None, now_ms=opened)
        if closed is not None:
            findings.close_finding(c, code="disk_low", subject=subject, now_ms=closed)
    assert evidence.disks_low(c, since_ms=T0 + 10) == ("/then: 4 MB free (0.2 %)", "/still: 5 MB free (0.3 %)")


ROW = ScoreRow(2, 0.25, "reward.json:reward", 0.5, 3, 4, ("log:dns", "no_tests"), [("partial", "0.5", "metrics.json:partial_score")], 0.75)


def test_d06_a_doubted_score_may_be_accepted_as_it_was_read_with_every_column(c: sqlite3.Connection) -> None:
    mine = doubt(c, "plain", "infrastructure_suspected", {READ: as_read(ROW)})
    assert operator.decide_review(c, mine, accept=True, reward=None, reason="its own server", author="ana", now_ms=T0) == 0.25
    row = c.execute("SELECT reward, partial, tests_passed, tests_total, test_rate, extractor, flags_json FROM score").fetchone()
    assert tuple(row) == (0.25, 0.5, 3, 4, 0.75, 2, '["log:dns","no_tests","accepted_as_read"]')
    assert [tuple(part) for part in c.execute("SELECT name, value, source FROM score_part")] == [tuple(ROW.parts[0])]
    assert c.execute("SELECT state FROM cell_state WHERE trial_id = ?", (mine,)).fetchone()[0] == "done"


def test_a08_a_void_over_a_review_whose_reward_was_read_is_a_void_of_a_known_score(c: sqlite3.Connection) -> None:
    mine = doubt(c, "plain", "infrastructure_suspected", {READ: as_read(ROW)})
    blind = doubt(c, "goal", "score_unreadable", {"refusals": []})
    late = doubt(c, "ref", "overrun", {"reward": 0.0})
    for trial_id in (mine, blind, late):
        operator.decide_review(c, trial_id, accept=False, reward=None, reason="r", author="ana", now_ms=T0, code="provider")
    rows = c.execute("SELECT trial, code, score_was_known FROM v_void ORDER BY trial").fetchall()
    assert [tuple(row) for row in rows] == [("t0001", "provider", 1), ("t0002", "provider", 0), ("t0003", "provider", 1)]
    told = [(void.arm, void.score_was_known, void.reward) for void in read_results(c, "x").voids]
    assert told == [("plain", True, 0.25), ("goal", False, None), ("ref", True, 0.0)]


def test_a08_the_schema_refuses_a_void_that_calls_a_reward_unknown_which_was_read(c: sqlite3.Connection) -> None:
    mine = doubt(c, "plain", "infrastructure_suspected", {READ: as_read(ROW)})
    c.execute("UPDATE review SET decided_at_ms = 1, decision = 'voided', author = 'ana' WHERE trial_id = ?", (mine,))
    sql = """INSERT INTO void (trial_id, code, reason, evidence_json, decided_by, author, at_ms, from_state, score_was_known, counts_pass,
                 batch) VALUES (?, 'operator', 'r', '{}', 'operator', 'ana', 1, 'review', 0, 0, 'b')"""
    with pytest.raises(sqlite3.IntegrityError, match="void_says_whether_score_was_known"):
        c.execute(sql, (mine,))


def test_what_is_kept_with_a_review_comes_back_whole() -> None:
    back = row_as_read({READ: as_read(ROW)})
    assert back is not None and back.flags == (*ROW.flags, "accepted_as_read")
    assert (back.parts, back.partial, back.test_rate, back.extractor) == (ROW.parts, 0.5, 0.75, 2)
    assert row_as_read({"refusals": []}) is None


def test_a08_the_rest_of_a_block_is_voided_later_and_the_cells_own_new_trial_with_it(c: sqlite3.Connection) -> None:
    mine, mate = score(c, "plain", 0.0), score(c, "goal", 1.0)
    operator.void_trials(c, [mine], code="provider", reason="r", author="ana", now_ms=T0)
    c.execute("UPDATE container SET gone_at_ms = 1, gone_because = 'seen_gone'")
    c.execute("UPDATE network_lease SET released_at_ms = 1, released_because = 'seen_gone'")
    trials.release_claim(c, mine, now_ms=T0)
    later = have.bring_to(c, have.cell(c, "zstd", "plain"), "running").trial_id
    chosen = operator.select_trials(c, campaign_id=1, trial=mine, pair=True)
    assert chosen == [mine, mate, later]
    block = c.execute("SELECT block_id FROM cell WHERE cell_id = ?", (have.cell(c, "zstd", "plain"),)).fetchone()[0]
    assert operator.select_trials(c, campaign_id=1, block_id=block) == [mate, later]
