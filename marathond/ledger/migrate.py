"""Numbered, forward-only migrations.

Owns ``PRAGMA user_version`` and ``application_id``.  Each migration is one transaction that also holds its number, with foreign keys off
before BEGIN (inside a transaction SQLite ignores the switch) and ``foreign_key_check`` before COMMIT.  Must not know what the tables mean.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import LedgerRefused
from marathond.ledger.connect import connect_memory
from marathond.ledger.guards import create_guards, drop_guards
from marathond.ledger.version import APPLICATION_ID, LATEST, check_version, version_of

BACKUPS_MAX = 100
"""Backups of one number that may lie side by side before we refuse to make another."""

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


def migrations_dir() -> Path:
    """The folder of migrations: inside the wheel, or beside the package in a checkout and an editable install."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_migrations", package.parent / "migrations"):
        if folder.is_dir():
            return folder
    raise LedgerRefused("migrations", f"no migrations beside {package}: this installation is incomplete")


def load_migrations(folder: Path | None = None) -> tuple[Migration, ...]:
    """All migrations by number.

    :raises LedgerRefused: a gap, a double, a foreign file name, or a newest number other than :data:`LATEST`.
    """
    folder = folder or migrations_dir()
    found: list[Migration] = []
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise LedgerRefused("migrations", f"{path}: expected a name such as 0003_what_it_does.sql")
        found.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, LATEST + 1)):
        raise LedgerRefused("migrations", f"{folder} holds migrations {numbers}, this version needs 1 to {LATEST}")
    return tuple(found)


def split_statements(sql: str) -> list[str]:
    """The statements of a script, each once; comments stay with the statement that follows them.

    Only a ``;`` at which SQLite calls the text complete ends a statement: triggers and strings hold others.

    :raises ValueError: the script ends in the middle of a statement.
    """
    statements: list[str] = []
    start = 0
    for match in re.finditer(";", sql):
        piece = sql[start : match.end()]
        if sqlite3.complete_statement(piece):
            statements.append(piece.strip())
            start = match.end()
    rest = re.sub(r"--[^\n]*|/\*.*?\*/|\s", "", sql[start:], flags=re.DOTALL)
    if rest:
        raise ValueError(f"unfinished statement: {sql[start:].strip()[:80]!r}")
    return statements


def migrate(conn: sqlite3.Connection, path: Path | None, *, upto: int = LATEST, folder: Path | None = None) -> list[int]:
    """Bring the ledger to ``upto``; returns the numbers applied.

    :param conn: autocommit, no transaction open.
    :param path: the ledger's file, for the backup that is made before an existing ledger is changed; None: in memory.
    :raises LedgerRefused: newer than this code, or a foreign key would be broken (then nothing is changed).
    """
    where = str(path or ":memory:")
    version = check_version(conn, where, may_migrate=True)
    pending = [migration for migration in load_migrations(folder) if version < migration.number <= upto]
    if not pending:
        return []
    if version > 0 and path is not None:
        back_up(conn, path, pending[0].number)
    conn.execute("PRAGMA foreign_keys = OFF")
    try:
        if conn.execute("PRAGMA foreign_keys").fetchone()[0] != 0:
            raise LedgerRefused("settings", f"ledger {where}: foreign keys cannot be switched off for a migration (open transaction?)")
        for migration in pending:
            _apply(conn, migration, where)
    finally:
        conn.execute("PRAGMA foreign_keys = ON")
    if conn.execute("PRAGMA foreign_keys").fetchone()[0] != 1:
        raise LedgerRefused("settings", f"ledger {where}: foreign keys stayed off after the migration")
    return [migration.number for migration in pending]


def _apply(conn: sqlite3.Connection, migration: Migration, where: str) -> None:
    conn.execute("BEGIN IMMEDIATE")
    try:
        if version_of(conn) != migration.number - 1:  # another process migrated between our look and our lock
            raise LedgerRefused("busy", f"ledger {where} is being migrated by another process")
        drop_guards(conn)
        for statement in split_statements(migration.sql):
            conn.execute(statement)
        create_guards(conn)
        broken = conn.execute("PRAGMA foreign_key_check").fetchmany(3)
        if broken:
            places = ", ".join(f"{row[0]} row {row[1]} → {row[2]}" for row in broken)
            raise LedgerRefused("corrupt", f"ledger {where}: migration {migration.number:04d} would break references: {places}")
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        conn.execute(f"PRAGMA user_version = {migration.number}")
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def unlike_fresh(conn: sqlite3.Connection) -> list[str]:
    """What of the schema is not as in a new ledger, a line each: rules that were dropped refuse nothing, and no page is damaged then.

    What somebody added is theirs.
    """
    with closing(connect_memory()) as fresh:
        migrate(fresh, None)
        wanted = {(row[0], row[1]): row[2] for row in fresh.execute(_OBJECTS)}
    found = {(row[0], row[1]): row[2] for row in conn.execute(_OBJECTS)}
    return [
        f"{kind} {name} " + ("is missing" if (kind, name) not in found else "is not as this version has it")
        for (kind, name), sql in sorted(wanted.items())
        if found.get((kind, name)) != sql
    ]


_OBJECTS = r"SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'"


def back_up(conn: sqlite3.Connection, path: Path, number: int) -> Path:
    """A consistent copy beside the ledger, named after the migration it precedes, on disk when this returns.

    Written aside and renamed; an earlier backup is never overwritten.
    """
    names = [path.with_name(f"{path.name}.before-{number:04d}" + (f".{n}" if n else "")) for n in range(BACKUPS_MAX)]
    target = next((name for name in names if not name.exists()), None)
    if target is None:
        raise LedgerRefused("backup", f"{names[0]} and {BACKUPS_MAX - 1} more backups exist: move them away first")
    aside = target.with_name(target.name + ".tmp")
    aside.unlink(missing_ok=True)
    try:
        copy = sqlite3.connect(aside)
        try:
            conn.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without -wal and -shm of its own
        finally:
            copy.close()
        sync(aside)
        aside.rename(target)
    except BaseException:
        for suffix in ("", "-wal", "-shm", "-journal"):  # a copy that the disk was too small for must not keep it full
            aside.with_name(aside.name + suffix).unlink(missing_ok=True)
        raise
    sync(path.parent)
    return target


def sync(path: Path) -> None:
    """A file's content, or the names in a folder, are on disk when this returns.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
