"""Rules of the configuration for single tasks: where in a verifier's files a column stands.

Owns how such a place is written and followed.  Pure.  Must not know the configuration's files nor what a column means.
A rule is ``file.json:dotted.path``: keys joined by dots, ``[2]`` for an entry of a list (from 0), ``["a.b"]`` for a key with a dot in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COLUMNS = ("reward", "partial", "test_rate", "tests_passed", "tests_total")
RULE = "rule:"
"""How the part of a score is named that says by which rule a column was read."""
EXPECTED = 'must be "file.json:dotted.path", such as "metrics.json:results.scores[0].value"'

_FILE = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}/){0,4}[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.json")
_STEP = re.compile(r"""\.?(?P<key>[^.\[\]":\s][^.\[\]":]*)|\[(?P<index>0|[1-9][0-9]{0,8})\]|\["(?P<quoted>[^"\\]+)"\]""")
PATH_AT_MOST = 300


@dataclass(frozen=True, slots=True)
class ScorePath:
    """``file``: relative to /logs/verifier.  ``steps``: keys and list indices, at least one.  ``text``: as it was written."""

    file: str
    steps: tuple[str | int, ...]
    text: str

    @property
    def key(self) -> str:
        return self.text.partition(":")[2]


Overrides = Mapping[str, ScorePath]
"""Column (one of :data:`COLUMNS`) to its place."""


def parse(text: str) -> ScorePath:
    """:raises ValueError: it is no such rule; the message says what was expected."""
    file, colon, path = text.partition(":")
    if not colon or len(text) > PATH_AT_MOST or not text.isprintable():
        raise ValueError(EXPECTED)
    if not _FILE.fullmatch(file):
        raise ValueError(f"{EXPECTED}: {file or 'nothing'} is no .json file below /logs/verifier")
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (found["key"] is not None and (path[at] == ".") == (at == 0)):
            raise ValueError(f"{EXPECTED}: cannot read {path[at:]!r} of the path")
        steps.append(int(found["index"]) if found["index"] is not None else found["key"] or found["quoted"])
        at = found.end()
    if not steps:
        raise ValueError(f"{EXPECTED}: the path is empty")
    return ScorePath(file, tuple(steps), text)


def follow(document: Any, path: ScorePath) -> tuple[Any] | None:
    """The value there in a box, so that a value null differs from nothing; None: there is nothing."""
    for step in path.steps:
        there = step in document if isinstance(document, dict) else isinstance(document, list) and step in range(len(document))
        if not there:
            return None
        document = document[step]
    return (document,)


def files_of(rules: Overrides) -> tuple[str, ...]:
    """The files that they name, to be handed over beside those that are read anyway."""
    return tuple(sorted({path.file for path in rules.values()}))


def rules_from_data(data: Any) -> dict[str, dict[str, ScorePath]]:
    """Task → column → place, out of a stored configuration's ``scores``; of one from before there were rules: none.

    :raises ValueError: a stored rule that is none.
    """
    if not isinstance(data, Mapping):
        return {}
    rules = {task: {column: parse(table[column]) for column in COLUMNS if table.get(column)} for task, table in data.items()}
    return {task: columns for task, columns in rules.items() if columns}
