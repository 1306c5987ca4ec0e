"""What a client asks of the model: read, checked and, where configured, stripped.

Pure.  Bytes are forwarded unchanged unless a field was stripped.  A key that occurs twice is refused: which of the two counts would
otherwise be decided by the provider's parser, after ours had looked at the other one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

# What reaches a network from the provider's side (fault a15): its own search, connectors that it calls, models that search unasked, files
# and pictures that it would fetch, containers of its own that are given a network.
NETWORK_TOOLS = ("web_search", "mcp")
NETWORK_FIELDS = ("web_search_options",)
FETCHED = ("file_url", "image_url")
CONTAINER_NETWORK = "network_policy"
SEARCHING_MODEL = re.compile(r"search|deep-research")
STRIP_PATH = re.compile(r"[A-Za-z0-9_-]+(\[\])?(\.[A-Za-z0-9_-]+(\[\])?)*\Z")
TOOL_DEPTH_AT_MOST = 8
PARTS_AT_MOST, VALUES_AT_MOST = 1_000_000, 4_000_000
"""Objects and lists, and values, of a request that is parsed: half a second at most.  All trials share the process that does it."""

# Printable ASCII written as an escape: could spell any word in disguise.  Serializers escape control characters only.
_DISGUISE = re.compile(rb"\\u00[2-7]")
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,128})"')
_MODEL_WITHIN = 4096
_SEARCHING = re.compile(rb'"model"\s*:\s*"[^"]*search')


class BadBody(Exception):
    """Not a request that could be checked; ``str()`` says why."""


def parse(raw: bytes | bytearray) -> dict[str, Any]:
    """The request as an object.

    :raises BadBody: no JSON, no object, a key twice, or nested or split up beyond reason.
    """
    if raw.count(b"{") + raw.count(b"[") > PARTS_AT_MOST or raw.count(b",") > VALUES_AT_MOST:
        raise BadBody(f"more than {PARTS_AT_MOST} objects and lists, or {VALUES_AT_MOST} values")
    try:
        parsed = json.loads(raw, object_pairs_hook=_no_key_twice)
    except RecursionError:
        raise BadBody("nested too deeply") from None
    except ValueError as err:
        raise BadBody(f"not JSON: {str(err)[:120]}") from None
    if not isinstance(parsed, dict):
        raise BadBody("must be a JSON object")
    return parsed


def surely_plain(raw: bytes | bytearray, words: Iterable[str]) -> bool:
    """None of ``words`` can occur in the request as a key or a value, however it is parsed: seen from its bytes, in a tenth of the time
    that parsing takes.  False means that one has to parse and look."""
    if not raw.startswith(b"{") or b"\0" in raw:  # no JSON object, or one in UTF-16 or UTF-32
        return False
    if any(word.encode() in raw for word in words) or _SEARCHING.search(raw) is not None:
        return False
    return b"\\u00" not in raw or _DISGUISE.search(raw) is None


def words_to_look_for(without_network: bool, paths: Sequence[str]) -> list[str]:
    """At least one of these occurs in every request that :func:`network_tool` refuses or :func:`strip` changes; with their quotes, because
    a tool named ``list_mcp_resources`` is in every request of some clients."""
    tails = [path.rpartition(".")[2].removesuffix("[]") for path in paths]
    words = [*(f'"{word}' for word in NETWORK_TOOLS), *(f'"{word}"' for word in (*FETCHED, CONTAINER_NETWORK))] if without_network else []
    return [*words, *(f'"{tail}"' for tail in tails)]


def model_near_the_front(raw: bytes | bytearray) -> str | None:
    """The model as clients write it, before their long fields.  For the record only; nothing is decided by it."""
    found = _MODEL.search(raw, 0, _MODEL_WITHIN)
    return found[1].decode("utf-8", "replace") if found else None


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise BadBody("a key occurs twice in one object")
    return result


def network_tool(request: dict[str, Any]) -> str | None:
    """The first tool, field or model by which the provider would reach a network for the client, or None."""
    for name in NETWORK_FIELDS:
        if request.get(name) is not None:
            return name
    model = request.get("model")
    if isinstance(model, str) and SEARCHING_MODEL.search(model):
        return model
    items = request.get("input")
    carriers = [request.get("tools"), request.get("tool_choice")]
    carriers += [item.get("tools") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    kinds = (kind for carrier in carriers for kind in _tool_types(carrier, TOOL_DEPTH_AT_MOST))
    tool = next((kind for kind in kinds if kind.startswith((*NETWORK_TOOLS, CONTAINER_NETWORK))), None)
    return tool or _fetched(items, TOOL_DEPTH_AT_MOST) or _fetched(request.get("messages"), TOOL_DEPTH_AT_MOST)


def _tool_types(node: Any, depth: int) -> Iterator[str]:
    """Types of tools, also of those inside a namespace or a choice; a function's own parameters are its business.  A container of the
    provider's that is given a network counts as a type of its own."""
    if depth == 0:
        return
    if isinstance(node, list):
        for item in node:
            yield from _tool_types(item, depth - 1)
    elif isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield node["type"]
        if any(isinstance(node.get(name), dict) and node[name].get(CONTAINER_NETWORK) is not None for name in ("environment", "container")):
            yield CONTAINER_NETWORK
        yield from _tool_types(node.get("tools"), depth - 1)


def _fetched(node: Any, depth: int) -> str | None:
    """The first field that names something for the provider to fetch; what is sent along (``data:``) is not fetched."""
    if depth == 0 or not isinstance(node, dict | list):
        return None
    if isinstance(node, dict):
        for name in FETCHED:
            value = node.get(name)
            value = value.get("url") if isinstance(value, dict) else value
            if value is not None and not (isinstance(value, str) and value.startswith("data:")):
                return name
    below = node.values() if isinstance(node, dict) else node
    return next((found for each in below if (found := _fetched(each, depth - 1)) is not None), None)


def strip(request: dict[str, Any], paths: Sequence[str]) -> int:
    """Remove the fields at ``paths`` (``a.b``; ``input[].name`` for every element of a list) in place; how many were removed."""
    return sum(_strip(request, path.split(".")) for path in paths)


def _strip(node: Any, steps: list[str]) -> int:
    if not isinstance(node, dict):
        return 0
    name, each = steps[0].removesuffix("[]"), steps[0].endswith("[]")
    if len(steps) == 1:
        return 0 if node.pop(name, node) is node else 1
    below = node.get(name)
    if each:
        return sum(_strip(item, steps[1:]) for item in below) if isinstance(below, list) else 0
    return _strip(below, steps[1:])


def dump(request: dict[str, Any]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode()


class HeldBody:
    """Holder of a request's bytes, so that all who know it let go of them together once an answer has begun."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes | bytearray) -> None:
        self.raw = raw
