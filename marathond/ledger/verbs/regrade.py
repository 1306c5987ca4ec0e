"""What the ledger holds of trials that are to be graded again, and the writing of their newer scores.  Older score rows stay."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from marathond.ledger.verbs.archive import ArchiveRow, PruneRow, kept_of, pruned_of
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.ledger.verbs.sql import must, one
from marathond.ledger.verbs.trials import ScoreRow, scored

FOLDER = "verifier"


@dataclass(frozen=True, slots=True)
class Gradable:
    """A trial with its newest score.  ``folder`` None: nothing was exported, else relative to ``out_dir``.

    ``artifacts``: what was exported of the verifier's folder.  ``by_person``: a person gave a reward.  ``exited``: its last verifier came
    to its own end.  ``scores``: campaign's stored rules for scores, as JSON of its ``[scores]``.  ``archive``, ``pruned``: where its
    artifacts were packed, and that they were removed.
    """

    trial_id: int
    campaign: str
    imported: bool
    task: str
    arm: str
    state: str
    out_dir: str
    folder: str | None
    artifacts: tuple[ArtifactRecord, ...]
    score: ScoreRow | None
    by_person: bool
    exited: bool
    review: str | None
    scores: str
    archive: ArchiveRow | None = None
    pruned: PruneRow | None = None


_TRIAL = """
SELECT trial.trial_id, campaign.name AS campaign, campaign.origin = 'import' AS imported, task.name AS task, arm.name AS arm, trial.state,
    campaign.out_dir, export.folder,
    EXISTS (SELECT 1 FROM score WHERE score.trial_id = trial.trial_id AND extractor = 0) AS by_person,
    coalesce((SELECT outcome FROM verification AS v WHERE v.trial_id = trial.trial_id ORDER BY round DESC LIMIT 1), '') = 'exited'
        AS exited,
    (SELECT code FROM review WHERE review.trial_id = trial.trial_id AND decided_at_ms IS NULL) AS review,
    coalesce(json_extract(campaign.config_json, '$.scores'), '{}') AS scores
FROM trial JOIN cell ON cell.cell_id = trial.cell_id JOIN campaign ON campaign.campaign_id = cell.campaign_id
    JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
    LEFT JOIN artifact_export AS export ON export.trial_id = trial.trial_id
WHERE trial.trial_id = ?"""

_SCORE = """
SELECT score_id, extractor, reward, reward_source, partial, tests_passed, tests_total, test_rate, flags_json FROM score
WHERE trial_id = ? ORDER BY score_id DESC LIMIT 1"""

_ARTIFACTS = f"""
SELECT path, sha256, size_bytes, why FROM artifact WHERE trial_id = ? AND (path = '{FOLDER}' OR path LIKE '{FOLDER}/%') ORDER BY path"""


def gradable(c: sqlite3.Connection, trial_id: int) -> Gradable:
    """:raises LookupError: no such trial."""
    fields = dict(must(one(c, _TRIAL, (trial_id,)), f"trial {trial_id}"))
    for name in ("imported", "by_person", "exited"):
        fields[name] = bool(fields[name])
    artifacts = tuple(ArtifactRecord(**dict(row)) for row in c.execute(_ARTIFACTS, (trial_id,)).fetchall())
    archives, _ = kept_of(c, trial_id)
    archive = next((row for row in archives if row.ended_at_ms is None), None)
    return Gradable(**fields, artifacts=artifacts, score=_newest(c, trial_id), archive=archive, pruned=pruned_of(c, trial_id))


def _newest(c: sqlite3.Connection, trial_id: int) -> ScoreRow | None:
    row = one(c, _SCORE, (trial_id,))
    if row is None:
        return None
    parts = c.execute("SELECT name, value, source FROM score_part WHERE score_id = ? ORDER BY name", (row["score_id"],)).fetchall()
    return ScoreRow(
        extractor=row["extractor"],
        reward=row["reward"],
        reward_source=row["reward_source"],
        partial=row["partial"],
        tests_passed=row["tests_passed"],
        tests_total=row["tests_total"],
        flags=tuple(json.loads(row["flags_json"])),
        parts=[(part["name"], part["value"], part["source"]) for part in parts],
        test_rate=row["test_rate"],
    )


def write_newer(c: sqlite3.Connection, rows: Iterable[tuple[int, ScoreRow]], *, now_ms: int) -> int:
    """All of them or none.  Each counts from now on, for it is its trial's newest.  Returns how many."""
    return sum(1 for trial_id, row in rows if scored(c, trial_id, row, now_ms=now_ms))
