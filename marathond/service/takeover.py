"""``marathond --take-over``: ends the daemon that holds the ledger, so that this one can begin.

Owns who that daemon is, and its end: SIGTERM, a bounded wait, SIGKILL, the wait for the lock.  A process is the holder only if the kernel
pins it (a pidfd) and it began when the holder says it did, in this boot of this host: never a reused pid, never another host's (fault
f10).  Must not write the ledger; that an older life may still be alive is the writer's business (an old epoch is refused).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from marathond.core.errors import EngineError, Refused
from marathond.engine.host import filesystem_type
from marathond.engine.processes import Stat, read_stat
from marathond.ledger import lock
from marathond.ledger.connect import connect
from marathond.ledger.lock import Holder
from marathond.ledger.open import look_before
from marathond.ledger.readonly import house_errors

STOPPED = "Tt"
"""States of ``/proc/PID/stat`` in which a process answers nothing: stopped, traced."""
POLL_S = 0.05

log = structlog.get_logger("marathond")


@dataclass(frozen=True, slots=True)
class Here:
    """This process, which wants the ledger."""

    pid: int
    host: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Target:
    """One process: ``pid`` that began at ``start_ticks`` of this boot.  ``since_ms``: wall clock, for people."""

    pid: int
    start_ticks: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class LastLife:
    """The ledger's newest run; ``open``: neither ended nor a command of another kind."""

    pid: int
    start_ticks: int
    host: str
    boot_id: str
    started_at_ms: int
    open: bool


@dataclass(frozen=True, slots=True)
class Patience:
    """``term_s``: for an orderly end, which a daemon promises within five seconds; ``kill_s``: for the kernel to end it; ``lock_s``: for
    the lock after that (a helper that is just being started may hold it a moment longer)."""

    term_s: float = 20.0
    kill_s: float = 20.0
    lock_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What was done: ``how`` in words, for the log and for the run's row."""

    target: Target
    how: str


# ── the decision ──


def whom(ledger: Path, held: bool, said: Holder | None, last: LastLife | None, here: Here) -> Target | None:
    """Whose life is to be ended; None: nobody's is known.

    :param held: somebody holds the lock.  :param said: what the lock file says; None: nothing readable.
    :param last: None: the ledger knows no life, or could not be read.
    :raises Refused: somebody holds the ledger who must not be ended from here.
    """
    known = last is not None and last.open and (last.host, last.boot_id) == (here.host, here.boot_id)
    if not held:  # also when its file was removed under a daemon that lives: then the ledger alone knows of it
        return Target(last.pid, last.start_ticks, last.started_at_ms) if last is not None and known else None
    find = f"find it (fuser -v {lock.lock_path(ledger)}), stop it, then start marathond"
    if said is None:
        raise Refused(f"ledger {ledger} is in use, and its lock file does not say by whom: {find}")
    if said.host != here.host:
        raise Refused(f"ledger {ledger} is in use on host {said.host}, this is {here.host}: stop marathond there (pid {said.pid})")
    if said.what != lock.DAEMON:
        raise Refused(
            f"ledger {ledger} is in use by {said.what} (pid {said.pid}), which is no daemon: wait for its end, then start marathond"
        )
    if said.boot_id and said.boot_id != here.boot_id:
        raise Refused(f"ledger {ledger} is in use, and its lock file names a process of an earlier boot: {find}")
    if said.start_ticks is not None:
        return Target(said.pid, said.start_ticks, said.since_ms)
    if last is not None and known and last.pid == said.pid:  # an older version wrote the lock file, and the run's row
        return Target(said.pid, last.start_ticks, said.since_ms)
    raise Refused(
        f"ledger {ledger} is in use by pid {said.pid}, and nothing says when that process began: stop it by hand, then start marathond"
    )


def is_it(target: Target, seen: Stat | None) -> bool:
    """Whether what has that pid now is that very process, and lives."""
    return seen is not None and seen.start_ticks == target.start_ticks and not seen.runs_nothing


# ── the deed ──


