"""What an arm's client sends first, taken apart by name, and how two of them differ (fault a14).

Owns the names of the parts of a Responses request, the comparison of two records, and its verdict: a difference that the arms' rows
declare, or one that nobody decided.  Pure; must not know codex, nor where a request comes from.

A record is nested plain data.  A list whose elements are all named (mappings with a member :data:`NAME`, or texts) is compared by these
names, so that an element more shifts nothing; its order is one more part.  A path is the keys and names down to a part.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Path = tuple[str, ...]
NAME = "is"
"""Member by which an element of a list is told from the others."""
ORDER = "(order)"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()
SHOWN = 160
"""Characters of a value in words."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A difference that ``field`` of an arm's row makes, at one of ``paths`` (a tool lies elsewhere in another surface) or below it.

    Without paths: nobody knows what it makes, and nothing is declared.  Not ``surely``: it may make none.
    """

    field: str
    paths: tuple[Path, ...]
    surely: bool = True

    def covers(self, path: Path) -> bool:
        return any(path[: len(declared)] == declared for declared in self.paths)


@dataclass(frozen=True, slots=True)
class Difference:
    """``a`` and ``b``: the values, or :data:`ABSENT`."""

    path: Path
    a: Any
    b: Any

    @property
    def where(self) -> str:
        return ".".join(self.path)

    def words(self, a: str = "a", b: str = "b") -> str:
        """One line; ``a`` and ``b`` name the two sides."""
        if self.a is ABSENT:
            return f"{self.where}: only {b} has it: {shown(self.b)}"
        if self.b is ABSENT:
            return f"{self.where}: only {a} has it: {shown(self.a)}"
        left, right = _apart(shown(self.a, None), shown(self.b, None))
        return f"{self.where}: {a} {left}, {b} {right}"


def shown(value: Any, at_most: int | None = SHOWN) -> str:
    """A value in one line; of something that has a text, the text."""
    told = next((value[key] for key in ("text", "output", "description") if key in value), value) if isinstance(value, Mapping) else value
    text = told if isinstance(told, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = " ".join(text.split())
    return text if at_most is None or len(text) <= at_most else text[:at_most].rstrip() + "…"


def _apart(a: str, b: str) -> tuple[str, str]:
    """Two long values from where they part."""
    if max(len(a), len(b)) <= SHOWN:
        return a, b
    same = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, same - SHOWN // 4)
    lead = "…" if start else ""
    return lead + shown(a[start:]), lead + shown(b[start:])


def differences(a: Any, b: Any, path: Path = ()) -> list[Difference]:
    """Every part in which two records differ, in the order of their keys."""
    return list(_differences(a, b, path))


def undeclared(a: Any, b: Any, declared: Sequence[Declared]) -> list[Difference]:
    """The differences that no field of the arms' rows declares: nobody decided them."""
    return [found for found in differences(a, b) if not any(each.covers(found.path) for each in declared)]


def undelivered(a: Any, b: Any, declared: Sequence[Declared]) -> list[Declared]:
    """What the rows declare and the records do not show: a treatment that did not arrive."""
    found = differences(a, b)
    return [each for each in declared if each.surely and each.paths and not any(each.covers(difference.path) for difference in found)]


def _differences(a: Any, b: Any, path: Path) -> Iterator[Difference]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        yield from _by_key(a, b, path)
        return
    named_a, named_b = _named(a), _named(b)
    if named_a is None or named_b is None:
        if a != b or type(a) is not type(b):
            yield Difference(path, a, b)
        return
    yield from _by_key(named_a, named_b, path)
    order_a, order_b = ([name for name in one if name in other] for one, other in ((named_a, named_b), (named_b, named_a)))
    if order_a != order_b:
        yield Difference((*path, ORDER), order_a, order_b)


def _by_key(a: Mapping[str, Any], b: Mapping[str, Any], path: Path) -> Iterator[Difference]:
    for key in [*a, *(key for key in b if key not in a)]:
        if key not in a or key not in b:
            yield Difference((*path, key), a.get(key, ABSENT), b.get(key, ABSENT))
        else:
            yield from _differences(a[key], b[key], (*path, key))


def _named(value: Any) -> dict[str, Any] | None:
    """A list's elements by their names; None: it is no list, or they have none of their own."""
    if not isinstance(value, list | tuple):
        return None
    found: dict[str, Any] = {}
    for element in value:
        name = element.get(NAME) if isinstance(element, Mapping) else element
        if not isinstance(name, str) or name in found:
            return None
        found[name] = element
    return found


