"""What the contract's tests stand on, whatever the engine: names nobody else uses, containers of them, and waiting for what must come.

Owns what both benches share.  Must not know which engine it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from contract.commands import Command
from support.execs import start_exec

from marathond.ports.engine import ContainerSpec, Engine, ExecResult, ExecSpec, NetworkInfo, Process

T = TypeVar("T")
WAIT_S = 300.0
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Lost:
    """An engine whose answer to one call is lost.  ``arrived``: waits until the engine has the request; ``cut``: its connections break."""

    engine: Engine
    arrived: Callable[[], Awaitable[Any]]
    cut: Callable[[], Awaitable[None]]


@dataclass
class AnyBench:
    """``labels`` are this test's own.  What has them is removed after it."""

    image_id: str
    labels: dict[str, str]
    engine: Any

    def name(self, word: str = "x") -> str:
        return f"mdtest-{self.labels['marathond.test']}-{word}"

    async def container(self, **changes: object) -> str:
        """A running one; ``changes`` are fields of its ContainerSpec."""
        fields: dict[str, object] = {
            "name": self.name(secrets.token_hex(3)),
            "image_id": self.image_id,
            "labels": self.labels,
            "network": None,
        }
        container_id: str = await self.engine.create_container(ContainerSpec(**{**fields, **changes}))  # type: ignore[arg-type]
        await self.engine.start_container(container_id)
        return container_id

    async def start_exec(self, container_id: str, spec: ExecSpec) -> str:
        """Create and start; the exec's id."""
        return await start_exec(self.engine, container_id, spec)

    async def run(self, container_id: str, command: Command) -> ExecResult:
        """To its end."""
        done: ExecResult = await self.engine.run_exec(container_id, command.spec(), timeout_s=WAIT_S)
        return done

    async def networks(self) -> list[NetworkInfo]:
        """Of this test."""
        return [network for network in await self.engine.list_networks() if network.labels == self.labels]

    async def until(self, look: Callable[[], Awaitable[T]], true: Callable[[T], object]) -> T:
        """What was seen, once it is so."""
        with anyio.fail_after(WAIT_S):
            while not true(seen := await look()):  # noqa: ASYNC110 - an engine has no bell for it
                await anyio.sleep(PAUSE_S)
        return seen

    async def running(self, container_id: str, *argv: str) -> dict[str, Process]:
        """The container's processes by command line, once all of ``argv`` are among them.

        A start is answered before the command is executed: for a moment the runtime's own process, or the shell that forks, stands there.
        """

        async def look() -> dict[str, Process]:
            return {process.argv: process for process in await self.engine.processes(container_id)}

        return await self.until(look, lambda found: set(argv) <= found.keys())

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
