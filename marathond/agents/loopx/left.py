"""What LoopX's own files tell of a trial: the todos of its goal, and the events that it logged.

Owns the shape of both files, as LoopX 2.1.1 writes them.  The agent's user may write there: nothing is believed beyond what a file says,
and nothing but a bounded number of short values is taken from it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

STATE_BYTES_AT_MOST = 4 << 20
EVENT_LINE_AT_MOST, EVENTS_BYTES_AT_MOST = 1 << 20, 64 << 20
TODOS_AT_MOST, TEXT_AT_MOST, NAMES_AT_MOST = 200, 200, 100
EVENTS, DATABASES = "rollout-event-log.jsonl", "authority/sqlite-v0"
"""Of a goal, in its folder of the runtime; of all goals, in the runtime."""
EVENT_SCHEMA = "loopx_rollout_event_v0"

_REGION = re.compile(r"<!-- loopx:todo-region-v0 role=(agent|user) (begin|end) -->")
_ITEM = re.compile(r"- \[[ xX~-]?\] (.*)")
_MARK = re.compile(r"\s*<!-- loopx:todo (.*) -->")
_PAIR = re.compile(r"([a-z_]+)=(\S*)")


@dataclass(frozen=True, slots=True)
class TodoLeft:
    """``kind``: LoopX's task class (``advancement_task``, ``user_gate``); ``status``: ``open``, ``done``, …"""

    todo_id: str
    role: str
    status: str
    kind: str
    text: str


@dataclass(slots=True)
class Todos:
    """``left_out``: beyond :data:`TODOS_AT_MOST`.  ``unreadable``: lines of a todo that are not as LoopX writes them."""

    rows: list[TodoLeft] = field(default_factory=list)
    left_out: int = 0
    unreadable: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """``agent open`` and so on."""
        return dict(Counter(f"{row.role} {row.status}" for row in self.rows))


@dataclass(slots=True)
class Events:
    """By LoopX's own word for what was done.  ``whole``: read to the end."""

    kinds: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    whole: bool = True


def todos(text: str) -> Todos:
    """Of ``ACTIVE_GOAL_STATE.md``: items in the regions that LoopX writes, each followed by a comment with its fields."""
    made, role, title = Todos(), "", ""
    for line in text.splitlines():
        if region := _REGION.fullmatch(line.strip()):
            role, title = (region[1] if region[2] == "begin" else ""), ""
        elif role and (item := _ITEM.fullmatch(line)):
            title = item[1]
        elif role and (mark := _MARK.fullmatch(line)):
            values = dict(_PAIR.findall(mark[1]))
            if not values.get("todo_id") or not values.get("status"):
                made.unreadable += 1
            elif len(made.rows) >= TODOS_AT_MOST:
                made.left_out += 1
            else:
                short = [unquote(values.get(key, ""))[:TEXT_AT_MOST] for key in ("todo_id", "status", "task_class")]
                made.rows.append(TodoLeft(short[0], role, short[1], short[2], title[:TEXT_AT_MOST]))
            title = ""
    return made


def todos_in(path: Path) -> Todos | None:
    """Of a copy that no container reaches; None: it was not left.  Blocking; raises OSError."""
    try:
        with path.open("rb") as stream:
            return todos(stream.read(STATE_BYTES_AT_MOST).decode("utf-8", "replace"))
    except FileNotFoundError:
        return None


def events(path: Path) -> Events | None:
    """None: there is no such log.  Blocking; raises OSError."""
    made, left = Events(), EVENTS_BYTES_AT_MOST
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return None
    with stream:
        while line := stream.readline(EVENT_LINE_AT_MOST):
            left -= len(line)
            if left < 0:
                made.whole = False
                break
            if (kind := _kind(line)) is None:
                made.unreadable += 1
            else:
                made.kinds[kind if kind in made.kinds or len(made.kinds) < NAMES_AT_MOST else "(others)"] += 1
    return made


def _kind(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("schema_version") != EVENT_SCHEMA or not isinstance(entry.get("event_kind"), str):
        return None
    return str(entry["event_kind"])[:100]
