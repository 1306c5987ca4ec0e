"""Reading the gateway's journal: what the daemon ingests.

``read_from`` may be called again from any position it ever returned and yields the same records: a daemon stores the position in the same
transaction as what it made of the records, and (journal, seq) is unique.  A line that is torn or does not match its checksum is named
and skipped; the unfinished last line of the newest segment is left for the next call.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from marathond.core.errors import ArtifactError
from marathond.gateway.files import read_json, write_json

READ_AT_MOST = 1000
LINE_AT_MOST = 64 * 1024
HEAD_AT_MOST = 4 * 1024 * 1024
_NAME = re.compile(r"(\d{8})\.jsonl\Z")
_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"}\Z')


class Position(NamedTuple):
    """Where the next record starts.  ``Position(0, 0)`` is the beginning; positions compare."""

    segment: int
    byte: int


class Record(NamedTuple):
    seq: int
    fields: dict[str, Any]


class Torn(NamedTuple):
    """A line that cannot be trusted: where it stands and how long it is."""

    segment: int
    byte: int
    length: int


START = Position(0, 0)


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.jsonl"


def segments(folder: Path) -> list[int]:
    """Numbers of the segments that exist, ascending."""
    return sorted(int(match[1]) for path in folder.iterdir() if (match := _NAME.match(path.name)))


def read_from(folder: Path, position: Position = START, at_most: int = READ_AT_MOST) -> tuple[list[Record | Torn], Position]:
    """At most ``at_most`` entries from ``position`` on, and the position after them.  Nothing new: an empty list and a position as good.

    :raises ArtifactError: ``io``, the folder or a segment cannot be read; ``gap``, segments were removed that this reader had not read.
    """
    found: list[Record | Torn] = []
    try:
        numbers = [number for number in segments(folder) if number >= position.segment]
        if position.segment and numbers and numbers[0] != position.segment:
            raise ArtifactError("gap", str(segment_path(folder, position.segment)), "this segment is gone before it was read to its end")
        for index, number in enumerate(numbers):
            start = position.byte if number == position.segment else 0
            final = index == len(numbers) - 1
            position = Position(number, start)
            for entry, after in _lines(folder, number, start, final):
                found.append(entry)
                position = Position(number, after)
                if len(found) >= at_most:
                    return found, position
    except OSError as err:
        raise ArtifactError("io", str(folder), str(err)) from err
    return found, position


def scan_segment(folder: Path, number: int, *, final: bool) -> Iterator[Record | Torn]:
    """Every entry of one segment.  ``final``: its writer may live, so an unfinished last line is left alone."""
    for entry, _ in _lines(folder, number, 0, final):
        yield entry


def _lines(folder: Path, number: int, start: int, final: bool) -> Iterator[tuple[Record | Torn, int]]:
    with segment_path(folder, number).open("rb") as file:
        file.seek(start)
        at = start
        while line := file.readline(HEAD_AT_MOST):
            if not line.endswith(b"\n") and final and len(line) < HEAD_AT_MOST:
                return
            yield _decode(line) or Torn(number, at, len(line)), at + len(line)
            at += len(line)


def _decode(line: bytes) -> Record | None:
    text = line.rstrip(b"\n")
    match = _CRC.search(text)
    if match is None or len(text) == len(line):
        return None
    body = text[: match.start()] + b"}"
    if zlib.crc32(body) != int(match[1], 16):
        return None
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not is_count(fields.get("seq")) or not isinstance(fields.get("event"), str):
        return None
    return Record(fields["seq"], fields)


def is_count(value: object) -> TypeGuard[int]:
    """A whole number from 0 that the ledger takes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def read_ingested(folder: Path) -> Position:
    """How far the daemon has come, by its own word; the beginning when it has said nothing."""
    told = read_json(folder / "ingested.json")
    if told is None:
        return START
    segment, byte = told.get("segment"), told.get("byte")
    return Position(segment, byte) if is_count(segment) and is_count(byte) else START


def write_ingested(folder: Path, position: Position) -> None:
    """Called by the daemon after its commit: segments before ``position.segment`` may go."""
    write_json(folder / "ingested.json", {"segment": position.segment, "byte": position.byte})
