"""Whose verifier may begin now, where some tasks time their own code.

Owns the order of turns.  Must not see an arm: a turn carries a trial's number, its task's wish to be alone and its place in the queue, so
that no arm is favoured (promise 2).  Pure; the ledger's verb asks it inside the transaction that grants.

The rule: turns are granted in the order in which they were asked for.  An ordinary verifier runs beside other ordinary ones.  One that is
alone waits until no verifier runs and nothing is being prepared or built, and nothing of that begins until it ended.  Agents go on beside
it, unless it wants to be alone with everything: then admission is closed until the last agent has ended.  Who waits behind one that waits
for other verifiers does not overtake it, for there might always be another.  Who waits behind one that waits for agents may pass: with
admission closed each agent can become a verifier once, and the last of them is the last to pass.

Nothing waits for ever: verifiers, agents and preparations end by their own deadlines, and a trial that is voided leaves the queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from marathond.core.names import trial_label
from marathond.core.text import plural


class Alone(StrEnum):
    """What must not run beside a verifier."""

    NO = "no"
    VERIFIERS = "verifiers"
    """Other verifiers, and whatever is being prepared."""
    EVERYTHING = "everything"
    """Agents, too."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A verifier that runs (``held``) or wants to; turns are listed in the order in which they were asked for."""

    trial_id: int
    alone: Alone
    held: bool = False


@dataclass(frozen=True, slots=True)
class Busy:
    """What else there is on this host: trials being prepared, images being made, agents that run."""

    preparing: int = 0
    building: int = 0
    agents: int = 0


@dataclass(frozen=True, slots=True)
class Turns:
    """``granted``: trials whose verifier may begin now.  ``waits``: of every other that asked, for what.

    ``closed``: why nothing may be admitted or built now; empty: it may.
    """

    granted: tuple[int, ...]
    waits: Mapping[int, str]
    closed: str = ""


def decide(turns: Sequence[Turn], busy: Busy) -> Turns:
    """One look at the whole queue."""
    running = [turn for turn in turns if turn.held]
    lone = next((turn for turn in running if turn.alone is not Alone.NO), None)
    granted: list[int] = []
    waits: dict[int, str] = {}
    closed = "" if lone is None else f"{trial_label(lone.trial_id)} verifies alone"
    first: Turn | None = None  # who must not be overtaken
    for turn in turns:
        if turn.held:
            continue
        if lone is not None:
            waits[turn.trial_id] = f"{trial_label(lone.trial_id)} verifies alone"
        elif first is not None:
            waits[turn.trial_id] = f"{trial_label(first.trial_id)} verifies alone before it"
        elif turn.alone is Alone.NO:
            granted.append(turn.trial_id)
            running.append(turn)
        elif turn.alone is Alone.EVERYTHING and busy.agents:
            waits[turn.trial_id] = _until(busy.agents, "agent")
            closed = closed or f"{trial_label(turn.trial_id)} will verify alone, {waits[turn.trial_id]}"
        elif running:
            waits[turn.trial_id] = _until(len(running), "other verifier")
            first = turn
            if turn.alone is Alone.EVERYTHING:
                closed = closed or f"{trial_label(turn.trial_id)} will verify alone, {waits[turn.trial_id]}"
        elif busy.preparing or busy.building:
            waits[turn.trial_id] = _until(busy.preparing, "preparation") if busy.preparing else _until(busy.building, "image")
            first = turn
            closed = closed or f"{trial_label(turn.trial_id)} will verify alone, {waits[turn.trial_id]}"
        else:
            granted.append(turn.trial_id)
            running.append(turn)
            lone = turn
            closed = f"{trial_label(turn.trial_id)} verifies alone"
    return Turns(tuple(granted), waits, closed)


def _until(count: int, what: str) -> str:
    return f"until {plural(count, what)} ended"


def alone_of(treatment: Mapping[str, Any], task: str) -> Alone:
    """What a campaign's treatment says of a task's verifier."""
    exclusive = treatment.get("exclusive_verifier") or {}
    return Alone(exclusive["from"]) if task in exclusive.get("tasks", ()) else Alone.NO


def takes_turns(treatment: Mapping[str, Any]) -> bool:
    """Whether verifiers of a campaign ask for their turn at all."""
    return bool((treatment.get("exclusive_verifier") or {}).get("tasks"))
