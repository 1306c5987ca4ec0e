"""``marathonctl logs``: what the agent or the verifier of a trial wrote, while it runs and afterwards; of codex, what it said and did.

Owns how those files are followed; where they are and how they are opened is :mod:`marathond.service.picture.trial_log`'s.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from marathond.cli.output import note, print_json_line
from marathond.core.names import LIVE_STATES, TrialState, trial_label
from marathond.service.picture import conversation
from marathond.service.picture.reader import reading
from marathond.service.picture.trial_log import LINE_MAX, log_file, log_of, open_log, tame

__all__ = ["LINE_MAX", "converse", "follow", "log_file", "log_of", "open_log", "run", "show", "tame"]

FOLLOW_S = 0.5
"""Between two looks at a file that has no more to say."""

CHUNK = 1 << 16
MESSAGE_MAX = 16 << 20
"""Bytes of one message of a conversation."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a trial's output, in its order.

    :param trial: such as t0871.
    :param source: agent: its output; conversation: what codex said and did, as marathonctl logs words it; verifier: its output.
    :param text: without its line end, as it was written; what is no UTF-8 is U+FFFD; a line beyond 64 KiB comes in several.
    """

    trial: str
    source: Literal["agent", "conversation", "verifier"]
    text: str


def run(ledger: Path, state_dir: Path, trial_id: int, *, verifier: bool, follow_it: bool, as_json: bool = False) -> None:
    """The whole command.  Following ends with the phase that writes the file."""
    path, talks = log_of(ledger, state_dir, trial_id, verifier=verifier)
    writing = LIVE_STATES if verifier else LIVE_STATES - {TrialState.VERIFYING}

    def goes_on() -> bool:
        with reading(ledger) as connection:
            state = connection.execute("SELECT state FROM trial WHERE trial_id = ?", (trial_id,)).fetchone()
        return state[0] in writing

    following = goes_on if follow_it else None
    if as_json:
        source: Literal["agent", "conversation", "verifier"] = "conversation" if talks else "verifier" if verifier else "agent"
        something = print_lines(path, following, trial_label(trial_id), source)
    else:
        something = (converse if talks else show)(path, following)
    if not something:
        note(f"(the {'verifier' if verifier else 'agent'} wrote nothing{'' if follow_it or not goes_on() else ' yet'})")


def follow(file: BinaryIO, goes_on: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> Iterator[bytes]:
    """Pieces of the file until ``goes_on`` says that nothing more will come, and then the rest."""
    while True:
        # Asked before the read: what was written before the end is still shown.
        more = goes_on()
        empty = True
        while piece := file.read(CHUNK):
            empty = False
            yield piece
        if not more:
            return
        if empty:
            if os.fstat(file.fileno()).st_size < file.tell():
                note("-- the file was cut short; starting at its beginning")
                file.seek(0)
            pause(FOLLOW_S)


def show(path: Path, goes_on: Callable[[], bool] | None) -> bool:
    """Print the file; with ``goes_on`` follow it.  Whether there was anything in it."""
    something = False
    with closing(open_log(path)) as file:
        pieces = follow(file, goes_on or (lambda: False))
        if sys.stdout.isatty():
            for line in _lines(pieces):
                something = True
                print(tame(line), flush=goes_on is not None)
            return something
        for piece in pieces:
            something = True
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    return something


def print_lines(path: Path, goes_on: Callable[[], bool] | None, trial: str, source: Literal["agent", "conversation", "verifier"]) -> bool:
    """Print the file or the conversation, an object a line.  Whether there was anything in it."""
    something = False
    with closing(open_log(path)) as file:
        pieces, talks = follow(file, goes_on or (lambda: False)), source == "conversation"
        for text in conversation.lines(_lines(pieces, parts=False)) if talks else _lines(pieces):
            something = True
            print_json_line(LogLine(trial, source, text))
    return something


def converse(path: Path, goes_on: Callable[[], bool] | None) -> bool:
    """Print a conversation; with ``goes_on`` follow it.  Whether there was anything in it."""
    something = False
    with closing(open_log(path)) as file:
        for line in conversation.lines(_lines(follow(file, goes_on or (lambda: False)), parts=False)):
            something = True
            print(tame(line), flush=goes_on is not None)
    return something


def _lines(pieces: Iterator[bytes], *, parts: bool = True) -> Iterator[str]:
    """Whole lines; with ``parts`` one that never ends is given in parts of LINE_MAX bytes, else one beyond MESSAGE_MAX is passed over.

    Each byte is looked at once, however long its line is.
    """
    rest, too_long = bytearray(), False
    for piece in pieces:
        first, *more = piece.split(b"\n")
        rest += first
        for line in more:
            if not too_long:
                yield rest.decode("utf-8", "replace")
            rest, too_long = bytearray(line), False
        if parts and len(rest) > LINE_MAX:
            yield rest.decode("utf-8", "replace")
            rest.clear()
        elif too_long or len(rest) > MESSAGE_MAX:
            rest.clear()
            too_long = True
    if rest:
        yield rest.decode("utf-8", "replace")
