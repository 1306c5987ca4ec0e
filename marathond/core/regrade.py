"""How a newer reading of one trial's stored files differs from the score that stands.

Pure.  Owns what counts as a difference: a column's value, where it came from, a flag of the reading, a part.  The extractor's own number
is none, so that grading again twice changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marathond.core.classify import of_verification

COLUMNS = ("reward", "partial", "test_rate", "tests_passed", "tests_total")


@dataclass(frozen=True, slots=True)
class Graded:
    """A score.  ``columns``: by :data:`COLUMNS`; ``sources``: file and key of those that have one; ``parts``: name to (value, source)."""

    extractor: int
    columns: Mapping[str, float | int | None]
    sources: Mapping[str, str]
    flags: tuple[str, ...]
    parts: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Change:
    """``old``, ``new``: as text, ``-`` for nothing; ``source``: of the new value, and of the old one where only that moved."""

    column: str
    old: str
    new: str
    source: str


def differences(old: Graded, new: Graded) -> tuple[Change, ...]:
    """Columns first, then flags of the reading, then parts, summed up."""
    found = []
    for name in COLUMNS:
        before, after = old.columns.get(name), new.columns.get(name)
        where, there = old.sources.get(name, ""), new.sources.get(name, "")
        if before != after:
            found.append(Change(name, _number(before), _number(after), there or where))
        elif before is not None and where and there and where != there:
            found.append(Change(name, _number(before), _number(after), f"{there} (was {where})"))
    return (*found, *_flags(old, new), *_parts(old, new))


def carried(old: Graded) -> tuple[str, ...]:
    """Flags that a new reading takes over: they tell of the verification, which was not run again."""
    return tuple(flag for flag in old.flags if of_verification(flag))


def _flags(old: Graded, new: Graded) -> tuple[Change, ...]:
    before, after = ([flag for flag in graded.flags if not of_verification(flag)] for graded in (old, new))
    if sorted(before) == sorted(after):
        return ()
    return (Change("flags", ", ".join(before) or "-", ", ".join(after) or "-", ""),)


def _parts(old: Graded, new: Graded) -> tuple[Change, ...]:
    added, gone = new.parts.keys() - old.parts.keys(), old.parts.keys() - new.parts.keys()
    changed = [name for name in new.parts.keys() & old.parts.keys() if new.parts[name] != old.parts[name]]
    if not added and not gone and not changed:
        return ()
    counts = ((len(added), "added"), (len(gone), "gone"), (len(changed), "changed"))
    words = ", ".join(f"{count} {word}" for count, word in counts if count)
    return (Change("parts", str(len(old.parts)), str(len(new.parts)), words),)


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.6g}"
