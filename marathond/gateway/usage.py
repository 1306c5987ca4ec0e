"""What an answer cost, read from the bytes as they pass by.

Owns the reading of the provider's event stream (Responses API; chat completions for judges).  Pure and incremental; never delays or changes
a byte.  What was not seen is unknown, never zero: a stream without its closing event has no token counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from marathond.core.requests import COUNT_AT_MOST

LINE_AT_MOST = 32 * 1024 * 1024
CLOSING = ("response.completed", "response.incomplete", "response.failed")
_WANTED = (b"response.created", *(name.encode() for name in CLOSING), b"error")
_TYPE_WITHIN = 256


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens by kind.  ``cached`` and ``cache_write`` are part of ``input``, ``reasoning`` of ``output`` (the provider's own counting)."""

    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int

    @property
    def total(self) -> int:
        return self.input + self.output


def read_usage(usage: Any) -> Tokens | None:
    """The ``usage`` object of a response or of a chat completion; None when it holds no counts, or such that no request can have."""
    if not isinstance(usage, dict):
        return None
    for into, out in (("input", "output"), ("prompt", "completion")):
        counts = (
            usage.get(f"{into}_tokens"),
            _detail(usage, f"{into}_tokens_details", "cached_tokens"),
            _detail(usage, f"{into}_tokens_details", "cache_write_tokens"),
            usage.get(f"{out}_tokens"),
            _detail(usage, f"{out}_tokens_details", "reasoning_tokens"),
        )
        if all(isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= COUNT_AT_MOST for count in counts):
            return Tokens(*counts)  # type: ignore[arg-type]  # checked in the line above
    return None


def _detail(usage: dict[str, Any], table: str, name: str) -> Any:
    details = usage.get(table)
    return (details.get(name) or 0) if isinstance(details, dict) else 0


class Watcher:
    """Feed it the body's chunks, then ask.  ``sse`` False: one JSON document."""

    def __init__(self, sse: bool) -> None:
        self._sse = sse
        self._tail = bytearray()
        self._overlong = False
        self._event = b""
        self.closed = False
        self.tokens: Tokens | None = None
        self.model: str | None = None
        self.error_type: str | None = None

    def feed(self, chunk: bytes) -> None:
        if not self._sse or b"\n" not in chunk:
            self._keep(chunk)
            return
        first, *lines = chunk.split(b"\n")
        self._keep(first)
        for following in lines:
            if self._overlong:
                self.error_type = self.error_type or "line_too_long"
            else:
                self._line(bytes(self._tail).rstrip(b"\r"))
            self._tail.clear()
            self._overlong = False
            self._keep(following)

    def end(self) -> None:
        """The body ended as its sender meant it to."""
        if self._sse:
            self._line(bytes(self._tail).rstrip(b"\r"))
        elif not self._overlong:
            self._document(bytes(self._tail))
        self._tail.clear()

    def _keep(self, piece: bytes) -> None:
        if self._overlong or len(self._tail) + len(piece) > LINE_AT_MOST:
            self._overlong = True
            self._tail.clear()
        else:
            self._tail += piece

    def _line(self, line: bytes) -> None:
        if line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif not line:
            self._event = b""
        elif line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                self.closed = True
            elif self._event in _WANTED or (not self._event and self._looks_wanted(data)):
                self._data(data)

    @staticmethod
    def _looks_wanted(data: bytes) -> bool:
        """Streams without ``event:`` lines: the type stands near the front; a chat's counts in its short last chunk."""
        head = data[:_TYPE_WITHIN]
        return any(b'"' + name + b'"' in head for name in _WANTED) or b'"usage"' in data

    def _data(self, data: bytes) -> None:
        event = _object(data)
        kind, response = event.get("type"), event.get("response")
        if isinstance(response, dict):
            self._response(response)
        else:
            self._response(event)
        if kind in CLOSING:
            self.closed = True
        if kind == "response.failed" or kind == "error" or "error" in event:
            self.error_type = _error_word(response if isinstance(response, dict) else event) or self.error_type or "failed"

    def _document(self, raw: bytes) -> None:
        document = _object(raw)
        self._response(document)
        self.closed = bool(document)
        if document.get("error"):
            self.error_type = _error_word(document)

    def _response(self, response: dict[str, Any]) -> None:
        if isinstance(response.get("model"), str):
            self.model = response["model"][:128]
        self.tokens = read_usage(response.get("usage")) or self.tokens


def _object(raw: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _error_word(holder: dict[str, Any]) -> str | None:
    error = holder.get("error")
    table = error if isinstance(error, dict) else holder
    word = table.get("code") or (table.get("type") if isinstance(error, dict) else None)
    return word[:64] if isinstance(word, str) else None
