"""Real documents, spoiled: the strategies of tests/fuzz, and how many examples they are asked for.

A document is spoiled as data first (a value of another kind, a key gone, a branch too deep), then as bytes (torn, a byte changed, numbers
that no float holds).  Random bytes alone would be refused at the first one and never reach what reads the fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "50"))
"""Of each test.  ``make fuzz`` asks for more."""

fuzz = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

few = settings(fuzz, max_examples=max(10, EXAMPLES // 4))
"""Of tests whose every example starts an event loop, a folder or a process."""


def nested(depth: int, kind: str = "list") -> Any:
    """A value that deep; what reads one level more for each level must not fall over it."""
    made: Any = 1
    for _ in range(depth):
        made = [made] if kind == "list" else {"a": made}
    return made


ODD: Sequence[Any] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, -(10**400)),
    *(0.5, -0.0, 1.5, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *("", "0", "1", "-1", "²", "१", "nan", "1e400", "true", "\0", "\ud800", "a\nb\r\x1b[31m\x07", "..", "/", "../../etc", "x" * 3000),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", "2026-01-01T00:00:00.000Z", "2026-13-01"),
    *([], {}, [[]], [None], [{}], {"": None}, {"\ud800": "\udfff"}, nested(60), nested(60, "dict")),
)
"""What may stand where something else was expected: other kinds, edges of numbers, digits that are no decimal ones, half a character."""

odd = st.sampled_from(range(len(ODD))).map(lambda at: json_copy(ODD[at]))

plain_json = st.recursive(
    odd | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def json_copy(value: Any) -> Any:
    """As :func:`copy.deepcopy`, of JSON."""
    if isinstance(value, Mapping):
        return {key: json_copy(below) for key, below in value.items()}
    return [json_copy(below) for below in value] if isinstance(value, list | tuple) else value


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document but the document's own."""
    below: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in below:
        yield (*at, key)
        yield from places(each, (*at, key))


@st.composite
def spoiled(draw: st.DrawFn, document: Any, changes: int = 3) -> Any:
    """A copy of ``document`` with up to so many changes; now and then none, so that what is whole is read as well."""
    made = [json_copy(document)]
    for _ in range(draw(st.integers(0, changes))):
        known = list(places(made))
        path = known[draw(st.integers(0, len(known) - 1))]
        holder = made
        for step in path[:-1]:
            holder = holder[step]
        match draw(st.integers(0, 5)):
            case 0 | 1:
                holder[path[-1]] = draw(odd)
            case 2 if path != (0,):
                del holder[path[-1]]  # type: ignore[arg-type]  # a key of a table or a place in a list
            case 3:
                other = known[draw(st.integers(0, len(known) - 1))]
                found: Any = made
                for step in other:
                    found = found[step]
                holder[path[-1]] = json_copy(found)
            case 4:
                holder[path[-1]] = [holder[path[-1]]]
            case _:
                holder[path[-1]] = draw(plain_json)
    return made[0]


def as_toml(value: Any) -> Any:
    """What TOML can hold of it."""
    if isinstance(value, dict):
        return {key.encode("utf-8", "replace").decode(): as_toml(below) for key, below in value.items()}
    if isinstance(value, list):
        return [as_toml(below) for below in value]
    return "null" if value is None else value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def dumped(value: Any) -> bytes:
    """NaN and Infinity as Python's own reader takes them; half characters as escapes."""
    return json.dumps(value).encode()


@st.composite
def torn(draw: st.DrawFn, whole: bytes, pieces: Sequence[bytes] = ()) -> bytes:
    """Bytes of a real file: cut off, changed, repeated, with pieces of another kind in between.

    :param pieces: words of the format, beside those that hurt everywhere.
    """
    data = bytearray(whole)
    hurt = (
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\n",
        b"\r\n",
        b"1e400",
        b"NaN",
        b"-",
        b"9" * 40,
        b'"',
        b"{",
        b"[" * 300,
        b"}",
        b",",
        b" ",
        b"\\u0000",
    )
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = draw(st.sampled_from([*hurt, *pieces]))
            case 2 if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case 3:
                length = draw(st.integers(1, 40))
                data[at:at] = data[at : at + length]
            case _:
                del data[at : at + draw(st.integers(1, 40))]
    return bytes(data)


@st.composite
def files_of_json(draw: st.DrawFn, document: Any) -> bytes:
    """A document as a file: spoiled as data, then, in a third of them, as bytes."""
    whole = dumped(draw(spoiled(document)))
    return draw(torn(whole)) if draw(st.integers(0, 2)) == 0 else whole


def refused_by(read: Callable[[], Any], *kinds: type[BaseException]) -> Any:
    """What ``read`` answers, or the error when it is one of ``kinds``; any other is the test's failure, with where it came from."""
    try:
        return read()
    except kinds as error:
        assert str(error), "a refusal says why"
        return error


def count_or_none(value: object) -> bool:
    """Whether it is a whole number from 0, or None; a boolean is neither."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
