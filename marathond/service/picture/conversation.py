"""What a codex agent said and did, as lines for ``marathonctl logs``: instructions, messages, commands with their output, turns, goals.

Owns the layout.  The source is the transcript that the driver keeps where no container reaches (agents/codex/transcript.py), one JSON
object a line; what is not known here is passed over, for the exported file has all of it.  Everything in it may be the agent's word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

OUTPUT_LINES, TASK_LINES = 40, 3
"""Of a command's output the last ones, which tell how it ended; of an instruction the first ones."""


@dataclass(slots=True)
class Heard:
    """What was shown already, for who reads a transcript piece by piece: items by id, and the goal's last status."""

    told: set[str] = field(default_factory=set)
    goal: str = ""


def lines(entries: Iterable[str], heard: Heard | None = None) -> Iterator[str]:
    """:param entries: whole lines of the transcript, in order; half of one, from a daemon that was killed, is passed over."""
    heard = Heard() if heard is None else heard
    for text in entries:
        try:
            entry = json.loads(text)
            way, message = entry["way"], entry["message"]
            method, params = message.get("method"), message.get("params") or {}
            if way == "out" and method == "turn/start":
                yield from _task(params)
            elif way == "in" and method == "item/completed" and params["item"]["id"] not in heard.told:
                heard.told.add(params["item"]["id"])  # a connection that was taken up again may tell it twice
                yield from _item(params["item"])
            elif way == "in" and method == "turn/completed":
                yield _turn(params["turn"])
            elif way == "in" and method == "thread/goal/updated" and params["goal"]["status"] != heard.goal:
                heard.goal = params["goal"]["status"]
                yield f"-- goal {heard.goal}"
            elif way == "in" and method == "warning":
                yield f"-- warning: {params['message']}"
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _task(params: Mapping[str, Any]) -> Iterator[str]:
    text = "\n".join(str(part.get("text", "")) for part in params["input"]).splitlines()
    yield from (f"> {line}" for line in text[:TASK_LINES])
    if len(text) > TASK_LINES:
        yield f"> ... {len(text) - TASK_LINES} more lines"


def _item(item: Mapping[str, Any]) -> Iterator[str]:
    match item["type"]:
        case "agentMessage":
            yield from str(item["text"]).splitlines()
        case "commandExecution":
            yield from (f"$ {line}" for line in str(item["command"]).splitlines())
            output = str(item.get("aggregatedOutput") or "").splitlines()
            if len(output) > OUTPUT_LINES:
                yield f"  ... {len(output) - OUTPUT_LINES} lines before"
            yield from (f"  {line}" for line in output[-OUTPUT_LINES:])
            if item.get("exitCode") not in (0, None):
                yield f"  (exit {item['exitCode']})"
        case "userMessage" | "reasoning":
            return
        case kind:
            yield f"* {kind}{' ' + str(item['status']) if item.get('status') else ''}"


def _turn(turn: Mapping[str, Any]) -> str:
    error = (turn.get("error") or {}).get("message")
    return f"-- turn {turn['status']}" + (f": {error}" if error else "")
