"""The schema of a ledger as text, to be compared.  No test of its own."""

from __future__ import annotations

import sqlite3


def schema(c: sqlite3.Connection) -> str:
    """The schema as text, without what SQLite makes itself and without the generated guards (tests/ledger/test_guards.py)."""
    rows = c.execute(
        r"""SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'guard\_%' ESCAPE '\'
            AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY CASE type WHEN 'table' THEN 1 WHEN 'index' THEN 2 WHEN 'trigger' THEN 3
            ELSE 4 END, name"""
    )
    version, application = (c.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    head = f"-- user_version {version}, application_id {application:#x}; made by: python tests/ledger/test_migrate.py\n"
    return head + "".join(f"\n{row[0]};\n" for row in rows.fetchall())
