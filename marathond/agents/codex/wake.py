"""LoopX's cadence between two wakes of one thread, and when it ends.  Pure.

Owns the rules of the drive ``wake`` after a turn that completed; of failed turns and all else see :mod:`~marathond.agents.codex.drive`.
Also makes the ids by which LoopX tells wakes apart.

* LoopX's scheduler is asked after each wake.  ``stop`` ends the agent: it has settled its work;
* it waits for a person: an operator clears its gates, counted with every other resumption; without one the agent is blocked;
* it has work: ``run_now`` is the next wake at once, any other word after its interval.  ``wake_interval_s`` replaces both;
* otherwise it is asked again after its interval, which grows by its multiplier up to its maximum while it says the same.  It may bound how
  often: then it is asked a last time at once, and said the same once more it has stopped its own loop.

A wake without a tool call is idle as a goal's turn is, and the same caps hold.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import UTC, datetime, timedelta

from marathond.agents.codex.actions import Action, Ask, End, Wake
from marathond.agents.codex.state import Poll, State
from marathond.core.model import CodexArm
from marathond.core.names import EndedBy

RUN_NOW = "run_now"


def after_wake(state: State, codex: CodexArm, resumed: Action) -> Action:
    """:param resumed: what an operator, or the want of one, makes of a gate."""
    if state.turns >= codex.turns_at_most:
        return End(EndedBy.TURN_CAP, f"{state.turns} turns")
    if state.idle >= codex.idle_turns_at_most:
        return End(EndedBy.NO_PROGRESS, f"{state.idle} wakes in a row without a tool call")
    poll = state.poll
    if poll is None:
        return Ask()
    if poll.stop:
        return End(EndedBy.AGENT, f"loopx: {poll.action} ({poll.decision})")
    if waits_for_user(poll):
        return resumed
    if poll.should_run:
        return Wake("gate" if state.after_gate else "hint", pause_s(poll, state.unchanged, codex))
    if poll.unchanged_at_most is not None and state.unchanged >= poll.unchanged_at_most:
        if state.unchanged > poll.unchanged_at_most:
            return End(EndedBy.AGENT, f"loopx: {poll.action}, unchanged {state.unchanged} times")
        return Ask()
    return Ask(pause_s(poll, state.unchanged, codex))


def waits_for_user(poll: Poll) -> bool:
    """Nothing else goes on meanwhile: LoopX may want a person for one path and run another."""
    return poll.requires_user and not (poll.should_run and poll.action == RUN_NOW)


def pause_s(poll: Poll, unchanged: int, codex: CodexArm) -> float:
    """Before what follows a poll."""
    assert codex.loopx is not None
    if codex.loopx.wake_interval_s is not None:
        return codex.loopx.wake_interval_s
    if poll.should_run and poll.action == RUN_NOW:
        return 0.0
    if poll.interval_s is None or poll.max_interval_s is None or poll.multiplier is None:
        return 0.0
    return float(min(poll.interval_s * max(poll.multiplier, 1.0) ** min(unchanged, 20), poll.max_interval_s))


def turn_id(now: datetime, used: Container[str]) -> str:
    """A time stamp as LoopX wants it, one that no earlier wake of this trial had: with the same one again LoopX begins nothing.  Whole
    seconds, for LoopX bounds the length of the body that holds it."""
    at = now.astimezone(UTC)
    while (made := f"{at:%Y-%m-%dT%H:%M:%SZ}") in used:
        at += timedelta(seconds=1)
    return made
