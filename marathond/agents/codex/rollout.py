"""A thread's rollout, codex 0.171's own record of it (one JSON object a line), read as typed events.

Owns what the lines mean.  A field that is missing or of another kind makes a line unreadable, which is counted and shown, never a silent
None (fault e03).  Must not know trials or trajectories.

The file was written by the agent's user: any line may hold anything.  What is read is bounded in lines' length, bytes and threads.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from marathond.agents.codex.rollout_shapes import (
    AbortedLine,
    ActivityItem,
    BeganLine,
    CollabItem,
    CommandItem,
    CompactedLine,
    CompleteLine,
    CustomCallLine,
    FileChangeItem,
    FromAgentLine,
    FunctionCallLine,
    ItemLine,
    Line,
    MessageLine,
    MetaLine,
    OutputLine,
    ReasoningLine,
    Tokens,
    ToolsLine,
    TurnContextLine,
    UsageLine,
)

LINE_BYTES_AT_MOST = 16 << 20
BYTES_AT_MOST = 128 << 20
"""Of all rollouts of a trial together."""
THREADS_AT_MOST = 500
UNKNOWN_AT_MOST = 50
"""Kinds of records that are told apart by name."""


# ---- events


@dataclass(frozen=True, slots=True)
class Said:
    """A message.  ``by``: ``user`` (whoever drives codex), ``system`` (codex itself: instructions, context), ``agent`` (the model, or for a
    sub-agent another agent)."""

    at: str
    by: str
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """The model calls a tool.  ``arguments``: as an object, or ``{"input": text}`` for one that takes a text."""

    at: str
    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """What a tool gave back; ``call_id`` empty: codex put it there itself, under ``name``."""

    at: str
    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """The end of one answer of the model."""

    at: str
    response_id: str
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Ran:
    """A command's end.  In code mode ``item_id`` is none of the model's calls: its script ran it."""

    at: str
    item_id: str
    command: str
    status: str
    exit_code: int | None
    duration_ms: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """Files that a patch changed: path to ``add``, ``update`` or ``delete``."""

    at: str
    item_id: str
    status: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Spawned:
    """A call brought forth a sub-agent."""

    at: str
    call_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class TurnBegan:
    at: str
    turn_id: str
    trigger: str
    """``goal`` where codex continued by itself, empty for a message."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is in effect from here on."""

    at: str
    model: str
    effort: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """``status``: completed, failed, interrupted."""

    at: str
    turn_id: str
    status: str
    why: str


@dataclass(frozen=True, slots=True)
class Compacted:
    at: str
    summary: str


Event = Said | Thought | Called | Returned | Used | Ran | Changed | Spawned | TurnBegan | Context | TurnEnded | Compacted


@dataclass(slots=True)
class Rollout:
    """One thread's.  ``instructions``: codex's base instructions for its model.  ``tools``: names offered in code mode, else empty.

    ``cut``: not read to its end, for it is too large.  ``torn``: the last line has no end, as a kill leaves it.
    """

    thread_id: str
    parent_id: str
    agent_path: str
    nickname: str
    cli_version: str
    instructions: str
    events: list[Event] = field(default_factory=list)
    tools: tuple[str, ...] = ()
    unreadable: int = 0
    first_unreadable: str = ""
    unknown: Counter[str] = field(default_factory=Counter)
    cut: bool = False
    torn: bool = False

    def used(self) -> Iterator[Tokens]:
        return (event.tokens for event in self.events if isinstance(event, Used))


_NOTHING_TO_SAY = frozenset(
    {
        "world_state",
        "inter_agent_communication_metadata",
        "event_msg token_count",
        "event_msg thread_settings_applied",
        "event_msg thread_goal_updated",
        "event_msg item_completed UserMessage",
        "event_msg item_completed AgentMessage",
        "event_msg item_completed Reasoning",
        "event_msg item_completed ContextCompaction",
    }
)
"""Records that say nothing which another one does not say, or that nobody asks for."""


