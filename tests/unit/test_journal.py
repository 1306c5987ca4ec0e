"""What the journal gets of the log: fields that people search by, one line to read, and nothing that foreign text could add."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.service import journal

BASE = {"event": "voided", "level": "warning", "timestamp": "2026-01-01T00:00:00Z", "trial": "t0007", "arm": "goal", "task": "zstd"}


def parsed(datagram: bytes) -> list[tuple[str, bytes]]:
    """The fields of a datagram as journald reads them."""
    found = []
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if equals:
            found.append((name.decode(), value))
            datagram = rest
            continue
        (length,) = struct.unpack("<Q", rest[:8])
        assert rest[8 + length : 9 + length] == b"\n"
        found.append((line.decode(), rest[8 : 8 + length]))
        datagram = rest[9 + length :]
    return found


def entry(**words: Any) -> dict[str, str]:
    return journal.fields({**BASE, **words}, "marathond")


def test_an_event_is_told_in_one_line_and_by_fields() -> None:
    said = entry(cell="c0003", campaign="swe", code="provider_down", reason="502 for 40 minutes", parked=False, subnet=None)
    assert said == {
        "MESSAGE": "t0007 voided: goal, zstd, code provider_down, reason 502 for 40 minutes, parked false",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "marathond",
        "EVENT": "voided",
        "TRIAL": "t0007",
        "ARM": "goal",
        "TASK": "zstd",
        "CELL": "c0003",
        "CAMPAIGN": "swe",
        "CODE": "provider_down",
        "MARATHOND_REASON": "502 for 40 minutes",
        "MARATHOND_PARKED": "false",
    }


@pytest.mark.parametrize(
    ("level", "priority"), [("debug", "7"), ("info", "6"), ("warning", "4"), ("error", "3"), ("critical", "2"), ("odd", "6")]
)
def test_priorities_are_those_of_syslog(level: str, priority: str) -> None:
    assert entry(level=level)["PRIORITY"] == priority


def test_what_a_finding_is_about_can_be_searched_as_a_trial() -> None:
    said = journal.fields({"event": "no_commands", "level": "warning", "subject": "t0012", "detail": "none in 40 turns"}, "marathond")
    assert (said["TRIAL"], said["EVENT"], said["MARATHOND_SUBJECT"]) == ("t0012", "no_commands", "t0012")
    assert "TRIAL" not in journal.fields({"event": "disk_low", "subject": "local"}, "marathond")


def test_a_traceback_keeps_its_lines_in_its_own_field_alone() -> None:
    said = entry(level="error", exception='Traceback:\n  File "x"\nValueError: bad\x1b[31m')
    assert said["MARATHOND_TRACEBACK"] == 'Traceback:\n  File "x"\nValueError: bad'
    assert said["MESSAGE"].endswith(", ValueError: bad")
    assert dict(parsed(journal.encode(said)))["MARATHOND_TRACEBACK"].decode() == said["MARATHOND_TRACEBACK"]


def test_an_events_own_words_never_become_a_field_that_systemd_gives_a_meaning() -> None:
    words = ("message", "priority", "unit", "message_id", "_pid", "object_pid", "syslog_identifier", "errno", "a-b c")
    said = entry(**dict.fromkeys(words, "mine"))
    assert said["SYSLOG_IDENTIFIER"] == "marathond"
    ours = {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "EVENT", "TRIAL", "ARM", "TASK"}
    assert all(name in ours or name.startswith("MARATHOND_") for name in said)
    assert "MARATHOND_A_B_C" in said


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=200), st.text(max_size=300))
def test_foreign_text_adds_neither_fields_nor_lines(event: str, trial: str, detail: str, trace: str) -> None:
    said = journal.fields({"event": event, "level": "info", "trial": trial, "detail": [detail, detail], "exception": trace}, "marathond")
    found = parsed(journal.encode(said))
    assert [name for name, _ in found] == list(said)
    assert all(b"\n" not in value for name, value in found if name != "MARATHOND_TRACEBACK")
    assert all(byte >= 0x20 and byte != 0x7F for _, value in found for byte in value.replace(b"\n", b""))


def test_an_entry_of_the_largest_values_fits_a_datagram() -> None:
    huge = "€" * 1_000_000
    said = entry(**dict.fromkeys("abcde", huge), detail=[huge] * 500, exception="\n".join([huge[:2000]] * 500))
    assert len(journal.encode(said)) < 200_000


# ── from a process whose stderr is the journal's, as far as one socket can play it; the real one: test_systemd_box.py ──

CHILD = """
import structlog
from marathond.service.logs import configure
configure("info", "auto", "marathond-gateway")
log = structlog.get_logger("x")
structlog.contextvars.bind_contextvars(trial="t0001", cell="c0001")
log.debug("not_told")
log.info("agent_started", arm="w", limit_s=30.0)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken")
"""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "s"))
        made.settimeout(60)
        yield made


def run(stderr: Path, *, place: Path, stream: str | None = None) -> None:
    with stderr.open("wb") as file:
        found = os.fstat(file.fileno())
        environ = {**os.environ, "JOURNAL_STREAM": stream or f"{found.st_dev}:{found.st_ino}"}
        child = "from pathlib import Path\nfrom marathond.service import journal\n"
        child += f"journal.JournalLogger.__init__.__defaults__ = (Path({str(place)!r}),)"
        subprocess.run([sys.executable, "-c", child + CHILD], stderr=file, env=environ, timeout=240, check=True)


def test_a_process_under_the_journal_speaks_its_protocol(tmp_path: Path, listener: socket.socket) -> None:
    run(tmp_path / "err", place=tmp_path / "s")
    first, second = (dict(parsed(listener.recv(1 << 18))) for _ in range(2))
    assert first["MESSAGE"] == b"t0001 agent started: w, limit_s 30.0"
    assert (first["TRIAL"], first["CELL"], first["SYSLOG_IDENTIFIER"]) == (b"t0001", b"c0001", b"marathond-gateway")
    assert second["PRIORITY"] == b"3"
    assert b"\nZeroDivisionError: division by zero" in second["MARATHOND_TRACEBACK"]
    assert (tmp_path / "err").read_text() == ""


def test_where_nothing_takes_it_the_entry_goes_to_stderr_with_its_priority(tmp_path: Path) -> None:
    run(tmp_path / "err", place=tmp_path / "nobody")
    first, second = (tmp_path / "err").read_text().splitlines()
    assert first.startswith("<6>{")
    assert second.startswith("<3>{")
    assert json.loads(first[3:])["trial"] == "t0001"


def test_a_stderr_that_was_led_elsewhere_gets_lines_of_json(tmp_path: Path, listener: socket.socket) -> None:
    """JOURNAL_STREAM is inherited by everything a unit starts; only the very descriptor that systemd made counts."""
    run(tmp_path / "err", place=tmp_path / "s", stream="8:1")
    first, _ = (tmp_path / "err").read_text().splitlines()
    assert json.loads(first)["event"] == "agent_started"
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(1)
