"""Processes of a container, seen from the host, and their end by pidfd.

Owns the reading of ``ps`` rows and ``/proc``.  Must not know which processes deserve to die.

Facts: ``docker top`` runs the host's ``ps`` and works on a paused container; the ids it prints are the host's.  ``ps`` cuts its lines where
the engine was started with COLUMNS in its environment, so command lines are read from ``/proc``.  A zombie runs nothing and
is left out, unless its other threads still live (a leader that called pthread_exit shows as a zombie while the program goes on).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.errors import EngineError
from marathond.engine.cgroups import PROC, belongs
from marathond.ports.engine import Process

PS_ARGS = "-eo pid,ppid,sess,args"
_PID = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_WHOLE_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
ARGV_MAX = 65536
PF_EXITING = 0x4
"""Flag of a task that is in the kernel's exit path; the first process of a pid namespace waits there for all the others' ends."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of ``/proc/PID/stat`` that matter here.  ``start_ticks``: clock ticks since boot; ``flags``: the kernel's PF_ bits."""

    state: str
    ppid: int
    session: int
    threads: int
    start_ticks: int
    flags: int = 0

    @property
    def runs_nothing(self) -> bool:
        return self.state in "ZXx" and self.threads <= 1

    @property
    def exiting(self) -> bool:
        return bool(self.flags & PF_EXITING) and self.threads <= 1


def parse_top(raw: object) -> list[tuple[int, str]]:
    """(host pid, argv) of the answer of ``GET /containers/{id}/top``, wherever its columns stand.

    :raises EngineError: when there is no PID column, or a pid is no number.
    """
    answer: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    titles, listed = ([] if answer.get(key) is None else answer[key] for key in ("Titles", "Processes"))
    titles = [str(title).upper() for title in titles] if isinstance(titles, list) else []
    if "PID" not in titles or not isinstance(listed, list):
        raise EngineError("container.top", 0, f"no PID column in {titles}"[:300])
    at = titles.index("PID")
    rows = []
    for row in listed:
        if not isinstance(row, list) or len(row) <= at or not isinstance(row[at], str) or not _PID.fullmatch(row[at]):
            raise EngineError("container.top", 0, f"unreadable row {str(row)[:300]}")
        rows.append((int(row[at]), str(row[-1]) if len(row) == len(titles) else ""))
    return rows


def parse_stat(text: str) -> Stat:
    """``/proc/PID/stat``: the command may hold spaces and parentheses, so fields count from the last ``)``.

    :raises EngineError: it is none.
    """
    fields = text.rpartition(")")[2].split()
    try:
        return Stat(fields[0], *(int(fields[at]) for at in (1, 3, 17, 19, 6)))
    except (IndexError, ValueError) as exc:
        raise EngineError("container.top", 0, f"no line of /proc/PID/stat: {text[:200]!r}") from exc


def read_stat(pid: int) -> Stat | None:
    """None when there is no such process any more.  Raises EngineError when it cannot be read."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text("utf-8", "replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as exc:
        raise EngineError("container.top", 0, f"cannot read /proc/{pid}/stat: {exc}") from exc


def read_argv(pid: int) -> str:
    """The words of ``/proc/PID/cmdline`` with spaces between them, at most ARGV_MAX bytes; empty when it has none or cannot be read."""
    try:
        with (PROC / str(pid) / "cmdline").open("rb") as stream:
            return stream.read(ARGV_MAX).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def identify(rows: Sequence[tuple[int, str]], container_id: str) -> tuple[list[Process], set[int]]:
    """Complete ``top``'s rows from /proc: (processes that run, pids that are not here or in no cgroup of the container).

    A pid of the second kind has ended since, or has even been reused, if it is not listed again; otherwise the engine is not on this host.
    """
    found, odd = [], set()
    for pid, argv in rows:
        before, member, said, after = read_stat(pid), belongs(pid, container_id), read_argv(pid), read_stat(pid)
        if before is not None and after is not None and before.start_ticks == after.start_ticks:
            if after.runs_nothing:
                continue
            if member:  # all looks spoke of one process
                found.append(Process(pid, after.ppid, after.session, after.start_ticks, said or argv, after.exiting))
                continue
        odd.add(pid)
    return found, odd


def of_container(container_id: str) -> list[Process]:
    """Every process of this host in a cgroup of the container that runs something, whatever the engine knows of it.

    Empty for anything but a whole id: part of one could name a stranger (fault f10).  One that cannot be looked at is left out.
    """
    if not _WHOLE_ID.fullmatch(container_id):
        return []
    found = []
    for entry in PROC.iterdir():
        if not _PID.fullmatch(entry.name):
            continue
        pid = int(entry.name)
        try:
            if not belongs(pid, container_id):
                continue
            before, member, after = read_stat(pid), belongs(pid, container_id), read_stat(pid)
        except EngineError:
            continue
        if before is None or after is None or before.start_ticks != after.start_ticks or not member or after.runs_nothing:
            continue
        found.append(Process(pid, after.ppid, after.session, after.start_ticks, read_argv(pid), after.exiting))
    return found


def kill_process(process: Process) -> None:
    """SIGKILL exactly this process; already gone is success.  Raises EngineError when the kernel refuses.

    The pidfd pins the process first and the start time is compared afterwards: no reused pid can slip in between (fault f10).
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError as exc:
        raise EngineError("process.kill", 0, f"pid {process.pid}: {exc.strerror}") from exc
    try:
        now = read_stat(process.pid)
        if now is not None and now.start_ticks == process.start_ticks:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return
    except OSError as exc:
        raise EngineError("process.kill", 0, f"pid {process.pid}: {exc.strerror}") from exc
    finally:
        os.close(pidfd)
