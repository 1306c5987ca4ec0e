"""The events of one answer, as the Responses API streams them.

Owns the order and the bytes.  Every event is one ``event:``/``data:`` pair; what codex 0.171 needs of them is ``output_item.done`` and
``response.completed`` with an id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from marathond.practice.script import Shape, Usage
from marathond.practice.surface import Item

PIECES = 8
"""A text comes in at most so many deltas."""
_ARGUMENT = {"function_call": ("arguments", "function_call_arguments"), "custom_tool_call": ("input", "custom_tool_call_input")}
"""Type of item: the key of what is called with, and its name in events."""


class Stream:
    """Makes the events of one response, numbered."""

    def __init__(self, response_id: str, model: str, created_s: int) -> None:
        self.head: dict[str, Any] = {"id": response_id, "object": "response", "created_at": created_s, "model": model}
        self._number = 0

    def event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()

    def opening(self) -> list[bytes]:
        fresh = {**self.head, "status": "in_progress", "output": [], "usage": None}
        return [self.event("response.created", response=fresh), self.event("response.in_progress", response=fresh)]

    def body(self, items: Sequence[Item], shape: Shape) -> Iterator[bytes]:
        """Everything between the opening and the end."""
        if shape in ("empty", "completed_only"):
            return
        for index, item in enumerate(items):
            yield from self._item(index, item, whole=shape == "whole")

    def completed(self, items: Sequence[Item], usage: Usage) -> bytes:
        tokens = {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }
        return self.event("response.completed", response={**self.head, "status": "completed", "output": list(items), "usage": tokens})

    def failed(self, code: str, text: str) -> bytes:
        error = {"code": code, "message": text}
        return self.event("response.failed", response={**self.head, "status": "failed", "output": [], "usage": None, "error": error})

    def _item(self, index: int, item: Item, whole: bool) -> Iterator[bytes]:
        at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        yield self.event("response.output_item.added", output_index=index, item=_unfinished(item))
        if item["type"] == "message":
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
            at["content_index"] = 0
            text = item["content"][0]["text"]
            yield self.event("response.content_part.added", **at, part=part)
            yield from (self.event("response.output_text.delta", **at, delta=piece) for piece in pieces(text))
            if not whole:
                return
            yield self.event("response.output_text.done", **at, text=text)
            yield self.event("response.content_part.done", **at, part={**part, "text": text})
        elif item["type"] in _ARGUMENT:
            field, kind = _ARGUMENT[item["type"]]
            yield from (self.event(f"response.{kind}.delta", **at, delta=piece) for piece in pieces(item[field]))
            yield self.event(f"response.{kind}.done", **at, **{field: item[field]})
        yield self.event("response.output_item.done", output_index=index, item=item)


def pieces(text: str) -> list[str]:
    """``text`` in at most :data:`PIECES` pieces."""
    size = max(1, -(-len(text) // PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _unfinished(item: Item) -> Item:
    blank: Item = {"content": []} if item["type"] == "message" else {}
    if item["type"] in _ARGUMENT:
        blank = {_ARGUMENT[item["type"]][0]: ""}
    return {**item, **blank, "status": "in_progress"}