def read(path: Path, bytes_at_most: int = BYTES_AT_MOST) -> Rollout | None:
    """The rollout in ``path``; None when it does not begin as one.  Raises OSError.  Blocking."""
    with path.open("rb") as stream:
        lines = _Lines(stream, bytes_at_most)
        first = next(lines.whole(), None)
        if first is None:
            return None
        try:
            head = Line.model_validate_json(first)
            if head.type != "session_meta":
                return None
            meta = MetaLine.model_validate(head.payload)
        except ValueError:
            return None
        text = "" if meta.base_instructions is None else meta.base_instructions.text
        made = Rollout(
            meta.id, meta.parent_thread_id or "", meta.agent_path or "", meta.agent_nickname or "", meta.cli_version, instructions=text
        )
        for raw in lines.whole():
            _take(made, raw, meta.subagent_history_start_ordinal)
        made.cut, made.torn = lines.cut, lines.torn
        made.unreadable += lines.too_long
        return made


class _Lines:
    """Whole lines of a bounded length, up to a bounded number of bytes."""

    def __init__(self, stream: BinaryIO, bytes_at_most: int) -> None:
        self._stream, self._left = stream, bytes_at_most
        self.cut = self.torn = False
        self.too_long = 0

    def whole(self) -> Iterator[bytes]:
        while not self.cut:
            line = self._stream.readline(LINE_BYTES_AT_MOST + 1)
            self._left -= len(line)
            if not line:
                return
            if self._left < 0:
                self.cut = True
            elif line.endswith(b"\n"):
                yield line
            elif len(line) <= LINE_BYTES_AT_MOST:
                self.torn = True
            else:
                self.too_long += 1
                while line and not line.endswith(b"\n") and self._left >= 0:
                    line = self._stream.readline(1 << 20)
                    self._left -= len(line)


def _take(made: Rollout, raw: bytes, own_from: int | None) -> None:
    """One line.  Of a forked thread only its own part counts: what it inherited is in its parent's rollout."""
    try:
        line = Line.model_validate_json(raw)
        if own_from is not None and line.ordinal is not None and line.ordinal < own_from:
            return
        event = _event(made, line)
    except (ValueError, RecursionError) as error:
        made.unreadable += 1
        made.first_unreadable = made.first_unreadable or _why(error)
        return
    if event is not None:
        made.events.append(event)


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        detail = error.errors(include_url=False, include_input=False)[0]
        return f"{error.title.strip('_')}: {'.'.join(map(str, detail['loc']))}: {detail['msg']}"[:300]
    return str(error)[:300]


def _event(made: Rollout, line: Line) -> Event | None:
    at, payload = line.timestamp, line.payload
    kind = " ".join([line.type, *(str(payload[key]) for key in ("type",) if key in payload)])
    match kind:
        case "response_item message":
            return _message(at, MessageLine.model_validate(payload))
        case "response_item agent_message":
            told = FromAgentLine.model_validate(payload)
            return Said(at, "user", f"{told.author}: {_joined(told.content)}")
        case "response_item reasoning":
            reasoning = ReasoningLine.model_validate(payload)
            return Thought(at, _joined(reasoning.summary) or _joined(reasoning.content or []))
        case "response_item function_call":
            call = FunctionCallLine.model_validate(payload)
            name = call.name if call.namespace is None else f"{call.namespace}.{call.name}"
            return Called(at, call.call_id, name, _arguments(call.arguments))
        case "response_item custom_tool_call":
            custom = CustomCallLine.model_validate(payload)
            return Called(at, custom.call_id, custom.name, {"input": custom.input})
        case "response_item function_call_output" | "response_item custom_tool_call_output":
            output = OutputLine.model_validate(payload)
            text = output.output if isinstance(output.output, str) else _joined(output.output, "")
            return Returned(at, output.call_id or "", output.name or "", text)
        case "response_item additional_tools":
            made.tools = tuple(sorted(set(_tool_names(ToolsLine.model_validate(payload).tools))))
            return None
        case "token_usage_record":
            usage = UsageLine.model_validate(payload)
            return Used(at, usage.response_id, usage.usage) if usage.thread_id == made.thread_id else None
        case "turn_context":
            context = TurnContextLine.model_validate(payload)
            return Context(at, context.model, context.collaboration_mode.settings.reasoning_effort or "")
        case "compacted":
            return Compacted(at, CompactedLine.model_validate(payload).message)
        case "event_msg task_started":
            began = BeganLine.model_validate(payload)
            trigger = None if began.turn_attribution is None else began.turn_attribution.turn_trigger
            return TurnBegan(at, began.turn_id, trigger or "")
        case "event_msg task_complete":
            complete = CompleteLine.model_validate(payload)
            why = None if complete.error is None else complete.error.message
            return TurnEnded(at, complete.turn_id, "completed" if why is None else "failed", why or "")
        case "event_msg turn_aborted":
            aborted = AbortedLine.model_validate(payload)
            return TurnEnded(at, aborted.turn_id or "", "interrupted", aborted.reason)
        case "event_msg item_completed":
            return _item(made, at, payload.get("item"))
        case _:
            _unknown(made, kind)
            return None


