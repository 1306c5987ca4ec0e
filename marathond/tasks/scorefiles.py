"""The files of a finished verifier, out of a folder that an agent could write to.

Owns which entries are read, how many and how much of them; used where a trial is graded, graded again and imported.  Must not know what
the files mean.  All functions block: call them from a worker thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from marathond.core.errors import ArtifactError
from marathond.core.score import FIXED, METRICS, REWARD_JSON, REWARD_TXT, STAGES, Refusal, gate_file
from marathond.tasks.artifacts import read_bounded
from marathond.tasks.paths import open_folder, open_subfolder, parts_of

MAX_FILE_BYTES = 16 << 20
MAX_BYTES = {REWARD_JSON: 1 << 20, REWARD_TXT: 1 << 20, METRICS: 4 << 20, STAGES: 4 << 20}
"""Of those that hold a few numbers.  JSON takes twenty-five times its size once it is parsed, and an agent may have written it."""
MAX_GATE_FILES, MAX_GATE_BYTES = 200, 32 << 20
"""Of the files that report one gate each, all together."""
MAX_ENTRIES = 10_000
"""Entries of a folder that is looked through for such files."""


def collect(root: Path, prefix: str = "verifier", more: Iterable[str] = ()) -> tuple[dict[str, bytes], list[Refusal]]:
    """Every file of ``root/prefix`` that can hold a score, by its name; what must not or cannot be read is a refusal, never an exception.

    :param root: a folder that no container can exchange: a run directory's ``logs``, or the folder of an exported trial.  No link below
        it is followed.  One that is not there holds nothing.
    :param prefix: the folder below it, ``.`` for ``root`` itself.
    :param more: further files, relative to it, which a rule of the configuration names.
    """
    files: dict[str, bytes] = {}
    refused: list[Refusal] = []
    for name in dict.fromkeys((*FIXED, *more)):
        _take(root, prefix, name, min(MAX_BYTES.get(name, MAX_FILE_BYTES), MAX_FILE_BYTES), files, refused)
    left = MAX_GATE_BYTES
    for name in _gate_files(root, prefix, refused):
        if name not in files:
            _take(root, prefix, name, min(left, MAX_FILE_BYTES), files, refused)
            left -= len(files.get(name, b""))
    return files, refused


def _take(root: Path, prefix: str, name: str, max_bytes: int, files: dict[str, bytes], refused: list[Refusal]) -> None:
    try:
        data = read_bounded(root, f"{prefix}/{name}", max_bytes)
    except ArtifactError as error:
        refused.append(Refusal(name, "", f"{error.detail} ({error.code})"))
    else:
        if data is not None:
            files[name] = data


def _gate_files(root: Path, prefix: str, refused: list[Refusal]) -> list[str]:
    """Sorted.  None of a folder with too many entries: which ones would be met first is chance."""
    try:
        with open_folder(root) as top, open_subfolder(top, parts_of(prefix) if prefix != "." else (), prefix) as folder:
            names = []
            with os.scandir(folder) as listing:
                for count, entry in enumerate(listing, start=1):
                    if count > MAX_ENTRIES:
                        refused.append(Refusal("", "", f"more than {MAX_ENTRIES} files: reports of single gates were not looked for"))
                        return []
                    names += [entry.name] if gate_file(entry.name) else []
    except FileNotFoundError:
        return []
    except (OSError, ArtifactError) as error:
        why = error.detail if isinstance(error, ArtifactError) else error.strerror or str(error)
        refused.append(Refusal("", "", f"the folder cannot be looked through: {why}"))
        return []
    if len(names) > MAX_GATE_FILES:
        refused.append(Refusal("", "", f"{len(names)} reports of single gates: at most {MAX_GATE_FILES} are read"))
        return []
    return sorted(names)
