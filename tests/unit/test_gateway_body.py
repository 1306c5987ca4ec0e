"""What a client asks: the quick look must never pass what the full look would have refused or changed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.gateway import body

KINDS = st.sampled_from(["web_search", "web_search_preview", "mcp", "function", "custom", "namespace", "web\u017fearch"])
TOOLS = st.recursive(
    st.fixed_dictionaries({"type": KINDS}),
    lambda inner: st.fixed_dictionaries({"type": KINDS, "tools": st.lists(inner, max_size=2)}),
    max_leaves=4,
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.text(max_size=5) | st.just("gpt-search")},
    optional={
        "tools": st.lists(TOOLS, max_size=3),
        "tool_choice": st.one_of(st.just("auto"), TOOLS),
        "web_search_options": st.one_of(st.none(), st.just({})),
        "input": st.lists(
            st.fixed_dictionaries(
                {"type": st.just("message")},
                optional={"tools": st.lists(TOOLS, max_size=2), "name": st.text(), "file_url": st.text(max_size=2)},
            )
        ),
        "text": st.fixed_dictionaries({}, optional={"verbosity": st.just("low")}),
    },
)
PATHS = ("text.verbosity", "input[].name")


def escaped(raw: str, every: int) -> bytes:
    """The same JSON with every n-th letter inside a string written as an escape."""
    out, inside, count = [], False, 0
    for at, character in enumerate(raw):
        if character == '"' and raw[at - 1 : at] != "\\":
            inside = not inside
        count += character.isascii() and character.isalpha() and inside and raw[at - 1 : at] != "\\" and raw[at - 5 : at - 3] != "\\u"
        hit = inside and every and count == every and character.isalpha()
        out.append(f"\\u{ord(character):04x}" if hit else character)
        count = 0 if hit else count
    return "".join(out).encode()


@given(REQUESTS, st.integers(0, 5), st.sampled_from(["utf-8", "utf-16", "utf-16-le", "utf-32"]))
def test_a15_a02_quick_look_never_passes_what_the_full_look_would_not(request: dict[str, Any], every: int, encoding: str) -> None:
    raw = escaped(json.dumps(request, ensure_ascii=False), every).decode().encode(encoding)
    if not body.surely_plain(raw, body.words_to_look_for(True, PATHS)):
        return
    seen = body.parse(raw)
    assert body.network_tool(seen) is None
    assert body.strip(copy.deepcopy(seen), PATHS) == 0


def test_quick_look_does_pass_ordinary_requests() -> None:
    words = body.words_to_look_for(True, ("service_tier",))
    assert body.surely_plain(b'{"model":"m","input":[{"content":"\\u001b[0m \\"web\\" search \xc3\xa9"}]}', words)
    for raw in (b'{"a":"web_search"}', b'{"service_tier":1}', b'{"a":"\\u0077eb"}', b"[]", b'{\0"a":1}'):
        assert not body.surely_plain(raw, words)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"model":"gpt-x","input":[]}', "gpt-x"),
        (b'{ "model" : "gpt-x" }', "gpt-x"),
        (b'{"input":"\\"model\\":\\"no\\""}', None),
        (b"{" + b" " * 5000 + b'"model":"late"}', None),
    ],
)
def test_model_near_the_front(raw: bytes, expected: str | None) -> None:
    assert body.model_near_the_front(raw) == expected


@pytest.mark.parametrize("raw", [b'{"a":1,"a":2}', b'{"b":{"a":1,"a":2}}', b"null", b"{", b'{"a":' * 50_000])
def test_what_cannot_be_checked_is_refused(raw: bytes) -> None:
    with pytest.raises(body.BadBody):
        body.parse(raw)


def test_a02_strip_follows_paths_and_leaves_the_rest() -> None:
    request = {"a": {"b": 1, "c": 2}, "input": [{"n": 1}, {"m": 2}, 3], "x": [1]}
    assert body.strip(request, ["a.b", "input[].n", "x", "y.z", "a.b.c", "x[].q"]) == 3
    assert request == {"a": {"c": 2}, "input": [{}, {"m": 2}, 3]}
