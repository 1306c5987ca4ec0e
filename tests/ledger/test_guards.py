"""The rules also hold in the sqlite3 shell, which starts with foreign keys off."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from support.ledgers import T0, bring_to, cell, fill, memory_ledger

from marathond.ledger.connect import connect
from marathond.ledger.guards import MESSAGE, RULE, guarded_tables
from marathond.ledger.open import create


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    create(path, host="h", now_ms=T0)
    c = connect(path, mode="rw")
    fill(c)
    bring_to(c, cell(c), "scored")
    c.close()
    return path


def shell(path: Path, *statements: str) -> str:
    """What the real shell answers, or Python's module with its settings where there is no shell."""
    binary = shutil.which("sqlite3")
    if binary is not None:
        done = subprocess.run([binary, str(path)], input="\n".join(statements), capture_output=True, text=True, check=False)
        return done.stdout + done.stderr
    conn = sqlite3.connect(path, isolation_level=None)
    said = []
    for statement in statements:
        try:
            said += [str(row) for row in conn.execute(statement).fetchall()]
        except sqlite3.Error as exc:
            said.append(str(exc))
    conn.close()
    return "\n".join(said)


ILLEGAL = [
    "UPDATE trial SET state = 'running';",
    "DELETE FROM score;",
    "INSERT INTO claim (cell_id, token, run_id, claimed_at_ms) VALUES (999, 'x', 1, 1);",
    "INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id) VALUES (999, 1, 'e', 'a', 'b', 1, 1);",
    "REPLACE INTO void_code VALUES ('operator', 'infrastructure', 'not mine');",
    "UPDATE campaign SET out_dir = '/elsewhere';",
]


@pytest.mark.parametrize("statement", ILLEGAL)
def test_shell_as_it_starts_may_write_nothing(ledger: Path, statement: str) -> None:
    said = shell(ledger, statement)
    assert MESSAGE in said
    assert "PRAGMA foreign_keys=ON" in said  # says what to do


@pytest.mark.parametrize("statement", ILLEGAL[:5])
def test_shell_with_the_pragmas_meets_the_rules_themselves(ledger: Path, statement: str) -> None:
    said = shell(ledger, "PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON;", statement)
    assert RULE not in said
    assert "error" in said.lower() or "failed" in said.lower(), said


def test_shell_with_the_pragmas_may_do_what_is_legal(ledger: Path) -> None:
    pragmas = "PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON;"
    assert shell(ledger, pragmas, ILLEGAL[5], "SELECT out_dir FROM campaign;").strip() == "/elsewhere"


@pytest.mark.parametrize("asleep", ["foreign_keys", "recursive_triggers"])
def test_every_table_refuses_every_write_while_a_setting_is_off(asleep: str) -> None:
    c = memory_ledger()
    fill(c)
    c.execute(f"PRAGMA {asleep} = OFF")
    for table in guarded_tables(c):
        columns = [row["name"] for row in c.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()]
        insert = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join('NULL' for _ in columns)}"
        for statement in (insert, f"UPDATE {table} SET {columns[0]} = {columns[0]}", f"DELETE FROM {table}"):
            rows = c.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            if rows == 0 and not statement.startswith("INSERT"):
                continue  # a row trigger needs a row
            with pytest.raises(sqlite3.IntegrityError, match=RULE):
                c.execute(statement)
    c.close()


def test_every_table_has_its_three_guards() -> None:
    c = memory_ledger()
    names = {row[0] for row in c.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'guard%'").fetchall()}
    assert names == {f"guard_{table}_{operation}" for table in guarded_tables(c) for operation in ("insert", "update", "delete")}
    assert len(names) > 80
