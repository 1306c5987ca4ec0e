"""What the kernel's files say of a container: whether a process is its own, what it was started with, and which limits it has met.

Owns ``/proc/PID/cgroup``, ``/proc/PID/environ`` and the counters of the memory and pids controllers, of cgroup v1, v2 and both at once.
Must not know the engine's API.

Fact (measured on 20.10.24): while a container runs, State.OOMKilled stays false however many of its processes the kernel has killed for
memory; it turns true when the container ends.  The kernel's own counter is there at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marathond.core.errors import EngineError

PROC = Path("/proc")


def _cgroup_lines(pid: int) -> list[str]:
    return (PROC / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines()


def belongs(pid: int, container_id: str) -> bool | None:
    """Whether a cgroup of the host's process ``pid`` names the container; None when there is no such process.

    This is what ties an id that the engine printed to a process of THIS machine: with an engine elsewhere the same number is a stranger.

    :raises EngineError: when it is there and cannot be read.
    """
    try:
        return any(container_id in line for line in _cgroup_lines(pid))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as exc:
        raise EngineError("container.top", 0, f"cannot read /proc/{pid}/cgroup: {exc}") from exc


def started_with(pid: int, container_id: str, argv: Sequence[str]) -> dict[str, str] | None:
    """The variables that the container's first process was really started with, whoever added them (a runtime may, behind the engine).

    None while runc's own process has not become ``argv`` yet.  Empty when it cannot be seen from here, or is not ``argv`` (any more).
    """
    try:
        if not any(container_id in line for line in _cgroup_lines(pid)):
            return {}
        # Any bytes that it likes; and before the command line, for it may become ours between the two.
        name = (PROC / str(pid) / "comm").read_text("utf-8", "replace")
        if (PROC / str(pid) / "cmdline").read_bytes() != b"".join(f"{word}\0".encode() for word in argv):
            return None if name.startswith("runc:[") else {}
        data = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.decode("utf-8", "replace").partition("=") for item in data.split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def oom_kills(pid: int, container_id: str) -> int | None:
    """How many processes the kernel has killed for memory in the container of its process ``pid``.

    None when that cannot be seen from here (an engine elsewhere, another cgroup namespace, no memory controller): then nothing is known
    beyond the engine's own word.
    """
    return _events(pid, container_id, "memory", "memory.oom_control", "memory.events", "oom_kill")


def pids_refused(pid: int, container_id: str) -> int | None:
    """How often the kernel has refused the container of its process ``pid`` another process or thread for its limit.

    None when that cannot be seen from here, as above.
    """
    return _events(pid, container_id, "pids", "pids.events", "pids.events", "max")


def _events(pid: int, container_id: str, controller: str, file_v1: str, file_v2: str, key: str) -> int | None:
    try:
        for line in _cgroup_lines(pid):
            number, controllers, path = line.split(":", 2)
            if container_id not in path:
                continue
            if controller in controllers.split(","):
                return _counter(_mount("cgroup", controller), path, file_v1, key)
            if number == "0" and (count := _counter(_mount("cgroup2", ""), path, file_v2, key)) is not None:
                return count
    except (OSError, ValueError, IndexError):  # not there, or not as the kernel writes it
        return None
    return None


def _mount(kind: str, option: str) -> Path | None:
    for line in (PROC / "self" / "mountinfo").read_text("utf-8", "surrogateescape").split("\n"):
        left, _, right = line.partition(" - ")
        words = right.split(" ")
        if words[0] == kind and (not option or option in words[-1].split(",")):
            return Path(left.split(" ")[4])
    return None


def _counter(mount: Path | None, path: str, name: str, key: str) -> int | None:
    if mount is None:
        return None
    file = mount / path.lstrip("/") / name
    if not file.is_file():  # a unified hierarchy without the controller, beside version 1
        return None
    text = file.read_text()
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{key} ")), None)
