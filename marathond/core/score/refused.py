"""Which values of a score were refused, and what that cost: told from the parts that the score is kept with.

Owns the name under which a refusal is kept, and which column a place in a verifier's files belongs to.  Pure.  What is refused is never 0,
so that a mean without it is over what was left, and may be another mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from marathond.core.payload import MAX_WORDS
from marathond.core.score.counts import COUNTS, PYTEST, SUMMARY
from marathond.core.score.names import METRICS, REWARD_TXT
from marathond.core.score.rules import RULE
from marathond.core.text import printable

REFUSED = "refused "
"""Begins the name of the part of a score that says what was refused; its value says why."""
FILE = "file"
SHIFTED = "-"
"""Key of the refusal of a file whose keys and values are shifted by one."""
_FOLLOWS = ("no sum: ", "not counted: ", "cannot be read, and a rule")
"""Refusals that come of another one, which is told by itself, or of gates that told nothing."""
_DEFAULTS = {"partial": "partial_score", "test_rate": "pass_rate"}
_TESTS = ("test_rate", "tests_passed", "tests_total")


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """``what``: ``partial``, ``test_rate``, or ``file``: the whole of a JSON file.  ``columns``: which the score does not have for it."""

    what: str
    place: str
    why: str
    columns: tuple[str, ...] = ()

    @property
    def absent(self) -> bool:
        """A rule of the configuration names a place where nothing stands."""
        return self.why.startswith(("missing, and a rule", "no such file, and a rule"))


def refused_values(parts: Iterable[tuple[str, str, str]], *, partial: float | None, test_rate: float | None) -> tuple[RefusedValue, ...]:
    """Each kind and file once, of one score.

    :param parts: (name, value, source) of it; others than refusals and rules may be left out.
    :param partial, test_rate: its columns.
    """
    rows = list(parts)
    rules = {name.removeprefix(RULE): value for name, value, _ in rows if name.startswith(RULE)}
    lost = [name for name, value in (("partial", partial), ("test_rate", test_rate)) if value is None]
    found: dict[tuple[str, str], RefusedValue] = {}
    for name, why, place in sorted(rows, key=lambda row: (len(row[0]), row[0])):  # refused 2 before refused 10
        if name.startswith(REFUSED) and not why.startswith(_FOLLOWS):
            for each in _values(why, place, rules, lost):
                found.setdefault((each.what, each.place if each.what == FILE else ""), each)
    return tuple(found.values())


def _values(why: str, place: str, rules: Mapping[str, str], lost: list[str]) -> Iterator[RefusedValue]:
    source, _, key = place.partition(":")
    if key in ("", SHIFTED):
        if source and source != REWARD_TXT:
            yield RefusedValue(FILE, source, why, tuple(column for column in lost if _stands_in(source, column, rules)))
        return
    for column in ("partial", "test_rate"):
        if place == _place(column, rules) or (column == "test_rate" and "test_rate" in lost and _of_tests(source, key, place, rules)):
            yield RefusedValue(column, place, why, (column,) if column in lost else ())


def _place(column: str, rules: Mapping[str, str]) -> str:
    """Where it is read.  A rule for any of the tests' numbers takes all of them."""
    if column not in rules:
        return "" if column == "test_rate" and any(name in rules for name in _TESTS) else f"{METRICS}:{_DEFAULTS[column]}"
    file, _, key = rules[column].partition(":")
    return f"{file}:{printable(key, MAX_WORDS)}"


def _of_tests(source: str, key: str, place: str, rules: Mapping[str, str]) -> bool:
    """A count, of which there would have been a rate."""
    ruled = [name for name in _TESTS if name in rules]
    if ruled:
        return place in [_place(name, rules) for name in ruled]
    return (source == METRICS and key in COUNTS) or key.startswith((f"{PYTEST}.", SUMMARY))


def _stands_in(source: str, column: str, rules: Mapping[str, str]) -> bool:
    names = _TESTS if column == "test_rate" else (column,)
    ruled = [rules[name] for name in names if name in rules]
    if ruled:
        return any(text.partition(":")[0] == source for text in ruled)
    return source == METRICS or (column == "test_rate" and source.endswith(("ctrf.json", "_pytest.json")))


def example(whys: Iterable[str]) -> str:
    """The reason that was met most, and whether there were others."""
    counts = Counter(whys)
    first = min(counts, key=lambda why: (-counts[why], why))
    return first if len(counts) == 1 else f"such as {first}"
