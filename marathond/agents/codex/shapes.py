"""What the messages of codex 0.171's app-server are made of: items, turns, threads, goals, tokens.

Owns the shapes: names, required fields, closed sets of values.  Must not know sockets, containers or arms.

What a driver decides on is required here even where the schema lets it be left out, as long as 0.171 always sends it: a renamed field is
an error naming method and field (:class:`~marathond.agents.codex.errors.ProtocolDrift`), never a silent None.  Fields that nobody reads are
not modelled; every event also carries its raw params.  Times of a turn are Unix seconds, durations milliseconds, as codex sends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from marathond.agents.codex.errors import ProtocolDrift

TurnStatus = Literal["inProgress", "completed", "failed", "interrupted"]
GoalStatus = Literal["active", "paused", "blocked", "usageLimited", "budgetLimited", "complete"]


class Wire(BaseModel):
    """camelCase outside, snake_case inside; strict, immutable, blind to fields it does not know."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True, frozen=True, strict=True)


class TurnError(Wire):
    """``codex_error_info``: a text, or an object with one key, as codex sends it; None where it has none."""

    message: str
    codex_error_info: Any
    additional_details: str | None = None


class Item(Wire):
    """One item of a turn.  Fields below ``type`` are None where the type has none (see :data:`COMMAND`, :data:`SAID`, :data:`ASKED`)."""

    id: str
    type: str
    status: str | None = None
    """commandExecution, fileChange, mcpToolCall …: inProgress, completed, failed, declined."""
    command: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    aggregated_output: str | None = None
    source: str | None = None
    text: str | None = None
    """agentMessage, plan."""
    client_id: str | None = None
    """userMessage: the ``client_user_message_id`` of the turn/start that brought it."""
    agent_thread_id: str | None = None
    """subAgentActivity: the sub-agent's thread."""
    kind: str | None = None
    """subAgentActivity: started, interacted, interrupted, completed."""
    tool: str | None = None
    """mcpToolCall and the like."""


COMMAND, SAID, ASKED, SUB_AGENT = "commandExecution", "agentMessage", "userMessage", "subAgentActivity"
_NEEDED: Mapping[str, tuple[str, ...]] = {
    COMMAND: ("status", "command"),
    SAID: ("text",),
    SUB_AGENT: ("agent_thread_id", "kind"),
    "fileChange": ("status",),
}


class Turn(Wire):
    """``items``: as much as ``items_view`` says (notLoaded, summary, full): never all of them where a turn is notified."""

    id: str
    status: TurnStatus
    error: TurnError | None
    items: list[Item]
    items_view: str
    started_at: int | None
    completed_at: int | None
    duration_ms: int | None


class Status(Wire):
    type: Literal["notLoaded", "idle", "systemError", "active"]


class Thread(Wire):
    """``path``: the rollout file as the server names it.  ``parent_thread_id``: set for a sub-agent's thread."""

    id: str
    status: Status
    path: str | None
    cwd: str
    model_provider: str
    cli_version: str
    parent_thread_id: str | None
    source: Any
    preview: str
    """The first words of its first message; empty when there was none."""

    @property
    def of_a_sub_agent(self) -> bool:
        return self.parent_thread_id is not None or (isinstance(self.source, dict) and "subAgent" in self.source)


class Goal(Wire):
    """``tokens_used``: input - cached + output.  ``token_budget`` None: none.  Times in Unix seconds."""

    thread_id: str
    objective: str
    status: GoalStatus
    tokens_used: int
    token_budget: int | None
    time_used_seconds: int
    created_at: int
    updated_at: int


class Tokens(Wire):
    """``cached_input_tokens`` is a part of ``input_tokens``, ``reasoning_output_tokens`` a part of ``output_tokens``."""

    input_tokens: int
    cached_input_tokens: int
    cache_write_input_tokens: int
    output_tokens: int
    reasoning_output_tokens: int
    total_tokens: int


class TokenUsage(Wire):
    total: Tokens
    last: Tokens
    model_context_window: int | None


class Skill(Wire):
    name: str
    description: str
    path: str
    scope: str
    enabled: bool


class SkillError(Wire):
    path: str
    message: str


class SkillsOf(Wire):
    cwd: str
    skills: list[Skill]
    errors: list[SkillError]


Model = TypeVar("Model", bound=Wire)


def parse(method: str, model: type[Model], raw: Any) -> Model:
    """``raw`` as ``model``.

    :raises ProtocolDrift: naming ``method`` and the first field that is wrong.
    """
    try:
        made = model.model_validate(raw, by_alias=True, by_name=False)
    except ValidationError as err:
        detail = err.errors(include_url=False, include_input=False)[0]
        raise ProtocolDrift(method, ".".join(map(str, detail["loc"])) or "-", detail["msg"][:200]) from err
    item = getattr(made, "item", None)
    if isinstance(item, Item):
        for field in _NEEDED.get(item.type, ()):
            if getattr(item, field) is None:
                raise ProtocolDrift(method, f"item.{to_camel(field)}", f"missing in an item of type {item.type}")
    return made
