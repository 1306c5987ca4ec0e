"""The first request of each conversation in a record: what a client was given before anything was said or done (fault a14).

Owns the reading of a record's file for that.  Must not know what such a request means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.practice.request import Ask


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """``headers`` as the provider got them, of a key its fingerprint."""

    conversation: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


def first_requests(path: Path) -> dict[str, FirstRequest]:
    """By conversation, from the file of one trial, or of all that came with one key.

    A goal's first turn may ask before the message with the task has come; such a request is passed over for the next one, which an empty
    answer made codex send in the same turn (:mod:`marathond.practice.play`).

    :raises OSError: it cannot be read.  :raises ValueError: it is no record, or a first request was too large for it.
    """
    found: dict[str, FirstRequest] = {}
    untold: set[int] = set()
    lines: list[dict[str, Any]] = []
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            read = json.loads(line)
            if read["kind"] == "answer" and read.get("untold"):
                untold.add(read["n"])
            elif read["kind"] == "request":
                lines.append(read)
    for read in lines:
        if read["n"] in untold or not isinstance(body := read.get("body", {}), dict):
            continue
        headers = {name.lower(): value for name, value in read["headers"].items()}
        conversation = Ask(body, headers, read["bytes"]).conversation
        if conversation in found:
            continue
        if "left_out" in read:
            raise ValueError(f"{path}: the body of request {read['n']} was too large for the record")
        found[conversation] = FirstRequest(conversation, read["path"], read["headers"], body)
    return found
