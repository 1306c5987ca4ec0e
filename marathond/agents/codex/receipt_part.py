"""The base of all parts of a receipt: nothing more, nothing less, nothing of another kind than its fields say (fault e03)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Counts = dict[str, int]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Text(Part):
    """A text that was given, by its hash.  ``chars`` in characters."""

    sha256: str
    chars: int


class DatabasePart(Part):
    """``check``: ``ok``, or SQLite's word."""

    name: str
    bytes: int
    log_bytes: int
    tables: int
    check: str
