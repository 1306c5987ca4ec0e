"""Programs that fetch, build or are tried out while something is staged: run to their end or ended, nothing of them left.

Owns the call, its bounds and the reading of its output.  Must not know what is fetched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import StageError
from marathond.core.text import printable
from marathond.staging.tree import io_error

_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
"""A child that outlived its killed parent would go on filling a folder that the next staging is just removing."""

LOOK_S = 0.25
END_S = 10.0
TRY_S = 60.0
_BUSY_TRIES, _BUSY_PAUSE_S = 50, 0.1
OUTPUT_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ended:
    """``status``: exit status, negative for a signal; None when the deadline ended it.  ``out`` is the log's beginning."""

    status: int | None
    out: str


def run(
    argv: Sequence[str],
    folder: Path,
    log: Path,
    deadline_s: float,
    *,
    environ: Mapping[str, str] | None = None,
    look: Callable[[], None] = lambda: None,
) -> Ended:
    """Run it in ``folder``, stdout and stderr to the new file ``log``.  Whatever happens, no process of its session is left.

    :param environ: its whole environment; None: ours.
    :param look: called several times a second.
    :raises StageError: it cannot be started.
    """
    end = time.monotonic() + deadline_s
    full = [*(_DIES_WITH_US if shutil.which(_DIES_WITH_US[0]) else ()), *argv]
    try:
        with log.open("wb") as stream:
            # A session of its own: what it starts is ended with it.
            process = subprocess.Popen(
                full, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
            )
    except OSError as error:
        raise io_error(argv[0], error) from error
    status = None
    try:
        while status is None and time.monotonic() < end:
            try:
                status = process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                look()
    finally:
        if process.poll() is None:  # not reaped yet, so the group's number is still its own
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_S)
    return Ended(status, text(log))


@dataclass(frozen=True, slots=True)
class Tried:
    """``said``: stdout as one short line, or stderr when it says nothing there."""

    status: int
    said: str


def tried(argv: Sequence[str], folder: Path, environ: Mapping[str, str], what: str, code: str) -> Tried:
    """Run a program of a tree here where it will lie: a file system without exec or a foreign architecture shows now.

    :param what: begins the line of an error: ``folder /opt/codex: bin/codex``.
    :raises StageError: with ``code``: it cannot be run, or does not end.
    """
    for _ in range(_BUSY_TRIES):
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=environ, cwd=folder, timeout=TRY_S, check=False)
            break
        except subprocess.TimeoutExpired as error:
            raise StageError(code, f"{what} {' '.join(argv[1:])} does not end") from error
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise StageError(code, f"{what} cannot be run: {(error.strerror or str(error)).lower()}") from error
            time.sleep(_BUSY_PAUSE_S)  # a process that another thread is just starting holds our closed descriptor for a moment
    else:
        raise StageError(code, f"{what} cannot be run: another process has it open for writing")
    words = (printable(stream.decode(errors="replace"), 200) for stream in (done.stdout, done.stderr))
    return Tried(done.returncode, next((word for word in words if word), "nothing"))


def end_left(folder: Path) -> None:
    """End what runs in a session of its own and names a file of ``folder`` on its command line: LoopX leaves its daemon like that."""
    mine = os.fsencode(f"{folder}/")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is not ours
            handle = os.pidfd_open(int(process.name))
            try:
                if int(process.name) != os.getpid() and mine in (process / "cmdline").read_bytes():
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    select.select([handle], [], [], END_S)
            finally:
                os.close(handle)


def arrived(*folders: Path) -> int:
    """Bytes of the largest file below them: what is being fetched, under one of its names."""
    sizes = [0]
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    sizes.append((Path(where) / name).stat().st_size)
    return max(sizes)


def text(log: Path) -> str:
    """The beginning of a program's output."""
    with log.open("rb") as stream:
        return stream.read(OUTPUT_MAX_BYTES).decode(errors="replace")


def last_line(output: str) -> str:
    """The last line that says something, as one line of an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return printable(lines[-1], 500) if lines else "it said nothing"


def is_full(folder: Path, output: str) -> bool:
    """Whether a program failed because there was no room."""
    return "ENOSPC" in output or "No space left" in output or os.statvfs(folder).f_bavail == 0


def failed(what: str, code: str, ended: Ended, folder: Path, deadline_s: float, reason: Callable[[str], str] = last_line) -> StageError:
    """``what`` begins the line: ``npm could not fetch X``."""
    if ended.status is None:
        return StageError(code, f"{what} within {deadline_s:.0f} s: {reason(ended.out)}")
    return StageError("no_space" if is_full(folder, ended.out) else code, f"{what} (exit {ended.status}): {reason(ended.out)}")
