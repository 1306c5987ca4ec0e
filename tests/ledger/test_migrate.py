"""Migrations: found from everywhere, whole or not at all, and the same result by every road."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.ledgers import memory_ledger
from support.schema_text import schema

from marathond.core.errors import LedgerRefused
from marathond.ledger import migrate as m
from marathond.ledger.connect import connect, connect_memory, use_wal
from marathond.ledger.guards import guarded_tables

ROOT = Path(__file__).resolve().parents[2]
DUMP = Path(__file__).with_name("schema.sql")


def test_migrated_equals_fresh_equals_dump(tmp_path: Path) -> None:
    """A ledger that was in use at version 1 comes to the same schema as a new one, and both are the one that is checked in."""
    path = tmp_path / "old.db"
    old = connect(path, mode="rwc")
    use_wal(old, "old")
    assert m.migrate(old, None, upto=1) == [1]
    fill_without_views(old)
    assert m.migrate(old, path) == [2, 3, 4, 5, 6, 7]
    fresh = memory_ledger()
    assert schema(old) == schema(fresh)
    assert schema(fresh) == DUMP.read_text(), "the schema changed: run python tests/ledger/test_migrate.py and look at the difference"
    for table in guarded_tables(fresh):  # rows that a migration brings along
        if table in ("void_code", "trial_transition"):
            sql = f"SELECT * FROM {table}"
            assert [tuple(r) for r in old.execute(sql)] == [tuple(r) for r in fresh.execute(sql)]
    old.close()
    fresh.close()


def fill_without_views(c: sqlite3.Connection) -> None:
    """Version 1 has no cell_state yet, so only what needs no view."""
    c.execute("INSERT INTO ledger_identity VALUES (1, '0123456789ab', 1, 'p', 1, 1, 'h')")
    c.execute(
        "INSERT INTO run (pid, pid_start_ticks, host, boot_id, version, started_at_ms, seen_at_ms) VALUES (1, 1, 'h', 'b', 'v', 1, 1)"
    )


def test_existing_ledger_is_backed_up_before_a_migration(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    c = connect(path, mode="rwc")
    use_wal(c, "x")
    m.migrate(c, path, upto=1)
    assert list(tmp_path.glob("*before*")) == []  # a new ledger holds nothing to save
    fill_without_views(c)
    m.migrate(c, path)
    backup = tmp_path / "ledger.db.before-0002"
    assert [p.name for p in tmp_path.glob("*before*")] == [backup.name]
    saved = sqlite3.connect(f"file:{backup}?mode=ro", uri=True)
    assert saved.execute("PRAGMA user_version").fetchone()[0] == 1
    assert saved.execute("SELECT host FROM run").fetchall() == [("h",)]
    assert saved.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    saved.close()
    again = m.back_up(c, path, 2)
    assert again.name == "ledger.db.before-0002.1"  # an earlier one is never overwritten
    c.close()


def test_broken_reference_refuses_the_migration_and_changes_nothing(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "migrations", tmp_path / "m")
    (folder / "0002_views.sql").write_text("DELETE FROM campaign; CREATE TABLE late (x INTEGER) STRICT;")
    c = connect_memory()
    m.migrate(c, None, upto=1)
    c.execute("INSERT INTO campaign VALUES (1, 'x', 1, 'a', 't', '{}', '{}', 'o', 'arm-major', 1)")
    c.execute("INSERT INTO arm VALUES (1, 1, 'a', 1, 'nop', 'h', '{}')")
    c.execute("DROP TRIGGER campaign_is_never_deleted")
    before = schema(c)
    with pytest.raises(LedgerRefused, match="would break references: arm row 1"):
        m.migrate(c, None, folder=folder)
    assert schema(c) == before and m.version_of(c) == 1
    assert c.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    assert c.execute("SELECT count(*) FROM campaign").fetchone()[0] == 1


def test_failing_statement_rolls_the_whole_migration_back(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "migrations", tmp_path / "m")
    (folder / "0002_views.sql").write_text("CREATE TABLE late (x INTEGER) STRICT; SELECT nonsense;")
    c = connect_memory()
    m.migrate(c, None, upto=1)
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        m.migrate(c, None, folder=folder)
    assert "late" not in guarded_tables(c) and m.version_of(c) == 1
    with pytest.raises(sqlite3.IntegrityError):  # and the guards are back
        c.execute("PRAGMA foreign_keys = OFF")
        c.execute("DELETE FROM void_code")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "0002_views.sql").unlink(), r"holds migrations \[1, 3, 4, 5, 6, 7\], this version needs 1 to 7"),
        (lambda f: (f / "0009_later.sql").write_text(""), r"\[1, 2, 3, 4, 5, 6, 7, 9\]"),
        (lambda f: (f / "0008_newer.sql").write_text(""), r"\[1, 2, 3, 4, 5, 6, 7, 8\]"),
        (lambda f: (f / "notes.sql").write_text(""), "expected a name such as"),
    ],
)
def test_incomplete_or_foreign_migrations_are_refused(tmp_path: Path, change: object, words: str) -> None:
    folder = shutil.copytree(ROOT / "migrations", tmp_path / "m")
    assert callable(change)
    change(folder)
    with pytest.raises(LedgerRefused, match=words):
        m.load_migrations(folder)


def test_statements_are_split_where_sqlite_says() -> None:
    script = """-- a; comment
