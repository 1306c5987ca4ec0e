"""A real engine and a bench of its own for each test: unique labels, everything with them removed afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from support import worker
from support.execs import start_exec
from support.rig import CALL_TIMEOUT_S

from marathond.engine.docker import DockerEngine
from marathond.engine.host import occupied
from marathond.ports.engine import ContainerSpec, ExecSpec, Process

SHELL_S = 300.0


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name (107 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="mdt"))
    yield path
    shutil.rmtree(path)


@dataclass
class Bench:
    """An engine, an image with a shell, and names nobody else uses."""

    engine: DockerEngine
    image_id: str
    labels: dict[str, str]

    def name(self, word: str = "x") -> str:
        return f"mdtest-{self.labels['marathond.test']}-{word}"

    async def subnet(self) -> str:
        """A /28 that nobody uses now."""
        networks = [text for net in await self.engine.list_networks() for text in net.subnets if ":" not in text]
        taken = [*networks, *(item.cidr for item in await anyio.to_thread.run_sync(occupied))]
        return worker.any_subnet(taken)

    async def container(self, **changes: object) -> str:
        fields: dict[str, object] = {
            "name": self.name(secrets.token_hex(3)),
            "image_id": self.image_id,
            "labels": self.labels,
            "network": None,
        }
        container_id = await self.engine.create_container(ContainerSpec(**{**fields, **changes}))  # type: ignore[arg-type]
        await self.engine.start_container(container_id)
        return container_id

    async def start_exec(self, container_id: str, spec: ExecSpec) -> str:
        """Create and start; the exec's id."""
        return await start_exec(self.engine, container_id, spec)

    async def shell(self, container_id: str, script: str) -> str:
        """Run a script that must succeed; its output."""
        done = await self.engine.run_exec(container_id, ExecSpec(["sh", "-c", script]), timeout_s=SHELL_S)
        assert done.exit_code == 0, done
        return done.output

    async def running(self, container_id: str, *argv: str) -> dict[str, Process]:
        """The container's processes by command line, once all of ``argv`` are among them.

        A start is answered before the command is executed: for a moment the runtime's own process, or the shell that forks, stands there.
        """
        with anyio.fail_after(SHELL_S):
            while True:
                found = {process.argv: process for process in await self.engine.processes(container_id)}
                if set(argv) <= found.keys():
                    return found
                await anyio.sleep(0.05)

    async def clean(self) -> None:
        for container in await self.engine.list_containers(self.labels):
            await self._gone(self.engine.remove_container, container.id)
        for network in await self.engine.list_networks():
            if network.labels.get("marathond.test") == self.labels["marathond.test"]:
                await self._gone(self.engine.remove_network, network.id)

    async def _gone(self, remove: Callable[[str], Awaitable[bool]], thing: str) -> None:
        """A mount or an endpoint may be busy for a moment."""
        for _ in range(100):
            if await remove(thing):
                return
            await anyio.sleep(0.2)
        raise AssertionError(f"the engine does not remove {thing}")


@pytest.fixture
async def bench(docker_host: str) -> AsyncIterator[Bench]:
    engine = DockerEngine("test", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    ref = os.environ.get("MARATHOND_TEST_IMAGE", "marathond-sample:bookworm")
    image = await engine.inspect_image(ref)
    if image is None:
        await engine.aclose()
        pytest.fail(f"the engine has no image {ref} (MARATHOND_TEST_IMAGE)")
    made = Bench(engine, image.id, {"marathond.test": secrets.token_hex(6)})
    yield made
    await made.clean()
    await engine.aclose()
