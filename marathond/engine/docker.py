"""DockerEngine: the Engine port over aiodocker.

Owns the requests for networks and containers and puts the other halves (execs, images, events, processes) together.  Must not know the
ledger: names, labels and subnets come in as arguments.  Talks raw API paths: aiodocker's own methods add defaults and lack fields.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel
import structlog

from marathond.core.errors import EngineError, NotFound
from marathond.core.proxies import proxies_in
from marathond.engine import cgroups, decode
from marathond.engine import processes as procs
from marathond.engine.client import EngineClient
from marathond.engine.events import EventHub
from marathond.engine.execs import Execs
from marathond.engine.images import Images
from marathond.engine.trees import read_tree_tar
from marathond.ports.engine import (
    ContainerInfo,
    ContainerSpec,
    Engine,
    EngineEvent,
    EngineInfo,
    ExecInfo,
    ExecResult,
    ExecSpec,
    ImageInfo,
    NetworkInfo,
    Process,
)

IDLE = "while :; do sleep 86400 & wait $! || [ $? -gt 128 ] || exit 1; done"
"""What PID 1 runs.  More than ``sleep infinity`` for two reasons, and no ``HostConfig.Init`` for a third.

* It reaps: a shell that waits collects every child, also those that detached processes leave to it.  A bare ``sleep`` as PID 1 (bash
  replaces itself by the only command) would keep them as zombies for hours.
