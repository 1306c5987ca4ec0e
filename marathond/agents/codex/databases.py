"""Whether the copies of codex's databases can be opened, with what still stands in their write-ahead logs.

Owns the look into them.  Their content is the agent's user's: nothing of it is believed, and a look is bounded in time.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SUFFIX, LOG_SUFFIX = ".sqlite", "-wal"
AT_MOST = 50
LOOK_S, LOOKS_S = 5.0, 20.0
"""For one database, and for all of a trial."""
TOO_LARGE = "not looked through in time"
_STEPS = 10_000
"""Of SQLite's machine between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Database:
    """``check``: ``ok``, :data:`TOO_LARGE`, or what is wrong in SQLite's words.  ``tables``: how many it has, its log included."""

    name: str
    size_bytes: int
    log_bytes: int
    tables: int
    check: str


def look(folder: Path, scratch: Path) -> list[Database]:
    """Every database in ``folder``, by name; none of its files is changed.

    :param scratch: a folder to be made on the same file system, gone afterwards: reading makes files beside a database.
    :raises OSError: the scratch folder cannot be used.
    """
    found = sorted(folder.glob(f"*{SUFFIX}"))[:AT_MOST] if folder.is_dir() else []
    if not found:
        return []
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    until = time.monotonic() + LOOKS_S
    try:
        # Under names of ours: SQLite is given a URI, and theirs may hold anything.
        return [_look(path, scratch / f"{number}{SUFFIX}", until) for number, path in enumerate(found)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _look(path: Path, here: Path, until: float) -> Database:
    log = path.with_name(path.name + LOG_SUFFIX)
    log_bytes = log.stat().st_size if log.exists() else 0
    os.link(path, here)
    with suppress(FileNotFoundError):
        os.link(log, here.with_name(here.name + LOG_SUFFIX))
    until = min(until, time.monotonic() + LOOK_S)
    tables, check = 0, "ok"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(here))}?mode=ro", uri=True, timeout=1)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            connection.execute("PRAGMA cell_size_check = ON")
            tables = int(connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").fetchone()[0])
            check = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])[:300]
    except sqlite3.Error as error:
        check = TOO_LARGE if time.monotonic() > until else f"{type(error).__name__}: {error}"[:300]
    name = os.fsencode(path.name).decode("utf-8", "backslashreplace")
    return Database(name, path.stat().st_size, log_bytes, tables, check)
