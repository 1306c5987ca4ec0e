"""A receipt without what may differ between two runs that did the same: its ids, its times, and what follows from them.

Owns the list.  A field that is not named here must be equal; one that is named must exist, so that the list cannot rot.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

IDS = (
    "names.trial",
    "names.replicate",
    "thread_id",
    "loopx.set_up.todo_id",
    "loopx.set_up.gates.goal",
    "loopx.set_up.gates.quota",
    "loopx.delivered.selected",
    "loopx.delivered.wakes.ids_sha256",
    "loopx.state.todos.*.todo_id",
    "given.gates.loopx goal",
    "given.gates.loopx quota",
)
TIMES = ("time.started_at", "time.ended_at", "time.ran_ms", "time.turns_ms")
FOLLOWING = (
    "kept.bytes",
    "kept.databases.*.bytes",
    "kept.databases.*.log_bytes",
    "loopx.databases.*.bytes",
    "loopx.databases.*.log_bytes",
)
"""Sizes of files that hold ids and times, or that a write-ahead log was moved into or not, by the clock."""
NAMED = (*IDS, *TIMES, *FOLLOWING)


def comparable(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """:raises KeyError: a named field is not there."""
    made = copy.deepcopy(dict(receipt))
    for path in NAMED:
        _remove(made, path.split("."), path)
    return made


def _remove(value: Any, steps: list[str], path: str) -> None:
    step, *rest = steps
    if step == "*":
        for each in value:
            _remove(each, rest, path)
    elif rest:
        _remove(value[step], rest, path)
    elif step in value:
        del value[step]
    else:
        raise KeyError(path)


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two of them differ, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{path}.{number}")
    elif one != other:
        yield f"{path}: {str(one)[:200]!r} and {str(other)[:200]!r}"
