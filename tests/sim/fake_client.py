"""The Engine port as one daemon life sees the simulated engine.

Owns the port's promises: what is None, what is success, which error.  Every call looks at the life's switch before and after it waits.
Must not know faults.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

import trio

from marathond.core.errors import ConnectionBroke, EngineError, EngineTimeout, NotFound
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
from tests.sim.fake_box import ContainerRecord, ExecRecord, NetworkRecord
from tests.sim.fake_engine import FakeEngine
from tests.sim.switch import DeadSwitch

T = TypeVar("T")
LATE_LOOK_S = 2.0
"""At most so late the end of an exec is noticed; events are hints, and may be lost."""


class FakeClient:
    """One for each daemon life."""

    def __init__(self, server: FakeEngine, switch: DeadSwitch, call_timeout_s: float) -> None:
        self.name, self.call_timeout_s = server.name, call_timeout_s
        self._server, self._switch, self._closed = server, switch, False

    async def _ask(
        self, call: str, effect: Callable[[], T], *, reads: bool = False, deadline_s: float | None = None, subject: str = ""
    ) -> T:
        self._switch.check()
        if self._closed:
            raise RuntimeError(f"the engine client for {self.name} is closed")
        try:
            limit_s = self.call_timeout_s if deadline_s is None else deadline_s
            return await self._server.serve(call, effect, reads=reads, deadline_s=limit_s, subject=subject)
        finally:
            self._switch.check()

    async def info(self) -> EngineInfo:
        return await self._ask("info", self._server.engine_info, reads=True)

    async def knock(self) -> None:
        await self._ask("version", lambda: None, reads=True)

    # networks

    async def create_network(self, name: str, labels: Mapping[str, str], subnet: str | None, *, internal: bool = False) -> str:
        self._switch.check()
        if subnet is not None:
            try:
                IPv4Network(subnet, strict=True)
            except ValueError as exc:
                raise EngineError("network.create", 0, f"subnet {subnet!r} must be canonical IPv4 such as 198.19.0.0/28 ({exc})") from exc
        return await self._ask(
            "network.create", lambda: self._server.create_network(name, labels, subnet, internal=internal), subject=subnet or ""
        )

    async def inspect_network(self, network_id: str) -> NetworkInfo | None:
        networks = self._server.networks
        return await self._ask("network.inspect", lambda: _network(networks[network_id]) if network_id in networks else None, reads=True)

    async def list_networks(self) -> list[NetworkInfo]:
        return await self._ask("network.list", lambda: [_network(record) for record in self._server.networks.values()], reads=True)

    async def remove_network(self, network_id: str) -> bool:
        return await self._ask("network.remove", lambda: self._server.remove_network(network_id), subject=network_id)

    # containers

    async def create_container(self, spec: ContainerSpec) -> str:
        return await self._ask("container.create", lambda: self._server.create_container(spec))

    async def start_container(self, container_id: str) -> None:
        await self._ask("container.start", lambda: self._server.start_container(container_id))

    async def inspect_container(self, container_id: str) -> ContainerInfo | None:
        containers = self._server.containers
        return await self._ask(
            "container.inspect", lambda: _container(containers[container_id]) if container_id in containers else None, reads=True
        )

    async def list_containers(self, labels: Mapping[str, str] | None = None) -> list[ContainerInfo]:
        wanted = (labels or {}).items()
        return await self._ask(
            "container.list",
            lambda: [_listed(record) for record in self._server.containers.values() if wanted <= record.labels.items()],
            reads=True,
        )

    async def remove_container(self, container_id: str) -> bool:
        return await self._ask("container.remove", lambda: self._server.remove_container(container_id), subject=container_id)

    async def pause(self, container_id: str) -> None:
        await self._ask("container.pause", lambda: self._server.pause(container_id, paused=True))

    async def unpause(self, container_id: str) -> None:
        await self._ask("container.unpause", lambda: self._server.pause(container_id, paused=False))

    async def processes(self, container_id: str) -> list[Process]:
        return await self._ask("container.top", lambda: self._server.processes(container_id), reads=True)

    async def kill(self, processes: Sequence[Process]) -> None:
        """The kernel's own: it needs no engine."""
        for process in processes:
            self._switch.check()
            self._server.kill(process)

    # execs

    async def create_exec(self, container_id: str, spec: ExecSpec) -> str:
        return (await self._ask("exec.create", lambda: self._server.create_exec(container_id, spec))).id

    async def start_created_exec(self, exec_id: str) -> None:
        await self._ask("exec.start", lambda: self._server.start_exec(self._exec("exec.start", exec_id)))

    def _exec(self, call: str, exec_id: str) -> ExecRecord:
        made = self._server.find_exec(exec_id)
        if made is None:
            raise NotFound(call, 404, f"No such exec instance: {exec_id}")
        return made

    async def inspect_exec(self, exec_id: str) -> ExecInfo | None:
        def look() -> ExecInfo | None:
            made = self._server.find_exec(exec_id)
            return None if made is None else _exec(made)

        return await self._ask("exec.inspect", look, reads=True)

    async def wait_exec(self, exec_id: str) -> ExecInfo | None:
        server, rng = self._server, self._server.rng
        try:
            while True:
                self._switch.check()
                if not server.up or server.hung:
                    await server.answers.wait()
                    await trio.sleep(rng.uniform(0.05, LATE_LOOK_S))
                    continue
                made = server.find_exec(exec_id)
                if made is None:
                    await trio.sleep(0.01)
                    return None
                if made.exit_code is not None:
                    return _exec(made)
                await made.ended.wait()
                await trio.sleep(rng.uniform(0.01, LATE_LOOK_S))
        finally:
            self._switch.check()

    async def run_exec(self, container_id: str, spec: ExecSpec, *, timeout_s: float, max_output: int = 65536) -> ExecResult:
        server, until_s = self._server, trio.current_time() + timeout_s

        def begin() -> ExecRecord:
            made = server.create_exec(container_id, spec)
            server.start_exec(made, attached=True)
            return made

        boot = server.boot
        try:
            made = await self._ask("exec.run", begin, deadline_s=timeout_s)
        except EngineError as exc:
            if exc.status != 400:
                raise
            return ExecResult(126, exc.detail, False)
        try:
            with trio.move_on_at(until_s):
                await made.ended.wait()
        finally:
            self._switch.check()
        if server.boot != boot:
            raise ConnectionBroke("exec.run", 0, "the connection to Docker broke before it answered; the outcome is unknown")
        if made.exit_code is None and not made.known:
            raise NotFound("exec.run", 404, f"exec {made.id} vanished with its container")
        if made.exit_code is None:
            raise EngineTimeout("exec.run", 0, "no answer from Docker in time; the outcome is unknown")
        output = bytes(made.output)
        return ExecResult(made.exit_code, output[:max_output].decode("utf-8", "replace"), len(output) > max_output)

    # files

    async def put_archive(self, container_id: str, path: str, tar: Callable[[], AsyncIterator[bytes]]) -> None:
        """The simulation keeps no file system: a folder that is no mount and was not uploaded does not exist."""

        def unpack() -> None:
            record = self._server.container("archive.put", container_id)
            if path != "/" and not _there(record, path):
                raise NotFound("archive.put", 404, f"Could not find the file {path} in container {container_id}")
            self._server.changed("archive.put", container_id)

        await self._ask("archive.put", unpack)

    async def path_exists(self, container_id: str, path: str) -> bool:
        return await self._ask("archive.stat", lambda: _there(self._server.container("archive.stat", container_id), path), reads=True)

    async def put_tree(self, container_id: str, source: Path, target: str) -> None:
        folder = PurePosixPath(target)
        if not folder.is_absolute() or ".." in folder.parts:
            raise EngineError("archive.put", 0, f"target {target!r} must be an absolute path without ..")
        if not source.is_dir():  # noqa: ASYNC240 - nothing else runs in virtual time meanwhile
            raise EngineError("archive.put", 0, f"the data to send could not be read: [Errno 2] No such file or directory: '{source}'")

        def unpack() -> None:
            self._server.container("archive.put", container_id).uploads[target] = source
            self._server.changed("archive.put", container_id)

        await self._ask("archive.put", unpack)

    # images

    async def inspect_image(self, ref: str) -> ImageInfo | None:
        return await self._ask("image.inspect", lambda: self._server.images.get(ref), reads=True)

    async def pull_image(self, ref: str, *, timeout_s: float) -> ImageInfo:
        def pull() -> ImageInfo:
            image = self._server.registry.get(ref)
            if image is None:
                raise NotFound("image.pull", 404, f"manifest for {ref} not found: manifest unknown")
            self._server.images[ref] = self._server.images[image.id] = image
            return image

        return await self._ask("image.pull", pull, deadline_s=timeout_s)

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
        def build() -> ImageInfo:
            named = (tag,) if tag is not None else ()
            identity = hashlib.sha256(repr((context.parent.name, sorted(labels.items()), sorted(build_args.items()))).encode()).hexdigest()
            image = ImageInfo(f"sha256:{identity}", named, dict(labels), (), "", 1 << 20)
            for ref in (image.id, *named):
                self._server.images[ref] = image
            return image

        await log(b"Step 1/1 : FROM simulated\n")
        return await self._ask("image.build", build, deadline_s=timeout_s)

    async def tag_image(self, image_id: str, ref: str) -> None:
        def tag() -> None:
            image = self._server.images.get(image_id)
            if image is None:
                raise NotFound("image.tag", 404, f"No such image: {image_id}")
            self._server.images[ref] = image

        await self._ask("image.tag", tag)

    async def remove_image(self, ref: str) -> None:
        await self._ask("image.remove", lambda: self._server.images.pop(ref, None))

    # events

    def events(self) -> AsyncIterator[EngineEvent]:
        return _Events(self._server, self._switch)

    async def aclose(self) -> None:
        self._closed = True


