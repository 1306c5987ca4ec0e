"""The append-only journal: one JSON line per event, each with a sequence number and a checksum.

Owns the writing.  A line is one ``write`` to the kernel, so kill -9 can lose at most the line being written; ``sync`` makes it survive the
host as well.  Segments rotate by size; the first line of each says which requests were open and how far each trial had counted, so that a
new life needs to read only the newest segment.  Segments that the daemon has ingested (``ingested.json``) are removed at rotation; with
too many left the journal is full and says so: spending without a record is worse than waiting.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import uuid
import zlib
from pathlib import Path
from typing import Any

from marathond.core.errors import ArtifactError
from marathond.gateway import journal_read
from marathond.gateway.files import fsync_folder

SEGMENT_BYTES = 32 * 1024 * 1024
SEGMENTS_AT_MOST = 128
LINE_AT_MOST = 64 * 1024
TRIALS_COUNTED = 4096
_SEQ = re.compile(r"\d{1,18}", re.ASCII)


def encode(event: dict[str, Any]) -> bytes:
    """The event as its line: ``crc`` is the last member and covers everything before it."""
    body = json.dumps(event, separators=(",", ":"), ensure_ascii=True).encode()
    return body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body)


class Journal:
    """One writer.  ``open_requests`` after the start: requests of an earlier life that never ended (their usage is unknown)."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES, segments_at_most: int = SEGMENTS_AT_MOST) -> None:
        self._folder, self._segment_bytes, self._segments_at_most = folder, segment_bytes, segments_at_most
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._lock = threading.Lock()  # sync runs in another thread and must not meet a descriptor that rotation has closed
        self._fd, self._size, self._number, self._broken = -1, 0, 0, False
        self._seq = 0
        self.identity = uuid.uuid4().hex
        self.open_requests: dict[int, dict[str, Any]] = {}
        self.numbers: dict[str, int] = {}
        self.torn: list[journal_read.Torn] = []
        self.error = ""
        """Why the last line could not be written; empty: it was."""
        self._resume()

    def append(self, kind: str, **fields: Any) -> int:
        """Write one event, and return its sequence number.

        :raises ArtifactError: ``full`` (the daemon ingests nothing), or the disk says no: nothing was recorded.
        """
        try:
            seq = self._append(kind, fields)
        except ArtifactError as err:
            self.error = str(err)
            raise
        self.error = ""
        return seq

    def _append(self, kind: str, fields: dict[str, Any]) -> int:
        if self._broken or self._size >= self._segment_bytes:
            self._rotate()
        seq = self._seq + 1
        line = encode({"seq": seq, "event": kind, **fields})
        if len(line) > LINE_AT_MOST:
            raise ArtifactError("too_large", str(self._path), f"an event of {len(line)} bytes")
        self._write(line)
        self._seq = seq
        self._follow(seq, kind, fields)
        return seq

    def next_number(self, trial: str) -> int:
        """The trial's next request number, counted across this process's lives."""
        number = self.numbers.pop(trial, 0) + 1
        self.numbers[trial] = number
        while len(self.numbers) > TRIALS_COUNTED:
            del self.numbers[next(iter(self.numbers))]
        return number

    def sync(self) -> None:
        """Everything appended so far survives the host; callable from another thread."""
        with self._lock:
            if self._fd >= 0:
                os.fsync(self._fd)

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.fsync(self._fd)
                os.close(self._fd)
                self._fd = -1

    @property
    def _path(self) -> Path:
        return journal_read.segment_path(self._folder, self._number)

    def _follow(self, seq: int, kind: str, fields: dict[str, Any]) -> None:
        if kind == "begin":
            self.open_requests[seq] = {key: fields.get(key) for key in ("trial", "account", "listener", "route", "number")}
        elif kind == "request":
            self.open_requests.pop(fields.get("begin", 0), None)

    def _write(self, line: bytes) -> None:
        try:
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes written")
        except OSError as err:
            # What stands there may be half a line: it is never continued, the next event opens a new segment.
            self._broken = True
            raise ArtifactError("no_space" if err.errno == errno.ENOSPC else "io", str(self._path), str(err)) from err
        self._size += len(line)

    def _resume(self) -> None:
        segments = journal_read.segments(self._folder)
        if segments:
            self._number = segments[-1]
            self._read_back(segments)
        self._rotate()

    def _read_back(self, segments: list[int]) -> None:
        """The newest segment, and the one before it in case the newest died with its first line."""
        for number in segments[-2:]:
            for entry in journal_read.scan_segment(self._folder, number, final=False):
                if isinstance(entry, journal_read.Torn):
                    self.torn.append(entry)
                    continue
                self._seq = max(self._seq, entry.seq)
                if not self._take_back(entry):
                    self.torn.append(journal_read.Torn(number, 0, 0))

    def _take_back(self, entry: journal_read.Record) -> bool:
        """False: a line of a shape that this version does not write, of which nothing is taken."""
        record, kind = entry.fields, entry.fields["event"]
        if kind == "segment":
            name, numbers, still_open = record.get("journal"), record.get("numbers"), record.get("open")
            if not isinstance(name, str) or not isinstance(numbers, dict) or not isinstance(still_open, dict):
                return False
            if not all(journal_read.is_count(n) for n in numbers.values()) or not all(map(_SEQ.fullmatch, still_open)):
                return False
            if not all(isinstance(what, dict) for what in still_open.values()):
                return False
            self.identity, self.numbers, self.open_requests = name, dict(numbers), {int(seq): what for seq, what in still_open.items()}
            return True
        if kind == "begin":
            trial, n = record.get("trial"), record.get("number")
            if not isinstance(trial, str) or not journal_read.is_count(n):
                return False
            self.numbers[trial] = max(n, self.numbers.get(trial, 0))
        if kind == "request" and not journal_read.is_count(record.get("begin")):
            return False
        self._follow(entry.seq, kind, record)
        return True

    def _rotate(self) -> None:
        ingested = journal_read.read_ingested(self._folder)
        for number in journal_read.segments(self._folder):
            if number < min(ingested.segment, self._number):
                journal_read.segment_path(self._folder, number).unlink(missing_ok=True)
        kept = journal_read.segments(self._folder)
        if len(kept) >= self._segments_at_most:
            raise ArtifactError("full", str(self._folder), f"{len(kept)} segments that nobody has ingested")
        number = (kept[-1] if kept else self._number) + 1
        path = journal_read.segment_path(self._folder, number)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
            self.close()
            fsync_folder(self._folder)
        except OSError as err:
            raise ArtifactError("no_space" if err.errno == errno.ENOSPC else "io", str(path), str(err)) from err
        self._fd, self._number, self._size, self._broken = fd, number, 0, False
        head = {"journal": self.identity, "numbers": self.numbers, "open": {str(seq): what for seq, what in self.open_requests.items()}}
        try:
            self._write(encode({"seq": self._seq + 1, "event": "segment", **head}))
        except ArtifactError:
            path.unlink(missing_ok=True)  # a full disk must not fill the folder with empty segments, one per request
            raise
        self._seq += 1