def take_over(ledger: Path, here: Here, patience: Patience | None = None) -> Taken | None:
    """Returns when the lock is free; None: nobody had to be ended.  Blocking; bounded by ``patience``.

    The ledger is looked at first: no daemon is ended for one that would be refused.
    :raises Refused: the holder must not, or could not, be ended; it was left as it is, or what was tried is said.
    :raises LedgerRefused: this ledger would be refused to a new daemon.
    """
    patience = patience or Patience()
    ledger = Path(os.path.realpath(ledger))
    folder = next((parent for parent in ledger.parents if parent.exists()), ledger.parent)
    look_before(ledger, host=here.host, filesystem_type=filesystem_type(folder))
    held = lock.is_held(ledger)
    target = whom(ledger, held, lock.holder(ledger), last_life(ledger), here)
    if target is None:
        log.info("nothing_to_take_over", ledger=str(ledger))
        return None
    with _pinned(target, ledger) as pidfd:
        if pidfd is None:
            if not held:
                log.info("nothing_to_take_over", ledger=str(ledger))
                return None
            if _free(ledger, patience.lock_s):  # it ended by itself just now
                return None
            raise Refused(
                f"ledger {ledger} is in use, and pid {target.pid}, which its lock file names, is not that process any more: "
                f"find the holder (fuser -v {lock.lock_path(ledger)}), stop it, then start marathond"
            )
        log.info("taking_over", pid=target.pid, since=_utc(target.since_ms))
        how = _end(pidfd, target, patience)
    if not _free(ledger, patience.lock_s):
        raise Refused(
            f"pid {target.pid} was ended ({how}), but ledger {ledger} is in use still: find the holder (fuser -v {lock.lock_path(ledger)})"
        )
    log.info("took_over", pid=target.pid, since=_utc(target.since_ms), how=how)
    return Taken(target, how)


def last_life(ledger: Path) -> LastLife | None:
    """Read as every version since the first has written it, for the ledger may be older than this code."""
    with house_errors(ledger), closing(connect(ledger, mode="ro")) as conn:
        row = conn.execute(
            "SELECT pid, pid_start_ticks, host, boot_id, started_at_ms, stopped_at_ms IS NULL AND stop_reason IS NULL AS open"
            " FROM run ORDER BY run_id DESC LIMIT 1"
        ).fetchone()
    if row is None:
        return None
    pid, start_ticks, host, boot_id, started_at_ms, open_ = tuple(row)
    return LastLife(pid, start_ticks, host, boot_id, started_at_ms, bool(open_))


@contextmanager
def _pinned(target: Target, ledger: Path) -> Iterator[int | None]:
    """A pidfd of exactly that process; None: it is gone.  The pid is pinned first and compared afterwards: no reused one slips in."""
    try:
        pidfd = os.pidfd_open(target.pid)
    except ProcessLookupError:
        yield None
        return
    except OSError as exc:
        raise Refused(
            f"ledger {ledger}: pid {target.pid} cannot be looked at: {exc.strerror}; stop it by hand, then start marathond"
        ) from exc
    try:
        yield pidfd if is_it(target, _stat(target.pid)) else None
    finally:
        os.close(pidfd)


def _end(pidfd: int, target: Target, patience: Patience) -> str:
    """:raises Refused: not permitted, or it survived SIGKILL (a process that hangs in the kernel)."""
    _signal(pidfd, target, signal.SIGTERM)
    began = time.monotonic()
    why = "did not end in time"
    while time.monotonic() - began < patience.term_s:
        if _has_ended(pidfd, POLL_S):
            return f"SIGTERM, ended after {time.monotonic() - began:.1f} s"
        seen = _stat(target.pid)
        if seen is not None and seen.state in STOPPED:
            why = "was stopped and could not answer"
            break
    _signal(pidfd, target, signal.SIGKILL)
    if not _has_ended(pidfd, patience.kill_s):
        raise Refused(
            f"pid {target.pid} {why}, and SIGKILL has not ended it within {patience.kill_s:g} s: it hangs in the kernel; look at its disk"
        )
    return f"SIGTERM, {why}, SIGKILL after {time.monotonic() - began:.1f} s"


def _signal(pidfd: int, target: Target, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return
    except OSError as exc:
        raise Refused(
            f"pid {target.pid} holds the ledger and must not be signalled by this user ({exc.strerror}): take over as its user or as root"
        ) from exc


def _stat(pid: int) -> Stat | None:
    try:
        return read_stat(pid)
    except EngineError:
        return None


def _has_ended(pidfd: int, patience_s: float) -> bool:
    """A pidfd becomes readable when its process has ended, its files closed and its locks with them."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def _free(ledger: Path, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while lock.is_held(ledger):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
