"""A whole small host in a container: systemd as its first process, a dockerd of its own below it, and marathond put in by `make install`.

Why a dockerd inside, and not the engine's socket mounted: marathond reads and ends processes of its trials by their host's pids, and a
container has its own; with the engine outside every trial is refused as ``engine_blind``, rightly.  Inside, docker.service is one more
unit: it can be stopped, stopped in its tracks, or come up after a boot.

Owns the image (debootstrap once, a tarball in ``.cache/systemd``), the wheels that pip inside needs (fetched by pip out here, whose
settings nothing has to repeat inside), the container and its removal.  Needs root on Debian or Ubuntu, and an engine on this very host.

Facts: SYS_RESOURCE is left out of what is added, for not every machine may give it (``--privileged`` asks for it).  /proc/sys stays
read-only, so nothing inside can change a knob of the machine's kernel.  Cgroups come in read-only and are made writable before systemd
starts; version 1 and 2 alike.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from marathond.demo.base_image import debootstrap
from marathond.demo.host import SetupError, can_install, run_logged, say, start_ticks, tail
from tests.support.rig import BASE_IMAGE

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "systemd"
SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "docker.io", "iptables", "iproute2"),
    *("python3", "python3-venv", "make", "procps", "ca-certificates"),
)
_LEFT_OUT = (
    *("./proc/*", "./sys/*", "./dev/*", "./debootstrap", "./etc/resolv.conf", "./etc/hostname", "./etc/machine-id"),
    *("./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*", "./usr/share/man/*", "./usr/share/locale/*", "./usr/share/doc/*"),
    *("./usr/bin/ctr", "./usr/sbin/dnet", "./usr/sbin/ovrouter"),
)
# No bridge: tasks of the box have no network, and nothing of the machine's firewall is touched.
_DOCKER = {"bridge": "none", "iptables": False, "ip-forward": False, "live-restore": True}
# Shared mounts, as on a machine (systemd leaves that to a container's manager): a unit's credentials arrive by a mount that must spread.
# An empty machine-id: without the file systemd takes this for the machine's first boot and enables what Debian presets, networkd among it,
# which then waits for a network.
_BOOT = (
    ": >>/etc/machine-id; "
    # What a halt waits for at its end: processes of containers that dockerd leaves running (live-restore), and that ignore SIGTERM.
    "mkdir -p /etc/systemd/system.conf.d; printf '[Manager]\\nDefaultTimeoutStopSec=10s\\n' >/etc/systemd/system.conf.d/halt.conf; "
    "while read -r _ place kind _; do case $kind in cgroup|cgroup2) mount -o remount,rw,bind $place;; esac; done </proc/mounts; "
    "mount --make-rshared /; exec /sbin/init"
)
LABEL = "marathond-test-box"
STATE, CONFIG = "/var/lib/marathond", "/etc/marathond/config.toml"
PIP_S, IMPORT_S, PATIENCE_S = 900.0, 300.0, 300.0
MAKE_S = 1500.0


class BoxError(AssertionError):
    """Something in the box was not as expected; the text has what it said."""


def missing() -> str:
    """Why no box can be had here; empty when it can."""
    if not can_install():
        return "a container with systemd needs root on Debian or Ubuntu (debootstrap makes its image)"
    if shutil.which("docker") is None:
        return "a container with systemd needs the docker command"
    return ""


# ── what is made once ──


def _tarball() -> Path:
    wanted = f"{SUITE} {' '.join(PACKAGES)} {' '.join(_LEFT_OUT)}"
    tarball = CACHE / f"{hashlib.sha256(wanted.encode()).hexdigest()[:12]}.tar"
    if tarball.exists():
        return tarball
    log = CACHE / "setup.log"
    say("a Debian with systemd and docker for tests: debootstrap (two minutes, once)")
    root = Path(tempfile.mkdtemp(prefix="marathond-box-", dir="/var/tmp"))
    try:
        debootstrap(SUITE, root, log, PACKAGES)
        part = tarball.with_suffix(".part")
        pack = ["tar", "-C", str(root), "--numeric-owner", *(f"--exclude={pattern}" for pattern in _LEFT_OUT), "-cf", str(part), "."]
        if run_logged(pack, log, IMPORT_S) != 0:
            raise SetupError(f"packing the Debian with systemd failed; whole output: {log}", tail(log))
        part.rename(tarball)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return tarball


def _image(docker: Docker) -> str:
    tarball = _tarball()
    tag = f"marathond-test-box:{tarball.stem}"
    if docker.call("image", "inspect", tag, check=False).returncode != 0:
        docker.call("import", "--change", 'CMD ["/sbin/init"]', "--change", "ENV container=docker", str(tarball), tag, timeout_s=IMPORT_S)
    return tag


def _wheels() -> Path:
    """A folder of wheels for the box's Python: what the project and its build need, as this machine's pip finds them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = sorted([*project["project"]["dependencies"], *project["build-system"]["requires"]])
    folder = CACHE / f"wheels-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    log, part = CACHE / "setup.log", folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    platforms = [f"manylinux_2_{minor}_{platform.machine()}" for minor in range(36, 4, -1)] + [f"manylinux2014_{platform.machine()}"]
    target = ["--python-version", PYTHON, "--only-binary=:all:", *(word for name in platforms for word in ("--platform", name))]
    if run_logged([sys.executable, "-m", "pip", "download", "-q", "--no-input", "-d", str(part), *target, *wanted], log, PIP_S) != 0:
        raise SetupError(f"pip could not fetch the wheels for a Debian with systemd; whole output: {log}", tail(log))
    part.rename(folder)
    return folder


