"""Faults for the rules about arms and their agents, planted in scratch ledgers.

Owns one plant per code of ``core/audit/arms.py`` and ``core/audit/agents.py``: one arm is hit, the others are as they should be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from marathond.ledger.verbs import trials
from marathond.service.doctor.ground import HOUR_MS
from marathond.service.doctor.planted import ARMS, TASKS, Told, Usage
from marathond.service.doctor.scratch import Scratch

GOAL, HEARTBEAT = ARMS[1:3]
BESIDE = (ARMS[0], GOAL)
"""Arms that ask a model and are as they should be."""
SLOW, FAST = Usage(first_byte_ms=4_000), Usage()


def _arm(scratch: Scratch, arm: str, replicates: Sequence[int] = (1, 2), tasks: Sequence[str] = TASKS, **values: Any) -> list[int]:
    return [scratch.trial(task=task, arm=arm, replicate=replicate, **values) for replicate in replicates for task in tasks]


def _hit(scratch: Scratch, **values: Any) -> None:
    """Two replicates of every task: the arm under test is hit in all its trials, the others in none."""
    for arm in BESIDE:
        _arm(scratch, arm)
    _arm(scratch, HEARTBEAT, **values)


def latency_disparity(scratch: Scratch) -> None:
    """Another region or another client: the first byte comes three times as late (fault a03)."""
    _hit(scratch, usage=SLOW)


def bad_request_disparity(scratch: Scratch) -> None:
    """A field that the provider does not take in every trial of one arm, and in one of another (fault a02)."""
    bad = Usage(statuses=(200, 400, 200))
    scratch.trial(task=TASKS[0], arm=GOAL, replicate=5, usage=bad)
    _hit(scratch, usage=bad)


def overrun_disparity(scratch: Scratch) -> None:
    """The daemon was away at one arm's deadlines (fault c19)."""
    _hit(scratch, ended_by="deadline", overrun_ms=10 * 60_000)


def reattached_differ(scratch: Scratch) -> None:
    """A restart met one arm's long trials."""
    for arm in BESIDE:
        _arm(scratch, arm)
    for trial_id in _arm(scratch, HEARTBEAT, state="running"):
        trials.reattached(scratch.c, trial_id, detail={}, now_ms=scratch.now_ms - HOUR_MS)
        trials.agent_ended(
            scratch.c,
            trial_id,
            ended_by="agent",
            exit_code=0,
            exit_source="exec",
            oom_killed=False,
            overrun_ms=None,
            processes=[],
            ended_mono_ms=10**9,
            now_ms=scratch.now_ms,
        )


def tokens_differ(scratch: Scratch) -> None:
    """A goal with a long body in each of its requests."""
    _hit(scratch, usage=Usage(input_tokens=80_000))


def turns_differ(scratch: Scratch) -> None:
    _hit(scratch, receipt=Told(turns=40))


def endings_differ(scratch: Scratch) -> None:
    _hit(scratch, ended_by="turn_cap")


def exits_differ(scratch: Scratch) -> None:
    """The path of one arm's script is mistyped: its agents are gone at once, and graded like any end of their own."""
    _hit(scratch, exit_code=2, agent_ms=40)


def reward_by_ending(scratch: Scratch) -> None:
    _arm(scratch, HEARTBEAT, [1], reward=1.0)
    _arm(scratch, HEARTBEAT, [2], reward=0.0, ended_by="deadline")


def arm_dead(scratch: Scratch) -> None:
    """The tools of one arm do not work: turns are completed, nothing is done (faults c01, f15)."""
    _arm(scratch, BESIDE[0], [1])
    _arm(scratch, HEARTBEAT, [1], TASKS[:5], receipt=Told(commands=0))


def arm_silent(scratch: Scratch) -> None:
    """Two agents that hang at a stream of theirs (fault b18)."""
    silent = Usage(last_ms=scratch.now_ms - 2 * HOUR_MS)
    _arm(scratch, HEARTBEAT, [1], TASKS[:2], state="running", agent_ms=3 * HOUR_MS, limit_ms=10 * HOUR_MS, usage=silent)


def dead_agents(scratch: Scratch) -> None:
    """Every second trial of one arm finds no tools; so no five come in a row."""
    for arm in BESIDE:
        _arm(scratch, arm, [1, 2, 3, 4, 5])
    for replicate in (1, 2, 3, 4):
        for number, task in enumerate(TASKS):
            scratch.trial(task=task, arm=HEARTBEAT, replicate=replicate, receipt=Told(commands=0 if number % 2 else 40))


def agent_silent(scratch: Scratch) -> None:
    """One agent has asked nothing for an hour; another of its arm works."""
    silent = Usage(last_ms=scratch.now_ms - HOUR_MS)
    _arm(scratch, HEARTBEAT, [1], TASKS[:1], state="running", agent_ms=2 * HOUR_MS, limit_ms=10 * HOUR_MS, usage=silent)
    _arm(scratch, HEARTBEAT, [1], TASKS[1:2], state="running")


def silent_turns_disparity(scratch: Scratch) -> None:
    _hit(scratch, receipt=Told(silent=3))


def arm_untreated(scratch: Scratch) -> None:
    """The goal's body was not given in every second trial (fault a13)."""
    _arm(scratch, HEARTBEAT, [1])
    _arm(scratch, HEARTBEAT, [2], receipt=Told(delivered=False))


def arm_treatment_unused(scratch: Scratch) -> None:
    _arm(scratch, HEARTBEAT, [1], receipt=Told(used=False))


PLANTS: Mapping[str, Callable[[Scratch], None]] = {
    plant.__name__: plant
    for plant in (
        latency_disparity,
        bad_request_disparity,
        overrun_disparity,
        reattached_differ,
        tokens_differ,
        turns_differ,
        endings_differ,
        exits_differ,
        reward_by_ending,
        arm_dead,
        arm_silent,
        dead_agents,
        agent_silent,
        silent_turns_disparity,
        arm_untreated,
        arm_treatment_unused,
    )
}
