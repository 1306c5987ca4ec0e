"""A real buildx for the tests, wherever they run: this machine's own, else Debian 13's package, unpacked below ``.cache/buildx``.

Debian 12 has no such package, but Debian 13's needs only libc.  It is fetched by apt from the mirror that this machine uses, with lists
and caches of its own: nothing is installed, and the machine's own package lists stay as they are.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from marathond.demo.base_image import debian_mirror
from marathond.demo.host import SetupError, can_install, run_logged, tail
from marathond.engine.buildkit import plugin_folders, programs

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "buildx"
SUITE, PACKAGE = "trixie", "docker-buildx"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def buildx() -> Path:
    """The program.  Raises SetupError with one clear line."""
    if found := programs("docker-buildx", [*plugin_folders(os.environ), *os.environ.get("PATH", "").split(":")]):
        return Path(found[0])
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = CACHE / "docker-buildx"
        if not program.exists():
            _fetch(program)
        return program


def _fetch(program: Path) -> None:
    mirror = debian_mirror()
    if mirror is None or not can_install() or not KEYRING.exists():
        raise SetupError(f"no buildx here, and {PACKAGE} is only fetched as root on Debian; install it")
    root, log = CACHE / "apt", CACHE / "setup.log"
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("etc/apt/preferences.d", "etc/apt/sources.list.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg").mkdir()
    (root / "var/lib/dpkg/status").touch()
    (root / "etc/apt/sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {SUITE} main\n")
    # Settings of this machine's apt, proxies among them, hold: only where lists and archives lie is ours.
    places = ["-o", f"Dir::State={root}/var/lib/apt", "-o", f"Dir::State::status={root}/var/lib/dpkg/status"]
    places += ["-o", f"Dir::Cache={root}/var/cache/apt", "-o", f"Dir::Etc::sourcelist={root}/etc/apt/sources.list"]
    places += [
        "-o",
        f"Dir::Etc::sourceparts={root}/etc/apt/sources.list.d",
        "-o",
        f"Dir::Etc::preferencesparts={root}/etc/apt/preferences.d",
    ]
    places += ["-o", "Acquire::Retries=2", "-o", "APT::Sandbox::User=root"]
    commands = [
        ["apt-get", "-q", *places, "update"],
        ["apt-get", "-q", "-y", *places, "--no-install-recommends", "--download-only", "install", PACKAGE],
    ]
    for command in commands:
        if (status := run_logged(command, log, 300)) != 0:
            raise SetupError(f"{PACKAGE} of Debian's {SUITE} could not be fetched (exit {status}); whole output: {log}", tail(log))
    archive = next((root / "var/cache/apt/archives").glob(f"{PACKAGE}_*.deb"), None)
    if archive is None or run_logged(["dpkg-deb", "-x", str(archive), str(root / "unpacked")], log, 120) != 0:
        raise SetupError(f"{PACKAGE} of Debian's {SUITE} could not be unpacked; whole output: {log}", tail(log))
    found = next(path for path in (root / "unpacked").rglob("docker-buildx") if path.is_file() and os.access(path, os.X_OK))
    shutil.copy2(found, program.with_suffix(".part"))
    program.with_suffix(".part").rename(program)
    shutil.rmtree(root, ignore_errors=True)