class _Events:
    """An iterator and no generator: one that a killed life leaves behind needs no cleaning up."""

    def __init__(self, server: FakeEngine, switch: DeadSwitch) -> None:
        self._server, self._switch, self._subscription = server, switch, server.subscribe()
        self._closed = False

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> EngineEvent:
        mine = self._subscription
        while True:
            self._switch.check()
            if self._closed:
                raise StopAsyncIteration
            if mine.queue:
                await trio.lowlevel.checkpoint()
                self._switch.check()
                return mine.queue.popleft()
            mine.ready = trio.Event()
            await mine.ready.wait()

    async def aclose(self) -> None:
        self._closed = True
        self._server.unsubscribe(self._subscription)


def _there(record: ContainerRecord, path: str) -> bool:
    if path in record.files or any(PurePosixPath(target).is_relative_to(path) for target in record.uploads):
        return True
    for target, source in [*record.uploads.items(), *((mount.target, Path(mount.source)) for mount in record.spec.mounts)]:
        if PurePosixPath(path).is_relative_to(target):
            return (source / PurePosixPath(path).relative_to(target)).exists()
    return False


def _network(record: NetworkRecord) -> NetworkInfo:
    return NetworkInfo(record.id, record.name, "bridge", record.internal, record.labels, (record.subnet,), record.created_ms)


