"""What set-up does to the machine itself: short messages, Debian packages, processes ended by id and start time.

Standard library only: this runs before anything is installed.  Must not know Docker.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT = "#!/bin/sh\n# Written by marathond's set-up while it installs packages: they must not start services.\nexit 101\n"
_APT = ("apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=2")


class SetupError(Exception):
    """Set-up cannot go on.  The text is one line (what, why, what to do), shown as it is; ``log_tail`` is shown before it."""

    def __init__(self, text: str, log_tail: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.log_tail = tuple(log_tail)


def say(text: str) -> None:
    """One short line of progress on stderr: stdout belongs to the wrapped command."""
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def widen_path() -> None:
    """Add the sbin folders to PATH: a plain shell or a cron job of root may lack them, and dockerd and iptables live there."""
    parts = os.environ.get("PATH", "").split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([p for p in parts if p] + [p for p in SYSTEM_PATHS if p not in parts])


def tail(path: Path, lines: int = 12) -> tuple[str, ...]:
    """The last lines of a log; empty when there is none."""
    try:
        return tuple(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ()


def run_logged(argv: Sequence[str], log: Path, deadline_s: float, env: dict[str, str] | None = None) -> int:
    """Run a command with its output in ``log`` (appended) and no input; its exit status, or 124 when the deadline ended it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        out.write(f"$ {' '.join(argv)}\n".encode())
        out.flush()
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=deadline_s,
                env={**os.environ, **(env or {})},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124
    return done.returncode


# --- Debian packages -------------------------------------------------------------------------------------------------------


def can_install() -> bool:
    """Root on Debian or Ubuntu: the only place where set-up installs system packages."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None and Path("/etc/debian_version").exists()


def apt_install(packages: Sequence[str], log: Path) -> None:
    """Install Debian packages without recommendations, questions or started services.  Raises SetupError with apt's last lines.

    ``a|b`` takes the first that this release has.  A stale package list answers 404, so the lists are fetched first; a broken
    third-party source only spoils ``update``.
    """
    env = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
    mine = not _POLICY.exists()
    if mine:
        _POLICY.write_text(_POLICY_TEXT)
        _POLICY.chmod(0o755)
    try:
        run_logged([*_APT, "update"], log, 300, env)
        chosen = sorted({_first_known(package.split("|")) for package in packages})
        say(f"installing Debian packages: {' '.join(chosen)}")
        status = run_logged([*_APT, "install", "--no-install-recommends", *chosen], log, 900, env)
    finally:
        if mine:
            _POLICY.unlink(missing_ok=True)
    if status != 0:
        raise SetupError(f"apt-get could not install {' '.join(chosen)} (exit {status}); whole output: {log}", tail(log))


def _first_known(packages: Sequence[str]) -> str:
    """The first package that has an install candidate here; the last one when none has, so that apt names it."""
    for package in packages[:-1]:
        policy = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, timeout=60, check=False).stdout
        if re.search(r"^\s*Candidate: \d", policy, re.MULTILINE):
            return package
    return packages[-1]


def need_tools(tools: dict[str, str], log: Path) -> None:
    """Make the named programs available; ``tools`` maps a program to the Debian package that carries it (``a|b``: see apt_install)."""
    missing = sorted({package for tool, package in tools.items() if shutil.which(tool) is None})
    if not missing:
        return
    if not can_install():
        raise SetupError(f"missing programs; install the packages {' '.join(missing)} (set-up does so itself as root on Debian or Ubuntu)")
    apt_install(missing, log)
    still = sorted(tool for tool in tools if shutil.which(tool) is None)
    if still:
        raise SetupError(f"{' '.join(still)} not found on PATH after installing {' '.join(missing)}")


# --- Processes -------------------------------------------------------------------------------------------------------------


def start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, None when it is gone or a zombie.  With the pid it names one process."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if after_name[0] == "Z" else int(after_name[19])


def end_process(pid: int, ticks: int | None, patience_s: float) -> bool:
    """End the process that is still (pid, start time): SIGTERM, then SIGKILL after ``patience_s``.  True when force was needed."""
    if ticks is None:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if start_ticks(pid) != ticks:  # looked at after the handle exists: the handle cannot move to a recycled pid
            return False
        for sig, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
            try:
                signal.pidfd_send_signal(handle, sig)
            except ProcessLookupError:
                return sig == signal.SIGKILL
            if select.select([handle], [], [], wait_s)[0]:
                return sig == signal.SIGKILL
    finally:
        os.close(handle)
    raise SetupError(f"process {pid} does not end, not even by SIGKILL; it hangs in the kernel")


def processes_in(namespace: str, inode: int) -> list[int]:
    """Pids of the processes whose ``/proc/PID/ns/<namespace>`` is the given inode, our own process left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (entry / "ns" / namespace).stat().st_ino == inode:
                found.append(int(entry.name))
        except OSError:  # it ended while we looked, or is not ours to look at
            continue
    return found


def end_all(pids: Sequence[int], patience_s: float = 3.0) -> int:
    """End several processes, each by pid and start time; how many there were."""
    ticks = {pid: start_ticks(pid) for pid in pids}
    live = {pid: t for pid, t in ticks.items() if t is not None}
    for pid in live:
        end_process(pid, live[pid], patience_s)
    return len(live)


def wait_until(condition: Callable[[], bool], deadline_s: float, step_s: float = 0.05) -> bool:
    """Poll a callable until it is true; False when the deadline came first."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(step_s)
    return False
