"""``marathonctl explain [CODE]``: what a finding, void, review, park, reason for waiting or disclosure means, and what to do.

Owns the layout; docs/runbook.md is the same words in one file (tests/support/runbook.py writes it, a test compares them).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from marathond.cli.output import Column, Screen, print_json, say, table, wrapped
from marathond.core.audit.catalogue import RAISED, Meaning, of_rules
from marathond.core.audit.disclosed import DISCLOSED
from marathond.core.audit.outcomes import PARKS, REVIEWS, VOIDS
from marathond.core.audit.waits import OTHER_WORDS, WAITS
from marathond.core.text import clean
from marathond.service.exits import CallFailed, Exit

KINDS = ("finding", "void", "review", "park", "wait", "disclosure")


@dataclass(frozen=True, slots=True)
class Explained:
    """One code as one of :data:`KINDS`; ``faults``: ids of the catalogue of silent faults."""

    kind: str
    code: str
    means: str
    todo: str
    faults: tuple[str, ...]


def known() -> list[Explained]:
    """Every code of this version, by kind and name; a code may stand under several kinds."""
    words: Mapping[str, Mapping[str, Meaning]] = {
        "finding": {**of_rules(), **RAISED},
        "void": VOIDS,
        "review": REVIEWS,
        "park": PARKS,
        "wait": WAITS,
        "disclosure": DISCLOSED,
    }
    return [
        Explained(kind, code, sentence(words[kind][code].means), words[kind][code].todo, words[kind][code].faults)
        for kind in KINDS
        for code in sorted(words[kind])
    ]


def sentence(text: str) -> str:
    """The ledger's table of void codes has clauses."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def explain(code: str | None) -> list[Explained]:
    """In whichever case it is typed.

    :raises CallFailed: exit 2, no such code; with those that look like it.
    """
    every = known()
    asked = None if code is None else OTHER_WORDS.get(code.upper(), code).casefold()
    found = [each for each in every if asked is None or each.code.casefold() == asked]
    if not found:
        by_word = {each.code.casefold(): each.code for each in every}
        near = [by_word[word] for word in difflib.get_close_matches(asked or "", sorted(by_word), 3, 0.5)]
        hint = f"; like it are {', '.join(near)}" if near else "; marathonctl explain lists them"
        raise CallFailed(f"no code {clean(code, 60)} in this version{hint}", Exit.USAGE)
    return found


def run(code: str | None, where: Screen, *, as_json: bool) -> None:
    found = explain(code)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    for line in _list(found, where) if code is None else _whole(found, where):
        say(line)


def _list(found: list[Explained], where: Screen) -> list[str]:
    rows = [(each.kind, each.code, each.means) for each in found]
    return table((Column("kind"), Column("code"), Column("means", least=20)), rows, where)


def _whole(found: list[Explained], where: Screen) -> Iterator[str]:
    for each in found:
        yield where.paint(f"{each.kind} {each.code}", "bold")
        yield from wrapped(f"  means: {each.means}", where)
        yield from wrapped(f"  do:    {each.todo}", where)
