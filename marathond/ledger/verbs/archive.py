"""What was packed and what was removed to make room: rows that are written once and stand for ever.

Owns the rows of ``archive`` and ``prune``.  Files are others'; so is the decision (:mod:`marathond.core.keeping`), which the schema's rules
repeat where a mistake could not be taken back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from marathond.core.errors import Refused
from marathond.core.keeping import Kind, Trial
from marathond.core.names import trial_label
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.ledger.verbs.sql import LIVE, changed, marks, one


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    """``ended_at_ms``: it stands no more, and ``ended_reason`` says why."""

    archive_id: int
    trial_id: int
    file: str
    sha256: str
    size_bytes: int
    files: int
    content_bytes: int
    author: str
    at_ms: int
    ended_at_ms: int | None
    ended_by: str | None
    ended_reason: str | None


@dataclass(frozen=True, slots=True)
class PruneRow:
    """``trial_id`` None: of no trial.  ``done_at_ms`` None: the removal was broken off."""

    prune_id: int
    kind: str
    path: str
    trial_id: int | None
    archive_id: int | None
    unarchived: bool
    rested_at_ms: int
    files: int
    size_bytes: int
    author: str
    reason: str
    at_ms: int
    done_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Keepable:
    """A trial with what can be kept of it.  ``folder``: below ``out_dir``; None: not exported."""

    trial_id: int
    campaign: str
    task: str
    arm: str
    replicate: int
    attempt: int
    out_dir: str
    folder: str | None
    facts: Trial
    archive: ArchiveRow | None
    prune: PruneRow | None


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants removed.  ``trial_id``: of artifacts and run directories; ``rested_at_ms``: of the others, by the ledger."""

    kind: Kind
    path: str
    files: int
    size_bytes: int
    trial_id: int | None = None
    rested_at_ms: int | None = None
    unarchived: bool = False


_KEEPABLE = f"""
SELECT trial.trial_id, campaign.name AS campaign, task.name AS task, arm.name AS arm, cell.replicate, trial.attempt, campaign.out_dir,
    export.folder, trial.state, max(export.at_ms, (SELECT max(at_ms) FROM trial_event AS e WHERE e.trial_id = trial.trial_id)) AS rested,
    claim.released_at_ms IS NULL AS claim_live, campaign.origin = 'import' AS imported
FROM trial JOIN cell ON cell.cell_id = trial.cell_id JOIN campaign ON campaign.campaign_id = cell.campaign_id
    JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = trial.arm_id JOIN claim ON claim.claim_id = trial.claim_id
    LEFT JOIN artifact_export AS export ON export.trial_id = trial.trial_id
WHERE trial.state NOT IN {LIVE}"""


def keepable(
    c: sqlite3.Connection, *, trials: Sequence[int] = (), campaign_id: int | None = None, task: str | None = None, arm: str | None = None
) -> list[Keepable]:
    """Trials at rest, in order; of named ones also those that are not: the decision says why not."""
    sql, args = _KEEPABLE, list[int | str]()
    if trials:
        sql, args = sql.partition("\nWHERE")[0] + f"\nWHERE trial.trial_id IN ({marks(trials)})", list(trials)
    for column, value in (("cell.campaign_id", campaign_id), ("task.name", task), ("arm.name", arm)):
        if value is not None:
            sql, args = f"{sql} AND {column} = ?", [*args, value]
    rows = c.execute(f"{sql} ORDER BY trial.trial_id", tuple(args)).fetchall()
    archives = {row.trial_id: row for row in _archives(c, "ended_at_ms IS NULL")}
    prunes = {row.trial_id: row for row in _prunes(c, "kind = 'artifacts'")}
    return [_keepable(row, archives.get(row["trial_id"]), prunes.get(row["trial_id"])) for row in rows]


def _keepable(row: sqlite3.Row, archive: ArchiveRow | None, prune: PruneRow | None) -> Keepable:
    # What was packed before the trial's last event says of the trial what is not so any more: that it has a score, say.
    archived = archive is not None and row["rested"] is not None and archive.at_ms >= row["rested"]
    facts = Trial(row["state"], row["rested"], bool(row["claim_live"]), bool(row["imported"]), archived, prune is not None)
    keys = ("trial_id", "campaign", "task", "arm", "replicate", "attempt", "out_dir", "folder")
    return Keepable(**{key: row[key] for key in keys}, facts=facts, archive=archive, prune=prune)


def recorded(c: sqlite3.Connection, trial_id: int) -> list[ArtifactRecord]:
    """What was exported of the trial, with hashes; what was left out then is not among it."""
    sql = "SELECT path, sha256, size_bytes, why FROM artifact WHERE trial_id = ? AND sha256 <> '' ORDER BY path"
    return [ArtifactRecord(**dict(row)) for row in c.execute(sql, (trial_id,)).fetchall()]


