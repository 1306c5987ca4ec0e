"""A Docker engine of our own for the demo and the tests: started in its own mount and network namespaces, gone afterwards.

Why namespaces, and not only another socket and data root: dockerd rewrites the host's iptables chains, docker0, /etc/docker and
/run/containerd at start, so two of them in one network namespace damage each other, and a host keeps the traces.  Here each engine
has its own docker0, its own complete set of default address pools and its own mounts; the kernel removes them all with the last process.
The wrapped command runs in the same two namespaces, so it sees the routes and mounts that its engine sees, as on a real host.
The way out is slirp4netns (a user-mode router): nothing is configured on the host.

Standard library only.  Must not know images or the demo.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO

from marathond.demo.docker_http import why_silent
from marathond.demo.host import SetupError, end_all, end_process, need_tools, processes_in, say, start_ticks, tail, wait_until

START_DEADLINE_S = 60.0
STOP_PATIENCE_S = 30.0
TOOLS = {
    "dockerd": "docker.io",
    "docker": "docker-cli|docker.io",  # split off in Debian 13; for people and for tests
    "iptables": "iptables",
    "ip": "iproute2",
    "ps": "procps",  # docker top
    "mount": "mount",
    "unshare": "util-linux",
}

# $1 private /etc/docker, $2 resolv.conf or empty; the rest is dockerd.  /run/containerd is hidden because dockerd would otherwise
# use a host's own containerd, which lives in other namespaces and is shared with the host's Docker.
_ENTER = """
ip link set lo up
mount -t tmpfs -o mode=0711 tmpfs /run/containerd
mount --bind "$1" /etc/docker
if [ -n "$2" ]; then mount --bind "$2" /etc/resolv.conf; fi
if ! grep -q '^[^ ]* /sys/fs/cgroup' /proc/self/mounts; then mount -t cgroup2 cgroup2 /sys/fs/cgroup; fi
shift 2
exec "$@"
"""
_PROBE_OVERLAY = """
mkdir -p "$1/lower" "$1/upper" "$1/work" "$1/merged"
echo below > "$1/lower/file"
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged"
echo above > "$1/merged/file"
test "$(cat "$1/upper/file")" = above
"""
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM", "--")
"""Prefix of a command: when set-up itself is killed the kernel sends SIGTERM, so dockerd still stops its containers."""


def overlay_works(folder: Path) -> bool:
    """Whether the file system of ``folder`` can carry overlay2, by mounting one in a throw-away mount namespace."""
    probe = folder / "probe"
    try:
        probe.mkdir(parents=True, exist_ok=True)
        argv = ["unshare", "--mount", "sh", "-euc", _PROBE_OVERLAY, "sh", str(probe)]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        shutil.rmtree(probe, ignore_errors=True)


class PrivateEngine:
    """Context manager around one private dockerd of this clone.  ``host`` is its DOCKER_HOST, valid inside the ``with`` block."""

    def __init__(self, clone: Path, cache: Path) -> None:
        self.clone = clone
        self.home = cache / "engine"
        self.id = hashlib.sha256(str(clone).encode()).hexdigest()[:8]
        run_root = Path("/run") if os.access("/run", os.W_OK) else Path("/var/tmp")
        self.run = run_root / f"marathond-demo-{self.id}"  # short: a Unix socket path holds 107 bytes
        self.host = f"unix://{self.run}/docker.sock"
        self.log = self.home / "dockerd.log"
        self.pid = 0
        self._ticks: int | None = None
        self._mount_ns = 0
        self._slirp: subprocess.Popen[bytes] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._made: list[Path] = []

    # --- start ---

    def __enter__(self) -> PrivateEngine:
        need_tools(TOOLS, self.home / "apt.log")
        self.lock()
        try:
            self._sweep_predecessor()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def lock(self) -> None:
        """Take this clone's engine for ourselves until :meth:`close`.  Raises SetupError when another process has it."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._lock = (self.home / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            self._lock = None
            raise SetupError(
                f"the private engine of {self.clone} is in use by process {owner}; wait for it, or use another clone"
            ) from None
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def _sweep_predecessor(self) -> None:
        """A killed set-up leaves a dockerd that is just stopping, or a run directory: end the one, remove the other."""
        state = self.run / "state.json"
        if state.exists():
            try:
                old = json.loads(state.read_text())
                pid, ticks = int(old["pid"]), int(old["ticks"])
            except (ValueError, KeyError, TypeError) as err:
                raise SetupError(f"{state}: not what set-up wrote ({err}); end the dockerd it belongs to and remove {self.run}") from err
            if start_ticks(pid) == ticks:
                say(f"stopping the engine of an earlier run that was killed (pid {pid})")
                self._mount_ns = int(old["mount_ns"])
                end_process(pid, ticks, STOP_PATIENCE_S)
            self._end_stragglers()
        shutil.rmtree(self.run, ignore_errors=True)

    def _storage(self) -> tuple[Path, str]:
        elsewhere = Path("/var/lib/marathond-demo") / self.id
        for folder in (self.home, elsewhere):
            if overlay_works(folder):
                return folder / "data", "overlay2"
        say(f"neither {self.home} nor {elsewhere} can carry overlay2: using the slow vfs driver")
        return self.home / "data", "vfs"

    def _start(self) -> None:
        uplink = self._has_uplink()
        data, driver = self._storage()
        etc = self.home / "etc"
        for folder in (data, etc, self.run / "exec"):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (Path("/etc/docker"), Path("/run/containerd")):
            if not folder.exists():
                folder.mkdir(parents=True)
                self._made.append(folder)
        (self.home / "daemon.json").write_text("{}\n")
        resolver = self.home / "resolv.conf"
        resolver.write_text("nameserver 10.0.2.3\n")  # slirp4netns' own, forwarding to the host's
        argv = [*DIE_WITH_PARENT, "unshare", "--mount", "--net", "--propagation", "slave", "--", "sh", "-euc", _ENTER, "sh", str(etc)]
        argv += [str(resolver.resolve()) if uplink else "", "dockerd", "-H", self.host, "--config-file", str(self.home / "daemon.json")]
        argv += ["--data-root", str(data), "--exec-root", str(self.run / "exec"), "--pidfile", str(self.run / "dockerd.pid")]
        argv += ["--storage-driver", driver, "--cgroup-parent", f"/marathond-demo-{self.id}"]
        # systemd would be asked over D-Bus about processes of other namespaces: cgroupfs needs nobody.
        argv += ["--exec-opt", "native.cgroupdriver=cgroupfs", "--shutdown-timeout", "5"]
        with self.log.open("wb") as out:
            self._dockerd = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        self.pid, self._ticks = self._dockerd.pid, start_ticks(self._dockerd.pid)
        if not wait_until(self._answers_or_ended, START_DEADLINE_S) or self._dockerd.poll() is not None:
            ended = self._dockerd.poll()
            what = f"ended with status {ended}" if ended is not None else f"did not answer within {START_DEADLINE_S:.0f} s"
            raise SetupError(f"the private dockerd {what}; whole log: {self.log}", tail(self.log))
        self._mount_ns = Path(f"/proc/{self.pid}/ns/mnt").stat().st_ino
        state = {"pid": self.pid, "ticks": self._ticks, "mount_ns": self._mount_ns, "clone": str(self.clone)}
        (self.run / "state.json").write_text(json.dumps(state) + "\n")
        if uplink:
            self._start_uplink()
        say(f"private Docker engine: pid {self.pid}, {driver}, data in {data}")

    def _answers_or_ended(self) -> bool:
        assert self._dockerd is not None
        return self._dockerd.poll() is not None or why_silent(self.host, 1.0) is None

    def _has_uplink(self) -> bool:
        if not Path("/dev/net/tun").exists():
            say("no /dev/net/tun: containers of the private engine will have no way out (the demo needs none)")
            return False
        try:
            need_tools({"slirp4netns": "slirp4netns"}, self.home / "apt.log")
        except SetupError as err:
            say(f"containers of the private engine will have no way out (the demo needs none): {err}")
            return False
        return True

    def _start_uplink(self) -> None:
        ready, ready_w = os.pipe()
        argv = [
            *DIE_WITH_PARENT,
            "slirp4netns",
            "--configure",
            "--mtu=1500",
            "--disable-host-loopback",
            f"--ready-fd={ready_w}",
            str(self.pid),
            "tap0",
        ]
        try:
            with (self.home / "slirp4netns.log").open("wb") as out:
                self._slirp = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=[ready_w],
                    start_new_session=True,
                )
            os.close(ready_w)
            ready_w = -1
            if not select.select([ready], [], [], START_DEADLINE_S)[0] or os.read(ready, 1) != b"1":
                log = self.home / "slirp4netns.log"
                raise SetupError(f"slirp4netns did not come up; whole log: {log}", tail(log))
        finally:
            os.close(ready)
            if ready_w >= 0:
                os.close(ready_w)

    # --- use ---

    def inside(self, argv: list[str]) -> list[str]:
        """The command line that runs ``argv`` in the engine's namespaces, in the current folder."""
        script = 'cd "$0" && exec "$@"'
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--root", "--"]
        return [*DIE_WITH_PARENT, *enter, "sh", "-c", script, str(Path.cwd()), *argv]

    # --- stop ---

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything that was started and remove what lies outside the cache folder.  Safe to call in any state.

        Bounded, and deaf to a second Ctrl-C: half a clean-up would leave mounts and processes behind.
        """
        old = {sig: signal.signal(sig, signal.SIG_IGN) for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            self._close()
        finally:
            for sig, handler in old.items():
                signal.signal(sig, handler)

    def _close(self) -> None:
        if self._dockerd is not None:
            if end_process(self.pid, self._ticks, STOP_PATIENCE_S):
                say(f"dockerd did not stop within {STOP_PATIENCE_S:.0f} s and was killed")
            self._dockerd.wait()
        if self._slirp is not None:
            end_process(self._slirp.pid, start_ticks(self._slirp.pid), 3.0)
            self._slirp.wait()
        self._end_stragglers()
        if self._lock is not None:
            shutil.rmtree(self.run, ignore_errors=True)
            for folder in reversed(self._made):
                _rmdir_if_empty(folder)
            self._lock.close()
            self._lock = None

    def _end_stragglers(self) -> None:
        """Processes that outlived dockerd: of our control groups (containers) and of our mount namespace (shims, strays of the command)."""
        groups = [root / f"marathond-demo-{self.id}" for root in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/"))]
        # os.walk: a shim that is just ending removes its groups, and a glob breaks on one that vanishes while it looks.
        tree = [Path(path) for group in groups for path, _, _ in os.walk(group)]
        pids = {int(pid) for folder in tree for pid in _members(folder)}
        if self._mount_ns:
            pids |= set(processes_in("mnt", self._mount_ns))
        if count := end_all(sorted(pids)):
            say(f"ended what the engine left in its namespaces ({count})")
        for folder in sorted(tree, key=lambda f: len(f.parts), reverse=True):
            if folder.is_dir():
                wait_until(partial(_rmdir_if_empty, folder), 2.0)


def _members(group: Path) -> list[str]:
    try:
        return (group / "cgroup.procs").read_text().split()
    except OSError:  # a group may vanish while we look, or be a threaded one without the file's content
        return []


def _rmdir_if_empty(folder: Path) -> bool:
    """Remove an empty folder or a control group without members; True when it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
