"""What a campaign has shown, read from a ledger: each number's source, what is unknown, and that no clock is asked."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

import pytest

from marathond.core.compare import compare
from marathond.core.errors import Refused
from marathond.core.results import CellResult, Contrast, VoidResult
from marathond.ledger.verbs import campaigns, contrasts, findings, imports, operator, parks, runs, trials
from marathond.ledger.verbs.results import read_results
from marathond.ledger.verbs.trials import ScoreRow
from tests.support.ledgers import T0, arm, bring_to, cell, daemon_void, end_agent, fill, good_score, let_go, memory_ledger, submission, task
from tests.support.spending import run_cell, spend


@pytest.fixture
def c() -> sqlite3.Connection:
    found = memory_ledger()
    fill(found)
    return found


def the(c: sqlite3.Connection, task_name: str = "zstd", arm_name: str = "plain") -> CellResult:
    return next(each for each in read_results(c).cells if (each.task, each.arm) == (task_name, arm_name))


def test_a_campaign_without_a_trial(c: sqlite3.Connection) -> None:
    found = read_results(c, "x")
    assert (found.campaign, found.origin, found.replicates, found.tasks) == ("x", "run", 1, ("rust", "zstd"))
    assert [each.name for each in found.arms] == ["plain", "goal"]
    assert [(each.task, each.arm, each.state) for each in found.cells] == [
        ("rust", "plain", "open"),
        ("rust", "goal", "open"),
        ("zstd", "plain", "open"),
        ("zstd", "goal", "open"),
    ]
    assert all(not column.exists and column.why == "no cell is done yet" for column in found.columns)
    assert found.as_of_ms == T0
    assert compare(found).contrasts[0].metrics == ()


def test_a_done_cell_has_every_number(c: sqlite3.Connection) -> None:
    trial_id = run_cell(c, "zstd", "plain", 1.5)
    found = the(c)
    assert (found.state, found.trial, found.reward, found.partial, found.test_rate) == ("done", f"t{trial_id:04d}", 1.0, 0.5, 0.75)
    assert (found.tests_passed, found.tests_total, found.attempts, found.voids) == (3, 4, 1, 0)
    assert (found.ended_by, found.budget_ended, found.agent_s, found.limit_s) == ("agent", False, 60.0, 600.0)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens, found.tokens) == (1000, 800, 50, 1050)
    assert (found.cost_usd, found.scored_at_ms) == (1.5, T0)


def test_the_exit_status_of_an_agent_is_its_cells(c: sqlite3.Connection) -> None:
    trial_id = bring_to(c, cell(c), "running").trial_id
    end_agent(c, trial_id, exit_code=3)
    assert the(c).exit_code == 3 and the(c, arm_name="goal").exit_code is None


def test_credited_time_is_in_the_limit(c: sqlite3.Connection) -> None:
    admitted = bring_to(c, cell(c), "running")
    trials.credited(c, admitted.trial_id, credit_ms=30_000)
    assert the(c).limit_s == 630.0


def test_what_is_not_done_has_no_score_and_says_why(c: sqlite3.Connection) -> None:
    bring_to(c, cell(c, "zstd", "plain"), "review")
    parks.park_task(c, 2, code="task_unsupported", detail="gpu", author="daemon", now_ms=T0)
    found = read_results(c)
    states = {(each.task, each.arm): (each.state, each.review_code, each.park_code) for each in found.cells}
    assert states["zstd", "plain"] == ("review", "unreadable", None)
    assert states["rust", "plain"] == ("parked", None, "task_unsupported")
    assert all(each.reward is None and each.scored_at_ms is None and each.flags == () for each in found.cells)


def test_a_trial_that_was_scored_and_is_looked_at_again_has_no_reward_here(c: sqlite3.Connection) -> None:
    """A claim or a doubt takes a cell out of what is compared, whatever numbers its trial holds."""
    admitted = bring_to(c, cell(c), "scored")
    let_go(c, admitted)
    operator.void_trials(c, [admitted.trial_id], code="operator", reason="no", author="ana", now_ms=T0 + 1)
    assert (the(c).state, the(c).reward, the(c).trial, the(c).attempts, the(c).voids) == ("open", None, None, 1, 1)


def test_flags_and_a_persons_word_are_of_the_newest_score(c: sqlite3.Connection) -> None:
    admitted = bring_to(c, cell(c), "verifying")
    trials.verification_ended(c, admitted.trial_id, 1, outcome="exited", exit_code=0, now_ms=T0)
    trials.scored(c, admitted.trial_id, replace(good_score(0.0), flags=("build_failed",)), now_ms=T0)
    assert the(c).build_failed and not the(c).by_operator
    doubted = bring_to(c, cell(c, "zstd", "goal"), "review")
    operator.decide_review(c, doubted.trial_id, accept=True, reward=1.0, reason="seen", author="ana", now_ms=T0 + 9)
    assert the(c, "zstd", "goal").by_operator


def test_d09_what_was_refused_is_of_the_newest_score_and_says_why(c: sqlite3.Connection) -> None:
    refused = [("refused 1", "above 1: 50", "metrics.json:partial_score")]
    trial_id = bring_to(c, cell(c), "scored").trial_id
    trials.scored(c, trial_id, ScoreRow(2, 0.0, "reward.txt", parts=refused), now_ms=T0)
    assert (the(c).partial, the(c).why_refused("partial"), the(c).why_refused("test_rate")) == (None, "above 1: 50", "")
    trials.scored(c, trial_id, ScoreRow(2, 0.0, "reward.txt", 0.5), now_ms=T0)
    assert the(c).refused == ()


def test_graded_again_the_newest_score_counts_and_the_time_stays(c: sqlite3.Connection) -> None:
    admitted = bring_to(c, cell(c), "scored", reward=0.0)
    trials.scored(c, admitted.trial_id, ScoreRow(2, 1.0, "reward.txt", 0.9, None, None, (), [], 0.6), now_ms=T0 + 50_000)
    found = the(c)
    assert (found.reward, found.partial, found.test_rate, found.tests_total, found.scored_at_ms) == (1.0, 0.9, 0.6, None, T0)


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        ({"dollars": 2.0}, 1050, 2.0),
        ({"dollars": 2.0, "unpriced": 1}, 1050, None),
        ({"dollars": 2.0, "cut": 1}, 1050, 2.0),
        ({"dollars": 0.0, "requests": 0, "cut": 2, "tokens": (0, 0, 0)}, None, None),
        ({"dollars": 0.0, "requests": 0, "failed": 3, "tokens": (0, 0, 0)}, None, None),
        ({"dollars": 2.0, "account": "verifier"}, None, None),
        ({"dollars": 2.0, "account": "gate"}, None, None),
    ],
)
def test_unknown_usage_stays_unknown(c: sqlite3.Connection, usage: dict[str, float], tokens: int | None, cost: float | None) -> None:
    admitted = bring_to(c, cell(c), "scored")
    spend(c, admitted.trial_id, **usage)  # type: ignore[arg-type]
    assert (the(c).tokens, the(c).cost_usd) == (tokens, cost)


def test_money_of_valid_and_void_trials_stands_apart(c: sqlite3.Connection) -> None:
    run_cell(c, "zstd", "plain", 3.0)
    run_cell(c, "rust", "plain", 2.0, state="voided")
    spend(c, run_cell(c, "rust", "goal", 1.0), 0.0, model="other", requests=0, unpriced=2)
    found = read_results(c)
    assert dict(found.spent_usd) == {"plain": 3.0, "goal": 1.0}
    assert dict(found.voids_usd) == {"plain": 2.0}
    assert dict(found.unpriced) == {"goal": 1}, "a trial, however many of its requests"


def _void(c: sqlite3.Connection) -> VoidResult:
    (found,) = read_results(c).voids
    return found


def test_a09_the_first_valid_trial_counts_and_what_was_withdrawn_stands_beside_it(c: sqlite3.Connection) -> None:
    """A reward of 1 is withdrawn and the next trial scores 0: the cell's reward is 0, and the report can tell."""
    first = bring_to(c, cell(c), "scored", reward=1.0)
    let_go(c, first)
    operator.void_trials(c, [first.trial_id], code="provider", reason="outage", author="ana", now_ms=T0 + 1)
    second = bring_to(c, cell(c), "scored", reward=0.0, now_ms=T0 + 2)
    let_go(c, second)
    assert (the(c).trial, the(c).reward) == (f"t{second.trial_id:04d}", 0.0)
    void = _void(c)
    assert (void.code, void.side, void.decided_by, void.author, void.score_was_known) == ("provider", "operator", "operator", "ana", True)
    assert (void.reward, void.kept_reward, void.standing) == (1.0, 0.0, True)
    with pytest.raises(sqlite3.IntegrityError, match="claim_only_open_cell"):
        bring_to(c, cell(c), "scored", reward=1.0)


