"""One trial of each ending and the campaign they make, as the ledger would give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from marathond.core.disclosure import Disclosure
from marathond.tasks.layout import (
    AgentView,
    ArmView,
    FactView,
    JobView,
    Moment,
    ReviewView,
    ScoreView,
    TaskView,
    TrialView,
    UsageView,
    VerifierView,
    VoidView,
    line_of,
)

START_MS = 1_700_000_000_000
SECRET = "sk-this-must-stay-in-the-ledger"

PLAIN = ArmView("plain", "command", "a1" * 32, {"name": "plain", "kind": "command", "argv": ["/agent/run"], "env": {"API_KEY": SECRET}})
GOAL = ArmView(
    "goal", "command", "b2" * 32, {"name": "goal", "kind": "command", "argv": ["/agent/run", "--goal"], "env": {}}, model="acme/big-1"
)
ZSTD = TaskView("zstd-decoder", "/srv/tasks/sample-set/zstd-decoder", "c3" * 32)
SORT = TaskView("sort lines", "/srv/tasks/sample-set/sort lines", "d4" * 32)

_EVENTS = (
    ("reserved", "reserved", 0),
    ("environment_up", "preparing", 2_000),
    ("agent_started", "running", 3_000),
    ("agent_ended", "verifying", 63_000),
)


def moments(*extra: tuple[str, str, int], upto: int = 4) -> tuple[Moment, ...]:
    """The first ``upto`` ordinary events, then ``extra``; times count from START_MS."""
    return tuple(Moment(event, state, START_MS + at_ms) for event, state, at_ms in (*_EVENTS[:upto], *extra))


def trial(trial_id: int, task: TaskView, arm: ArmView, timeline: Sequence[Moment], **fields: Any) -> TrialView:
    """A trial that has come to rest as ``timeline`` says."""
    return TrialView(
        "0123456789ab", 1, "pilot", "/srv/out", "0.1.0", trial_id, 1, trial_id, 1, fields.pop("replicate", 1), task, arm, timeline, **fields
    )


AGENT = AgentView(START_MS + 3_000, 60_000, "own", "task 36000 x 1.0", START_MS + 62_500, "agent", 0, "exec", False, 0)
VERIFIED = (VerifierView(1, START_MS + 63_500, 600_000, "format-default", START_MS + 70_000, "exited", 0),)
FACTS = (FactView("network.agent", "none", "task"),)
SCORE = ScoreView(
    *(1.0, "reward.txt:", 1, START_MS + 71_000),
    partial=0.75,
    tests_passed=3,
    tests_total=4,
    flags=("early_exit:build",),
    parts=(("test_rate", "0.75", "metrics.json:pass_rate"),),
)
USAGE = (UsageView("", 0, 0, 0, 0.0), UsageView("big-1", 12_000, 8_000, 500, 0.25), UsageView("small-1", 100, 0, 20))
"""Requests that nobody answered, priced ones, and ones without a price."""
TOLD = (
    Disclosure("agent_dead_before_verifier", ("plain", "goal"), "It is dead.", "Harbor does not end it."),
    Disclosure("goal_objective_literal", ("goal",), "The objective is a literal.", "Ordinarily it is the task."),
)
VOID = VoidView(
    *("container_lost", "infrastructure", "the container vanished", "daemon", "daemon", START_MS + 40_000, "running", False, True, "v7"),
    evidence={"inspect": "404", "seen": ["die", "destroy"]},
)


def trials() -> tuple[TrialView, ...]:
    """Scored; scored after a spent deadline; voided early and in mid-run; voided with a known score; in review; accepted."""
    done = {"agent": AGENT, "verifications": VERIFIED, "facts": FACTS}
    spent = replace(AGENT, ended_by="deadline", exit_code=None, exit_source=None)
    review = ReviewView("reward_missing", "neither reward.json nor reward.txt", START_MS + 71_000, {"rounds": 2})
    accepted = replace(review, decided_at_ms=START_MS + 90_000, decision="accepted", author="ana", reason="read by hand")
    early = replace(VOID, code="network_failed", from_state="reserved", at_ms=START_MS + 1_000)
    late = replace(VOID, code="operator", side="operator", decided_by="operator", author="ana", from_state="scored", score_was_known=True)
    scored, doubted = ("scored", "scored", 71_000), ("doubted", "review", 71_000)
    budget = (*moments(upto=3), Moment("budget_spent", "verifying", START_MS + 63_000), *moments(scored, upto=0))
    voided_late = moments(scored, ("voided", "voided", 500_000))
    again = moments(doubted, ("accepted", "scored", 90_000))
    return (
        trial(1, ZSTD, PLAIN, moments(scored), score=SCORE, **done),
        trial(2, ZSTD, GOAL, budget, score=replace(SCORE, reward=0.0), usage=USAGE, **{**done, "agent": spent}),
        trial(3, SORT, PLAIN, moments(("voided", "voided", 1_000), upto=1), void=early),
        trial(
            4, SORT, GOAL, moments(("voided", "voided", 40_000), upto=3), void=VOID, agent=replace(AGENT, ended_at_ms=None, ended_by=None)
        ),
        trial(5, SORT, GOAL, voided_late, score=SCORE, void=replace(late, at_ms=START_MS + 500_000), **done),
        trial(6, SORT, PLAIN, moments(doubted), review=review, **done),
        trial(7, ZSTD, PLAIN, again, review=accepted, score=replace(SCORE, reward=0.5), replicate=2, **done),
    )


def job(views: Sequence[TrialView], **fields: Any) -> JobView:
    """The campaign of ``views``: one trial lives, two cells wait."""
    return JobView(
        *("0123456789ab", 1, "pilot", "/srv/out", START_MS - 5_000, "ana", "e5" * 32, "blocks", 7, 2, 4),
        **{
            "arms": (PLAIN, GOAL),
            "tasks": (ZSTD, SORT),
            "trials": tuple(map(line_of, views)),
            "running": 1,
            "pending": 2,
            "disclosures": TOLD,
            "told_version": 3,
            "told_at_ms": START_MS,
            **fields,
        },
    )
