"""The Engine port: containers, networks, images, execs.

Obligations of every implementation:

* every method ends within its own deadline and raises :class:`~marathond.core.errors.EngineTimeout` then: the outcome is UNKNOWN;
* foreign errors never leave the adapter (see :mod:`marathond.core.errors`);
* everything is addressed by id, never by name; nothing is touched that the caller did not name;
* ``remove_*`` of something already gone is success; ``inspect_*`` of something unknown answers None;
* cancellation is re-raised; a cancelled call may still complete on the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from marathond.core.model import Mount

LABEL_LEDGER = "marathond.ledger"
LABEL_TRIAL = "marathond.trial"
LABEL_CLAIM = "marathond.claim"


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine says of itself and its host.  ``address_pools``: configured (base, size) pairs, empty when built-in.

    ``limits_pids``: whether it can bound a container's processes; without the kernel's controller it leaves such a limit out, with success.
    """

    server_version: str
    api_version: str
    ncpu: int
    memory_bytes: int
    data_root: str
    http_proxy: str
    https_proxy: str
    live_restore: bool
    address_pools: tuple[tuple[str, int], ...] = ()
    limits_pids: bool = True


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """One network as listed.  ``subnets`` in CIDR text; ``created_ms`` wall clock of the engine."""

    id: str
    name: str
    driver: str
    internal: bool
    labels: Mapping[str, str]
    subnets: tuple[str, ...]
    created_ms: int


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """One container.  ``network_mode`` as in HostConfig; ``env`` is Config.Env; ``exit_code`` and ``oom_killed`` from State.

    ``cpus`` (cores), ``memory_mb`` and ``pids`` (processes and threads) are the limits that hold, None: unlimited.  ``pids_refused``: how
    often the kernel has refused it another process for that limit; None: not seen.  From a listing (not an inspect) ``pid`` is 0, ``env``
    empty, ``oom_killed`` False and all limits None: the list does not carry them.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    image_id: str
    running: bool
    paused: bool
    status: str
    pid: int
    started_at: str
    exit_code: int | None
    oom_killed: bool
    network_mode: str
    network_ids: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    created_ms: int = 0
    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    pids_refused: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What to create.  ``network`` is a network id, or None for NetworkMode=none.  PID 1 is a shell that idles and reaps."""

    name: str
    image_id: str
    labels: Mapping[str, str]
    network: str | None
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    workdir: str | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class ExecSpec:
    """A command in a running container.  ``argv`` never carries a secret or a prompt: it is visible to everyone."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class ExecInfo:
    """State of an exec.  ``pid`` is the host's; ``exit_code`` None while it runs."""

    id: str
    running: bool
    exit_code: int | None
    pid: int


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Outcome of a short attached exec; ``output`` is stdout and stderr mixed, cut at the caller's bound."""

    exit_code: int
    output: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a container, host-side ids.  ``start_ticks`` (from /proc/PID/stat) makes the pid unique over reuse.

    ``exiting``: it is on its way out in the kernel and comes back to none of its own code.
    """

    pid: int
    ppid: int
    session: int
    start_ticks: int
    argv: str
    exiting: bool = False


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image by content: ``id`` is the config digest (``sha256:…``); ``size_bytes`` of all its layers."""

    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    env: tuple[str, ...]
    workdir: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """A hint that something changed; never evidence.  ``action`` such as ``die``, ``oom``, ``exec_die``, ``destroy``."""

    type: str
    action: str
    id: str
    attributes: Mapping[str, str]


