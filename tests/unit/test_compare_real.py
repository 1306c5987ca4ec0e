"""The comparison on 1,299 real trials: a public table of 13 configurations x 20 tasks x 5 trials."""

from __future__ import annotations

import csv
import socket
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import scipy.stats

from marathond.core.compare import compare
from marathond.core.compare.result import Comparison, Metric
from marathond.core.results import CellResult, Contrast, Results
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs.results import read_results
from marathond.service.importing.run import Wanted, carry_out, plan
from tests.support.ledgers import T0, file_ledger
from tests.support.some_results import a_cell, some_results

TABLE = Path(__file__).parents[1] / "data" / "swe-marathon-trials.csv"

KNOWN = (
    ("Claude Code / Claude Opus 4.8", 26, ".711"),
    ("Claude Code / Claude Opus 4.7", 16, ".661"),
    ("Codex / GPT-5.5", 12, ".640"),
    ("Terminus 2 / Claude Opus 4.7", 11, ".582"),
    ("Gemini CLI / Gemini 3.5 Flash", 7, ".372"),
    ("Terminus 2 / GPT-5.5", 6, ".443"),
    ("Terminus 2 / DeepSeek V4 Pro", 4, ".373"),
    ("Terminus 2 / Gemini 3.1 Pro", 4, ".358"),
    ("Gemini CLI / Gemini 3.1 Pro", 2, ".408"),
    ("Terminus 2 / GLM 5.1", 1, ".292"),
    ("Terminus 2 / Kimi K2.6", 0, ".294"),
    ("Terminus 2 / MiniMax M2.7", 0, ".137"),
    ("Kimi CLI / Kimi K2.6", 0, ".133"),
)
BEST, SECOND = KNOWN[0][0], KNOWN[1][0]
SHORT = "Gemini CLI / Gemini 3.1 Pro"


@cache
def results() -> Results:
    """Straight from the file: trials of one task and configuration are numbered as they stand there, and every one of them is valid."""
    cells: list[CellResult] = []
    counts: dict[tuple[str, str], int] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["task"], f"{row['agent']} / {row['model']}"
            counts[key] = counts.get(key, 0) + 1
            cells.append(
                a_cell(
                    *key,
                    counts[key],
                    float(row["reward"]),
                    trial=row["trial"],
                    partial=float(row["partial"]),
                    ended_by="deadline" if row["status"] == "AgentTimeoutError" else "agent",
                    agent_s=float(row["duration_s"]),
                    tokens=int(float(row["tokens"])),
                    cost_usd=float(row["cost_usd"]),
                )
            )
    lacking = [(task, arm, 5) for (task, arm), n in counts.items() if n == 4]
    cells += [a_cell(*key, state="open") for key in lacking]
    return some_results(cells, contrasts=(Contrast(BEST, SECOND),), origin="import")


@cache
def comparison() -> Comparison:
    return compare(results())


