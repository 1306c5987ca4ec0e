"""Which columns of a score a campaign has (fault d11: a benchmark has no partial score, and a column of 0.000 is printed).

Owns the words for a column that is not there.  Pure: numbers and the benchmark's profile in, columns out.  Must not compute a mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marathond.core.text import printable

NAMES = ("reward", "partial", "test_rate")
_WORDS = {"reward": "reward", "partial": "partial score", "test_rate": "test rate"}
_NOTE_MAX = 200


@dataclass(frozen=True, slots=True)
class Column:
    """Whether a benchmark has a column at all (fault d11): ``reward``, ``partial``, ``test_rate``.  ``why``: of its absence, or a note."""

    name: str
    exists: bool
    why: str = ""


def counted(known: Mapping[str, int], done: int, scores: Mapping[str, Any] | None, benchmark: str | None) -> tuple[Column, ...]:
    """Each of :data:`NAMES`.  A column is there when a done cell holds a value of it: what was measured beats what a profile expects.

    :param known: column → how many of ``done`` cells hold a value of it.
    :param scores: the profile's table of that name: column → ``exists`` and ``note``; None: no profile.
    """
    return tuple(_column(name, known[name], done, _said(scores, name), benchmark) for name in NAMES)


def expected(scores: Mapping[str, Any] | None, benchmark: str | None) -> tuple[Column, ...]:
    """By the profile alone, for who looks at one trial: a column is there unless the profile says that the benchmark has none."""
    said = ((name, *_said(scores, name)) for name in NAMES)
    return tuple(Column(name, exists is not False, note if exists is not False else _none(benchmark, note)) for name, exists, note in said)


def _none(benchmark: str | None, note: str) -> str:
    return f"{benchmark} has none" + (f": {note}" if note else "")


def _said(scores: Mapping[str, Any] | None, name: str) -> tuple[bool | None, str]:
    table = (scores or {}).get(name)
    if not isinstance(table, Mapping):
        return None, ""
    return bool(table.get("exists", True)), printable(str(table.get("note", "")), _NOTE_MAX)


def _column(name: str, known: int, done: int, said: tuple[bool | None, str], benchmark: str | None) -> Column:
    expected, note = said
    if known:
        if expected is False:
            return Column(name, True, f"{benchmark} is said to have none, and {known} of {done} done cells hold one")
        return Column(name, True, note)
    if expected is False:
        return Column(name, False, _none(benchmark, note))
    if not done:
        return Column(name, False, "no cell is done yet")
    return Column(name, False, f"none of {done} done cells has a {_WORDS[name]}")
