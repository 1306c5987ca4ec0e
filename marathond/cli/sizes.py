"""``marathonctl sizes``: what takes the room, by campaign and kind.

Owns the list of places.  Of artifacts and archives the ledger's own sums are shown (what was exported; nobody walks a network file system
for it), of state_dir what lies on disk now, each folder counted to a bound.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marathond.cli.archive import looking, size_words
from marathond.cli.output import Column, print_json, say, screen, table
from marathond.core.errors import ArtifactError
from marathond.core.text import UNKNOWN, clean
from marathond.tasks.archiving import tree_size

if TYPE_CHECKING:
    from marathond.core.paths import DaemonPaths

PLACES = (
    ("run directories", "r"),
    ("staged programs", "staged"),
    ("build logs", "builds"),
    ("gateway", "gateway"),
    ("rehearsals", "x"),
)
"""Folders of state_dir."""


@dataclass(frozen=True, slots=True)
class Size:
    """:param campaign: null: of no campaign.  :param kind: artifacts, archives, pruned, or what lies in state_dir.
    :param files: how many; null: not to be seen.  :param complete: false: there is more than was counted.
    """

    campaign: str | None
    kind: str
    place: str
    files: int | None
    size_bytes: int | None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """What takes room.  :param sizes: of each campaign and kind."""

    sizes: list[Size]


def gather(paths: DaemonPaths) -> list[Size]:
    look = looking(paths.ledger)
    found: list[Size] = look(_by_campaign)
    found += [_tree(kind, paths.state_dir / name) for kind, name in PLACES]
    return found + list(_ledger_files(paths.ledger))


def _by_campaign(c: sqlite3.Connection) -> list[Size]:
    sql = """SELECT campaign.name, campaign.out_dir, count(artifact.path) AS files, coalesce(sum(artifact.size_bytes), 0) AS size,
                 EXISTS (SELECT 1 FROM prune WHERE prune.trial_id = trial.trial_id AND kind = 'artifacts') AS pruned
             FROM campaign JOIN cell USING (campaign_id) JOIN trial USING (cell_id) JOIN artifact USING (trial_id)
             WHERE sha256 <> '' AND origin = 'run' GROUP BY campaign.campaign_id, pruned ORDER BY campaign.campaign_id, pruned"""
    found = [
        Size(row["name"], "pruned" if row["pruned"] else "artifacts", f"{row['out_dir']}/{row['name']}", row["files"], row["size"])
        for row in c.execute(sql).fetchall()
    ]
    sql = """SELECT campaign.name, count(*) AS files, sum(archive.size_bytes) AS size FROM archive JOIN trial USING (trial_id)
                 JOIN cell USING (cell_id) JOIN campaign USING (campaign_id)
             WHERE ended_at_ms IS NULL GROUP BY campaign_id ORDER BY campaign_id"""
    found += [Size(row["name"], "archives", "where archive --to said", row["files"], row["size"]) for row in c.execute(sql).fetchall()]
    return sorted(found, key=lambda size: (size.campaign or "", size.kind))


def _tree(kind: str, folder: Path) -> Size:
    try:
        files, size, complete = tree_size(folder)
    except ArtifactError:
        return Size(None, kind, str(folder), None, None)
    return Size(None, kind, str(folder), files, size, complete)


def _ledger_files(ledger: Path) -> Iterator[Size]:
    """The ledger, its WAL, and the copies made before migrations."""
    backup = re.compile(re.escape(ledger.name) + r"\.before-\d{4}(\.\d+)?")
    copies = [path for path in ledger.parent.iterdir() if backup.fullmatch(path.name)]
    wal = ledger.with_name(f"{ledger.name}-wal")
    for kind, place, files in (("ledger", ledger, [ledger]), ("WAL", wal, [wal]), ("backups", ledger.parent, copies)):
        there = [path.stat().st_size for path in files if path.is_file()]
        yield Size(None, kind, str(place), len(there), sum(there))


def run(paths: DaemonPaths, *, as_json: bool) -> int:
    """Print it; always 0."""
    found = gather(paths)
    if as_json:
        print_json(asdict(Sizes(found)))
        return 0
    columns = (
        Column("campaign", least=8),
        Column("what"),
        Column("files", right=True),
        Column("size", right=True),
        Column("where", least=12),
    )
    rows = [
        (
            clean(size.campaign or "-"),
            size.kind,
            UNKNOWN if size.files is None else f"{size.files}{'' if size.complete else '+'}",
            UNKNOWN if size.size_bytes is None else size_words(size.size_bytes) + ("" if size.complete else "+"),
            clean(size.place),
        )
        for size in found
    ]
    for line in table(columns, rows, screen()):
        say(line)
    return 0