# ---- a request's parts

TOOL_DEPTH_AT_MOST = 8
_SECTION = re.compile(r"\n+### `([^`\n]{1,200})`\n")
"""In the description of a tool that runs other tools (code mode): each of these begins so."""


def tools_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every tool that a request offers, wherever it stands, each with a name of its own; a namespace is one too, without what is in it.

    ``exec_command``; ``web_search`` (of a hosted one its type); ``functions.exec`` (in a namespace); ``functions.exec/apply_patch`` (called
    from inside another tool, whose description tells of it in ``text``).
    """
    found: dict[str, dict[str, Any]] = {}
    for given in _offers(body):
        for tool in _tools(given, "", TOOL_DEPTH_AT_MOST):
            name, more = tool[NAME], 2
            while name in found:
                name, more = f"{tool[NAME]} {more}", more + 1
            found[name] = {**tool, NAME: name}
    return list(found.values())


def _offers(body: Mapping[str, Any]) -> Iterator[Any]:
    yield body.get("tools")
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and "tools" in item:
            yield item["tools"]


def _tools(given: Any, space: str, depth: int) -> Iterator[dict[str, Any]]:
    for tool in given if isinstance(given, list) and depth else ():
        if not isinstance(tool, Mapping):
            continue
        name = space + str(tool.get("name", tool.get("type", "")))
        rest = {key: value for key, value in tool.items() if key != "tools"}
        description = tool.get("description")
        if isinstance(description, str) and len(parts := _SECTION.split(description)) > 1:
            yield {NAME: name, **rest, "description": parts[0]}
            yield from ({NAME: f"{name}/{inner}", "text": text} for inner, text in zip(parts[1::2], parts[2::2], strict=True))
        else:
            yield {NAME: name, **rest}
        yield from _tools(tool.get("tools"), f"{name}.", depth - 1)


VALUE_AT_MOST = 256
"""Bytes of a value that a shape shows as it is; of a larger one its hash."""
NAMES_AT_MOST = 256
_TAG = re.compile(r"<([a-z_]+(?: [a-z_]+)?)[ >]")
_LONG = frozenset({"tools", "input", "instructions"})
_OWN = frozenset({"client_metadata", "prompt_cache_key", "metadata", "user", "safety_identifier", "previous_response_id"})
"""Different for every conversation: only that they are there is part of a shape."""
SHAPE_FORMAT = 2


def shape(body: Mapping[str, Any], headers: Sequence[str]) -> dict[str, Any]:
    """What of a first request must be alike for all trials of an arm, without a word of what was said: small values, hashes, names.

    ``tools`` by name; ``instructions``: all that a developer or the system says, by the tag it begins with; ``headers``: names alone.  At
    most some 20 kB.
    """
    tools = {tool[NAME][:128]: digest({key: value for key, value in tool.items() if key != NAME}) for tool in tools_of(body)}
    return {
        "format": SHAPE_FORMAT,
        "body": {key[:128]: _small(key, value) for key, value in list(body.items())[:NAMES_AT_MOST] if key not in _LONG},
        "tools": dict(list(tools.items())[:NAMES_AT_MOST]),
        "instructions": _instructions(body),
        "headers": dict.fromkeys(sorted({name.lower()[:128] for name in headers})[:NAMES_AT_MOST], "sent"),
    }


def _small(key: str, value: Any) -> Any:
    if key in _OWN:
        return "sent"
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except ValueError:
        return "not a number"
    return value if len(text) <= VALUE_AT_MOST else digest(value)


def _instructions(body: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, list[Any]] = {"(own)": [body["instructions"]]} if body.get("instructions") else {}
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and item.get("role") in ("developer", "system"):
            parts = item.get("content")
            for part in parts if isinstance(parts, list) else [parts]:
                text = part.get("text") if isinstance(part, Mapping) else part
                tag = _TAG.match(text) if isinstance(text, str) else None
                name = tag[1][:128] if tag else "text"
                found.setdefault(name if name in found or len(found) < NAMES_AT_MOST else "text", []).append(part)
    return {name: digest(parts) for name, parts in found.items()}


def digest(value: Any) -> str:
    """Short, over the value as canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