def test_imported_into_a_ledger_it_says_the_same_to_the_last_digit(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    file_ledger(ledger, host=socket.gethostname(), now_ms=T0)
    carry_out(ledger, plan(ledger, Wanted(TABLE, csv=True), "ana"))
    with closing(open_readonly(ledger)) as c:
        read = read_results(c)
    imported = compare(replace(read, contrasts=results().contrasts))
    here, there = ({arm.arm: arm for arm in each.arms} for each in (comparison(), imported))
    assert here.keys() == there.keys()
    for arm in here.values():
        other = there[arm.arm]
        assert (arm.cells, arm.done, arm.solved, arm.reward, arm.partial) == (
            other.cells,
            other.done,
            other.solved,
            other.reward,
            other.partial,
        )
        assert (arm.at_k, arm.reward_se, arm.tokens, arm.cost_usd, arm.agent_s) == (
            other.at_k,
            other.reward_se,
            other.tokens,
            other.cost_usd,
            other.agent_s,
        )
    ours, theirs = (each.contrasts[0] for each in (comparison(), imported))
    for metric in (Metric.REWARD, Metric.PARTIAL):
        one, other_one = ours.of(metric), theirs.of(metric)
        assert one is not None and other_one is not None
        assert (one.cells, len(one.pairs), one.bounds) == (other_one.cells, len(other_one.pairs), other_one.bounds)
    assert ours.of(Metric.REWARD) == theirs.of(Metric.REWARD)


@pytest.mark.parametrize(("arm", "solved", "partial"), KNOWN)
def test_solved_and_mean_partial_of_each_configuration(arm: str, solved: int, partial: str) -> None:
    found = next(each for each in comparison().arms if each.arm == arm)
    assert (found.solved, found.done, found.cells) == (solved, 99 if arm == SHORT else 100, 100)
    assert found.partial is not None
    assert f"{found.partial:.3f}" == f"0{partial}"


def test_there_are_thirteen_configurations_and_one_trial_is_missing() -> None:
    assert {each.arm for each in comparison().arms} == {arm for arm, *_ in KNOWN}
    assert sum(each.done for each in comparison().arms) == 1299


def test_the_best_two_over_tasks_like_these() -> None:
    found = comparison().contrasts[0].of(Metric.REWARD)
    assert found is not None and found.tasks is not None and found.tasks.interval is not None
    tasks = found.tasks
    assert (tasks.n, found.cells, found.left_out) == (20, 100, ())
    assert f"{tasks.difference:.2f}" == "0.10"
    assert f"{tasks.se:.4f}" == "0.0703"
    assert f"{tasks.p_t:.4f}" == "0.1713"
    assert f"[{tasks.interval.low:.4f},{tasks.interval.high:.4f}]" == "[-0.0472,0.2472]"
    assert (tasks.p_sign_flip, tasks.sign_flip_how) == (0.25, "exact")
    assert (tasks.discordant, tasks.wins, tasks.losses) == (7, 5, 2)
    assert f"{tasks.p_sign_test:.4f}" == "0.4531"
    assert tasks.p_holm == tasks.p_sign_flip, "one contrast is its own family"


def test_the_best_two_on_these_tasks() -> None:
    found = comparison().contrasts[0].of(Metric.REWARD)
    assert found is not None and found.these_tasks is not None
    within = found.these_tasks
    assert f"{within.p_exact:.5f}" == "0.02220"
    assert f"{within.p_cmh:.5f}" == "0.01242"
    assert f"{within.odds_ratio:.3f}" == "3.083"
    assert found.mcnemar is None, "five replicates of one task are no independent pairs"


def test_what_a_naive_test_over_trials_would_have_said() -> None:
    """Not in any report: it takes a hundred trials of twenty tasks for a hundred tasks."""
    z = (0.26 - 0.16) / (0.26 * 0.74 / 100 + 0.16 * 0.84 / 100) ** 0.5
    assert f"{2 * scipy.stats.norm.sf(z):.5f}" == "0.08024"


def test_the_missing_trial_is_left_out_on_both_sides_and_named() -> None:
    both = compare(some_results(results().cells, contrasts=(Contrast(SHORT, BEST),)))
    found = both.contrasts[0].of(Metric.REWARD)
    assert found is not None and found.bounds is not None and found.tasks is not None
    assert found.cells == 99
    assert [(each.task, each.replicate, each.why) for each in found.left_out] == [("nextjs-vite-rewrite", 5, f"open in {SHORT}")]
    assert found.bounds.low <= found.tasks.difference <= found.bounds.high
    assert found.bounds.high - found.bounds.low == pytest.approx(1 / 100), "one of a hundred cells of one arm"


def test_pass_at_k_of_the_short_one_is_undefined_beyond_four() -> None:
    short = next(each for each in comparison().arms if each.arm == SHORT)
    assert [each.at_least_one is None for each in short.at_k] == [False] * 4 + [True]
    assert short.at_k[0].tasks == 20
