"""Every message between the driver and codex, in order, in a file that no container can reach.

One JSON object a line: {at_ms, way: in|out, message}.

Owns the file and its bound.  It is for people; nothing is decided by it, and a full disk loses it and nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

NAME = "codex-messages.jsonl"
BYTES_AT_MOST = 64 << 20
"""Afterwards nothing more is written; the thread's own rollout has it all."""

_log = structlog.get_logger(__name__)


class Transcript:
    """Appends to ``path``; goes on where an earlier life stopped."""

    def __init__(self, path: Path, bytes_at_most: int = BYTES_AT_MOST) -> None:
        self._path, self._left, self._broken = path, bytes_at_most, False
        if path.exists():
            self._left -= path.stat().st_size

    def write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps({"at_ms": time.time_ns() // 1_000_000, **entry}, separators=(",", ":")) + "\n"
        if self._broken or len(line) > self._left:
            return
        try:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(line)
            self._left -= len(line)
        except OSError as error:
            self._broken = True
            _log.warning("transcript_lost", path=str(self._path), error=str(error))
