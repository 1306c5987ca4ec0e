"""What is told of a campaign is stored with it, grows with it, and is never taken back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.ledgers import T0, begin, memory_ledger, submission, task

from marathond.core.arms import arm_to_data
from marathond.core.disclosure import Conditions, TaskFacts
from marathond.core.disclosures import disclosures
from marathond.core.errors import Refused
from marathond.core.model import Arm, CodexArm
from marathond.core.names import AgentKind, Drive, NetworkPolicy
from marathond.ledger.verbs import campaigns
from marathond.ledger.verbs.campaigns import ArmRow, Submission, TaskRow
from marathond.ledger.verbs.disclosures import Disclosed, of_arm, told

ON = Conditions(pids=100, gateway=True, hold_s=10, held_at_most_s=60, own_deadline_s=60)
PLAIN = Arm("plain", AgentKind.CODEX, codex=CodexArm("p", "0.171.0", "m", "high"))
GOAL = Arm("goal", AgentKind.CODEX, codex=CodexArm("p", "0.171.0", "m", "high", drive=Drive.GOAL))
DATA = {"network": "none", "network_origin": "task network_mode", "agent_timeout_s": 600.0, "project_files": ["AGENTS.md"]}


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    begin(made)
    yield made
    made.close()


def row(arm: Arm) -> ArmRow:
    return ArmRow(arm.name, arm.kind.value, f"h-{arm.name}", json.dumps(arm_to_data(arm)))


def readable(name: str) -> TaskRow:
    return replace(task(name, network=False), data_json=json.dumps(DATA))


def wanted(*arms: Arm, tasks: tuple[TaskRow, ...] = (), on: Conditions | None = ON, name: str = "x") -> Submission:
    tasks = tasks or (readable("zstd"), task("unread", digest=None))
    return replace(submission(name=name, arms=[row(arm) for arm in arms], tasks=tasks), conditions=on)


def test_a_submission_writes_what_the_core_makes_of_arms_and_tasks(c: sqlite3.Connection) -> None:
    campaigns.submit(c, wanted(PLAIN, GOAL), now_ms=T0)
    facts = TaskFacts("zstd", NetworkPolicy.NONE, "task network_mode", 600.0, ("AGENTS.md",))
    expected = disclosures([PLAIN, GOAL], replace(ON, tasks=(facts,)))
    assert told(c, 1) == Disclosed(1, T0, expected)
    assert {"own_deadline", "tasks_with_project_files", "no_network"} <= {each.code for each in expected}
    codes = {each.code for each in of_arm(expected, "goal")}
    assert "goal_objective_literal" in codes and "plain_over_app_server" not in codes


def test_the_same_again_writes_nothing_and_growth_writes_the_next_version_whole(c: sqlite3.Connection) -> None:
    campaigns.submit(c, wanted(PLAIN), now_ms=T0)
    before = told(c, 1)
    campaigns.submit(c, wanted(PLAIN), now_ms=T0 + 1)
    assert told(c, 1) == before
    campaigns.submit(c, wanted(PLAIN, GOAL), now_ms=T0 + 2)
    grown = told(c, 1)
    assert (grown.version, grown.at_ms) == (2, T0 + 2) and len(grown.rows) > len(before.rows)
    # A smaller configuration takes no arm away, and nothing that is told of one.
    campaigns.submit(c, wanted(PLAIN), now_ms=T0 + 3)
    assert told(c, 1) == grown
    campaigns.submit(c, wanted(PLAIN, tasks=(readable("zstd"), readable("late"))), now_ms=T0 + 4)
    assert told(c, 1).version == 3
    assert "late (AGENTS.md), zstd (AGENTS.md)" in next(e.text for e in told(c, 1).rows if e.code == "tasks_with_project_files")
    versions = c.execute("SELECT version, count(*) FROM disclosure GROUP BY version").fetchall()
    assert [tuple(each) for each in versions] == [(1, len(before.rows)), (2, len(grown.rows)), (3, len(told(c, 1).rows))]


def test_campaigns_are_told_of_apart_and_one_without_conditions_not_at_all(c: sqlite3.Connection) -> None:
    campaigns.submit(c, wanted(PLAIN), now_ms=T0)
    campaigns.submit(c, wanted(GOAL, name="y"), now_ms=T0)
    campaigns.submit(c, wanted(GOAL, name="z", on=None), now_ms=T0)
    assert told(c, 3) == Disclosed()
    sql = (
        "SELECT campaign, arms, text FROM v_disclosure WHERE code IN ('plain_over_app_server', 'goal_objective_literal') ORDER BY campaign"
    )
    found = [tuple(each) for each in c.execute(sql).fetchall()]
    assert [each[:2] for each in found] == [("x", "plain"), ("y", "goal")]


def test_the_view_shows_the_newest_version_in_order_with_arms_in_words(c: sqlite3.Connection) -> None:
    campaigns.submit(c, wanted(PLAIN), now_ms=T0)
    campaigns.submit(c, wanted(PLAIN, GOAL), now_ms=T0 + 1500)
    rows = c.execute("SELECT * FROM v_disclosure WHERE campaign = 'x' ORDER BY position").fetchall()
    assert [(r["code"], r["text"], r["compared_with"]) for r in rows] == [(e.code, e.text, e.compared_with) for e in told(c, 1).rows]
    assert {r["version"] for r in rows} == {2} and {r["at"] for r in rows} == {"2026-09-21T14:13:21.500Z"}
    assert next(r["arms"] for r in rows if r["code"] == "gateway_between") == "plain, goal"


def test_an_arm_that_cannot_be_read_refuses_the_submission(c: sqlite3.Connection) -> None:
    campaigns.submit(c, replace(submission(), conditions=None), now_ms=T0)  # arms of half a row
    with pytest.raises(Refused, match="the row of arm plain was not written by this version: KeyError"):
        campaigns.submit(c, replace(submission(), conditions=ON), now_ms=T0)
