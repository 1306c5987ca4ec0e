"""The ledger as the command line reads it: never written, never migrated, also without write permission and without a daemon.

Owns one look at it, and whether the daemon of the newest life is alive.  Must stay free of aiosqlite, anyio and pydantic: ``status``
starts from here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from marathond.core.names import trial_label
from marathond.ledger.readonly import house_errors, open_readonly
from marathond.ledger.verbs.runs import RunRow
from marathond.service.exits import CallFailed, Exit

SEEN_RECENTLY_MS = 60_000
"""A daemon whose process cannot be looked at from here counts as alive while its last sign is younger."""

_CONNECT_S = 0.5
_ENDED, _STOPPED = frozenset("ZXx"), frozenset("Tt")
"""States of a process."""


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger at ``path`` in one read transaction: every number of a screen is of the same instant.

    :raises LedgerRefused: missing, no ledger, another version, busy, or not to be read by this user.
    """
    connection = open_readonly(path)
    try:
        with house_errors(path):
            connection.execute("BEGIN")
            yield connection
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Life:
    """``alive`` None: cannot be told from here."""

    alive: bool | None
    run: RunRow | None
    why: str


def daemon_life(run: RunRow | None, control_socket: Path, now_ms: int) -> Life:
    """Is the daemon that wrote last still there?

    Its process is looked for by pid and start time, so that a reused pid is not mistaken for it.  From another pid namespace or host,
    an answering control socket or a recent sign of life in the ledger counts.
    """
    if run is None:
        return Life(False, None, "never started on this ledger")
    if run.stopped_at_ms is not None:
        return Life(False, run, f"stopped: {run.stop_reason}" if run.stop_reason else "stopped")
    seen = _process(run.pid) if _same_boot(run) else None
    here = seen is not None and seen[1] == run.pid_start_ticks
    if run.stop_reason is not None:
        return Life(False, run, f"{run.stop_reason} (pid {run.pid}) holds the ledger" if here else f"{run.stop_reason} was broken off")
    if seen is not None and here:
        if seen[0] in _STOPPED:  # its socket takes calls that nobody answers, and its last signs are young: they would look healthy
            return Life(None, run, f"pid {run.pid} is stopped by a signal; running agents go on; kill -CONT {run.pid} lets it go on")
        return Life(True, run, "")
    if _somebody_listens(control_socket):
        return Life(True, run, "")
    if run.host == os.uname().nodename:
        return Life(False, run, f"pid {run.pid} gone")
    if now_ms - run.seen_at_ms <= SEEN_RECENTLY_MS:
        return Life(None, run, f"pid {run.pid} on host {run.host} cannot be seen from here")
    return Life(False, run, f"pid {run.pid} on host {run.host} shows no sign of life")


def _same_boot(run: RunRow) -> bool:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() == run.boot_id
    except OSError:
        return False


def _process(pid: int) -> tuple[str, int] | None:
    """State and start, fields 3 and 22 of /proc/PID/stat (proc(5)); None: no such process, or one that has ended and was not waited for,
    which keeps its pid.  The name in field 2 may hold blanks and parentheses."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in _ENDED else (fields[0], int(fields[19]))


def _somebody_listens(path: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def campaign_id(connection: sqlite3.Connection, name: str | None) -> tuple[int, str] | None:
    """The named campaign, or the newest that runs here, else the newest that was imported; None: there is none yet.

    :raises CallFailed: exit 2, there is none of that name; with the names there are.
    """
    if name is None:
        row = connection.execute("SELECT campaign_id, name FROM campaign ORDER BY origin = 'run' DESC, campaign_id DESC LIMIT 1").fetchone()
        return None if row is None else (int(row[0]), str(row[1]))
    row = connection.execute("SELECT campaign_id, name FROM campaign WHERE name = ?", (name,)).fetchone()
    if row is None:
        known = [str(other[0]) for other in connection.execute("SELECT name FROM campaign ORDER BY campaign_id DESC LIMIT 10")]
        raise CallFailed(f"no campaign {name}; there " + (f"are: {', '.join(known)}" if known else "is none yet"), Exit.USAGE)
    return int(row[0]), str(row[1])


def trial_number(text: str) -> int:
    """``t0871``, ``T871`` or ``871``.

    :raises CallFailed: exit 2.
    """
    return number_of(text, "t", "a trial such as t0871")


def number_of(text: str, letter: str, expected: str) -> int:
    digits = text[1:] if text[:1].lower() == letter else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise CallFailed(f"{text!r}: must be {expected}", Exit.USAGE)
    return int(digits)


def check_trial(connection: sqlite3.Connection, trial_id: int) -> None:
    """:raises CallFailed: there is no such trial; with the last one there is."""
    if connection.execute("SELECT 1 FROM trial WHERE trial_id = ?", (trial_id,)).fetchone() is not None:
        return
    last = connection.execute("SELECT max(trial_id) FROM trial").fetchone()[0]
    hint = f"last is {trial_label(last)}" if last else "it has none yet"
    raise CallFailed(f"no trial {trial_label(trial_id)} in this ledger ({hint})")