class Engine(Protocol):
    """One configured engine; ``name`` is the configured name (``/info.ID`` is shared by side-by-side daemons)."""

    name: str

    async def info(self) -> EngineInfo:
        """Ask the engine about itself.  Raises EngineUnreachable, EngineTimeout."""
        ...

    async def knock(self) -> None:
        """Success: a connection made just now was answered.  An engine that is stopping answers older ones only, while it ends containers.

        Raises EngineUnreachable, EngineTimeout.
        """
        ...

    async def create_network(self, name: str, labels: Mapping[str, str], subnet: str | None, *, internal: bool = False) -> str:
        """Create a bridge network and return its id.  Raises PoolExhausted, SubnetTaken, EngineError, EngineTimeout."""
        ...

    async def inspect_network(self, network_id: str) -> NetworkInfo | None: ...

    async def list_networks(self) -> list[NetworkInfo]:
        """All networks of the engine, ours and others'."""
        ...

    async def remove_network(self, network_id: str) -> bool:
        """True when it is gone; False when the engine keeps it (active endpoints), which is no error."""
        ...

    async def create_container(self, spec: ContainerSpec) -> str:
        """Create, not start.  Returns the id.  Raises NotFound when the image or network is unknown."""
        ...

    async def start_container(self, container_id: str) -> None: ...

    async def inspect_container(self, container_id: str) -> ContainerInfo | None: ...

    async def list_containers(self, labels: Mapping[str, str] | None = None) -> list[ContainerInfo]:
        """Running and stopped ones, optionally only those that carry all ``labels``."""
        ...

    async def remove_container(self, container_id: str) -> bool:
        """Kill and remove, with its anonymous volumes, and end what an engine that had forgotten it left running of it on this host.

        True when gone; False when the engine could not (named, retried later)."""
        ...

    async def pause(self, container_id: str) -> None: ...

    async def unpause(self, container_id: str) -> None: ...

    async def processes(self, container_id: str) -> list[Process]:
        """Every process of the container that can still run, by host pid; zombies are left out.  Works on a paused container.

        Raises EngineError when the engine's processes cannot be seen on this host: an empty list always means that none runs."""
        ...

    async def kill(self, processes: Sequence[Process]) -> None:
        """SIGKILL by pidfd after comparing ``start_ticks``, so that a reused pid is never hit (fault f10)."""
        ...

    async def create_exec(self, container_id: str, spec: ExecSpec) -> str:
        """Create only: the id can be written down before anything runs.

        Raises EngineError with status 400 where the engine checks the user already now (28.5)."""
        ...

    async def start_created_exec(self, exec_id: str) -> None:
        """Start detached.  A missing binary shows only in :meth:`inspect_exec` (126/127)."""
        ...

    async def inspect_exec(self, exec_id: str) -> ExecInfo | None: ...

    async def wait_exec(self, exec_id: str) -> ExecInfo | None:
        """Until the exec ended; None when the engine no longer knows it.  Unbounded: the caller brings the deadline.

        Looks at growing intervals and on events; survives engine outages by looking again."""
        ...

    async def run_exec(self, container_id: str, spec: ExecSpec, *, timeout_s: float, max_output: int = 65536) -> ExecResult:
        """A short attached command.  A bad argv, cwd or user answers exit 126 with the text on stdout (fault b08)."""
        ...

    async def put_archive(self, container_id: str, path: str, tar: Callable[[], AsyncIterator[bytes]]) -> None:
        """Unpack a tar stream below ``path`` in the container."""
        ...

    async def path_exists(self, container_id: str, path: str) -> bool:
        """Whether a file, folder or link is there; nothing in the container is run for it.  Raises NotFound for an unknown container."""
        ...

    async def put_tree(self, container_id: str, source: Path, target: str) -> None:
        """Upload a host directory so that ``target`` holds its content, owned by root, modes kept, links as links."""
        ...

    async def inspect_image(self, ref: str) -> ImageInfo | None: ...

    async def pull_image(self, ref: str, *, timeout_s: float) -> ImageInfo:
        """Raises NotFound when no registry has it, EngineError otherwise."""
        ...

    async def build_image(
        self,
        context: Path,
        *,
        tag: str | None,
        labels: Mapping[str, str],
        build_args: Mapping[str, str],
        network: str | None,
        timeout_s: float,
        log: Callable[[bytes], Awaitable[None]],
        buildkit: bool = False,
    ) -> ImageInfo:
        """Build from a directory; with ``tag`` None the image stays without a name until :meth:`tag_image`.

        ``buildkit``: with BuildKit, not with the engine's classic builder.  Raises EngineError with the last lines of the build's output,
        BuilderMissing when this host has no program for BuildKit."""
        ...

    async def tag_image(self, image_id: str, ref: str) -> None:
        """Give an image a name, which another may have had until now.  Raises NotFound."""
        ...

    async def remove_image(self, ref: str) -> None:
        """Remove a tag and, if it was the last one, the image.  Gone already is success."""
        ...

    def events(self) -> AsyncIterator[EngineEvent]:
        """Hints for ever; reconnects by itself: ``marathond`` events say ``cut`` when a stream ended and ``resync`` when it stands."""
        ...

    async def aclose(self) -> None: ...