def test_a08_a_void_that_was_taken_back_is_told_with_the_reward_that_was_known(c: sqlite3.Connection) -> None:
    trial = bring_to(c, cell(c), "scored", reward=0.0)
    let_go(c, trial)
    operator.void_trials(c, [trial.trial_id], code="operator", reason="no", author="ana", now_ms=T0 + 1)
    operator.unvoid(c, trial_id=trial.trial_id, author="ana", reason="yes", now_ms=T0 + 2)
    trials.scored(c, trial.trial_id, ScoreRow(2, 1.0, "reward.txt", None, None, None), now_ms=T0 + 3)
    void = _void(c)
    assert (void.standing, void.reward, void.kept_reward) == (False, 0.0, 1.0), "graded again later, it was not what was withdrawn"
    assert read_results(c).as_of_ms == T0 + 3


def test_a_void_before_any_score_has_no_reward(c: sqlite3.Connection) -> None:
    trial = bring_to(c, cell(c), "running")
    daemon_void(c, trial.trial_id)
    assert (_void(c).reward, _void(c).score_was_known, _void(c).kept_reward) == (None, False, None)


def test_findings_of_the_campaign_and_of_the_house(c: sqlite3.Connection) -> None:
    other = campaigns.submit(c, submission(name="y"), now_ms=T0).campaign_id
    for code, campaign_id in (("mine", 1), ("house", None), ("other", other)):
        findings.raise_finding(c, code=code, severity="warning", subject=code, detail="d", campaign_id=campaign_id, now_ms=T0 + 5)
    findings.close_finding(c, code="house", subject="house", now_ms=T0 + 7)
    found = read_results(c, "x")
    assert [(each.code, each.campaign, each.closed_at_ms) for each in found.findings] == [("mine", "x", None), ("house", None, T0 + 7)]
    assert found.as_of_ms == T0 + 7


