"""The closed sets of names that the ledger stores and people read, and how its ids are written.

Owns the enumerations of the field and the labels.  Must stay cheap to import:
``marathonctl status`` pays for each class before it says a word.
"""

from __future__ import annotations

from enum import StrEnum


class NetworkPolicy(StrEnum):
    """What a container may reach.  ``none``: nothing at all, and no subnet is used."""

    PUBLIC = "public"
    NONE = "none"


class Origin(StrEnum):
    """Where an effective limit came from; recorded with it and shown."""

    OWN = "own"
    TASK = "task"
    DEFAULT = "default"
    FORMAT_DEFAULT = "format-default"
    NOT_SET = "none"


class AgentKind(StrEnum):
    """How an arm drives the container."""

    ORACLE = "oracle"
    NOP = "nop"
    COMMAND = "command"
    CODEX = "codex"


class Drive(StrEnum):
    """How a codex arm is driven: ``turn``, one turn with goals off; ``goal``, a native goal that codex continues by itself; ``wake``, one
    turn per wake on one thread, goals off, the driver keeping LoopX's cadence."""

    TURN = "turn"
    GOAL = "goal"
    WAKE = "wake"


class LoopXProfile(StrEnum):
    """LoopX's runtime profiles that an arm may ask for; the body that LoopX renders differs by it."""

    SSH_GOAL = "codex_app_ssh_goal"
    CODEX_CLI = "codex_cli"
    GENERIC_CLI = "generic_cli"


class AfterAgent(StrEnum):
    """What happens to processes the agent detached on purpose: kept as Harbor does, or killed.  Listed either way."""

    KEEP_DETACHED = "keep-detached"
    KILL_ALL = "kill-all"


class TrialState(StrEnum):
    """A trial's life; see :mod:`marathond.core.lifecycle` for the transitions."""

    RESERVED = "reserved"
    PREPARING = "preparing"
    RUNNING = "running"
    VERIFYING = "verifying"
    SCORED = "scored"
    VOIDED = "voided"
    REVIEW = "review"


REACHED_INTO = "reached_into"
"""What is said of a trial in whose container a person ran a command: code of the finding, flag of the score, name of what happened."""

LIVE_STATES = frozenset({TrialState.RESERVED, TrialState.PREPARING, TrialState.RUNNING, TrialState.VERIFYING})


class EndedBy(StrEnum):
    """Why the agent stopped; an ordinary value, graded alike for every arm (fault a04)."""

    AGENT = "agent"
    DEADLINE = "deadline"
    TIMER = "timer"
    BLOCKED = "blocked"
    """The model declared its goal blocked, and nobody is there to resume it."""
    UNBLOCK_CAP = "unblock_cap"
    """The same, after as many resumptions as the arm allows."""
    TURN_CAP = "turn_cap"
    NO_PROGRESS = "no_progress"
    TOKEN_BUDGET = "token_budget"
    MONEY = "money"
    """The trial's own cap of money."""


BUDGET_ENDS = frozenset({EndedBy.DEADLINE, EndedBy.TIMER, EndedBy.TURN_CAP, EndedBy.TOKEN_BUDGET, EndedBy.MONEY})
"""Ends that are a spent budget; every other one is the agent's own."""


def trial_label(trial_id: int) -> str:
    """The id a person reads and types: ``t0871``."""
    return f"t{trial_id:04d}"


def block_label(block_id: int) -> str:
    """``b0174``."""
    return f"b{block_id:04d}"


def cell_label(cell_id: int) -> str:
    """``c0012``."""
    return f"c{cell_id:04d}"
