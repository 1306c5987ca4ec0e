"""A row of the preflight's table, and what a whole table means.

Owns the states.  A check that could not see is ``unknown`` with its reason, never ``ok`` (fault e04); ``warn`` does not stop anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

NAMED_MAX = 6
"""So many things are named in one row; the others are counted."""


class State(StrEnum):
    """``not needed``: the configuration asks for nothing of the kind."""

    OK = "ok"
    WARN = "warn"
    RED = "red"
    UNKNOWN = "unknown"
    NOT_NEEDED = "not needed"


@dataclass(frozen=True, slots=True)
class Row:
    """``code`` is stable; ``subject`` tells rows of one code apart (a route, a task); ``todo`` is one line, empty when nothing is to do."""

    code: str
    state: State
    seen: str
    todo: str = ""
    subject: str = ""


def ok(code: str, seen: str, subject: str = "") -> Row:
    return Row(code, State.OK, seen, "", subject)


def warn(code: str, seen: str, todo: str, subject: str = "") -> Row:
    return Row(code, State.WARN, seen, todo, subject)


def red(code: str, seen: str, todo: str, subject: str = "") -> Row:
    return Row(code, State.RED, seen, todo, subject)


def unknown(code: str, why: str, todo: str = "", subject: str = "") -> Row:
    return Row(code, State.UNKNOWN, why, todo, subject)


def not_needed(code: str, why: str) -> Row:
    return Row(code, State.NOT_NEEDED, why)


NO_ENGINE = "not looked at: no engine"


def said_once(rows: Iterable[Row]) -> list[Row]:
    """Why nothing answers stands in the engine's own row; the dozen that would have asked it say only that they could not.

    Of an engine that went away behind that row each says what it met.
    """
    every = list(rows)
    away = next((row.seen for row in every if row.code == "engine" and row.state is State.RED), "")
    return [replace(row, seen=row.seen.replace(away, NO_ENGINE)) if away and row.code != "engine" else row for row in every]


def conclusion(rows: Iterable[Row]) -> State:
    """Of a whole table: red if one is, else unknown if one is (or there is none), else ok."""
    states = {row.state for row in rows}
    if State.RED in states:
        return State.RED
    return State.UNKNOWN if State.UNKNOWN in states or not states else State.OK


def named(names: Iterable[str]) -> str:
    """``a, b, c and 4 more``."""
    every = sorted(set(names))
    more = f" and {len(every) - NAMED_MAX} more" if len(every) > NAMED_MAX else ""
    return ", ".join(every[:NAMED_MAX]) + more


def count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