def archived(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    file: str,
    sha256: str,
    size_bytes: int,
    files: int,
    content_bytes: int,
    author: str,
    now_ms: int,
) -> bool:
    """The file is there, whole and proven.  An earlier archive of the trial ends, replaced.  False: this very one stands already."""
    standing = next(iter(_archives(c, "ended_at_ms IS NULL AND trial_id = ?", trial_id)), None)
    if standing is not None and (standing.file, standing.sha256) == (file, sha256):
        return False
    if standing is not None:
        sql = "UPDATE archive SET ended_at_ms = ?, ended_by = ?, ended_reason = ? WHERE archive_id = ?"
        c.execute(sql, (now_ms, author, f"replaced by {file}", standing.archive_id))
    c.execute(
        """INSERT INTO archive (trial_id, file, sha256, size_bytes, files, content_bytes, author, at_ms)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (trial_id, file, sha256, size_bytes, files, content_bytes, author, now_ms),
    )
    return True


def prune_begins(c: sqlite3.Connection, wish: Wish, *, author: str, reason: str, now_ms: int) -> int:
    """Write down that it is removed, before it is; the row's number.  One that was broken off is taken up again.

    :raises Refused: an earlier removal of a trial's own came to its end.
    """
    if wish.trial_id is None:
        before = next(iter(_prunes(c, "path = ? AND done_at_ms IS NULL", wish.path)), None)
    else:
        before = next(iter(_prunes(c, "trial_id = ? AND kind = ?", wish.trial_id, wish.kind.value)), None)
    if before is not None:
        if before.done_at_ms is not None:
            raise Refused(f"{wish.kind.value} of {trial_label(wish.trial_id or 0)} were pruned by {before.author} already")
        return before.prune_id
    archive = None if wish.trial_id is None else next(iter(_archives(c, "ended_at_ms IS NULL AND trial_id = ?", wish.trial_id)), None)
    named = archive.archive_id if archive is not None and wish.kind is Kind.ARTIFACTS else None
    rested = wish.rested_at_ms if wish.trial_id is None else _rested(c, wish.trial_id)
    cursor = c.execute(
        """INSERT INTO prune (kind, path, trial_id, archive_id, unarchived, rested_at_ms, files, size_bytes, author, reason, at_ms)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            *(wish.kind.value, wish.path, wish.trial_id, named, int(wish.kind is Kind.ARTIFACTS and named is None and wish.unarchived)),
            *(rested, wish.files, wish.size_bytes, author, reason, now_ms),
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _rested(c: sqlite3.Connection, trial_id: int) -> int:
    row = one(
        c,
        """SELECT max(at_ms, (SELECT max(at_ms) FROM trial_event AS e WHERE e.trial_id = x.trial_id)) AS rested
           FROM artifact_export AS x WHERE trial_id = ?""",
        (trial_id,),
    )
    if row is None:
        raise Refused(f"{trial_label(trial_id)} is not exported yet")
    return int(row["rested"])


def prune_ended(c: sqlite3.Connection, prune_id: int, *, now_ms: int) -> None:
    """It was seen gone.  Said again: nothing happens."""
    if c.execute("SELECT 1 FROM prune WHERE prune_id = ? AND done_at_ms IS NOT NULL", (prune_id,)).fetchone() is None:
        changed(c.execute("UPDATE prune SET done_at_ms = ? WHERE prune_id = ?", (now_ms, prune_id)), f"prune {prune_id}")


def broken_off(c: sqlite3.Connection) -> list[PruneRow]:
    """Removals that began and did not end, oldest first."""
    return _prunes(c, "done_at_ms IS NULL")


def kept_of(c: sqlite3.Connection, trial_id: int) -> tuple[tuple[ArchiveRow, ...], tuple[PruneRow, ...]]:
    """Archives of the trial, and what of it was removed."""
    return tuple(_archives(c, "trial_id = ?", trial_id)), tuple(_prunes(c, "trial_id = ?", trial_id))


def pruned_of(c: sqlite3.Connection, trial_id: int) -> PruneRow | None:
    """That the trial's artifacts were removed; None: they were not."""
    return next(iter(_prunes(c, "trial_id = ? AND kind = 'artifacts'", trial_id)), None)


def pruned_trials(c: sqlite3.Connection) -> set[int]:
    """Trials whose artifacts were removed."""
    return {int(row[0]) for row in c.execute("SELECT trial_id FROM prune WHERE kind = 'artifacts'").fetchall()}


def last_used(c: sqlite3.Connection) -> dict[str, int]:
    """Task name → when the ledger last heard of it: its trials' last event, its parks, its campaign's beginning.

    A task with a trial in work is not among them.
    """
    rows = c.execute(_LAST_USED)
    return {row["name"]: int(row["at_ms"]) for row in rows.fetchall() if not row["live"]}


_LAST_USED = f"""
SELECT task.name, max(max(created_at_ms,
        coalesce((SELECT max(e.at_ms) FROM cell JOIN trial USING (cell_id) JOIN trial_event AS e USING (trial_id)
                  WHERE cell.task_id = task.task_id), 0),
        coalesce((SELECT max(coalesce(ended_at_ms, at_ms)) FROM cell JOIN park USING (cell_id)
                  WHERE cell.task_id = task.task_id), 0))) AS at_ms,
    max(EXISTS (SELECT 1 FROM cell JOIN trial USING (cell_id) WHERE cell.task_id = task.task_id AND state IN {LIVE})) AS live
FROM task JOIN campaign USING (campaign_id) GROUP BY task.name"""

_ARCHIVE = """
SELECT archive_id, trial_id, file, sha256, size_bytes, files, content_bytes, author, at_ms, ended_at_ms, ended_by, ended_reason
FROM archive WHERE"""

_PRUNE = """
SELECT prune_id, kind, path, trial_id, archive_id, unarchived, rested_at_ms, files, size_bytes, author, reason, at_ms, done_at_ms
FROM prune WHERE"""


def is_task(c: sqlite3.Connection, name: str) -> bool:
    return c.execute("SELECT 1 FROM task WHERE name = ?", (name,)).fetchone() is not None


def _archives(c: sqlite3.Connection, where: str, *args: int | str) -> list[ArchiveRow]:
    return [ArchiveRow(**dict(row)) for row in c.execute(f"{_ARCHIVE} {where} ORDER BY archive_id", args).fetchall()]


def _prunes(c: sqlite3.Connection, where: str, *args: int | str) -> list[PruneRow]:
    rows = c.execute(f"{_PRUNE} {where} ORDER BY prune_id", args).fetchall()
    return [PruneRow(**{**dict(row), "unarchived": bool(row["unarchived"])}) for row in rows]
