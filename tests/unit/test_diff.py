"""What two campaigns differ in, and when their results compare like with like."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import pytest

from marathond.cli.diff import flat, render, side, without_secrets
from marathond.cli.output import Screen, json_text
from marathond.core.unlike import Change, Done, Side, Unlike, unlike
from marathond.ledger.verbs import campaigns
from marathond.service.exits import CallFailed
from tests.support import ledgers as have


def done(task: str, arm: str, replicate: int, reward: float, partial: float | None = None) -> Done:
    return Done(task, arm, replicate, reward, partial, None)


TASK = {"digest": "d1", "limit_s": 600.0}
A = Side(
    "first",
    {"agent_timeout_s": 600, "pids": 100},
    {"plain": {"kind": "codex", "codex": {"model": "m-1", "effort": "high"}}, "goal": {"kind": "codex", "env": {"API_KEY": "s3cret"}}},
    {"zstd": TASK, "rust": TASK},
    {"admission.concurrency": 8, "notify.webhook": None},
    8,
    [done("zstd", "plain", 1, 1.0, 0.9), done("zstd", "goal", 1, 0.0, 0.5), done("rust", "plain", 1, 0.0), done("rust", "plain", 2, 1.0)],
)


def shown(found: Unlike) -> str:
    return "\n".join(render(found, Screen()))


def test_two_that_are_alike_compare() -> None:
    b = replace(
        A, name="second", done=[done("zstd", "plain", 1, 0.0, 0.4), done("zstd", "goal", 1, 1.0, 1.0), done("rust", "plain", 2, 1.0)]
    )
    found = unlike(A, b)
    assert found.warnings == () and (found.treatment, found.arms, found.tasks, found.operation) == ((), (), (), ())
    assert found.common == 3  # rust/plain/1 counts in one of them alone
    plain, goal = found.by_arm
    assert (plain.cells, plain.reward_a, plain.reward_b, plain.partial_a, plain.partial_b) == (2, 1.0, 0.5, 0.9, 0.4)
    assert (goal.cells, goal.reward_a, goal.reward_b) == (1, 0.0, 1.0)
    assert [(each.name, each.cells) for each in found.by_task] == [("zstd", 2), ("rust", 1)]
    text = shown(found)
    assert "treatment: the same" in text and "WARNING" not in text and "results over 3 cells that count in both" in text
    assert "report --campaign first --against second" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("plain"))
    assert row == ["plain", "2", "1.00", "0.50", "-0.50", "0.90", "0.40", "-0.50"]


def test_a_treatment_that_differs_is_a_warning() -> None:
    b = replace(A, name="second", treatment={"agent_timeout_s": 900, "benchmark": "x"})
    found = unlike(A, b)
    assert found.treatment == (Change("agent_timeout_s", 600, 900), Change("pids", 100, None, "a"), Change("benchmark", None, "x", "b"))
    assert len(found.warnings) == 1 and "agent_timeout_s, pids, benchmark" in found.warnings[0]
    text = shown(found)
    assert "  agent_timeout_s: 600 -> 900" in text and "  pids: only a has it, 100" in text
    assert text.index("WARNING the treatments differ") < text.index("arm ")


def test_an_arm_that_differs_is_marked_and_one_that_is_alone_is_named() -> None:
    arms = {"plain": {"kind": "codex", "codex": {"model": "m-2", "effort": "high"}}, "heartbeat": {"kind": "codex"}}
    found = unlike(A, replace(A, name="second", arms=arms))
    assert [(each.name, each.changes) for each in found.arms] == [("plain", (Change("codex.model", "m-1", "m-2"),))]
    assert (found.arms_only_a, found.arms_only_b) == (("goal",), ("heartbeat",))
    assert [each.like for each in found.by_arm] == [False] and "plain" in found.warnings[0]
    text = shown(found)
    assert "\nplain !" in text and "  only in a: goal" in text and "  plain codex.model: m-1 -> m-2" in text


def test_a_task_that_differs_has_no_common_cell() -> None:
    found = unlike(A, replace(A, name="second", tasks={"zstd": {**TASK, "digest": "d2"}, "rust": TASK}))
    assert found.common == 2 and [each.name for each in found.by_task] == ["rust"]
    assert "zstd" in found.warnings[0] and "zstd digest: d1 -> d2" in shown(found)


def test_what_decides_no_result_is_no_warning() -> None:
    found = unlike(A, replace(A, name="second", operation={"admission.concurrency": 12, "notify.webhook": None}))
    assert found.operation == (Change("admission.concurrency", 8, 12),) and found.warnings == ()


def test_nothing_in_common_has_no_table() -> None:
    text = shown(unlike(A, replace(A, name="second", done=())))
    assert "results over 0 cells" in text and "means alone" not in text


def test_a_secret_that_differs_is_told_as_different_and_not_shown() -> None:
    arms = {**A.arms, "goal": {"kind": "codex", "env": {"API_KEY": "0ther"}}}
    found = without_secrets(unlike(A, replace(A, name="second", arms=arms)))
    assert [change.where for each in found.arms for change in each.changes] == ["env.API_KEY"]
    for text in (shown(found), json_text(found)):
        assert "s3cret" not in text and "0ther" not in text and "hidden" in text


def test_nested_keys_are_told_by_dots() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}


# ── from a ledger ──


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    c = have.memory_ledger()
    have.fill(c)
    wanted = replace(
        have.submission(
            name="y", arms=[have.arm("plain"), have.arm("goal", "h2")], tasks=[have.task("zstd"), have.task("rust", digest="d9")]
        ),
        treatment_json='{"pids": 5}',
        config_json=json.dumps({"admission": {"concurrency": 9}, "limits": {"pids": 5}, "engine": {"build_args": {"X": "1"}}}),
        replicates=2,
    )
    campaigns.submit(c, wanted, now_ms=have.T0)
    for campaign in ("x", "y"):
        for arm in ("plain", "goal"):
            sql = """SELECT cell_id FROM cell JOIN task USING (task_id) JOIN arm USING (arm_id)
                         JOIN campaign ON campaign.campaign_id = cell.campaign_id
                     WHERE campaign.name = ? AND arm.name = ? AND task.name = 'zstd' AND replicate = 1"""
            have.let_go(c, have.bring_to(c, c.execute(sql, (campaign, arm)).fetchone()[0], "scored"))
    yield c


def test_two_campaigns_of_a_ledger(c: sqlite3.Connection) -> None:
    found = unlike(side(c, "x"), side(c, "y"))
    assert (found.cells_a, found.cells_b, found.done_a, found.done_b, found.common) == (4, 8, 2, 2, 2)
    assert found.treatment == (Change("pids", None, 5, "b"),)
    assert [each.name for each in found.tasks] == ["rust"]
    # What is treatment stands there, and only there.
    assert [change.where for change in found.operation] == ["campaign.replicates", "admission.concurrency"]
    assert [(each.name, each.changes) for each in found.arms] == [("goal", (Change("treatment_hash", "h1", "h2"),))]
    assert len(found.warnings) == 3 and json.loads(json_text(found))["common"] == 2


def test_a_campaign_that_is_not_there(c: sqlite3.Connection) -> None:
    with pytest.raises(CallFailed, match="no campaign z; there are: y, x"):
        side(c, "z")