def _item(made: Rollout, at: str, raw: Any) -> Event | None:
    item = ItemLine.model_validate(raw)
    match item.type:
        case "CommandExecution":
            command = CommandItem.model_validate(raw)
            spent = command.duration
            ms = None if spent is None else spent.secs * 1000 + spent.nanos // 1_000_000
            return Ran(at, command.id, _shell_line(command.command), command.status, command.exit_code, ms)
        case "FileChange":
            change = FileChangeItem.model_validate(raw)
            return Changed(at, change.id, change.status, {path: each.type for path, each in change.changes.items()})
        case "SubAgentActivity":
            activity = ActivityItem.model_validate(raw)
            return Spawned(at, activity.id, activity.agent_thread_id) if activity.kind == "started" else None
        case "CollabAgentToolCall":
            collab = CollabItem.model_validate(raw)
            spawned = collab.tool == "spawn_agent" and collab.receiver_thread_ids
            return Spawned(at, collab.id, collab.receiver_thread_ids[0]) if spawned else None
        case _:
            _unknown(made, f"event_msg item_completed {item.type}")
            return None


def _unknown(made: Rollout, kind: str) -> None:
    if kind not in _NOTHING_TO_SAY:
        name = kind[:100]
        made.unknown[name if name in made.unknown or len(made.unknown) < UNKNOWN_AT_MOST else "(others)"] += 1


def _message(at: str, message: MessageLine) -> Said:
    text = _joined(message.content)
    match message.role:
        case "assistant":
            return Said(at, "agent", text)
        case "user":
            kinds = None if message.passed is None else message.passed.content_item_kinds
            # What codex itself says in the user's name (its environment, an interruption) says so.
            return Said(at, "user" if not kinds or any((kind or "").startswith("user.") for kind in kinds) else "system", text)
        case _:
            return Said(at, "system", text)


def _joined(content: list[dict[str, Any]], between: str = "\n\n") -> str:
    """The texts of content parts; of a part without a text its kind, so that nothing is left out unseen."""
    parts = []
    for part in content:
        text = part.get("text", part.get("encrypted_content"))
        parts.append(text if isinstance(text, str) else f"[{str(part.get('type'))[:40]}]")
    return between.join(parts)


def _arguments(text: str) -> dict[str, Any]:
    """As an object; what is none stays as the model wrote it."""
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):
        made = None
    return made if isinstance(made, dict) else {"input": text}


def _tool_names(tools: list[dict[str, Any]], prefix: str = "") -> Iterator[str]:
    for tool in tools:
        name, inner = tool.get("name"), tool.get("tools")
        if isinstance(inner, list) and not prefix:
            yield from _tool_names([each for each in inner if isinstance(each, dict)], f"{name}.")
        elif isinstance(name, str):
            yield prefix + name


def _shell_line(argv: list[str]) -> str:
    """The command as the model gave it: without the shell that codex wraps around it."""
    return argv[2] if len(argv) == 3 and argv[1] in ("-lc", "-c") else " ".join(argv)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def read_all(folder: Path) -> tuple[list[Rollout], list[str]]:
    """Every rollout below ``folder``, by path; and what was passed over, in words.  Blocking."""
    made: list[Rollout] = []
    passed: list[str] = []
    left = BYTES_AT_MOST
    for path in sorted(folder.rglob("*.jsonl")) if folder.is_dir() else ():
        name = os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")[:200]
        if len(made) >= THREADS_AT_MOST or left <= 0:
            passed.append(f"{name}: beyond {THREADS_AT_MOST} threads or {BYTES_AT_MOST >> 20} MB")
            continue
        rollout = read(path, left)
        left -= path.stat().st_size
        if rollout is None:
            passed.append(f"{name}: is no rollout")
        elif any(each.thread_id == rollout.thread_id for each in made):
            passed.append(f"{name}: a second rollout of thread {rollout.thread_id[:40]}")
        else:
            made.append(rollout)
    return made, passed[:100]
