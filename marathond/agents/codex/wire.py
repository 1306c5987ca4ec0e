"""The wire: one JSON message per text frame, as codex writes them (JSON-RPC 2.0 without its ``jsonrpc`` member).  Pure.

Owns the four kinds of message and their shape.  Must not know any method.  What comes in was written in the trial's container: nothing
about it is taken for granted, and what is no message raises :class:`~marathond.agents.codex.errors.ProtocolDrift`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marathond.agents.codex.errors import ProtocolDrift

FRAME_BYTES_AT_MOST = 64 << 20
"""Of one incoming frame; 0.171 was seen to send 5 MB."""
METHOD_CHARACTERS_AT_MOST = 200
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""What may be half a surrogate pair: codex writes none, and neither a receipt nor the ledger takes one."""
NOT_SUPPORTED = -32601


@dataclass(frozen=True, slots=True)
class Answer:
    id: int
    result: Any


@dataclass(frozen=True, slots=True)
class Failure:
    id: int
    number: int
    message: str
    data: Any


@dataclass(frozen=True, slots=True)
class Heard:
    """A notification."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the server's own; its id is the server's, a number or a text."""

    id: int | str
    method: str
    params: Mapping[str, Any]


Message = Answer | Failure | Heard | Asked


def encode(message: Mapping[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"))


def request(number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": number, "method": method, "params": dict(params)}


def notification(method: str) -> dict[str, Any]:
    return {"method": method}


def refusal(asked: Asked) -> dict[str, Any]:
    """The answer to every request of the server: nobody here approves, types or signs anything."""
    return {"id": asked.id, "error": {"code": NOT_SUPPORTED, "message": f"{asked.method}: refused, nobody is here to answer"}}


def load(text: str) -> dict[str, Any]:
    """The object in one frame.

    :raises ProtocolDrift: it is no JSON, no text, or no object.
    """
    try:
        raw = json.loads(text)
        if _HALF.search(text):
            json.dumps(raw, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as err:  # ValueError also covers numbers of thousands of digits
        raise ProtocolDrift("frame", "-", f"no JSON: {str(err)[:200]}") from err
    if not isinstance(raw, dict):
        raise ProtocolDrift("frame", "-", f"a JSON {type(raw).__name__}, expected an object")
    return raw


def read(raw: Mapping[str, Any]) -> Message:
    """What kind of message that is.

    :raises ProtocolDrift: none that exists.
    """
    if "method" in raw:
        method = raw["method"]
        if not isinstance(method, str) or len(method) > METHOD_CHARACTERS_AT_MOST:
            raise ProtocolDrift("frame", "method", f"expected a text of at most {METHOD_CHARACTERS_AT_MOST} characters")
        params = {} if raw.get("params") is None else raw["params"]
        if not isinstance(params, dict):
            raise ProtocolDrift(method, "params", "expected an object")
        if "id" not in raw:
            return Heard(method, params)
        if not isinstance(raw["id"], int | str) or isinstance(raw["id"], bool):
            raise ProtocolDrift(method, "id", "expected a number or a text")
        return Asked(raw["id"], method, params)
    number = raw.get("id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise ProtocolDrift("frame", "id", "an answer without the number of its request")
    if "error" in raw:
        error = raw["error"]
        if not isinstance(error, dict) or type(error.get("code")) is not int or not isinstance(error.get("message"), str):
            raise ProtocolDrift("frame", "error", "expected an object with code and message")
        return Failure(number, error["code"], error["message"], error.get("data"))
    if "result" not in raw:
        raise ProtocolDrift("frame", "result", "an answer with neither result nor error")
    return Answer(number, raw["result"])
