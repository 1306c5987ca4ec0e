"""The journal's own protocol, for a process whose stderr systemd has connected to the journal.

Owns which fields an entry has and their encoding: one datagram an entry, of lines ``NAME=value``, or ``NAME``, eight bytes of length and
the value where that has lines of its own.  Must not know what is logged.  Sources: systemd's "Native Journal Protocol",
systemd.journal-fields(7), and systemd.exec(5) for ``JOURNAL_STREAM``.

Names are ours: an event's own words become fields only under a prefix, so that none can pass for one that systemd gives a meaning.  Values
may be foreign text: each is one line that steers no terminal; a traceback keeps its lines, counted by their length.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from marathond.core.text import printable

SOCKET = Path("/run/systemd/journal/socket")
SEND_S = 1.0
"""A journal that takes nothing for so long is left out: no entry is worth the loop that would wait for it."""
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "exception": 3, "critical": 2}
NAMED = {name: name.upper() for name in ("campaign", "cell", "block", "task", "arm", "trial", "code")}
"""What people search by keeps its plain name; everything else an event says is ``MARATHOND_<WORD>``."""
MESSAGE_MAX, VALUE_MAX = 1000, 2000
TRACEBACK_LINES, TRACEBACK_LINE_MAX = 100, 400
"""Characters and lines.  An entry stays below the 200 KB that a datagram holds."""
ITEMS_MAX = 100
_PREFIX = "MARATHOND_"
_TRIAL = re.compile(r"t\d{4,9}", re.ASCII)
_NOT_A_NAME = re.compile(r"[^A-Z0-9_]", re.ASCII)
_ASIDE = frozenset({"event", "level", "timestamp", "exception", "trial", "cell", "block", "campaign", "arm", "task"})
"""Not told again behind a message's colon."""


def connected(environ: Mapping[str, str], stream: IO[str]) -> bool:
    """Whether what is written to ``stream`` ends in the journal: systemd names the device and inode that it has connected."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or a stand-in without a descriptor
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def level_mark(level: str, environ: Mapping[str, str], stream: IO[str]) -> str:
    """What gives a plain line of stderr its priority in the journal (sd-daemon(3)); empty where nobody would read it as that."""
    return f"<{PRIORITIES[level]}>" if connected(environ, stream) else ""


def fields(event: Mapping[str, Any], identifier: str) -> dict[str, str]:
    """The entry of one event of the log; only ``MARATHOND_TRACEBACK`` may have several lines."""
    entry = {
        "MESSAGE": message(event),
        "PRIORITY": str(PRIORITIES.get(str(event.get("level", "info")), 6)),
        "SYSLOG_IDENTIFIER": identifier,
        "EVENT": _text(event.get("event", "")),
    }
    for word, value in event.items():
        if value is None or word in ("event", "level", "timestamp"):
            continue
        if word == "exception":
            lines = str(value).split("\n")
            entry[f"{_PREFIX}TRACEBACK"] = "\n".join(_tame(line) for line in lines[-TRACEBACK_LINES:])
        else:
            entry[NAMED.get(word) or _PREFIX + _NOT_A_NAME.sub("_", word.upper())[:40]] = _text(value)
    if "TRIAL" not in entry and _TRIAL.fullmatch(str(event.get("subject", ""))):
        entry["TRIAL"] = str(event["subject"])
    return entry


def message(event: Mapping[str, Any]) -> str:
    """One line for a person: ``t0007 voided: goal, zstd-decoder, code provider_down, reason …``."""
    head = _text(event.get("event", "")).replace("_", " ")
    if event.get("trial") is not None:
        head = f"{_text(event['trial'])} {head}"
    told = [_text(event[word]) for word in ("arm", "task") if event.get(word) is not None]
    told += [f"{word} {_text(value)}" for word, value in event.items() if word not in _ASIDE and value not in (None, "", [])]
    if event.get("exception"):
        told.append(str(event["exception"]).rstrip().rpartition("\n")[2])
    return printable(f"{head}: {', '.join(told)}" if told else head, MESSAGE_MAX)


def encode(entry: Mapping[str, str]) -> bytes:
    """The datagram of an entry."""
    parts = []
    for name, text in entry.items():
        value = text.encode("utf-8", "replace")
        if b"\n" in value:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n")
        else:
            parts.append(name.encode() + b"=" + value + b"\n")
    return b"".join(parts)


def _text(value: object) -> str:
    if isinstance(value, str):
        return printable(value, VALUE_MAX)
    if isinstance(value, list | tuple | set | frozenset):
        return printable(", ".join(_text(item) for item in list(value)[:ITEMS_MAX]), VALUE_MAX)
    if isinstance(value, bool | int | float | Mapping):
        return printable(json.dumps(value, ensure_ascii=False, default=str), VALUE_MAX)
    return printable(str(value), VALUE_MAX)


def _tame(line: str) -> str:
    """With its indentation, which is how a traceback is read."""
    bare = line.lstrip(" ")
    return " " * min(len(line) - len(bare), 40) + printable(bare, TRACEBACK_LINE_MAX)


class JournalLogger:
    """What structlog hands finished events to, as :func:`handed` shapes them.

    The socket is named at each sending, never connected: journald may be restarted.  What it does not take goes to stderr, as a line of
    JSON with its priority before it, which is the same journal by another way.
    """

    def __init__(self, identifier: str, path: Path = SOCKET) -> None:
        self._identifier, self._path = identifier, str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(SEND_S)

    def msg(self, event: Mapping[str, Any]) -> None:
        entry = fields(event, self._identifier)
        try:
            self._socket.sendto(encode(entry), self._path)
        except OSError:
            line = json.dumps(dict(event), ensure_ascii=False, default=str)
            sys.stderr.write(f"<{entry['PRIORITY']}>{line}\n")
            sys.stderr.flush()

    debug = info = warning = error = exception = critical = fatal = msg


def handed(_logger: object, _method: str, event: Mapping[str, Any]) -> tuple[tuple[Mapping[str, Any]], dict[str, Any]]:
    """structlog's last processor before a :class:`JournalLogger`: the event as it is, as the one argument."""
    return (event,), {}
