"""A real buildx for the tests, wherever they run: this machine's own, else Debian 13's package, unpacked below ``.cache/buildx``.

Debian 12 has no such package, but Debian 13's needs only libc.  Nothing is installed for it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from marathond.demo.debian import unpack_packages
from marathond.engine.buildkit import plugin_folders, programs

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "buildx"
SUITE, PACKAGE = "trixie", "docker-buildx"


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
    root = CACHE / "apt"
    unpacked = unpack_packages(SUITE, [PACKAGE], root, CACHE / "setup.log")
    found = next(path for path in unpacked.rglob("docker-buildx") if path.is_file() and os.access(path, os.X_OK))
    shutil.copy2(found, program.with_suffix(".part"))
    program.with_suffix(".part").rename(program)
    shutil.rmtree(root, ignore_errors=True)
