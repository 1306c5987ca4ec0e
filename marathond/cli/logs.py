"""``marathonctl logs``: what the agent or the verifier of a trial wrote, while it runs and afterwards; of codex, what it said and did.

Owns where those files are and how they are followed.  Files below /logs belong to the agent: links in them are not followed, and
nothing that could steer a terminal passes on one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from marathond.agents.codex.transcript import NAME as CONVERSATION
from marathond.cli import conversation
from marathond.cli.output import note
from marathond.core.errors import ArtifactError
from marathond.core.model import LIVE_STATES, AgentKind, TrialState, trial_label
from marathond.core.text import printable
from marathond.ledger.verbs.imports import KIND as IMPORTED_KIND
from marathond.service.picture.reader import check_trial, reading
from marathond.service.protocol import CallFailed
from marathond.tasks.paths import open_file, open_folder

AGENT_FILE, VERIFIER_FILE = "agent/output.txt", "verifier/test-stdout.txt"

FOLLOW_S = 0.5
"""Between two looks at a file that has no more to say."""

CHUNK = 1 << 16
_BLANK = "\u2800"
LINE_MAX = 1 << 16
"""Characters of one line on a terminal; into a pipe go the bytes as they are."""
MESSAGE_MAX = 16 << 20
"""Bytes of one message of a conversation."""


def run(ledger: Path, state_dir: Path, trial_id: int, *, verifier: bool, follow_it: bool) -> None:
    """The whole command.  Following ends with the phase that writes the file."""
    path, talks = log_of(ledger, state_dir, trial_id, verifier=verifier)
    writing = LIVE_STATES if verifier else LIVE_STATES - {TrialState.VERIFYING}

    def goes_on() -> bool:
        with reading(ledger) as connection:
            state = connection.execute("SELECT state FROM trial WHERE trial_id = ?", (trial_id,)).fetchone()
        return state[0] in writing

    if not (converse if talks else show)(path, goes_on if follow_it else None):
        note(f"(the {'verifier' if verifier else 'agent'} wrote nothing{'' if follow_it or not goes_on() else ' yet'})")


def log_of(ledger: Path, state_dir: Path, trial_id: int, *, verifier: bool) -> tuple[Path, bool]:
    """The file that a trial's agent (or verifier) writes, and whether it is a conversation.

    :raises CallFailed: no such trial, an imported one, or it wrote nothing yet.
    """
    with reading(ledger) as connection:
        check_trial(connection, trial_id)
        row = connection.execute(
            """SELECT out_dir, folder, arm.kind FROM trial JOIN cell USING (cell_id) JOIN campaign USING (campaign_id)
               JOIN arm ON arm.arm_id = trial.arm_id LEFT JOIN artifact_export USING (trial_id) WHERE trial_id = ?""",
            (trial_id,),
        ).fetchone()
    if row["kind"] == IMPORTED_KIND:
        raise CallFailed(f"{trial_label(trial_id)} was imported: its files stay where marathonctl show {trial_label(trial_id)} says")
    export = None if row["folder"] is None else Path(row["out_dir"]) / row["folder"]
    talks = row["kind"] == AgentKind.CODEX and not verifier
    return log_file(state_dir, export, trial_id, verifier=verifier, talks=talks), talks


def log_file(state_dir: Path, export: Path | None, trial_id: int, *, verifier: bool, talks: bool = False) -> Path:
    """The file to read: the run directory's while the trial has one, else the exported artifact.

    :param export: the trial's folder below out_dir, when its artifacts were exported.
    :param talks: codex's conversation, which lies where no container reaches, instead of the agent's output.
    :raises CallFailed: there is no such file (yet).
    """
    run_dir, name = state_dir / "r" / trial_label(trial_id), VERIFIER_FILE if verifier else AGENT_FILE
    name = f"agent/{CONVERSATION}" if talks else name
    ours = [run_dir / CONVERSATION, run_dir / "kept" / CONVERSATION] if talks else [run_dir / "logs" / name]
    places = ours + ([export / name] if export is not None else [])
    for place in places:
        if place.is_file() and not place.is_symlink():
            return place
    whose = "verifier" if verifier else "agent"
    raise CallFailed(f"no output of {trial_label(trial_id)}'s {whose} yet; looked at {', '.join(map(str, places))}")


def open_log(path: Path) -> BinaryIO:
    """Open for reading, refusing links and whatever is no plain file: the agent may have put anything there.

    :raises CallFailed: it is one of those, or cannot be read.
    """
    try:
        with open_folder(path.parent) as folder:
            return os.fdopen(open_file(folder, path.name, str(path)), "rb")
    except ArtifactError as error:
        raise CallFailed(f"{path}: not a plain file") from error
    except OSError as error:
        raise CallFailed(f"{path}: {(error.strerror or str(error)).lower()}") from error


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


def converse(path: Path, goes_on: Callable[[], bool] | None) -> bool:
    """Print a conversation; with ``goes_on`` follow it.  Whether there was anything in it."""
    something = False
    with closing(open_log(path)) as file:
        for line in conversation.lines(_lines(follow(file, goes_on or (lambda: False)), parts=False)):
            something = True
            print(tame(line), flush=goes_on is not None)
    return something


def tame(line: str) -> str:
    """A line that steers no terminal and keeps its blanks: :func:`printable` folds them, so they travel as a sign that it leaves alone."""
    return printable(line.expandtabs().replace(" ", _BLANK), LINE_MAX).replace(_BLANK, " ").rstrip()


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
