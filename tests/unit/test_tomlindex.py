"""Line numbers of keys: a scanner that must agree with tomllib on what the keys are."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.tomlindex import KeyPath, index_lines, line_of

DOCUMENT = '''# a comment with [a] = "x"
title = "has # and ] and = in it"
"quoted key" = 1
'lit.eral'.sub = { x = 1, y = [1, 2], "z w" = "}" }

[daemon]   # trailing
state_dir = "/x"
text = """
[not.a.table]
no_key = 5
two quotes "" and three \\""" then the end"""""
raw = \'\'\'
also = "nothing"
\'\'\'\'
after = 2026-01-02 03:04:05

[[arms.plain.mounts]]
source = "/a"
[[ arms . plain . mounts ]]
source = "/b"
[arms.plain.mounts.extra]
deep = true
[campaign]
tasks = [
    "one",  # with a comment ]
    """two
more""",

    { three = 3 },
]
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("quoted key",), 3),
        (("lit.eral", "sub", "z w"), 4),
        (("daemon",), 6),
        (("daemon", "state_dir"), 7),
        (("daemon", "text"), 8),
        (("daemon", "raw"), 12),
        (("daemon", "after"), 15),
        (("arms", "plain"), 17),
        (("arms", "plain", "mounts", 0, "source"), 18),
        (("arms", "plain", "mounts", 1), 19),
        (("arms", "plain", "mounts", 1, "source"), 20),
        (("arms", "plain", "mounts", 1, "extra", "deep"), 22),
        (("campaign", "tasks", 0), 25),
        (("campaign", "tasks", 1), 26),
        (("campaign", "tasks", 2, "three"), 29),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_of_keys(path: KeyPath, line: int, newline: str) -> None:
    assert index_lines(DOCUMENT.replace("\n", newline))[path] == line


def test_the_document_above_has_no_other_keys() -> None:
    assert set(index_lines(DOCUMENT)) == _paths(tomllib.loads(DOCUMENT))


def test_line_of_falls_back_to_what_is_around() -> None:
    lines = index_lines("[a]\nb = 1\n")
    assert line_of(lines, ("a", "missing")) == 1
    assert line_of(lines, ("nowhere", "b")) is None


def _paths(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    found = {path} if path else set()
    if isinstance(value, dict):
        return found.union(*(_paths(item, (*path, key)) for key, item in value.items()))
    if isinstance(value, list):
        return found.union(*(_paths(item, (*path, index)) for index, item in enumerate(value)))
    return found


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", exclude_categories=("Cc", "Cs")), max_size=8) | st.sampled_from(
    ["#", "]", '"', "'", "\\", "a = 1", "[x]", '"""', "}", ","]
)
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8)
TABLES = st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=4), max_size=4)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _render(value: Any, pad: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if len(value) % 3 == 0 and "'" not in value:
            return f"'''\n{value}'''"
        return '"""' + _quote(value)[1:-1] + '"""' if len(value) % 3 == 1 else _quote(value)
    if isinstance(value, list):
        return "[" + pad + f",{pad}".join(_render(item, pad) for item in value) + pad + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(key)} = {_render(item, pad)}" for key, item in value.items()) + "}"
    return repr(value)


@settings(max_examples=100)
@given(TABLES, st.sampled_from([" ", "\n", "\n  # ] } = [x]\n"]))
def test_the_keys_are_those_of_tomllib_and_stand_on_their_lines(tables: dict[str, dict[str, Any]], pad: str) -> None:
    rendered: list[str] = []
    for name, table in tables.items():
        rendered.append(f"[{_quote(name)}] # = ]")
        rendered.extend(f"{_quote(key)} = {_render(value, pad)}" for key, value in table.items())
    text = "\n".join(rendered) + "\n"
    parsed = tomllib.loads(text)
    lines = index_lines(text)
    assert set(lines) == _paths(parsed)
    physical = text.split("\n")
    for path, line in lines.items():
        if isinstance(path[-1], str):
            assert _quote(path[-1]) in physical[line - 1]
