"""The gateway's side of what is counted: its sign of life, its answers to live trials, and whether its journal is taken in to the end.

Must not know more of the gateway than the files by which it speaks to the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from marathond.core.errors import ArtifactError
from marathond.core.money import MODEL_KINDS
from marathond.core.names import trial_label
from marathond.flow.ways import read_sign_of_life
from marathond.gateway import files, journal_read
from marathond.gateway.journal_read import Position
from marathond.ledger.verbs import usage
from marathond.ports.clock import SystemClock
from marathond.service.doctor.source import DEAD, HOUSE, NOTHING, OK, UNKNOWN, Place, Source, ago, asks_model, live_trials

LAG_MS = 60_000
"""A living daemon takes in what the journal holds within seconds."""


def look(place: Place) -> Iterator[Source]:
    """Nothing is said of a gateway that no arm of the campaign needs."""
    if not asks_model(place):
        yield Source("gateway", place.name, NOTHING, 0, 0, "arms that ask a model", "no arm of this campaign does")
        return
    folder = place.state_dir / "gateway"
    away = read_sign_of_life(folder, SystemClock()).away
    yield Source("gateway", HOUSE, DEAD if away else OK, int(not away), 1, "gateways", away or "its sign of life is fresh")
    yield _acks(place, folder)
    yield _journal(place, folder)


def _acks(place: Place, folder: Path) -> Source:
    """Listeners of running trials that the gateway says are open."""
    running = live_trials(place, tuple(sorted(MODEL_KINDS)))
    if not running:
        return Source("gateway acks", HOUSE, NOTHING, 0, 0, "running trials that ask a model")
    shut, things = [], "running trials with an open way"
    for trial_id in running:
        try:
            if (why := _shut(folder, trial_label(trial_id))) is not None:
                shut.append(f"{trial_label(trial_id)}: {why}")
        except (ArtifactError, OSError) as error:
            return Source("gateway acks", HOUSE, UNKNOWN, None, len(running), things, str(error))
    why = f"no open way: {'; '.join(shut[:3])}" if shut else ""
    return Source(
        "gateway acks", HOUSE, DEAD if shut else OK, len(running) - len(shut), len(running), "running trials with an open way", why
    )


def _shut(folder: Path, label: str) -> str | None:
    """Why the trial has no open way; None: it has one."""
    names = sorted(path.stem for path in (folder / "listeners").glob(f"{label}*.json"))
    if not names:
        return "no listener was asked for"
    acks = {name: files.read_ack(folder, name) for name in names}
    if any(ack is not None and ack.state == "listening" for ack in acks.values()):
        return None
    told = next((ack for ack in acks.values() if ack is not None), None)
    return "the gateway has not answered" if told is None else f"{told.state} {told.code}".strip()


def _journal(place: Place, folder: Path) -> Source:
    """The ledger's reading position against the end of the newest segment, in bytes."""
    row, segments = usage.journal(place.c), folder / "journal"
    try:
        end = _end(segments)
        written_ms = 0 if end is None else int(journal_read.segment_path(segments, end.segment).stat().st_mtime * 1000)
    except OSError as error:
        return _of_journal(UNKNOWN, f"{segments}: {error.strerror or error}")
    if row is None:
        return _of_journal(UNKNOWN if end else NOTHING, "this ledger has met no journal yet")
    if end is None:
        return _of_journal(DEAD if row.byte else NOTHING, f"{segments} holds no segment")
    read = Position(row.segment, row.byte)
    if read > end:
        words = f"the ledger has read to segment {read.segment} byte {read.byte}, the journal ends at {end.segment}, {end.byte}"
        return _of_journal(DEAD, f"{words}: it is another journal")
    if read == end:
        return _of_journal(OK, f"all of segment {end.segment}", end.byte, end.byte)
    age = place.now_ms - written_ms
    words = f"read to segment {read.segment} byte {read.byte} of {end.segment}, {end.byte}; its last line is {ago(age)} old"
    verdict = UNKNOWN if not place.daemon.alive else OK if age <= LAG_MS else DEAD
    return _of_journal(verdict, words, read.byte if read.segment == end.segment else None, end.byte)


def _of_journal(verdict: str, why: str, seen: int | None = None, total: int | None = None) -> Source:
    return Source("gateway journal", HOUSE, verdict, seen, total, "bytes of the newest segment taken in", why)


def _end(folder: Path) -> Position | None:
    """None: there is no segment."""
    try:
        numbers = journal_read.segments(folder)
    except FileNotFoundError:
        return None
    if not numbers:
        return None
    return Position(numbers[-1], journal_read.segment_path(folder, numbers[-1]).stat().st_size)