def _container(record: ContainerRecord) -> ContainerInfo:
    spec = record.spec
    return ContainerInfo(
        id=record.id,
        name=record.name,
        labels=record.labels,
        image_id=spec.image_id,
        running=record.running,
        paused=record.paused,
        status=record.status,
        pid=record.pid,
        started_at=record.started_at,
        exit_code=record.exit_code,
        oom_killed=record.oom_killed,
        network_mode=spec.network or "none",
        network_ids=() if record.attached_network is None else (record.attached_network,),
        env=(*record.image_env, *(f"{name}={value}" for name, value in spec.env.items())),
        created_ms=record.created_ms,
        cpus=spec.cpus,
        memory_mb=spec.memory_mb,
        pids=spec.pids,
        pids_refused=0 if record.running and spec.pids is not None else None,
    )


def _listed(record: ContainerRecord) -> ContainerInfo:
    return ContainerInfo(
        id=record.id,
        name=record.name,
        labels=record.labels,
        image_id=record.spec.image_id,
        running=record.running,
        paused=record.paused,
        status=record.status,
        pid=0,
        started_at="",
        exit_code=record.exit_code,
        oom_killed=False,
        network_mode=record.spec.network or "none",
        network_ids=() if record.attached_network is None else (record.attached_network,),
        created_ms=record.created_ms // 1000 * 1000,
    )


def _exec(made: ExecRecord) -> ExecInfo:
    running = made.process is not None and made.exit_code is None
    return ExecInfo(made.id, running, made.exit_code, made.pid)


if TYPE_CHECKING:
    _keeps_the_port: type[Engine] = FakeClient
