"""``marathonctl init`` and ``marathonctl ledger …``: making, adopting, checking and backing up the ledger file.

Owns what a person is told.  These are the only commands besides the daemon that write a ledger, and none of them runs beside one.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from marathond.cli.output import note, say
from marathond.core.errors import LedgerRefused
from marathond.core.model import trial_label
from marathond.core.text import clean, plural
from marathond.engine.host import filesystem_type
from marathond.ledger.adopt import How, adopt
from marathond.ledger.open import create, house_errors, open_readonly
from marathond.ledger.place import is_elsewhere, read_identity
from marathond.service.peers import user_name
from marathond.service.protocol import CallFailed, Exit

PROBLEMS_SHOWN = 20


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def init(ledger: Path, folders: list[Path]) -> int:
    """Make the ledger and the folders that the daemon needs.  Again: says so, exit 0."""
    for folder in (ledger.parent, *folders):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CallFailed(f"{folder}: cannot be made: {(error.strerror or str(error)).lower()}") from error
    if ledger.exists():
        with closing(open_readonly(ledger)) as connection:
            identity = read_identity(connection, ledger)
        say(f"ledger {identity.ledger_id} exists at {ledger}; nothing was changed")
        return Exit.OK
    made = create(ledger, host=socket.gethostname(), now_ms=now_ms(), filesystem_type=filesystem_type(ledger.parent))
    say(f"made ledger {made} at {ledger}")
    return Exit.OK


def adopt_ledger(ledger: Path, how: How) -> int:
    """Tell a moved or copied ledger where it is now."""
    author = user_name(os.geteuid())
    done = adopt(
        ledger,
        how,
        host=socket.gethostname(),
        filesystem_type=filesystem_type(ledger.parent),
        author=author,
        now_ms=now_ms(),
    )
    if how is How.MOVED:
        say(f"ledger {done.ledger_id} is at {ledger} now; its containers and networks stay its own")
        return Exit.OK
    say(f"ledger {done.ledger_id} at {ledger} is a copy of {done.old_ledger_id}")
    if done.voided:
        named = ", ".join(map(trial_label, done.voided[:PROBLEMS_SHOWN]))
        more = f" and {len(done.voided) - PROBLEMS_SHOWN} more" if len(done.voided) > PROBLEMS_SHOWN else ""
        say(f"  {plural(len(done.voided), 'trial')} in work belong to the original and are void here: {named}{more}")
    return Exit.OK


def check(ledger: Path) -> int:
    """The whole file against itself: pages, indexes, references.  Exit status 1 when something is wrong."""
    problems: list[str] = []
    with closing(open_readonly(ledger)) as connection, house_errors(ledger):
        identity = read_identity(connection, ledger)
        problems += [f"damaged: {row[0]}" for row in connection.execute(f"PRAGMA integrity_check({PROBLEMS_SHOWN})") if row[0] != "ok"]
        problems += [f"broken reference: {row[0]} row {row[1]} → {row[2]}" for row in connection.execute("PRAGMA foreign_key_check")]
        elsewhere = is_elsewhere(identity, ledger, socket.gethostname())
        count = connection.execute("SELECT (SELECT count(*) FROM trial), (SELECT count(*) FROM trial_event)").fetchone()
    for problem in problems[:PROBLEMS_SHOWN]:
        say(clean(problem))
    if elsewhere:
        say(f"not at its place: {clean(elsewhere)}; say which: marathonctl ledger adopt --moved, or --copy")
    if problems or elsewhere:
        return Exit.FAILED
    say(f"ok: ledger {identity.ledger_id}, {plural(count[0], 'trial')}, {plural(count[1], 'event')}")
    return Exit.OK


def backup(ledger: Path, target: Path) -> int:
    """A consistent copy, also while the daemon writes; made aside and renamed, and nothing is overwritten.

    :raises CallFailed: the target exists or cannot be written.
    """
    if target.is_dir():
        raise CallFailed(f"{target}: is a folder; name the file to make", Exit.USAGE)
    if target.exists():
        raise CallFailed(f"{target}: exists already; nothing was changed")
    aside = target.with_name(f".{target.name}.new-{os.getpid()}")
    try:
        with closing(open_readonly(ledger)) as source, house_errors(ledger):
            _copy(source, aside)
        descriptor = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.link(aside, target)
    except FileExistsError as error:
        raise CallFailed(f"{target}: exists already; nothing was changed") from error
    except OSError as error:
        raise CallFailed(f"{target}: {(error.strerror or str(error)).lower()}") from error
    finally:
        aside.unlink(missing_ok=True)
    say(f"backed up {ledger} to {target} ({target.stat().st_size} bytes)")
    note(f"to use it elsewhere: copy it to a ledger's place, then marathonctl ledger adopt --copy (or --moved, if {ledger.name} is gone)")
    return Exit.OK


def _copy(source: sqlite3.Connection, aside: Path) -> None:
    """All pages in one step: an incremental copy would never end beside a busy writer."""
    aside.touch(mode=0o600, exist_ok=False)
    with closing(sqlite3.connect(aside)) as copy:
        try:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        except sqlite3.Error as error:
            raise LedgerRefused("backup", f"{aside.parent}: the copy failed: {error}") from error