def test_what_befell_the_house_outside_of_a_campaigns_life_is_not_its_own(c: sqlite3.Connection) -> None:
    def house(code: str, opened: int, closed: int | None) -> None:
        findings.raise_finding(c, code=code, severity="error", subject=code, detail="d", campaign_id=None, now_ms=T0 + opened)
        if closed is not None:
            findings.close_finding(c, code=code, subject=code, now_ms=T0 + closed)

    house("before", -9, -5)
    house("into", -9, 5)
    house("later", 900, None)
    assert [each.code for each in read_results(c).findings] == ["into", "later"], "it still has cells to run"
    for task_name in ("zstd", "rust"):
        for arm_name in ("plain", "goal"):
            let_go(c, bring_to(c, cell(c, task_name, arm_name), "scored", now_ms=T0 + 20), now_ms=T0 + 20)
    assert [each.code for each in read_results(c).findings] == ["into"]
    assert read_results(c).as_of_ms == T0 + 20


def test_the_same_ledger_reads_the_same_whenever_it_is_asked(c: sqlite3.Connection) -> None:
    run_cell(c, "zstd", "plain", 3.0)
    found = read_results(c)
    c.execute("UPDATE run SET seen_at_ms = seen_at_ms + 86400000")
    assert read_results(c) == found
    assert found.as_of_ms == T0


# ── columns ──


def test_d11_a_column_that_no_cell_has_is_absent_with_the_reason(c: sqlite3.Connection) -> None:
    admitted = bring_to(c, cell(c), "verifying")
    trials.verification_ended(c, admitted.trial_id, 1, outcome="exited", exit_code=0, now_ms=T0)
    trials.scored(c, admitted.trial_id, ScoreRow(1, 1.0, "reward.txt", None, None, None), now_ms=T0)
    columns = {each.name: each for each in read_results(c).columns}
    assert columns["reward"].exists
    assert (columns["partial"].exists, columns["partial"].why) == (False, "none of 1 done cells has a partial score")
    c.execute("UPDATE campaign SET config_json = ?", (json.dumps({"profile": PROFILE}),))
    columns = {each.name: each for each in read_results(c).columns}
    assert (columns["partial"].exists, columns["partial"].why) == (False, "tb has none: its verifiers write 0 or 1")
    assert read_results(c).benchmark == "tb"


PROFILE = {"name": "tb", "scores": {"partial": {"exists": False, "note": "its verifiers write 0 or 1"}}}


def test_a_value_that_was_measured_beats_a_profile_that_expects_none(c: sqlite3.Connection) -> None:
    c.execute("UPDATE campaign SET config_json = ?", (json.dumps({"profile": PROFILE}),))
    bring_to(c, cell(c), "scored")
    partial = next(each for each in read_results(c).columns if each.name == "partial")
    assert partial.exists
    assert partial.why == "tb is said to have none, and 1 of 1 done cells hold one"


# ── which campaign ──


def test_the_newest_that_this_ledger_runs_is_read_when_none_is_named(c: sqlite3.Connection) -> None:
    imports.begin_import(c, "old", kind="csv", source="t.csv", author="ana", refused=[], conditions={}, now_ms=T0)
    assert read_results(c).campaign == "x"
    assert read_results(c, "old").campaign == "old"


def test_a_campaign_that_is_not_there_is_refused_with_those_there_are(c: sqlite3.Connection) -> None:
    with pytest.raises(Refused, match="no campaign z; there are: x"):
        read_results(c, "z")
    with pytest.raises(Refused, match="no campaign was ever submitted or imported"):
        read_results(memory_ledger())


