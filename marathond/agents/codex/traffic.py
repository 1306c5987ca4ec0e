"""What the driver and codex said to each other, counted from the transcript of all connections.

Owns the reading of that file.  It is ours, but half of what stands in it codex said; a kill may have cut its last line, and it may end
early, for it is bounded.  Must not know the log, nor decide anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marathond.agents.codex import drive, wire
from marathond.agents.codex.errors import ProtocolDrift
from marathond.agents.codex.messages import ItemEntry, TurnStart
from marathond.agents.codex.notices import NOTIFICATIONS, OnError, OnTokenUsage
from marathond.agents.codex.shapes import COMMAND, Model, Tokens, Wire
from marathond.agents.codex.transcript import BYTES_AT_MOST

NAMES_AT_MOST = 200
"""Of methods and error words told apart; and of threads."""
ITEMS_AT_MOST = 50_000


@dataclass(slots=True)
class Traffic:
    """``whole``: the file was read to its end and its bound was not reached.  ``tokens``: last totals of each thread that codex told."""

    whole: bool = False
    connections: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    notifications: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    """Errors inside turns that codex retried, by its word."""
    tokens: dict[str, Tokens] = field(default_factory=dict)


def count(path: Path) -> Traffic:
    """Blocking.  Raises OSError; a file that is not there is no traffic."""
    made = Traffic()
    asked: dict[int, str] = {}
    for way, message in _messages(path):
        method, number = message.get("method"), message.get("id")
        if way == "out" and isinstance(method, str):
            if method == "initialize":
                made.connections += 1
                asked.clear()
            if isinstance(number, int):
                asked[number] = method
                _add(made.requests, method)
        elif way == "in" and isinstance(method, str):
            if number is not None:
                _add(made.refused, method)
            else:
                _heard(made, method, message.get("params"))
        elif way == "in" and "error" in message and isinstance(number, int):
            _add(made.errors, asked.get(number, "?"))
    try:
        made.whole = path.stat().st_size < BYTES_AT_MOST - (BYTES_AT_MOST >> 3)
    except FileNotFoundError:
        made.whole = False
    return made


def items(path: Path, thread_id: str) -> list[Mapping[str, Any]]:
    """Items of that thread as they were completed, each once, in order; heard in passing or read from a history.  Blocking."""
    found: dict[str, Mapping[str, Any]] = {}
    for way, message in _messages(path):
        if way != "in":
            continue
        params, result = message.get("params"), message.get("result")
        if message.get("method") == "item/completed" and isinstance(params, dict) and params.get("threadId") == thread_id:
            entries = [params]
        elif isinstance(result, dict) and isinstance(result.get("data"), list):
            entries = [each for each in result["data"] if isinstance(each, dict) and _is(ItemEntry, each)]
        else:
            continue
        for item in (entry.get("item") for entry in entries):
            if isinstance(item, dict) and isinstance(item.get("id"), str) and len(found) < ITEMS_AT_MOST:
                found.setdefault(item["id"], item)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Commanded:
    """A command as codex told of it: with the shell that it wraps around it."""

    thread_id: str
    item_id: str
    command: str


def commands(path: Path, thread_id: str) -> list[Commanded]:
    """Of all threads, each once, in the order in which they began; also those that never ended.  A history tells of ``thread_id``, the one
    that is driven.  Blocking."""
    found: dict[tuple[str, str], Commanded] = {}
    for way, message in _messages(path):
        params, result = message.get("params"), message.get("result")
        if way != "in":
            continue
        if message.get("method") in ("item/started", "item/completed") and isinstance(params, dict):
            entries = [(str(params.get("threadId")), params)]
        elif isinstance(result, dict) and isinstance(result.get("data"), list):
            entries = [(thread_id, each) for each in result["data"] if isinstance(each, dict) and _is(ItemEntry, each)]
        else:
            continue
        for thread, item in ((thread, entry.get("item")) for thread, entry in entries):
            if not isinstance(item, dict) or item.get("type") != COMMAND or len(found) >= ITEMS_AT_MOST:
                continue
            if isinstance(item.get("id"), str) and isinstance(item.get("command"), str):
                found.setdefault((thread, item["id"]), Commanded(thread, item["id"], item["command"]))
    return list(found.values())


def sent(path: Path) -> dict[str, str]:
    """The text of each message that was sent, by its mark.  Blocking."""
    found: dict[str, str] = {}
    for way, message in _messages(path):
        params = message.get("params")
        if way == "out" and message.get("method") == TurnStart.METHOD and isinstance(params, dict) and len(found) < ITEMS_AT_MOST:
            parts = params.get("input")
            texts = [part.get("text") for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict)]
            found[str(params.get("clientUserMessageId"))] = "".join(text for text in texts if isinstance(text, str))
    return found


def _heard(made: Traffic, method: str, params: Any) -> None:
    _add(made.notifications, method)
    if method not in NOTIFICATIONS:
        _add(made.unknown, method)
    elif method == "thread/tokenUsage/updated":
        usage = _as(OnTokenUsage, params)
        if usage is not None and (usage.thread_id in made.tokens or len(made.tokens) < NAMES_AT_MOST):
            made.tokens[usage.thread_id] = usage.token_usage.total
    elif method == "error":
        error = _as(OnError, params)
        if error is not None and error.will_retry:
            _add(made.retried, drive.error_word(error.error.codex_error_info) or "none")


def _as(shape: type[Model], raw: Any) -> Model | None:
    try:
        return shape.model_validate(raw, by_alias=True, by_name=False)
    except ValueError:
        return None


def _is(shape: type[Wire], raw: Any) -> bool:
    return _as(shape, raw) is not None


def _add(counter: Counter[str], name: str) -> None:
    name = name[:100]
    counter[name if name in counter or len(counter) < NAMES_AT_MOST else "(others)"] += 1


def _messages(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(way, message) of every line that is whole."""
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        for line in stream:
            try:
                entry = wire.load(line.decode("utf-8", "replace"))
            except ProtocolDrift:
                continue
            if isinstance(entry.get("message"), dict):
                yield str(entry.get("way")), entry["message"]
