"""The notifications of codex 0.171's app-server that are used here.  See ``shapes`` for what they are made of."""

from __future__ import annotations

from collections.abc import Mapping

from marathond.agents.codex.shapes import (
    Goal,
    Item,
    Status,
    Thread,
    TokenUsage,
    Turn,
    TurnError,
    Wire,
)


class OnThreadStarted(Wire):
    thread: Thread


class OnStatus(Wire):
    thread_id: str
    status: Status


class OnTurnStarted(Wire):
    thread_id: str
    turn: Turn


class OnTurnCompleted(Wire):
    thread_id: str
    turn: Turn


class OnItemStarted(Wire):
    thread_id: str
    turn_id: str
    item: Item
    started_at_ms: int


class OnItemCompleted(Wire):
    thread_id: str
    turn_id: str
    item: Item
    completed_at_ms: int


class OnGoalUpdated(Wire):
    """``turn_id`` None: set from outside a turn."""

    thread_id: str
    turn_id: str | None
    goal: Goal


class OnGoalCleared(Wire):
    thread_id: str


class OnTokenUsage(Wire):
    thread_id: str
    turn_id: str
    token_usage: TokenUsage


class OnError(Wire):
    """An error inside a turn; ``will_retry`` False: the turn fails with it."""

    thread_id: str
    turn_id: str
    will_retry: bool
    error: TurnError


class OnWarning(Wire):
    message: str
    thread_id: str | None


class OnConfigWarning(Wire):
    summary: str
    details: str | None


class OnRerouted(Wire):
    thread_id: str
    turn_id: str
    from_model: str
    to_model: str


class OnThreadClosed(Wire):
    thread_id: str


Known = (
    OnThreadStarted
    | OnStatus
    | OnTurnStarted
    | OnTurnCompleted
    | OnItemStarted
    | OnItemCompleted
    | OnGoalUpdated
    | OnGoalCleared
    | OnTokenUsage
    | OnError
    | OnWarning
    | OnConfigWarning
    | OnRerouted
    | OnThreadClosed
)

NOTIFICATIONS: Mapping[str, type[Known]] = {
    "thread/started": OnThreadStarted,
    "thread/status/changed": OnStatus,
    "turn/started": OnTurnStarted,
    "turn/completed": OnTurnCompleted,
    "item/started": OnItemStarted,
    "item/completed": OnItemCompleted,
    "thread/goal/updated": OnGoalUpdated,
    "thread/goal/cleared": OnGoalCleared,
    "thread/tokenUsage/updated": OnTokenUsage,
    "error": OnError,
    "warning": OnWarning,
    "configWarning": OnConfigWarning,
    "model/rerouted": OnRerouted,
    "thread/closed": OnThreadClosed,
}

DELTAS = (
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "item/plan/delta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/textDelta",
    "command/exec/outputDelta",
    "process/outputDelta",
)
"""Pieces of what comes whole with ``item/completed``: the client opts out of them."""
