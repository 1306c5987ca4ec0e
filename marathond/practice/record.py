"""What was asked and what was answered: one append-only JSONL file per trial, and the accounts that a ledger can be compared with.

Owns the form of the lines and their bound.  No key is written: of headers that carry one only a fingerprint, and a key that a body
repeats is blotted out.  Every line is one ``write`` to a file opened for appending, so that a killed provider leaves whole lines.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from marathond.practice.script import Usage

Outcome = Literal["completed", "refused", "failed", "cut", "abandoned", "broken"]
"""``refused``: an HTTP error or no byte at all; ``failed``: a stream ended with response.failed; ``cut``: broken off by a script;
``abandoned``: the client went away first; ``broken``: this provider itself failed (the record's disk is full, a bug)."""
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"})
BYTES_AT_MOST = 256 << 20
"""Of one trial's file.  Beyond it requests are written without their body, and beyond twice as much not at all; accounts go on."""


@dataclass(slots=True)
class Tally:
    """The accounts of one trial.  ``usage`` is of completed responses only; what cut or abandoned ones would have cost is ``unknown``."""

    requests: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    unknown: Usage = field(default_factory=Usage)

    def count(self, outcome: Outcome, usage: Usage | None) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if usage is not None and outcome == "completed":
            self.usage += usage
        elif usage is not None:
            self.unknown += usage


def fingerprint(key: str) -> str:
    """Tells keys apart without telling a key."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:12]


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: f"(sha256 {fingerprint(value)})" if name.lower() in SECRET_HEADERS else value for name, value in headers.items()}


class Recorder:
    """Writes into ``folder`` (made when missing), or nowhere when it is None.

    :raises OSError: from any method that writes: a record that is not whole is worse than none.
    """

    def __init__(self, folder: Path | None, bytes_at_most: int = BYTES_AT_MOST) -> None:
        self.folder, self.bytes_at_most = folder, bytes_at_most
        self._sizes: dict[str, int] = {}  # trial -> bytes in its file so far
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def request(
        self, trial: str, number: int, at_s: float, path: str, headers: Mapping[str, str], raw: bytes, key: str, is_json: bool
    ) -> None:
        """``is_json``: the caller has parsed ``raw``; it is then written as it came, without a second parsing (a history is megabytes)."""
        if self.folder is None:
            return
        text = _blotted(raw.decode("utf-8", "replace"), key)
        if not is_json:
            text = json.dumps({"not_json": text}, ensure_ascii=False)
        shown = {name: _blotted(value, key) for name, value in shown_headers(headers).items()}
        line = {"kind": "request", "n": number, "at_s": at_s, "path": _blotted(path, key), "headers": shown, "bytes": len(raw)}
        # A line break of valid JSON stands between tokens only, where a blank does as well.
        body = text.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogatepass")
        self._write(trial, _line(line)[:-2] + b',"body":' + body + b"}\n", _line({**line, "left_out": "body"}))

    def answer(self, trial: str, number: int, at_s: float, outcome: Outcome, key: str, fields: Mapping[str, Any]) -> None:
        shown = {name: _blotted(value, key) if isinstance(value, str) else value for name, value in fields.items()}
        line = {"kind": "answer", "n": number, "at_s": at_s, "outcome": outcome, **shown}
        self._write(trial, _line(line), _line(line))

    def _write(self, trial: str, data: bytes, short: bytes) -> None:
        if self.folder is None:
            return
        path = self.folder / f"{trial}.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = self._sizes.get(trial)
            size = os.fstat(descriptor).st_size if size is None else size
            if size + len(data) > self.bytes_at_most:
                data = short
            if size + len(data) > 2 * self.bytes_at_most:
                return
            if os.write(descriptor, data) != len(data):
                raise OSError(f"{path}: a line could not be written whole")
            self._sizes[trial] = size + len(data)
        finally:
            os.close(descriptor)


def _blotted(text: str, key: str) -> str:
    """Without the key; one shorter than eight characters is no secret and would blot out half of the text."""
    return text.replace(key, "*" * 8) if len(key) >= 8 else text


def _line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
