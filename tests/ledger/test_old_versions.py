"""Ledgers of every earlier version, made by its own code (tests/data/ledgers), are opened by this one: whole, and nothing lost."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.ledgers import memory_ledger
from support.schema_text import schema

from marathond.core.audit.rules import RULES, looks
from marathond.ledger import migrate as m
from marathond.ledger.adopt import How, adopt
from marathond.ledger.connect import connect
from marathond.ledger.open import open_for_daemon
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs import audit, trials

DATA = Path(__file__).resolve().parents[1] / "data" / "ledgers"
HOST = "build7"
VERSIONS = range(1, m.LATEST + 1)


def test_there_is_a_file_of_every_version() -> None:
    """Of the newest one, too, from the moment on at which it is not the newest any more."""
    kept = {int(path.name.removeprefix("version-").removesuffix(".db.gz")) for path in DATA.glob("version-*.db.gz")}
    assert kept >= set(range(1, m.LATEST))


def tables_of(c: sqlite3.Connection) -> list[str]:
    return [
        str(row[0]) for row in c.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
    ]


def rows_of(c: sqlite3.Connection) -> dict[str, list[dict[str, object]]]:
    return {table: [dict(row) for row in c.execute(f"SELECT * FROM {table}")] for table in tables_of(c)}


@pytest.fixture(params=[v for v in VERSIONS if (DATA / f"version-{v}.db.gz").exists()])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A version and its ledger, unpacked and told its place, which changes no version: adopted by its own row, not by our code."""
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress((DATA / f"version-{request.param}.db.gz").read_bytes()))
    with closing(connect(path, mode="rw")) as c:
        status = path.stat()
        c.execute("UPDATE ledger_identity SET path = ?, device = ?, inode = ?", (str(path), status.st_dev, status.st_ino))
    yield request.param, path


def test_f05_a_ledger_of_every_version_comes_to_this_one_and_keeps_its_rows(old: tuple[int, Path], tmp_path: Path) -> None:
    version, path = old
    with closing(connect(path, mode="ro")) as c:
        assert m.version_of(c) == version
        before = rows_of(c)
    assert {row["state"] for row in before["trial"]} == {"reserved", "preparing", "running", "verifying", "scored", "review", "voided"}

    opened = open_for_daemon(path, host=HOST, filesystem_type="ext4", now_ms=1)
    opened.close()
    assert opened.migrated == list(range(version + 1, m.LATEST + 1))

    fresh = memory_ledger()
    with closing(open_readonly(path)) as c:
        assert schema(c) == schema(fresh) and m.unlike_fresh(c) == []
        assert c.execute("PRAGMA integrity_check").fetchall()[0][0] == "ok" and c.execute("PRAGMA foreign_key_check").fetchall() == []
        after = rows_of(c)
        for table, rows in before.items():
            if table in ("void_code", "trial_transition"):  # the code's own words, which a version may add to
                assert after[table] == rows_of(fresh)[table]
                continue
            kept = [{name: row[name] for name in rows[0]} for row in after[table]] if rows else after[table]
            assert sorted(kept, key=repr) == sorted(rows, key=repr), table
        views = [str(row[0]) for row in c.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
        assert len(views) >= 12
        answered = {view: len(c.execute(f"SELECT * FROM {view}").fetchall()) for view in views}
        assert answered["v_trial"] == len(before["trial"]) and answered["v_cell"] == len(before["cell"])
        facts = audit.facts(c, 1, now_ms=before["trial"][-1]["created_at_ms"] + 1)  # type: ignore[operator]
        assert [look for _, look in looks(facts, RULES) if isinstance(look, Exception)] == []
        assert trials.unfinished(c)
    fresh.close()

    backups = [each.name for each in tmp_path.glob("*.before-*")]
    assert backups == ([] if version == m.LATEST else [f"ledger.db.before-{version + 1:04d}"])
    for name in backups:
        with closing(sqlite3.connect(f"file:{tmp_path / name}?mode=ro", uri=True)) as c:
            c.row_factory = sqlite3.Row
            assert m.version_of(c) == version and rows_of(c) == before


def test_f14_an_old_copy_is_adopted_with_its_live_trials_ended(old: tuple[int, Path], tmp_path: Path) -> None:
    _, path = old
    there = tmp_path / "copy.db"
    there.write_bytes(path.read_bytes())
    done = adopt(there, How.COPY, host=HOST, filesystem_type="ext4", author="ana", now_ms=1_790_100_000_000)
    with closing(open_readonly(there)) as c:
        assert len(done.voided) == 9 and trials.unfinished(c) == []
        assert c.execute("SELECT count(*) FROM claim WHERE released_at_ms IS NULL").fetchone()[0] == 0
