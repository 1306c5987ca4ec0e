"""``marathonctl init`` and ``marathonctl ledger …``: making, adopting, checking and backing up the ledger file.

Owns what a person is told.  These are the only commands besides the daemon that write a ledger, and none of them runs beside one.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.output import note, print_json, say
from marathond.core.errors import LedgerRefused
from marathond.core.names import trial_label
from marathond.core.text import clean, plural
from marathond.engine.host import filesystem_type
from marathond.ledger.adopt import How, adopt
from marathond.ledger.migrate import sync, unlike_fresh
from marathond.ledger.open import companions, create
from marathond.ledger.place import is_elsewhere, read_identity
from marathond.ledger.readonly import house_errors, open_readonly
from marathond.service.exits import CallFailed, Exit
from marathond.service.peers import user_name

PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Made:
    """:param ledger: path of the file.
    :param made: false: it existed, and nothing was changed."""

    ledger: str
    ledger_id: str
    made: bool


@dataclass(frozen=True, slots=True)
class AdoptedShown:
    """:param ledger: path of the file.
    :param how: moved: it is the ledger itself; copy: it has a new id.
    :param voided: numbers of trials in work, which belong to the original; empty for a move."""

    ledger: str
    how: How
    ledger_id: str
    old_ledger_id: str
    voided: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """:param ledger: path of the file.
    :param problems: at most 20; empty: the file is whole.
    :param elsewhere: in what its place is not the one that it knows; empty: it is at its own place.
    :param trials: how many it holds.
    :param events: how many it holds."""

    ok: bool
    ledger: str
    ledger_id: str
    problems: list[str]
    elsewhere: str
    trials: int
    events: int


@dataclass(frozen=True, slots=True)
class BackedUp:
    """:param ledger: path of the file.
    :param target: path of the copy.
    :param size_bytes: of the copy."""

    ledger: str
    target: str
    size_bytes: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def init(ledger: Path, folders: list[Path], *, as_json: bool = False) -> int:
    """Make the ledger and the folders that the daemon needs.  Again: says so, exit 0."""
    for folder in (ledger.parent, *folders):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CallFailed(f"{folder}: cannot be made: {(error.strerror or str(error)).lower()}") from error
    if ledger.exists():
        with closing(open_readonly(ledger)) as connection:
            done = Made(str(ledger), read_identity(connection, ledger).ledger_id, made=False)
    else:
        made = create(ledger, host=socket.gethostname(), now_ms=now_ms(), filesystem_type=filesystem_type(ledger.parent))
        done = Made(str(ledger), made, made=True)
    if as_json:
        print_json(done)
    elif done.made:
        say(f"made ledger {done.ledger_id} at {ledger}")
    else:
        say(f"ledger {done.ledger_id} exists at {ledger}; nothing was changed")
    return Exit.OK


def adopt_ledger(ledger: Path, how: How, *, as_json: bool = False) -> int:
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
    if as_json:
        print_json(AdoptedShown(str(ledger), how, done.ledger_id, done.old_ledger_id, done.voided))
        return Exit.OK
    if how is How.MOVED:
        say(f"ledger {done.ledger_id} is at {ledger} now; its containers and networks stay its own")
        return Exit.OK
    say(f"ledger {done.ledger_id} at {ledger} is a copy of {done.old_ledger_id}")
    if done.voided:
        named = ", ".join(map(trial_label, done.voided[:PROBLEMS_SHOWN]))
        more = f" and {len(done.voided) - PROBLEMS_SHOWN} more" if len(done.voided) > PROBLEMS_SHOWN else ""
        say(f"  {plural(len(done.voided), 'trial')} in work belong to the original and are void here: {named}{more}")
    return Exit.OK


def check(ledger: Path, *, as_json: bool = False) -> int:
    """The whole file against itself: pages, indexes, references; its rules against a new ledger's.  Exit status 1: something is wrong."""
    problems: list[str] = []
    with closing(open_readonly(ledger)) as connection, house_errors(ledger):
        identity = read_identity(connection, ledger)
        problems += [f"damaged: {row[0]}" for row in connection.execute(f"PRAGMA integrity_check({PROBLEMS_SHOWN})") if row[0] != "ok"]
        problems += [f"broken reference: {row[0]} row {row[1]} → {row[2]}" for row in connection.execute("PRAGMA foreign_key_check")]
        problems += [f"changed by hand: {line}" for line in unlike_fresh(connection)]
        elsewhere = is_elsewhere(identity, ledger, socket.gethostname())
        count = connection.execute("SELECT (SELECT count(*) FROM trial), (SELECT count(*) FROM trial_event)").fetchone()
    if as_json:
        right = not problems and not elsewhere
        shown = problems[:PROBLEMS_SHOWN]
        print_json(Checked(right, str(ledger), identity.ledger_id, shown, elsewhere, trials=count[0], events=count[1]))
        return Exit.OK if right else Exit.FAILED
    for problem in problems[:PROBLEMS_SHOWN]:
        say(clean(problem))
    if elsewhere:
        say(f"not at its place: {clean(elsewhere)}; say which: marathonctl ledger adopt --moved, or --copy")
    if problems or elsewhere:
        return Exit.FAILED
    say(f"ok: ledger {identity.ledger_id}, {plural(count[0], 'trial')}, {plural(count[1], 'event')}")
    return Exit.OK


def backup(ledger: Path, target: Path, *, as_json: bool = False) -> int:
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
        sync(aside)
        os.link(aside, target)
        sync(target.parent)
    except FileExistsError as error:
        raise CallFailed(f"{target}: exists already; nothing was changed") from error
    except OSError as error:
        raise CallFailed(f"{target}: {(error.strerror or str(error)).lower()}") from error
    finally:
        for leftover in (aside, *companions(aside)):
            leftover.unlink(missing_ok=True)
    if as_json:
        print_json(BackedUp(str(ledger), str(target), target.stat().st_size))
        return Exit.OK
    say(f"backed up {ledger} to {target} ({target.stat().st_size} bytes)")
    note(f"to use it elsewhere: copy it to a ledger's place, then marathonctl ledger adopt --copy (or --moved, if {ledger.name} is gone)")
    return Exit.OK


def _copy(source: sqlite3.Connection, aside: Path) -> None:
    """All pages in one step: an incremental copy would never end beside a busy writer.

    Damage is copied like anything else, so it is looked for in the copy: nobody must believe in a backup until the day it is needed.
    """
    aside.touch(mode=0o600, exist_ok=False)
    with closing(sqlite3.connect(aside)) as copy:
        try:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        except sqlite3.Error as error:
            raise LedgerRefused("backup", f"{aside.parent}: the copy failed: {error}") from error
        try:
            found = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(3)")]
        except sqlite3.DatabaseError as error:
            found = [str(error)]
    if found != ["ok"]:
        said = f"the ledger is damaged, and so would be its backup, which was not made: {clean('; '.join(found))}"
        raise LedgerRefused("corrupt", f"{said}; for a rescue copy the file itself, with its -wal")
