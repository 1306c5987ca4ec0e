"""What a client's request says about itself: its conversation and turn, the tools it offers, and how far the script has come in it.

Owns the reading of a Responses request as codex 0.171 writes it: in code mode there is no ``tools`` key, the tools are in an input item
``additional_tools``; a goal shows as an item named ``goal_objective``, a ``function_call_output`` that answers no call; ids of the forms
``call_…`` and ``msg_…`` that an answer carried come back in later requests, those of calls always.  Must not know scripts' meaning.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

Surface = Literal["direct", "code"]
MARK = "practice"
_OURS = re.compile(rf"(?:call|msg)_{MARK}_(\d{{1,9}})(?:_w(\d{{1,9}}))?")
_RUNNING = re.compile(r"^(?:Process running with session ID (?P<session>\d+)|Script running with cell ID (?P<cell>\S+))\s*$", re.MULTILINE)
_DEPTH = 4
_CODEX_SAYS = ("<environment_context>", "<codex_internal_context", "# AGENTS.md instructions for ")
"""How messages begin that codex puts into the user's mouth."""


class BadRequest(Exception):
    """Not a Responses request; ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one earlier answer of ours left in the request: the step's position, None for a message whose id was lost on the way."""

    position: int | None
    poll: int
    is_call: bool
    output: str


@dataclass(frozen=True, slots=True)
class Running:
    """A command that its last output says is still running: ``write_stdin`` by session (direct), ``wait`` by cell (code mode)."""

    session: str | None
    cell: str | None


@dataclass(frozen=True)
class Ask:
    """One request, read."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]
    """Names in lower case."""
    size: int
    """Of the body, in bytes."""

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @cached_property
    def items(self) -> list[Mapping[str, Any]]:
        given = self.body.get("input")
        if isinstance(given, str):
            return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
        return [item for item in given or [] if isinstance(item, Mapping)] if isinstance(given, list) else []

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """codex's own words about the request (``x-codex-turn-metadata``), {} where there are none."""
        try:
            found = json.loads(self.headers.get("x-codex-turn-metadata", "{}"))
        except ValueError:
            return {}
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def conversation(self) -> str:
        """The thread's id; of a client that names none, a hash of what the user said first."""
        for value in (self.metadata.get("thread_id"), self.headers.get("thread-id"), self.body.get("prompt_cache_key")):
            if isinstance(value, str) and value:
                return value[:100]
        return hashlib.sha256((self.user_texts[0] if self.user_texts else "").encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def turn(self) -> str:
        """The turn's id; "" where the client names none."""
        value = self.metadata.get("turn_id")
        return value[:100] if isinstance(value, str) else ""

    @property
    def is_compaction(self) -> bool:
        return self.metadata.get("request_kind") == "compaction" or self.wants_compaction_item

    @property
    def wants_compaction_item(self) -> bool:
        return bool(self.items) and self.items[-1].get("type") == "compaction_trigger"

    @cached_property
    def user_texts(self) -> list[str]:
        """The user's messages, without what codex puts there by itself."""
        return [
            text
            for item in self.items
            if item.get("role") == "user" and item.get("type", "message") == "message"
            if not (text := text_of(item.get("content"))).startswith(_CODEX_SAYS)
        ]

    @property
    def has_goal(self) -> bool:
        return self.objective is not None

    @cached_property
    def objective(self) -> str | None:
        """What codex tells the model of its goal; None without one."""
        told = (i for i in self.items if i.get("type") == "function_call_output" and i.get("name") == "goal_objective")
        return next((text_of(item.get("output")) for item in told), None)

    @cached_property
    def tools(self) -> dict[str, str]:
        """Every offered tool's type by name, namespaces opened; hosted tools (``web_search``) by their type."""
        found = dict(_tools(self.body.get("tools"), _DEPTH))
        for item in self.items:
            if item.get("type") == "additional_tools":
                found.update(_tools(item.get("tools"), _DEPTH))
        return found

    @cached_property
    def traces(self) -> list[Trace]:
        """In the order of the request."""
        outputs: dict[str, str] = {}
        for item in self.items:
            if item.get("type") in ("function_call_output", "custom_tool_call_output") and isinstance(item.get("call_id"), str):
                outputs[item["call_id"]] = outputs.get(item["call_id"], "") + text_of(item.get("output"))
        found = []
        for item in self.items:
            if item.get("type") in ("function_call", "custom_tool_call"):
                call_id = str(item.get("call_id", ""))
                if ours := _OURS.fullmatch(call_id):
                    found.append(Trace(int(ours[1]), int(ours[2] or 0), True, outputs.get(call_id, "")))
            elif item.get("role") == "assistant":
                ours = _OURS.fullmatch(str(item.get("id", "")))
                found.append(Trace(int(ours[1]) if ours else None, 0, False, ""))
        return found

    def holds(self, field: str) -> bool:
        """Whether the body has ``field``: keys joined by dots, ``*`` for every element of a list."""
        return _holds(self.body, field.split("."))


def read(raw: bytes, headers: Mapping[str, str]) -> Ask:
    """
    :raises BadRequest: it is no JSON object.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise BadRequest(f"the body is no JSON: {err}") from err
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object")
    return Ask(body, {name.lower(): value for name, value in headers.items()}, len(raw))


def running(output: str) -> Running | None:
    """What the output of a call of ours says is still running, if anything.  Only its head counts: the rest is the command's own."""
    found = _RUNNING.search(output[:400].split("\nOutput:")[0])
    return Running(found["session"], found["cell"]) if found else None


def text_of(content: Any) -> str:
    """The text of a message's content or a call's output, whether one string or parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str))


def _tools(given: Any, depth: int) -> Iterator[tuple[str, str]]:
    for tool in given if isinstance(given, list) and depth else ():
        if not isinstance(tool, Mapping):
            continue
        kind = str(tool.get("type", ""))
        if kind == "namespace":
            yield from _tools(tool.get("tools"), depth - 1)
        else:
            yield str(tool.get("name", kind)), kind


def _holds(value: Any, path: list[str]) -> bool:
    if not path:
        return True
    if path[0] == "*":
        return isinstance(value, list) and any(_holds(element, path[1:]) for element in value)
    return isinstance(value, Mapping) and path[0] in value and _holds(value[path[0]], path[1:])
