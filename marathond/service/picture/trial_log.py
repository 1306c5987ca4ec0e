"""Where the words of a trial's agent and verifier lie, and how they are opened and made harmless, for ``logs``, ``top`` and the page.

Files below /logs belong to the agent: links in them are not followed, and nothing that could steer a terminal passes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from marathond.agents.codex.transcript import NAME as CONVERSATION
from marathond.core.errors import ArtifactError
from marathond.core.names import AgentKind, trial_label
from marathond.core.text import printable
from marathond.ledger.verbs.imports import KIND as IMPORTED_KIND
from marathond.service.exits import CallFailed
from marathond.service.picture import conversation
from marathond.service.picture.kept_words import why_no_artifacts
from marathond.service.picture.reader import check_trial, reading
from marathond.tasks.paths import open_file, open_folder

AGENT_FILE, VERIFIER_FILE = "agent/output.txt", "verifier/test-stdout.txt"
_BLANK = "\u2800"
LINE_MAX = 1 << 16
"""Characters of one line on a terminal; into a pipe go the bytes as they are."""


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
        pruned = why_no_artifacts(connection, trial_id)
    if row["kind"] == IMPORTED_KIND:
        raise CallFailed(f"{trial_label(trial_id)} was imported: its files stay where marathonctl show {trial_label(trial_id)} says")
    export = None if row["folder"] is None else Path(row["out_dir"]) / row["folder"]
    if pruned and export is not None and not export.is_dir():
        raise CallFailed(f"{trial_label(trial_id)}: {pruned}")
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


def tame(line: str) -> str:
    """A line that steers no terminal and keeps its blanks: :func:`printable` folds them, so they travel as a sign that it leaves alone."""
    return printable(line.expandtabs().replace(" ", _BLANK), LINE_MAX).replace(_BLANK, " ").rstrip()


@dataclass(frozen=True, slots=True)
class Tail:
    """The last ``lines`` of a log; ``before``: bytes that come before them."""

    lines: list[str]
    before: int


def tail(path: Path, talks: bool, *, bytes_max: int, lines_max: int, line_max: int) -> Tail:
    """The end of a log, whole lines and harmless.

    :param talks: it is codex's conversation, which is told as ``logs`` tells it.
    :raises CallFailed: it cannot be read.
    """
    with open_log(path) as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - bytes_max)
        file.seek(start)
        piece = file.read(bytes_max)
    texts: Iterator[str] = iter(piece.decode("utf-8", "replace").split("\n")[1 if start else 0 :])
    told = [tame(line[:line_max]) for line in (conversation.lines(texts) if talks else texts)]
    while told and not told[-1]:
        told.pop()
    return Tail(told[-lines_max:], start)
