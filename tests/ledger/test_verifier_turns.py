"""Turns of verifiers in the ledger: asked, granted and ended by its verbs, across lives, voids and what an older life left."""

from __future__ import annotations

import json
import sqlite3

import pytest
from support import ledgers as help
from support.ledgers import T0, arm, bring_to, cell, fill, memory_ledger, start_verifier, submission, task

from marathond.core.turns import Alone
from marathond.ledger.errors import RuleBroken, translate
from marathond.ledger.verbs import operator, trials, turns
from marathond.ledger.verbs.status import live_trials

TREATMENT = json.dumps({"exclusive_verifier": {"tasks": ["timed"], "from": "verifiers"}})


@pytest.fixture
def c() -> sqlite3.Connection:
    """Four tasks; each trial that a test needs is brought to ``verifying`` without its verifier, as the flow has it when it asks."""
    made = memory_ledger()
    tasks = [task(name) for name in ("timed", "plain", "other", "third")]
    wanted = submission(arms=[arm("plain"), arm("goal")], tasks=tasks)
    from dataclasses import replace

    fill(made, replace(wanted, treatment_json=TREATMENT))
    return made


def asks(c: sqlite3.Connection, name: str, arm_name: str = "plain") -> int:
    admitted = bring_to(c, cell(c, name, arm_name), "running")
    help.end_agent(c, admitted.trial_id)
    return admitted.trial_id


def take(c: sqlite3.Connection, trial_id: int, alone: Alone = Alone.NO, *, round: int = 1, building: int = 0, now_ms: int = T0) -> str:
    return turns.take(c, trial_id, round=round, alone=alone, building=building, now_ms=now_ms)


def end(c: sqlite3.Connection, trial_id: int) -> None:
    trials.verification_ended(c, trial_id, 1, outcome="exited", exit_code=0, now_ms=T0)
    trials.scored(c, trial_id, help.good_score(), now_ms=T0)
    turns.over(c, trial_id, now_ms=T0)


def test_only_where_a_campaign_has_such_a_task(c: sqlite3.Connection) -> None:
    assert turns.in_use(c)
    plain = memory_ledger()
    fill(plain)
    assert not turns.in_use(plain)


def test_a_lone_verifier_waits_runs_alone_and_lets_the_next_ones_begin(c: sqlite3.Connection) -> None:
    plain, timed, other = asks(c, "plain"), asks(c, "timed"), asks(c, "other")
    assert take(c, plain) == ""
    start_verifier(c, plain)
    assert take(c, timed, Alone.VERIFIERS) == "until 1 other verifier ended"
    assert take(c, other) == "t0002 verifies alone before it" and turns.look(c, building=0, now_ms=T0).closed == ""
    end(c, plain)
    assert take(c, timed, Alone.VERIFIERS, building=1) == "until 1 image ended"
    assert turns.look(c, building=1, now_ms=T0).closed == "t0002 will verify alone, until 1 image ended"
    third = cell(c, "third")
    (task_id,) = c.execute("SELECT task_id FROM cell WHERE cell_id = ?", (third,)).fetchone()
    assert turns.may_make_image(c, task_id)
    assert take(c, timed, Alone.VERIFIERS, now_ms=T0 + 5000) == "" and turns.lone_runs(c)
    assert not turns.may_make_image(c, task_id)
    (row,) = turns.of_trial(c, timed)
    assert (row.alone, row.waited_ms, row.agents_beside) == ("verifiers", 5000, 0)
    assert take(c, timed, Alone.VERIFIERS) == ""  # said again, by the next life: it holds it still
    with pytest.raises(sqlite3.IntegrityError) as caught:  # whatever the flow thought: the schema keeps them apart
        start_verifier(c, other)
    assert translate(caught.value).__class__ is RuleBroken and "verification_waits_its_turn" in str(caught.value)
    with pytest.raises(sqlite3.IntegrityError, match="trial_waits_for_a_lone_verifier"):
        help.admit(c, third)
    start_verifier(c, timed)
    assert {row.trial_id: row.turn for row in live_trials(c, 1)} == {timed: "alone", other: "waits"}
    end(c, timed)
    assert take(c, other) == "" and not turns.lone_runs(c) and turns.may_make_image(c, task_id)


def test_a_voided_trial_leaves_the_queue_and_its_verifier_is_waited_for_no_longer_than_its_limit(c: sqlite3.Connection) -> None:
    plain, timed, other = asks(c, "plain"), asks(c, "timed"), asks(c, "timed", "goal")
    take(c, plain)
    start_verifier(c, plain)
    assert take(c, timed, Alone.VERIFIERS) and take(c, other, Alone.VERIFIERS)
    operator.void_trials(c, [timed, plain], code="operator", reason="r", author="ana", now_ms=T0)
    # The first waited and is gone from the queue; the other's container may still run its verifier.
    assert take(c, other, Alone.VERIFIERS) == "until 1 other verifier ended"
    limit_ms = 60_000 + turns.GRACE_MS
    assert turns.look(c, building=0, now_ms=T0 + limit_ms - 1).granted == ()
    assert turns.look(c, building=0, now_ms=T0 + limit_ms).granted == (other,)
    trials.container_gone(c, plain, now_ms=T0)
    assert take(c, other, Alone.VERIFIERS) == ""


def test_what_a_life_without_turns_left_running_counts_as_a_verifier(c: sqlite3.Connection) -> None:
    old = asks(c, "plain")
    start_verifier(c, old)
    timed = asks(c, "timed")
    assert take(c, timed, Alone.VERIFIERS) == "until 1 other verifier ended"
    trials.verification_ended(c, old, 1, outcome="exited", exit_code=0, now_ms=T0)
    assert take(c, timed, Alone.VERIFIERS) == ""


def test_what_is_being_prepared_and_for_everything_agents_are_waited_for(c: sqlite3.Connection) -> None:
    prepared = bring_to(c, cell(c, "plain"), "preparing")
    timed = asks(c, "timed")
    assert take(c, timed, Alone.EVERYTHING) == "until 1 preparation ended"
    help.start_agent(c, prepared.trial_id)
    assert take(c, timed, Alone.EVERYTHING) == "until 1 agent ended"
    assert turns.look(c, building=0, now_ms=T0).closed == "t0002 will verify alone, until 1 agent ended"
    help.end_agent(c, prepared.trial_id)
    assert take(c, prepared.trial_id) == "t0002 verifies alone"  # it asked later; nobody was granted anything yet
    assert not turns.lone_runs(c) and take(c, timed, Alone.EVERYTHING) == "" and turns.lone_runs(c)


def test_a_second_round_asks_anew_and_the_first_turn_ends(c: sqlite3.Connection) -> None:
    timed = asks(c, "timed")
    take(c, timed, Alone.VERIFIERS)
    start_verifier(c, timed)
    with pytest.raises(sqlite3.IntegrityError, match="verifier_turn_outlives_its_verifier"):
        turns.over(c, timed, now_ms=T0)
    trials.verification_ended(c, timed, 1, outcome="lost", exit_code=None, now_ms=T0)
    assert turns.has_open(c, timed, before=2) and turns.over(c, timed, before=2, now_ms=T0)
    assert not turns.has_open(c, timed) and take(c, timed, Alone.VERIFIERS, round=2) == ""
    assert [row.round for row in turns.of_trial(c, timed)] == [1, 2]
    help.trials.doubted(c, timed, code="unreadable", detail="d", evidence={}, now_ms=T0)
    assert not turns.lone_runs(c)  # at rest it holds nothing, whoever tears it down
