"""The lines of a rollout that codex 0.171 writes, and what is read of them.

Owns names and required fields, by the rule of ``shapes``: what is read is required as long as 0.171 always writes it (fault e03).  Fields
that nobody reads are not modelled.  Must not know what a line means.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Read(BaseModel):
    """Blind to fields that nobody reads; strict about those that are."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Tokens(Read):
    """Of one answer.  ``cached`` and ``cache_write`` are parts of ``input``, ``reasoning`` is a part of ``output``."""

    input: int = Field(alias="input_tokens", ge=0, le=10**12)
    cached: int = Field(alias="cached_input_tokens", ge=0, le=10**12)
    cache_write: int = Field(alias="cache_write_input_tokens", ge=0, le=10**12)
    output: int = Field(alias="output_tokens", ge=0, le=10**12)
    reasoning: int = Field(alias="reasoning_output_tokens", ge=0, le=10**12)


Id = Annotated[str, Field(max_length=200)]


class Text(Read):
    text: str


class MetaLine(Read):
    id: Id
    cli_version: str
    base_instructions: Text | None = None
    parent_thread_id: Id | None = None
    agent_path: str | None = None
    agent_nickname: str | None = None
    subagent_history_start_ordinal: int | None = None


def _instant(text: str) -> str:
    """An instant in UTC, written in one way; who reads it later must not stumble over it."""
    if len(text) > 64:
        raise ValueError("too long for an instant")
    try:
        return _utc(text)
    except OverflowError as error:  # the first or the last hours that a calendar knows, in another zone
        raise ValueError("no instant in UTC") from error


def _utc(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Line(Read):
    timestamp: Annotated[str, AfterValidator(_instant)]
    type: str
    payload: dict[str, Any]
    ordinal: int | None = None


class Passed(Read):
    content_item_kinds: list[str | None] | None = None


class MessageLine(Read):
    role: str
    content: list[dict[str, Any]]
    passed: Passed | None = Field(default=None, alias="internal_chat_message_metadata_passthrough")


class FromAgentLine(Read):
    author: str
    content: list[dict[str, Any]]


class ReasoningLine(Read):
    summary: list[dict[str, Any]]
    content: list[dict[str, Any]] | None = None


class FunctionCallLine(Read):
    call_id: Id
    name: str
    arguments: str
    namespace: str | None = None


class CustomCallLine(Read):
    call_id: Id
    name: str
    input: str


class OutputLine(Read):
    call_id: Id | None = None
    name: str | None = None
    output: str | list[dict[str, Any]]


class ToolsLine(Read):
    tools: list[dict[str, Any]]


class UsageLine(Read):
    thread_id: Id
    response_id: Id
    usage: Tokens


class BeganLine(Read):
    class Attribution(Read):
        turn_trigger: str | None

    turn_id: Id
    turn_attribution: Attribution | None = None


class Failure(Read):
    message: str


class CompleteLine(Read):
    turn_id: Id
    error: Failure | None = None


class AbortedLine(Read):
    turn_id: Id | None
    reason: str


class TurnContextLine(Read):
    class Mode(Read):
        class Settings(Read):
            reasoning_effort: str | None

        settings: Settings

    model: str
    collaboration_mode: Mode


class ItemLine(Read):
    """``item`` of an item_completed; what is required depends on its type."""

    type: str
    id: Id


class Duration(Read):
    secs: int
    nanos: int


class CommandItem(ItemLine):
    command: list[str]
    status: str
    exit_code: int | None
    duration: Duration | None


class FileChangeItem(ItemLine):
    class Change(Read):
        type: str

    changes: dict[str, Change]
    status: str


class ActivityItem(ItemLine):
    kind: str
    agent_thread_id: Id


class CollabItem(ItemLine):
    tool: str
    receiver_thread_ids: list[Id]


class CompactedLine(Read):
    message: str
