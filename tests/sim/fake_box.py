"""The simulated engine's records, and what a program in a simulated container can do.

Owns containers, processes, networks and execs as data, and :class:`Box`.  Must not know who calls the engine, nor what the programs are.
Facts: an exec is the leader of its own session; a frozen process does nothing and can be killed; a session outlives its leader.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from marathond.core.model import Mount
from marathond.ports.engine import ContainerSpec, ExecSpec

if TYPE_CHECKING:
    from tests.sim.fake_state import EngineState

KILLED = 137


class CannotStart(Exception):
    """Raised by a ``Resolve``: the runtime finds no such program, folder or user.  ``what``: ``binary``, ``cwd`` or ``user``."""

    def __init__(self, what: str, words: str) -> None:
        self.what, self.words = what, words
        super().__init__(words)


@dataclass(slots=True, eq=False)
class NetworkRecord:
    id: str
    name: str
    labels: Mapping[str, str]
    subnet: str
    internal: bool
    created_ms: int
    born_s: float
    undeletable: bool = False


@dataclass(slots=True, eq=False)
class ProcessRecord:
    """One process.  ``scope`` ends its program; ``blocked``: it hangs for good on a stream that nobody reads any more."""

    pid: int
    ppid: int
    session: int
    start_ticks: int
    argv: tuple[str, ...]
    container: ContainerRecord
    exec: ExecRecord | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    alive: bool = True
    attached: bool = False
    blocked: bool = False


@dataclass(slots=True, eq=False)
class ExecRecord:
    """One exec.  ``ended`` is set at its end and when the engine forgets it."""

    id: str
    container: ContainerRecord
    spec: ExecSpec
    started: bool = False
    exit_code: int | None = None
    process: ProcessRecord | None = None
    pid: int = 0
    output: bytearray = field(default_factory=bytearray)
    known: bool = True
    ended_s: float = 0.0
    ended: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True, eq=False)
class ContainerRecord:
    """One container.  ``status``: created, running, paused, exited.  ``files``: what programs left outside of the mounts.

    ``uploads``: target folder → the host's folder whose content was put there.  ``ended_unseen``: while the engine was away.
    """

    id: str
    spec: ContainerSpec
    created_ms: int
    image_env: tuple[str, ...] = ()
    status: str = "created"
    pid: int = 0
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: str = ""
    attached_network: str | None = None
    foreign: bool = False
    ended_unseen: bool = False
    undeletable: bool = False
    processes: dict[int, ProcessRecord] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, Path] = field(default_factory=dict)
    thawed: trio.Event = field(default_factory=trio.Event)

    @property
    def running(self) -> bool:
        return self.status in ("running", "paused")

    @property
    def paused(self) -> bool:
        return self.status == "paused"

    @property
    def labels(self) -> Mapping[str, str]:
        return self.spec.labels

    @property
    def name(self) -> str:
        return self.spec.name


class Box:
    """What a program in a container can do.  One for each process; ``rng`` is the process's own stream."""

    def __init__(self, engine: EngineState, process: ProcessRecord, spec: ExecSpec, rng: random.Random) -> None:
        self._engine, self._process = engine, process
        self.spec, self.rng = spec, rng

    @property
    def container(self) -> ContainerRecord:
        return self._process.container

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def files(self) -> dict[str, bytes]:
        """By absolute path in the container; for what lies outside of its mounts."""
        return self.container.files

    def host_path(self, inside: str) -> Path:
        """Where a path below one of the container's mounts lies on the host.

        :raises FileNotFoundError: no mount holds it.  :raises PermissionError: asked by :meth:`write_path` of a read-only one.
        """
        return self._mounted(inside)[1]

    def write_path(self, inside: str) -> Path:
        """As :meth:`host_path`, to write there."""
        mount, path = self._mounted(inside)
        if mount.read_only:
            raise PermissionError(inside)
        return path

    def _mounted(self, inside: str) -> tuple[Mount, Path]:
        best = max(
            (m for m in self.container.spec.mounts if Path(inside).is_relative_to(m.target)), key=lambda m: len(m.target), default=None
        )
        if best is None:
            raise FileNotFoundError(inside)
        return best, Path(best.source) / Path(inside).relative_to(best.target)

    def say(self, text: str) -> None:
        """On stdout; kept for an attached exec alone."""
        if self._process.exec is not None:
            self._process.exec.output += text.encode()

    async def sleep(self, seconds: float) -> None:
        """Virtual time goes on while the container is frozen, this program does not."""
        await trio.sleep(seconds)
        while self._process.blocked or self.container.paused:
            if self._process.blocked:
                await trio.sleep_forever()
            await self.container.thawed.wait()

    def spawn(self, program: Program, detached: bool, argv: tuple[str, ...] = ("child",)) -> int:
        """Start a child and return its pid; ``detached``: in a session of its own.  It outlives this process either way."""
        return self._engine.spawn(self._process, program, self.spec, argv, detached=detached)

    def becomes(self, *argv: str) -> None:
        """Shows as another command line from now on, as after an exec."""
        self._process.argv = argv

    def alive(self, pid: int) -> bool:
        return pid in self.container.processes

    def kill(self, pid: int) -> None:
        """SIGKILL a process of this container; gone already is success."""
        process = self.container.processes.get(pid)
        if process is not None:
            self._engine.kill_process(process)

    def kill_session(self, session: int) -> None:
        """SIGKILL every process of a session of this container, this one too if it is of it."""
        for process in [p for p in self.container.processes.values() if p.session == session]:
            self._engine.kill_process(process)

    @property
    def session(self) -> int:
        return self._process.session

    def oom(self) -> None:
        """The kernel has ended a process of this container for want of memory; which one is the caller's affair."""
        self._engine.oom(self.container)

    def exit_container(self, status: int) -> None:
        """The container's main process ends with ``status``, and everything in it is killed."""
        self._engine.end_container(self.container, status)


Program = Callable[[Box], Awaitable[int]]
"""Returns the exit status.  Acts between awaits of its Box alone; cancelled when it is killed."""

Resolve = Callable[[ContainerRecord, ExecSpec], Program]
"""Which program a command line is.  Raises :class:`CannotStart` for one that is not there."""
