"""Artifacts as the ledger knows them: folder and hashes, written once per trial (faults e07, f07)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from marathond.ledger.verbs.sql import LIVE, scalar


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """``sha256`` empty: left out, and ``why`` says why."""

    path: str
    sha256: str
    size_bytes: int
    why: str = ""


def exported(c: sqlite3.Connection, trial_id: int, *, folder: str, records: Sequence[ArtifactRecord], now_ms: int) -> bool:
    """The files lie complete under ``folder`` (relative to out_dir).  False, and nothing changed: exported before."""
    if scalar(c, "SELECT 1 FROM artifact_export WHERE trial_id = ?", (trial_id,)):
        return False
    c.execute("INSERT INTO artifact_export (trial_id, folder, at_ms) VALUES (?, ?, ?)", (trial_id, folder, now_ms))
    c.executemany(
        "INSERT INTO artifact (trial_id, path, sha256, size_bytes, why) VALUES (?, ?, ?, ?, ?)",
        [(trial_id, record.path, record.sha256, record.size_bytes, record.why) for record in records],
    )
    return True


def not_exported(c: sqlite3.Connection) -> list[int]:
    """Trials at rest whose artifacts are not exported yet.

    Those of imported ones lie where they were read from; those of trials that were in work when the ledger was copied are the original's.
    """
    return [trial_id for trial_id, _ in not_exported_in(c)]


def not_exported_in(c: sqlite3.Connection) -> list[tuple[int, str]]:
    """As :func:`not_exported`, each with its campaign's folder."""
    rows = c.execute(
        f"""SELECT trial_id, out_dir || '/' || campaign.name FROM trial JOIN cell USING (cell_id) JOIN campaign USING (campaign_id)
            WHERE state NOT IN {LIVE}
            AND NOT EXISTS (SELECT 1 FROM artifact_export WHERE artifact_export.trial_id = trial.trial_id)
            AND NOT EXISTS (SELECT 1 FROM imported_trial WHERE imported_trial.trial_id = trial.trial_id)
            AND NOT EXISTS (SELECT 1 FROM void WHERE void.trial_id = trial.trial_id AND code = 'ledger_copied') ORDER BY trial_id"""
    )
    return [(row[0], row[1]) for row in rows.fetchall()]


def resting_changed_since(c: sqlite3.Connection, event_id: int) -> tuple[list[tuple[int, str]], int]:
    """(trial, campaign) of the trials at rest with an event after ``event_id``, and the newest event's id: the ledger's order, no clock.

    Of all campaigns that ran here: a trial that an earlier life began for another one is finished by this life, too.
    """
    newest = int(scalar(c, "SELECT coalesce(max(event_id), 0) FROM trial_event"))
    rows = c.execute(
        f"""SELECT DISTINCT trial_id, campaign.name FROM trial_event JOIN trial USING (trial_id) JOIN cell USING (cell_id)
            JOIN campaign USING (campaign_id) WHERE event_id > ? AND state NOT IN {LIVE} AND origin = 'run' ORDER BY trial_id""",
        (event_id,),
    )
    return [(row[0], row[1]) for row in rows.fetchall()], newest