CREATE TABLE t (x TEXT DEFAULT 'a;b'); CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; SELECT ';'; END;
/* ; */ INSERT INTO t VALUES ('c;');
-- the end;
"""
    parts = m.split_statements(script)
    assert [part.split()[-1] for part in parts] == ["'a;b');", "END;", "('c;');"]
    c = sqlite3.connect(":memory:")
    for part in parts:
        c.execute(part)
    c.close()
    with pytest.raises(ValueError, match="unfinished statement: 'CREATE TABLE u'"):
        m.split_statements("SELECT 1; CREATE TABLE u")


def test_newer_ledger_is_refused_before_anything_is_changed() -> None:
    c = memory_ledger()
    c.execute("PRAGMA user_version = 8")
    with pytest.raises(LedgerRefused, match="has version 8, this marathond knows 7: install the newer") as caught:
        m.migrate(c, None)
    assert caught.value.code == "newer"


def test_migrations_are_found_from_any_folder_in_a_checkout(tmp_path: Path) -> None:
    """The editable install and the checkout have them beside the package."""
    said = subprocess.run(
        [sys.executable, "-c", "from marathond.ledger import migrate as m; print(m.migrations_dir(), len(m.load_migrations()))"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said == [str(ROOT / "migrations"), "7"]


def test_migrations_are_found_in_the_layout_of_the_wheel(tmp_path: Path) -> None:
    """What pyproject.toml's force-include puts at marathond/_migrations wins, and no sibling folder is needed."""
    shutil.copytree(ROOT / "marathond", tmp_path / "site/marathond", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "migrations", tmp_path / "site/marathond/_migrations")
    said = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from marathond.ledger import migrate as m; print(m.migrations_dir(), len(m.load_migrations()))",
            str(tmp_path / "site"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said == [str(tmp_path / "site/marathond/_migrations"), "7"]
    config = (ROOT / "pyproject.toml").read_text()
    assert 'migrations = "marathond/_migrations"' in config


def test_installation_without_migrations_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "marathond/ledger", tmp_path / "site/marathond/ledger")
    monkeypatch.setattr(m, "__file__", str(tmp_path / "site/marathond/ledger/migrate.py"))
    with pytest.raises(LedgerRefused, match="this installation is incomplete"):
        m.migrations_dir()


if __name__ == "__main__":
    DUMP.write_text(schema(memory_ledger()))
    print(f"written: {DUMP}")
