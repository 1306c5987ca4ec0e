"""How an archive and a removal are told: the same words in ``show``, ``logs``, ``regrade`` and on the page.

Owns the sentences.  Must stay light, see :mod:`.reader`.
"""

from __future__ import annotations

import sqlite3

from marathond.core.text import clean, when
from marathond.ledger.verbs.archive import ArchiveRow, PruneRow, kept_of


def archive_words(archive: ArchiveRow) -> str:
    """Of one that stands."""
    what = f"{archive.size_bytes} bytes, sha256 {clean(archive.sha256)[:16]}"
    return f"archive {clean(archive.file)} ({what}) by {clean(archive.author)} at {when(archive.at_ms)}"


def pruned_words(prune: PruneRow, archive: ArchiveRow | None) -> str:
    """``artifacts pruned by ana at …: room; archive /a/t0871….tar.gz``."""
    kept = f"archive {clean(archive.file)}" if archive is not None else "no archive of them stands"
    half = "" if prune.done_at_ms is not None else " (broken off: the next marathonctl prune finishes it)"
    return f"artifacts pruned by {clean(prune.author)} at {when(prune.at_ms)}: {clean(prune.reason)}{half}; {kept}"


def why_no_artifacts(c: sqlite3.Connection, trial_id: int) -> str:
    """That a trial's artifacts were pruned, in words; empty: they were not."""
    archives, prunes = kept_of(c, trial_id)
    prune = next((row for row in prunes if row.kind == "artifacts"), None)
    return "" if prune is None else pruned_words(prune, standing(archives))


def standing(archives: tuple[ArchiveRow, ...]) -> ArchiveRow | None:
    return next((row for row in archives if row.ended_at_ms is None), None)
