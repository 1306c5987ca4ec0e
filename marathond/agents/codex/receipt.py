"""The receipt of a codex run: its shape, which is also a JSON schema beside this file (fault e03).

Owns names, kinds and the schema's number.  A field that is renamed changes the schema, and a test compares: then the number goes up, and
``receipt.schema.json`` is written anew (``python -m marathond.agents.codex.receipt``).  Nothing that does not fit is stored.  Pure.

Two sides tell of tokens and are kept apart: ``client`` is what codex counted, from files that the agent's user could write; ``gateway`` is
what the provider answered, and it alone counts for money and results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from marathond.agents.codex.receipt_loopx import LoopXPart
from marathond.agents.codex.receipt_part import Counts, DatabasePart, Part, Text
from marathond.ports.agent import ReceiptInvalid

SCHEMA = 2
SCHEMA_FILE = Path(__file__).with_name("receipt.schema.json")


class Names(Part):
    """``treatment``: the arm's row as codex was given it; ``loopx.…``: what of it is LoopX's."""

    trial: str
    campaign: str
    task: str
    arm: str
    replicate: int
    attempt: int
    treatment: dict[str, str | int | float | bool | None]


class Versions(Part):
    """``package`` identifies the staged tree; ``tree_sha256`` is all of its hash, None where it is staged no longer.  ``told``: what codex
    itself wrote into its rollouts."""

    marathond: str
    codex: str
    package: str
    tree_sha256: str | None
    told: list[str]


class Given(Part):
    """What codex ran with.  ``model`` and ``effort`` as the thread's start answered; empty: no thread was started.

    ``config_after``: sha256, or a word for a file that cannot be read.  ``tools`` None: this surface does not tell them.
    ``gates``: what each of them saw before the start: effective settings, features, skills, project files.
    """

    model: str
    effort: str
    config_before: str | None
    config_after: str | None
    config_same: bool | None
    instruction: Text
    objective: Text | None
    base_instructions: Text | None
    tools: list[str] | None
    tools_sha256: str | None
    gates: dict[str, str]


class Rpc(Part):
    """By method.  ``complete``: all of it was written down; otherwise there was at least so much.  ``refused``: requests of the server."""

    complete: bool
    connections: int
    reattached: int
    unreachable: int
    requests: Counts
    errors: Counts
    notifications: Counts
    unknown: Counts
    refused: Counts


class Turns(Part):
    """Of the main thread, as the driver counted; ``told``: by status, as its rollout does.  ``open``: begun, with no end that it saw.
    ``silent``: completed with neither a word nor an act.  ``unheard``: not heard from start to end.  ``acts``: items that did something;
    ``commands`` among them, or as many as the rollout tells where that is more (a turn that was stopped)."""

    by_status: Counts
    by_cause: Counts
    told: Counts
    open: int
    silent: int
    unheard: int
    commands: int
    acts: int
    said: int
    retries: int


class Change(Part):
    """``cause``: see ``account.Transition``."""

    at: str
    status: str
    cause: str
    tokens_used: int


class GoalPart(Part):
    objective: str
    token_budget: int | None
    status: str
    changes: list[Change]
    changes_left_out: int


class Unblocks(Part):
    """How often a goal was set active again; ``gate``: with LoopX's gates cleared, or these alone between two wakes."""

    model: int
    infra: int
    stalled: int
    gate: int


class Errors(Part):
    """codexErrorInfo as one word: of failed turns, and of errors that codex itself got over."""

    failed: Counts
    retried: Counts


class ByKind(Part):
    """Tokens.  ``cached`` and ``cache_write`` are parts of ``input``, ``reasoning`` is a part of ``output``."""

    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int


class Sum(ByKind):
    """Of so many answers of the model."""

    answers: int


class Difference(ByKind):
    """``answers`` None: the client's were not counted."""

    answers: int | None