class Docker:
    """The engine out here, by its command."""

    def __init__(self, host: str) -> None:
        self._base = ["docker", "-H", host]

    def call(self, *words: str, check: bool = True, stdin: Any = None, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        given = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin if stdin is not None else subprocess.DEVNULL}
        done = subprocess.run([*self._base, *words], capture_output=True, text=True, timeout=timeout_s, check=False, **given)
        if check and done.returncode != 0:
            raise BoxError(f"docker {' '.join(words)} exits {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done


# ── one box ──


class Box:
    """A booted one.  ``state``: its /var/lib/marathond as a folder out here."""

    def __init__(self, docker: Docker, name: str, state: Path) -> None:
        self._docker, self._name, self.state = docker, name, state

    def run(self, *argv: str, check: bool = True, stdin: Any = None, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A command in the box, as root.  Raises BoxError with its words when it fails."""
        return self._docker.call("exec", "-i", self._name, *argv, check=check, stdin=stdin, timeout_s=timeout_s)

    def sh(self, script: str, *, timeout_s: float = 120.0) -> str:
        return self.run("sh", "-euc", script, timeout_s=timeout_s).stdout

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-euc", 'mkdir -p "$(dirname "$0")"; cat >"$0"', path, stdin=text)

    def systemctl(self, *words: str, check: bool = True) -> str:
        return self.run("systemctl", "--no-pager", *words, check=check, timeout_s=PATIENCE_S).stdout

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit, as `systemctl show` prints them."""
        lines = self.systemctl("show", unit, *(f"--property={name}" for name in names)).splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def journal(self, *words: str) -> list[dict[str, Any]]:
        """Entries of the journal, as `journalctl -o json` prints them; the oldest first."""
        return [json.loads(line) for line in self.run("journalctl", "--no-pager", "-o", "json", *words).stdout.splitlines()]

    def until(self, what: Callable[[], Any], why: str, patience_s: float = PATIENCE_S) -> Any:
        """What it gives as soon as that is true.  Raises BoxError with the unit's state and last words."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            if found := what():
                return found
            time.sleep(0.5)  # most looks are a process in the box
        raise BoxError(f"not within {patience_s:g} s: {why}\n{self.story()}")

    def story(self) -> str:
        status = self.systemctl("status", "marathond", check=False)
        return f"{status}\n{self.run('journalctl', '--no-pager', '-n', '40', check=False).stdout}"

    def sql(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a read-only query on the ledger; none while there is no ledger."""
        if not (self.state / "ledger.db").exists():
            return []
        connection = sqlite3.connect(f"file:{self.state / 'ledger.db'}?mode=ro", uri=True, timeout=60)
        try:
            return [tuple(row) for row in connection.execute(query, values).fetchall()]
        finally:
            connection.close()

    def wait_sql(self, query: str, *values: object) -> Any:
        """The first value as soon as it is true."""
        return self.until(lambda: next((row[0] for row in self.sql(query, *values)), None), query)

    def booted(self) -> None:
        """Wait until systemd has come to rest and its docker answers."""
        # Asked over its bus, which a first process that is just mounting does not have yet.
        self.until(lambda: self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded"), "boot")
        self.until(lambda: self.run("docker", "version", check=False).returncode == 0, "docker in the box answers")

    def reboot(self) -> None:
        """As a machine does: every unit is stopped, every process ends, and what is enabled comes back."""
        self._docker.call("restart", "--time", "100", self._name, timeout_s=PATIENCE_S)
        self.booted()

    def copy_sources(self, target: str) -> None:
        """The repository as it is out here: what git has or would take.  Without git: everything outside hidden folders."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        names = [name for name in listed.stdout.split("\0") if name] or [entry.name for entry in ROOT.iterdir() if entry.name[0] != "."]
        with tempfile.TemporaryFile() as archive:
            there = "\0".join(name for name in names if (ROOT / name).exists())
            # What other tests' interpreters compile meanwhile would vanish or change under it.
            tar = ["tar", "-C", str(ROOT), "--exclude=__pycache__", "--null", "-T", "-", "-c"]
            subprocess.run(tar, input=there.encode(), stdout=archive, check=True, timeout=120)
            self._unpack(archive, target)

    def copy_in(self, folder: Path, target: str) -> None:
        """A folder of out here, with all that is in it."""
        with tempfile.TemporaryFile() as archive:
            subprocess.run(["tar", "-C", str(folder), "-c", "."], stdout=archive, check=True, timeout=120)
            self._unpack(archive, target)

    def _unpack(self, archive: IO[bytes], target: str) -> None:
        archive.seek(0)
        self.run("mkdir", "-p", target)
        self.run("tar", "-C", target, "--no-same-owner", "-x", stdin=archive)

    def make(self, target: str, folder: str) -> str:
        """`make TARGET` in a folder of the box, pip fed with the wheels alone; what it said."""
        # Nothing is compiled ahead: the box imports a tenth of it.
        pip = ["PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "PIP_NO_COMPILE=1", "PIP_DISABLE_PIP_VERSION_CHECK=1"]
        done = self.run("env", *pip, "make", "-C", folder, target, timeout_s=MAKE_S)
        return done.stdout + done.stderr


@contextlib.contextmanager
def booted_box(docker_host: str) -> Iterator[Box]:
    """A running box with the sample image on its own docker; gone afterwards with all that was in it.

    :raises SetupError: it cannot be made here; one clear line.
    """
    docker = Docker(docker_host)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tag, wheels = _image(docker), _wheels()
        _sweep(docker)
    name = f"mdbox-{secrets.token_hex(4)}"
    home = Path(tempfile.mkdtemp(prefix="mb-", dir="/tmp"))
    (home / "docker.json").write_text(json.dumps(_DOCKER))
    (home / "state").mkdir()
    allowed = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH")
    words = ["run", "-d", "--name", name, "--label", f"{LABEL}={os.getpid()}:{start_ticks(os.getpid())}", "--network", "none"]
    words += [word for capability in allowed for word in ("--cap-add", capability)]
    words += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--cgroupns", "private"]
    words += ["--tmpfs", "/run:exec", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec", "--stop-signal", "SIGRTMIN+3"]
    words += ["-v", "/var/lib/docker", "-v", f"{home}/state:{STATE}", "-v", f"{wheels}:/wheels:ro"]
    words += ["-v", f"{home}/docker.json:/etc/docker/daemon.json:ro", tag, "/bin/sh", "-c", _BOOT]
    try:
        docker.call(*words)
        box = Box(docker, name, home / "state")
        box.booted()
        with subprocess.Popen(["docker", "-H", docker_host, "save", BASE_IMAGE], stdout=subprocess.PIPE) as save:
            box.run("docker", "load", "-q", stdin=save.stdout, timeout_s=IMPORT_S)
        yield box
    finally:
        docker.call("rm", "-fv", name, check=False, timeout_s=PATIENCE_S)
        shutil.rmtree(home, ignore_errors=True)


def _sweep(docker: Docker) -> None:
    """Boxes of tests that were killed."""
    shown = f'{{{{.Names}}}} {{{{.Label "{LABEL}"}}}}'
    for line in docker.call("ps", "-a", "--filter", f"label={LABEL}", "--format", shown).stdout.splitlines():
        name, _, owner = line.partition(" ")
        pid, _, ticks = owner.partition(":")
        if pid.isdigit() and str(start_ticks(int(pid))) != ticks:
            docker.call("rm", "-fv", name, check=False)
