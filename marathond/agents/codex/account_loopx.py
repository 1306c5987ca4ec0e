"""What the log of a run tells of LoopX: its set-up, its wakes, what its scheduler said, what an operator cleared.  Pure.

Owns the fields of those entries, which :mod:`~marathond.agents.codex.account` adds up with all others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from marathond.agents.codex.account_shapes import Detail

POLLS_TOLD_APART = 50


class Places(Detail):
    registry: str
    runtime: str
    state_file: str
    document: str


class SetUp(Detail):
    """As the gates left it (agents/loopx/goal.py).  ``hashes``: of the bodies by profile; ``skills``: upstream's required ones."""

    goal_id: str
    profile: str
    state: Places
    todo_id: str
    body: str
    body_sha256: str
    hashes: dict[str, str]
    skills: list[str]


class WakeIntended(Detail):
    cause: str
    mark: str
    turn_id: str
    pause_s: float


class Gates(Detail):
    ids: list[str]


class Quota(Detail):
    should_run: bool
    decision: str
    action: str


class Replayed(Detail):
    turn_id: str


class Refused(Detail):
    call: str
    detail: str


OfLoopX = WakeIntended | Gates | Quota | Replayed | Refused


@dataclass(slots=True)
class LoopXAccount:
    """``wakes``: intended ones.  ``replayed``: ids of those of which LoopX told the agent that it knew them before.  ``polls``: the
    scheduler's answers to the driver, by action.  ``cleared``: ids of gates that were approved for it.  ``refused``: the last refusal."""

    set_up: SetUp | None = None
    wakes: list[WakeIntended] = field(default_factory=list)
    replayed: list[str] = field(default_factory=list)
    polls: Counter[str] = field(default_factory=Counter)
    cleared: list[str] = field(default_factory=list)
    refused: str = ""

    def take(self, kind: str, detail: OfLoopX) -> None:
        match detail:
            case WakeIntended():
                self.wakes.append(detail)
            case Replayed(turn_id=turn_id):
                self.replayed.append(turn_id)
            case Quota(action=action):
                action = action[:100]
                self.polls[action if action in self.polls or len(self.polls) < POLLS_TOLD_APART else "(others)"] += 1
            case Gates(ids=ids) if kind == "gate_cleared":
                self.cleared += ids
            case Gates():
                pass
            case Refused(call=call, detail=said):
                self.refused = f"{call}: {said}"