* It survives ``pkill sleep``: a killed sleep (status over 128) is started again, a missing one (127) ends the container.
* ``Init`` needs a docker-init binary on the engine's host, which a minimal installation lacks, and shows it to the agent.
"""

T = TypeVar("T")

PID_1 = ["sh", "-c", IDLE]

_BUSY = (409, 500)
"""Statuses of a removal that the engine could not carry out now: already in progress, or a busy mount."""

_BECOME_TRIES, _BECOME_PAUSE_S = 50, 0.02
"""How long a started container may take to run what it was told to."""

_END_TRIES, _END_PAUSE_S = 20, 0.1
"""How often processes of a removed container are killed and looked for again."""

_ROWS_AT_ONCE = 25
"""Rows of a long listing that are read before others run: one takes a tenth of a millisecond."""

_TOP_TRIES = 5
"""Looks at the process list while processes come and go; the last one counts."""

_log = structlog.get_logger(__name__)


def network_body(name: str, labels: Mapping[str, str], subnet: str | None, *, internal: bool) -> dict[str, Any]:
    """The request of ``POST /networks/create``.

    With a subnet the IPAM holds that and nothing else.  ``internal`` alone leaves the host reachable on the gateway's address, so the
    bridge gets none (``inhibit_ipv4``, honoured by 20.10 and 28.5).
    :raises EngineError: for a subnet that is not canonical IPv4 (the engine would take host bits and keep them).
    """
    body: dict[str, Any] = {"Name": name, "CheckDuplicate": True, "Driver": "bridge", "Internal": internal, "Labels": dict(labels)}
    if internal:
        body["Options"] = {"com.docker.network.bridge.inhibit_ipv4": "true"}
    if subnet is not None:
        try:
            IPv4Network(subnet, strict=True)
        except ValueError as exc:
            raise EngineError("network.create", 0, f"subnet {subnet!r} must be canonical IPv4 such as 198.19.0.0/28 ({exc})") from exc
        body["IPAM"] = {"Driver": "default", "Config": [{"Subnet": subnet}]}
    return body


def container_body(spec: ContainerSpec) -> dict[str, Any]:
    """The request of ``POST /containers/create``.

    The image's entrypoint is cleared and its HEALTHCHECK disabled (it would run beside the agent).  Binds go through the Mounts API, which
    refuses a missing source instead of making a folder.  No swap beyond the memory limit.  No proxy variables: those are the build's.
    """
    host: dict[str, Any] = {
        "NetworkMode": spec.network or "none",
        "Mounts": [{"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only} for mount in spec.mounts],
    }
    if spec.cpus is not None:
        host["NanoCpus"] = round(spec.cpus * 1_000_000_000)
    if spec.memory_mb is not None:
        host["Memory"] = host["MemorySwap"] = spec.memory_mb * 1024 * 1024
    if spec.pids is not None:
        host["PidsLimit"] = spec.pids
    body: dict[str, Any] = {
        "Image": spec.image_id,
        "Entrypoint": [],
        "Cmd": PID_1,
        "Healthcheck": {"Test": ["NONE"]},
        "Env": [f"{key}={value}" for key, value in spec.env.items()],
        "Labels": dict(spec.labels),
        "HostConfig": host,
    }
    if spec.workdir is not None:
        body["WorkingDir"] = spec.workdir
    return body


async def _decoded(read: Callable[[object], T], rows: Sequence[object]) -> list[T]:
    found = []
    for number, raw in enumerate(rows, start=1):
        found.append(read(raw))
        if number % _ROWS_AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
    return found


class DockerEngine:
    """One engine.

    :param name: the configured name; ``/info.ID`` is shared by side-by-side daemons.
    :param url: ``unix:///path`` or ``tcp://host:port``.  Processes are only seen and killed on an engine of this very host.
    :param call_timeout_s: deadline of every call that has none of its own.
    :raises ConfigError: for another kind of URL.
    """

    def __init__(self, name: str, url: str, *, call_timeout_s: float = 30.0) -> None:
        self.name, self.url = name, url
        self._client = EngineClient(url, call_timeout_s)
        self._hub = EventHub(name, self._client)
        self._execs = Execs(self._client, self._hub)
        self._images = Images(self._client)

    async def info(self) -> EngineInfo:
        raw = await self._client.request("info", "GET", "info")
        return decode.engine_info(raw, self._client.api_version)

    async def knock(self) -> None:
        """See the port."""
        anew = EngineClient(self.url, self._client.call_timeout_s)
        try:
            await anew.request("version", "GET", "version")
        finally:
            await anew.aclose()

    # networks

    async def create_network(self, name: str, labels: Mapping[str, str], subnet: str | None, *, internal: bool = False) -> str:
        body = network_body(name, labels, subnet, internal=internal)
        return decode.made_id("network.create", await self._client.request("network.create", "POST", "networks/create", body=body))

    async def inspect_network(self, network_id: str) -> NetworkInfo | None:
        try:
            return decode.network(await self._client.request("network.inspect", "GET", f"networks/{network_id}"))
        except NotFound:
            return None

    async def list_networks(self) -> list[NetworkInfo]:
        answer = await self._client.request("network.list", "GET", "networks")
        return await _decoded(decode.network, decode.rows("network.list", answer))

    async def remove_network(self, network_id: str) -> bool:
        try:
            await self._client.request("network.remove", "DELETE", f"networks/{network_id}")
        except NotFound:
            return True
        except EngineError as exc:
            if exc.status == 403 and "active endpoints" in exc.detail:
                return False
            raise
        return True

    # containers

    async def create_container(self, spec: ContainerSpec) -> str:
        raw = await self._client.request(
            "container.create", "POST", "containers/create", params={"name": spec.name}, body=container_body(spec)
        )
        return decode.made_id("container.create", raw)

    async def start_container(self, container_id: str) -> None:
        """Started already is success.  A network that vanished since the container was created shows here, as NotFound."""
        await self._client.request("container.start", "POST", f"containers/{container_id}/start")

    async def inspect_container(self, container_id: str) -> ContainerInfo | None:
        """See the port.  ``oom_killed`` of a running container comes from the kernel: the engine tells only at the container's end.

        So do proxies that a runtime added behind the engine's back; they stand in ``env`` beside the engine's own (fault b13).
        """
        try:
            raw = await self._client.request("container.inspect", "GET", f"containers/{container_id}/json")
        except NotFound:
            return None
        seen = decode.container(raw)
        if seen.running and not seen.oom_killed and cgroups.oom_kills(seen.pid, seen.id):
            seen = replace(seen, oom_killed=True)
        if seen.running and seen.pids is not None:
            seen = replace(seen, pids_refused=cgroups.pids_refused(seen.pid, seen.id))
        if seen.running and raw["Config"].get("Cmd") == PID_1:
            real = proxies_in(await self._real_env(seen))
            if added := [item for item in (f"{name}={value}" for name, value in real.items()) if item not in seen.env]:
                seen = replace(seen, env=(*seen.env, *added))
        return seen

    async def _real_env(self, seen: ContainerInfo) -> dict[str, str]:
        """Of PID 1.  Right after a start the runtime's process has not become ours yet: a moment, in which we look again."""
        for _ in range(_BECOME_TRIES):
            if (env := cgroups.started_with(seen.pid, seen.id, PID_1)) is not None:
                return env
            await anyio.sleep(_BECOME_PAUSE_S)
        return {}

    async def list_containers(self, labels: Mapping[str, str] | None = None) -> list[ContainerInfo]:
        params = {"all": "1"}
        if labels:
            params["filters"] = json.dumps({"label": [f"{key}={value}" for key, value in labels.items()]})
        answer = await self._client.request("container.list", "GET", "containers/json", params=params)
        return await _decoded(decode.listed_container, decode.rows("container.list", answer))

    async def remove_container(self, container_id: str) -> bool:
        try:
            await self._client.request("container.remove", "DELETE", f"containers/{container_id}", params={"force": "1", "v": "1"})
        except NotFound:
            pass
        except EngineError as exc:
            if exc.status not in _BUSY:
                raise
            _log.warning("container not removed", engine=self.name, container=container_id, reason=exc.detail)
            return False
        return await self._end_forgotten(container_id)

    async def _end_forgotten(self, container_id: str) -> bool:
        """Whether nothing of a removed container runs any more on this host.

        A dockerd that is killed while it starts a container comes back without having begun it, refuses the next start ("already exists")
        and removes it, and what its runtime had begun stays for good, with its memory and its network interfaces (measured on 20.10.24).
        """
        for turn in range(_END_TRIES):
            left = await anyio.to_thread.run_sync(procs.of_container, container_id)
            if not left:
                return True
            told = [f"{process.pid} {process.argv[:80]}" for process in left]
            if not turn:
                _log.warning("processes of a removed container", engine=self.name, container=container_id, ended=told)
            try:
                await self.kill(left)
            except EngineError as exc:
                raise EngineError("container.remove", 0, f"it is gone, but its process {told[0]} cannot be ended: {exc.detail}") from exc
            await anyio.sleep(_END_PAUSE_S)
        return False

    async def pause(self, container_id: str) -> None:
        """Paused already is success."""
        await self._flip("pause", container_id, paused=True)

    async def unpause(self, container_id: str) -> None:
        """Not paused is success."""
        await self._flip("unpause", container_id, paused=False)

    async def _flip(self, verb: str, container_id: str, *, paused: bool) -> None:
        try:
            await self._client.request(f"container.{verb}", "POST", f"containers/{container_id}/{verb}")
        except NotFound:
            raise
        except EngineError as exc:
            if not exc.status:  # unreachable or timed out: nothing is known
                raise
            seen = await self.inspect_container(container_id)
            if seen is None or not seen.running or seen.paused is not paused:
                raise

    async def processes(self, container_id: str) -> list[Process]:
        """See the port.  A stopped container has none.

        :raises NotFound: unknown container.
        :raises EngineError: when the ids are not of this host (an engine elsewhere, another pid namespace).
        """
        found: list[Process] = []
        before: set[int] = set()
        for _ in range(_TOP_TRIES):
            rows = await self._top(container_id)
            found, odd = await anyio.to_thread.run_sync(procs.identify, rows, container_id)
            if not odd:
                break
            # Odd once: it ended between ps and our look.  Odd and still listed: the pids mean nothing here, and [] would look like death.
            if strangers := odd & before:
                where = f"pids {sorted(strangers)} of container {container_id[:12]} are not its processes on this host"
                raise EngineError("container.top", 0, f"{where}; does engine {self.name} run on another machine or pid namespace?")
            before = odd
        return found

    async def _top(self, container_id: str) -> list[tuple[int, str]]:
        params = {"ps_args": procs.PS_ARGS}
        try:
            raw = await self._client.request("container.top", "GET", f"containers/{container_id}/top", params=params)
        except NotFound:
            raise
        except EngineError as exc:
            if exc.status in _BUSY and "is not running" in exc.detail:
                return []
            raise
        return procs.parse_top(raw)

    async def kill(self, processes: Sequence[Process]) -> None:
        for process in processes:
            procs.kill_process(process)

    async def put_archive(self, container_id: str, path: str, tar: Callable[[], AsyncIterator[bytes]]) -> None:
        """See the port.  The deadline moves with the data; NotFound when the container or the folder is not there."""
        await self._client.upload("archive.put", f"containers/{container_id}/archive", {"path": path}, tar)

    async def path_exists(self, container_id: str, path: str) -> bool:
        """See the port.

        :raises NotFound: an unknown container, which the engine does not tell from a missing path: it is looked up then.
        """
        try:
            await self._client.head("archive.stat", f"containers/{container_id}/archive", {"path": path})
        except NotFound:
            if await self.inspect_container(container_id) is None:
                raise
            return False
        return True

    async def put_tree(self, container_id: str, source: Path, target: str) -> None:
        """See the port.  ``target`` is absolute and is made with its parents; files it holds already and ``source`` lacks stay.

        :raises EngineError: also for a socket, pipe or device in ``source``, and for one that cannot be read.
        """
        folder = PurePosixPath(target)
        if not folder.is_absolute() or ".." in folder.parts:
            raise EngineError("archive.put", 0, f"target {target!r} must be an absolute path without ..")
        await self.put_archive(container_id, "/", read_tree_tar(source, prefix="/".join(folder.parts[1:])))

    # execs

    async def create_exec(self, container_id: str, spec: ExecSpec) -> str:
        return await self._execs.create(container_id, spec)

    async def start_created_exec(self, exec_id: str) -> None:
        await self._execs.start(exec_id)

    async def inspect_exec(self, exec_id: str) -> ExecInfo | None:
        return await self._execs.inspect(exec_id)

    async def wait_exec(self, exec_id: str) -> ExecInfo | None:
        return await self._execs.wait(exec_id)

    async def run_exec(self, container_id: str, spec: ExecSpec, *, timeout_s: float, max_output: int = 65536) -> ExecResult:
        return await self._execs.run(container_id, spec, timeout_s=timeout_s, max_output=max_output)

    # images

    async def inspect_image(self, ref: str) -> ImageInfo | None:
        return await self._images.inspect(ref)

    async def pull_image(self, ref: str, *, timeout_s: float) -> ImageInfo:
        return await self._images.pull(ref, timeout_s=timeout_s)

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
        return await self._images.build(
            context, tag=tag, labels=labels, build_args=build_args, network=network, timeout_s=timeout_s, log=log, buildkit=buildkit
        )

    async def tag_image(self, image_id: str, ref: str) -> None:
        await self._images.tag(image_id, ref)

    async def remove_image(self, ref: str) -> None:
        await self._images.remove(ref)

    def events(self) -> AsyncIterator[EngineEvent]:
        """Hints for ever; a ``marathond``/``resync`` event after every (re)connect says that some may have been missed.

        A ``cut`` before it says that an open stream had ended.
        """
        return self._hub.subscribe()

    async def aclose(self) -> None:
        """End the event reader and close every connection.  Calls after that raise RuntimeError."""
        await self._hub.aclose()
        await self._client.aclose()


if TYPE_CHECKING:
    _keeps_the_port: type[Engine] = DockerEngine