# ── imported ──


def test_imported_numbers_stand_where_usage_is_missing() -> None:
    c = memory_ledger()
    runs.begin_run(c, pid=1, pid_start_ticks=1, host="h", boot_id="b", version="1", now_ms=T0)
    at = imports.begin_import(c, "old", kind="csv", source="t.csv", author="ana", refused=[{"a": "b"}], conditions={}, now_ms=T0)
    places = [("zstd", "A/m", 1), ("zstd", "A/m", 2), ("zstd", "B/n", 1)]
    imports.add_cells(c, at, places)
    details = imports.Details(
        model="m", started_at_ms=T0 - 9_000, agent_ms=5_000, ended_by="deadline", tokens=77, cost_nusd=2_500_000_000, turns=3
    )
    trial = imports.ImportedTrial("k1", "h", details, good_score(1.0))
    imports.import_cells(c, at, [imports.ImportedCell("zstd", "A/m", 1, (trial,))], now_ms=T0)
    found = read_results(c)
    assert (found.campaign, found.origin) == ("old", "import")
    assert found.imported == ("1 trial from t.csv (csv) by ana at 2026-09-21T14:13:20Z, 1 listed and not taken",)
    one = found.cells[0]
    assert (one.tokens, one.input_tokens, one.cost_usd, one.agent_s, one.limit_s) == (77, None, 2.5, 5.0, None)
    assert (one.ended_by, one.budget_ended, one.scored_at_ms) == ("deadline", True, T0 - 4_000)
    assert [(each.name, each.model) for each in found.arms] == [("A/m", "m"), ("B/n", None)]
    assert dict(found.spent_usd) == {"A/m": 2.5}


# ── contrasts ──


def _declare(c: sqlite3.Connection, *pairs: tuple[str, str], now_ms: int = T0) -> campaigns.SubmitResult:
    return campaigns.submit(c, replace(THREE, contrasts=pairs), now_ms=now_ms)


THREE = submission(arms=(arm("plain"), arm("goal"), arm("loop")), tasks=(task("zstd", network=False),), replicates=3)


@pytest.fixture
def three() -> sqlite3.Connection:
    found = memory_ledger()
    fill(found, THREE)
    return found


def test_contrasts_are_declared_by_a_submission_with_the_scores_that_were_known(three: sqlite3.Connection) -> None:
    assert (_declare(three, ("goal", "plain")).declared, _declare(three, ("goal", "plain")).declared) == (1, 0)
    assert read_results(three).contrasts == (Contrast("goal", "plain", T0, 0),)
    assert three.execute("SELECT author, version FROM contrast").fetchall()[0]["author"] == "ana"


def test_a_later_declaration_is_the_next_version_and_tells_how_late_it_came(three: sqlite3.Connection) -> None:
    _declare(three, ("goal", "plain"), ("loop", "plain"))
    let_go(three, bring_to(three, cell(three, replicate=1), "scored"))
    let_go(three, bring_to(three, cell(three, replicate=2), "scored"))
    later = _declare(three, ("loop", "goal"), ("plain", "goal"), now_ms=T0 + 5)
    assert (later.declared, later.declared_after) == (2, 2)
    found = read_results(three)
    assert found.contrasts == (Contrast("loop", "goal", T0 + 5, 2), Contrast("plain", "goal", T0, 0)), "turned round it is not new"
    seen = three.execute("SELECT arm_a, arm_b, version, scores_known, declared_at FROM v_contrast WHERE campaign = 'x' ORDER BY position")
    assert [tuple(row) for row in seen.fetchall()] == [
        ("loop", "goal", 2, 2, "2026-09-21T14:13:20.005Z"),
        ("plain", "goal", 2, 0, "2026-09-21T14:13:20.000Z"),
    ]
    assert (found.declaration, found.declared_after, found.dropped) == (2, 2, (Contrast("loop", "plain", T0, 0),))
    notes = compare(found).notes
    assert "the contrasts were declared anew (version 2) when 2 scores were known, without loop against plain" in notes


def test_a_submission_that_declares_none_leaves_the_last_declaration(three: sqlite3.Connection) -> None:
    _declare(three, ("goal", "plain"))
    assert _declare(three).declared == 0
    assert contrasts.declared(three, 1).contrasts == (Contrast("goal", "plain", T0, 0),)


def test_a_voided_score_was_known_all_the_same(three: sqlite3.Connection) -> None:
    trial = bring_to(three, cell(three), "scored")
    let_go(three, trial)
    operator.void_trials(three, [trial.trial_id], code="operator", reason="no", author="ana", now_ms=T0)
    assert _declare(three, ("goal", "plain")).declared_after == 1
