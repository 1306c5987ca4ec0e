"""What travels over the control socket: one JSON object a line, both ways, with a version.

    → {"v": 1, "verb": "void", "args": {"trials": [871], "reason": "provider outage"}}
    ← {"ok": true, "result": {...}}   |   {"ok": false, "error": "one line", "exit": 75}

Owns the words and the bounds that both ends share.  Must stay free of anyio and pydantic: the command line starts here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

VERSION = 1

REQUEST_MAX_BYTES = 1 << 20
"""A void of every trial of a large campaign by name still fits."""

RESPONSE_MAX_BYTES = 16 << 20

VERB_MAX = 40
"""Characters of a verb; the longest has ten."""

ROWS_MAX = 200
"""Rows of one kind named in an answer; counts beside them are always complete."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call.  ``args`` is checked by the verb's handler."""

    verb: str
    args: dict[str, Any]


class BadRequest(ValueError):
    """A line that is no request of this version; ``str()`` is what the caller is told."""


def encode_request(verb: str, args: dict[str, Any]) -> bytes:
    """:raises BadRequest: larger than the daemon would read, or bytes that are no text (a file's name may be such)."""
    try:
        line = _checked({"v": VERSION, "verb": verb, "args": args})
    except UnicodeEncodeError as error:
        raise BadRequest("the request holds bytes that are not UTF-8") from error
    if len(line) > REQUEST_MAX_BYTES:
        raise BadRequest(f"the request has {len(line)} bytes, the daemon reads at most {REQUEST_MAX_BYTES}; use filters, not names")
    return line


def decode_request(line: bytes) -> Request:
    """:raises BadRequest: not JSON, another version, or the wrong shape."""
    try:
        data = json.loads(line)
        _checked(data)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"not a JSON line: {error}") from error
    if not isinstance(data, dict):
        raise BadRequest("a request must be a JSON object")
    version = data.get("v")
    if type(version) is not int or version != VERSION:
        shown = repr(version)[:20] if isinstance(version, str | int | float | None) else f"a {type(version).__name__}"
        raise BadRequest(f"protocol version {shown}: this daemon speaks {VERSION}; use the marathonctl installed beside it")
    verb, args = data.get("verb"), data.get("args", {})
    if not isinstance(verb, str) or not isinstance(args, dict):
        raise BadRequest("a request needs verb (text) and args (object)")
    if len(verb) > VERB_MAX:
        raise BadRequest(f"a verb has at most {VERB_MAX} characters")
    return Request(verb, args)


def _checked(data: object) -> bytes:
    """The line.  What Python reads as JSON and is none is refused: no log, ledger or line takes half a surrogate pair, NaN or infinity.

    :raises ValueError: such a one (UnicodeEncodeError of a text).
    """
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def encode_result(result: object) -> bytes:
    return _line({"ok": True, "result": result})


def encode_error(message: str, exit_code: int) -> bytes:
    return _line({"ok": False, "error": message, "exit": int(exit_code)})


def _line(data: dict[str, object]) -> bytes:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
