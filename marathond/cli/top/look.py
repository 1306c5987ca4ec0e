"""One look at the ledger for a screen; made in a thread, so that the keys never wait for SQL.

Owns what is read together.  Must not know widgets.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from marathond.cli import show
from marathond.cli.happened import of_filters, words
from marathond.cli.output import Screen
from marathond.core.errors import MarathonError
from marathond.core.names import LIVE_STATES
from marathond.core.paths import DaemonPaths
from marathond.core.text import clean
from marathond.ledger.verbs.findings import FindingRow
from marathond.ledger.verbs.happened import newest
from marathond.service.picture import conversation, trial_log
from marathond.service.picture.board import Board, Square, gather_board
from marathond.service.picture.reader import reading

EVENTS_SHOWN = 200
TAIL_BYTES = 64 << 10
"""Of a log's end, at its first reading."""
PIECE_BYTES = 1 << 20
"""Of a log that grows faster than it is read: the middle is passed over, and said."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which campaign of which ledger; None: the newest."""

    paths: DaemonPaths
    campaign: str | None


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Looked:
    """Of one instant.  ``events``: the newest last, as ``tail`` prints them."""

    board: Board
    events: list[str]


def look(place: Place) -> Looked | str:
    """A sentence when the ledger cannot be read just now: the screen stays, and says so."""
    try:
        with reading(place.paths.ledger) as c:
            board = gather_board(c, place.campaign, place.paths.control_socket, now_ms(), place.paths.state_dir / "gateway")
            campaign = board.status.campaign
            happened = [] if campaign is None else newest(c, of_filters(c, campaign, None, None, None), EVENTS_SHOWN)
            return Looked(board, [words(one) for one in happened])
    except MarathonError as error:
        return clean(error)


def trial_lines(place: Place, trial_id: int, width: int) -> tuple[list[str], bool]:
    """Everything about a trial as ``show`` prints it, and whether it is live."""
    try:
        with reading(place.paths.ledger) as c:
            found = show.find(c, trial_id)
        return list(show.lines(found, place.paths.state_dir, Screen(width), now_ms())), found.context.state in LIVE_STATES
    except MarathonError as error:
        return [clean(error)], False


def square_words(square: Square) -> str:
    """``S S R·  0.67``: a letter per replicate, or counts, and the mean reward of what is scored."""
    if square.marks:
        shown = "".join(mark.letter for mark, _ in square.marks)
    else:
        shown = " ".join(f"{count}{mark.letter}" for mark, count in square.counts)
    return shown if square.reward is None else f"{shown}  {square.reward:.2f}"


def finding_words(row: FindingRow) -> str:
    acked = f", acknowledged by {clean(row.acked_by)}: {clean(row.ack_reason)}" if row.acked_at_ms is not None else ""
    return f"{clean(row.detail)}{acked}"


class Log:
    """A log that is read on from where the last look ended.  What it holds is the agent's: made harmless, no link in it followed."""

    def __init__(self, place: Place, trial_id: int, *, verifier: bool) -> None:
        self._place, self._trial_id, self._verifier = place, trial_id, verifier
        self._path: Path | None = None
        self._at = 0
        self._rest = b""
        self._heard = conversation.Heard()

    def more(self) -> list[str]:
        """Lines that came since; a sentence in parentheses where there is nothing to read."""
        try:
            path, talks = trial_log.log_of(self._place.paths.ledger, self._place.paths.state_dir, self._trial_id, verifier=self._verifier)
            return self._read(path, talks)
        except MarathonError as error:
            return [] if self._at else [f"({clean(error)})"]

    def _read(self, path: Path, talks: bool) -> list[str]:
        said: list[str] = []
        with trial_log.open_log(path) as file:
            size = file.seek(0, 2)
            if self._path is not None and size < self._at:
                said.append("(the file was cut short; from its beginning)")
                self._at, self._rest = 0, b""
            # A trial's files move when it is exported, and go on where they were.
            if self._path is None and size > TAIL_BYTES:
                said.append(f"({size - TAIL_BYTES} bytes before this: marathonctl logs)")
                self._at = size - TAIL_BYTES
            elif size - self._at > PIECE_BYTES:
                said.append(f"({size - self._at - PIECE_BYTES} bytes passed over: marathonctl logs)")
                self._at, self._rest = size - PIECE_BYTES, b""
            self._path = path
            file.seek(self._at)
            piece = self._rest + file.read(size - self._at)
            self._at = size
        whole, _, rest = piece.rpartition(b"\n")
        # A line without an end is shown once it is long: a progress bar would else be silence.
        if len(rest) > trial_log.LINE_MAX:
            whole, rest = piece, b""
        self._rest = rest
        texts = (line.decode("utf-8", "replace") for line in whole.split(b"\n")) if whole else iter(())
        return [*said, *(trial_log.tame(line) for line in (conversation.lines(texts, self._heard) if talks else texts))]
