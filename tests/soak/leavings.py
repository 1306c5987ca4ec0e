"""What of a soak is still there: on its engine, in the kernel, on the disk.  Reads only; finds by the soak's own folders."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.support.private_engine import PrivateEngine

LISTS = {
    "containers": ("ps", "-aq"),
    "networks": ("network", "ls", "--format", "{{.Name}}"),
    "volumes": ("volume", "ls", "-q"),
}


def on_engine(engine: PrivateEngine) -> dict[str, set[str]]:
    """What there is by kind, and the interfaces of the engine's own network namespace.

    Ids; networks by name, for the engine's own get another id when it starts.
    """
    found = {kind: set(_output("docker", "-H", engine.url, *words).split()) for kind, words in LISTS.items()}
    links = _output(*engine.ip_command, "-o", "link").splitlines()
    return {**found, "interfaces": {line.split(": ")[1].partition("@")[0] for line in links}}


def in_kernel(folder: Path) -> dict[str, set[str]]:
    """Processes that name the folder (command line, working folder, mounts of a namespace of their own), its mounts and sockets."""
    word = str(folder)
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if word in line}
    sockets = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if word in line}
    return {"processes": set(_processes(word)), "mounts": mounts, "sockets": sockets | set(_socket_files(folder))}


def _processes(word: str) -> Iterable[str]:
    ours = _namespace("self")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended
            argv = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            told = [argv, str((entry / "cwd").readlink())]
            if _namespace(entry.name) != ours:
                told.append((entry / "mountinfo").read_text())
            if any(word in text for text in told):
                yield f"{entry.name} {argv[:120]}"


def _namespace(pid: str) -> str:
    return str(Path(f"/proc/{pid}/ns/mnt").readlink())


def _socket_files(folder: Path) -> Iterable[str]:
    if not folder.exists():
        return
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK((Path(place) / name).lstat().st_mode):
                    yield f"{place}/{name}"


def _output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=240).stdout
