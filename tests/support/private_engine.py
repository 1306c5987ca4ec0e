"""A dockerd of one test's own, in a network namespace of its own, ended and removed afterwards.

Owns everything it makes: the namespace, the daemon and its containerd, their folders and mounts.  Ends processes by the handle or pid it
started, never by name.  Needs root, dockerd, iproute2 and nsenter; :func:`missing` says what is not there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 120.0
CLEAN_TRIES = 20


def missing() -> str:
    """Why no private engine can be had here; empty when it can."""
    if os.geteuid() != 0:
        return "a private dockerd needs root"
    absent = [tool for tool in ("dockerd", "ip", "nsenter", "umount") if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


@dataclass
class PrivateEngine:
    """A running engine.  ``ip_command`` runs iproute2 in its network namespace."""

    root: Path
    netns: str
    arguments: list[str]
    environ: dict[str, str] = field(default_factory=lambda: {"COLUMNS": "60"})
    """Added to the daemon's environment at the next start.  With COLUMNS its `ps` cuts what it prints: nothing may depend on that."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def socket(self) -> Path:
        return self.root / "s"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def ip_command(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.netns}", "ip")

    def start(self) -> None:
        """Start the daemon and wait until it answers.  Raises RuntimeError with the end of its log."""
        with (self.root / "log").open("ab") as log:
            # A terminal's Ctrl-C is for us alone: the engine is needed to remove what is on it.
            self.process = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.netns}", *self.arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environ},
                process_group=0,
            )
        deadline = time.monotonic() + START_DEADLINE_S
        while not _answers(self.socket):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd did not start:\n{self.log()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM, as an upgrade does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, as a crash does: containerd dies with it (its parent-death signal), the containers and their shims go on."""
        pid_file = self.root / "x" / "containerd" / "containerd.pid"
        containerd = int(pid_file.read_text())
        self._end(signal.SIGKILL)
        deadline = time.monotonic() + STOP_DEADLINE_S
        while _runs(containerd):
            if time.monotonic() > deadline:
                raise RuntimeError(f"containerd {containerd} outlived its dockerd")
            time.sleep(0.01)
        # A zombie that a lazy PID 1 has not collected yet looks alive to the next dockerd, which then waits for its socket in vain.
        pid_file.unlink()

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def load(self, docker_host: str, image: str) -> None:
        """Copy an image from another engine."""
        with subprocess.Popen(["docker", "-H", docker_host, "save", image], stdout=subprocess.PIPE) as save:
            subprocess.run(["docker", "-H", self.url, "load", "-q"], stdin=save.stdout, check=True, stdout=subprocess.DEVNULL)
        if save.returncode:
            raise RuntimeError(f"docker save {image} ended with {save.returncode}")

    def log(self) -> str:
        return (self.root / "log").read_text("utf-8", "replace")[-3000:]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        try:
            client.connect(str(path))
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return client.recv(64).startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))
        except OSError:
            return False


@contextlib.contextmanager
def private_dockerd(
    tmp: Path | None = None, *, pools: Sequence[tuple[str, int]] | None = None, live_restore: bool = False
) -> Iterator[PrivateEngine]:
    """An answering dockerd; on the way out its containers, processes, mounts, folders and namespace are gone.

    :param tmp: where its folder is made; keep it short, sockets live below (107 bytes).  Default: the system's temporary folder.
    :param pools: (base, size) of ``default-address-pool``; docker0 takes the first entry.
    """
    root = Path(tempfile.mkdtemp(prefix="mde", dir=tmp))
    if len(str(root)) > 60:
        root.rmdir()
        raise ValueError(f"{root} is too long for the sockets below it")
    netns = f"mde-{secrets.token_hex(4)}"
    arguments = ["dockerd", "-H", f"unix://{root}/s", "--data-root", f"{root}/d", "--exec-root", f"{root}/x", "-p", f"{root}/pid"]
    for base, size in pools or ():
        arguments += ["--default-address-pool", f"base={base},size={size}"]
    if live_restore:
        arguments.append("--live-restore")
    engine = PrivateEngine(root, netns, arguments)
    subprocess.run(["ip", "netns", "add", netns], check=True)
    try:
        subprocess.run([*engine.ip_command, "link", "set", "lo", "up"], check=True)
        engine.start()
        yield engine
    finally:
        _clean(engine)


def _clean(engine: PrivateEngine) -> None:
    """The kernel's side first: with live-restore the shims outlive dockerd and containerd, so they end while dockerd can still end them."""
    try:
        if engine.process is not None and _answers(engine.socket):
            docker = ["docker", "-H", engine.url]
            for _ in range(CLEAN_TRIES):
                ids = subprocess.run([*docker, "ps", "-aq"], check=True, capture_output=True, text=True).stdout.split()
                if not ids or subprocess.run([*docker, "rm", "-f", *ids], check=False, capture_output=True).returncode == 0:
                    break
                time.sleep(0.5)  # a removal that is in progress already, or a mount that is busy for a moment
        engine.stop()
    finally:
        _end_ours(engine.root)
        _unmount_below(engine.root)
        subprocess.run(["ip", "netns", "del", engine.netns], check=True)
        _remove_tree(engine.root)


def _remove_tree(root: Path) -> None:
    """What was killed a moment ago may still take its own files away."""
    for _ in range(CLEAN_TRIES):
        with contextlib.suppress(OSError):
            shutil.rmtree(root)
            return
        time.sleep(0.5)
    shutil.rmtree(root)


def _end_ours(root: Path) -> None:
    """End what was started with our folder on its command line (containerd, shims): found by that unique path, ended by pidfd."""
    for _ in range(1000):
        found = [pid for pid in _pids() if f"{root}/".encode() in _cmdline(pid)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                try:
                    if f"{root}/".encode() in _cmdline(pid):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                finally:
                    os.close(pidfd)
        time.sleep(0.05)
    raise RuntimeError(f"processes of {root} do not end: {found}")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _cmdline(pid: int) -> bytes:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
    return argv if argv.split(b"\0")[0].rpartition(b"/")[2].startswith((b"containerd", b"dockerd")) else b""


def _unmount_below(root: Path) -> None:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((point for point in points if point.startswith(f"{root}/")), key=len, reverse=True):
        for _ in range(CLEAN_TRIES):  # busy until the last of those that were killed has let go
            if subprocess.run(["umount", point], check=False, capture_output=True).returncode == 0 or not Path(point).is_mount():
                break
            time.sleep(0.5)
        else:
            subprocess.run(["umount", "-l", point], check=True)