class Client(Part):
    """``source``: ``rollouts``, or ``app-server`` where none was left (then without a count of answers)."""

    source: Literal["rollouts", "app-server"]
    main: Sum
    sub_agents: Sum


class ModelSum(ByKind):
    """``failed``: requests without a whole answer; ``unknown``: cut in mid-stream, their tokens are not known."""

    requests: int
    failed: int
    unknown: int
    cost_usd: float | None


class Gateway(Part):
    """``models``: as the provider named them.  ``answers``: requests whose usage is known; ``in_flight``: whose end was not told."""

    models: dict[str, ModelSum]
    total: ModelSum
    answers: int
    in_flight: int


class TokensPart(Part):
    """``difference``: gateway minus client, None where one of them is not known.  ``explained``: there is none, or what was in flight when
    the run ended, or cut, may account for it."""

    client: Client | None
    gateway: Gateway | None
    difference: Difference | None
    explained: bool | None


class Time(Part):
    """``ran_ms`` None: its end was not seen.  ``turns_ms``: sum of the turns' durations as codex told them."""

    started_at: str
    ended_at: str | None
    ran_ms: int | None
    limit_ms: int | None
    limit_origin: str
    held_ms: int
    turns_ms: int


class End(Part):
    """``by``: a value of EndedBy, None where the trial was void before.  ``deadline``: its time was spent."""

    by: str | None
    why: str
    deadline: bool
    halted: bool
    exit_code: int | None
    exit_source: str
    void: str | None
    void_reason: str | None


class SubAgent(Part):
    """``rollout``: whether one was left; without, its tokens are what the app-server told."""

    thread_id: str
    parent_id: str
    path: str
    rollout: bool
    commands: int
    tokens: Sum


class LeftOut(Part):
    path: str
    why: str


class Trajectory(Part):
    """``source`` as of :class:`Client`.  ``cut``: texts that were shortened."""

    source: Literal["rollouts", "app-server"]
    steps: int
    cut: int
    left_out: int


class KeptPart(Part):
    """Copies beside this receipt.  ``unreadable``: lines of rollouts that are not as they must be; ``unknown``: kinds of lines that are not
    known here, with their numbers."""

    files: int
    bytes: int
    left_out: list[LeftOut]
    rollouts: int
    unreadable: int
    first_unreadable: str
    unknown: Counts
    databases: list[DatabasePart]
    trajectory: Trajectory | None


class CodexReceipt(Part):
    """Schema 2.  ``loopx`` None: the arm has none."""

    receipt: Literal["codex"] = "codex"
    schema_number: Literal[2] = 2
    names: Names
    versions: Versions
    given: Given
    end: End
    time: Time
    turns: Turns
    goal: GoalPart | None
    unblocks: Unblocks
    errors: Errors
    tokens: TokensPart
    rpc: Rpc
    thread_id: str
    sub_agents: list[SubAgent]
    tools_called: Counts
    warnings: list[str]
    warnings_left_out: int
    rerouted: bool
    no_commands: bool
    kept: KeptPart
    loopx: LoopXPart | None
    remarks: list[str] = Field(description="codes of the findings that were raised with it")


def validated(data: Mapping[str, Any], schema: int = SCHEMA) -> CodexReceipt:
    """What was stored, or is about to be.

    :raises ReceiptInvalid: names the field.
    """
    if schema != SCHEMA:
        raise ReceiptInvalid(f"receipt of schema {schema}: this version reads {SCHEMA}")
    try:
        return CodexReceipt.model_validate_json(json.dumps(data, allow_nan=False))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ReceiptInvalid(f"receipt: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:  # NaN, a number of thousands of digits
        raise ReceiptInvalid(f"receipt: {error}") from error


def json_schema() -> str:
    """The schema as text, for :data:`SCHEMA_FILE`."""
    return json.dumps(CodexReceipt.model_json_schema(mode="serialization"), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(SCHEMA_FILE.write_text(json_schema(), encoding="utf-8") == 0)
