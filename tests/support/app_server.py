"""codex's app-server as a trial has it: detached, as another user, in a container without network, the provider on its loopback.

Owns one container with one server, and the ways to look into it.  The client is the product's own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from marathond.agents.codex.client import CodexClient, Event, connect
from marathond.agents.codex.errors import ReachError
from marathond.agents.codex.messages import GoalIs, GoalSet, TurnBegun, TurnStart
from marathond.agents.codex.notices import OnTurnCompleted
from marathond.agents.codex.reach import Reach
from marathond.agents.codex.shapes import Turn
from marathond.core.model import Mount
from marathond.engine.docker import DockerEngine
from marathond.gateway import netns
from marathond.ports.engine import ContainerSpec, ExecSpec
from marathond.practice.play import Identity
from marathond.practice.script import Practice
from marathond.practice.server import PracticeServer, practising
from tests.support.codex_turns import KEY, config
from tests.support.rig import CALL_TIMEOUT_S

PORT, UID, START_S, TIMEOUT_S = 18556, 1000, 240.0, 240.0
NOT_YET = ("folder_missing", "socket_missing", "socket_refused")
USER = f"{UID}:{UID}"


def base_image() -> str:
    return os.environ.get("MARATHOND_TEST_IMAGE") or os.environ.get("MARATHOND_BASE_IMAGE") or "marathond-sample:bookworm"


@dataclass
class Box:
    """A container, with or without a server in it."""

    engine: DockerEngine
    container: str
    pid: int
    start_ticks: int
    traffic: list[Mapping[str, Any]] = field(default_factory=list)
    """All that clients said and heard."""
    clients: list[CodexClient] = field(default_factory=list)

    async def close(self) -> None:
        """Every client that a test left, because it failed, say."""
        for client in self.clients:
            await client.aclose()

    @property
    def reach(self) -> Reach:
        return Reach(self.pid, self.start_ticks, UID)

    async def shell(self, script: str, user: str = USER) -> str:
        """The output of a script that must succeed."""
        done = await self.engine.run_exec(self.container, ExecSpec(["sh", "-c", script], user=user), timeout_s=TIMEOUT_S)
        assert done.exit_code == 0, done
        return done.output

    async def ran(self, file: str = "ran") -> list[str]:
        """What the scripted commands wrote, one word each."""
        return (await self.shell(f"cat /app/{file} 2>/dev/null || true")).split()

    async def serve(self) -> int:
        """Start a server and wait for its socket; its host-side pid."""
        command = "exec /opt/codex/bin/codex app-server --strict-config --listen unix:///codex-home/sock >/codex-home/out 2>&1"
        env = {"CODEX_HOME": "/codex-home", "HOME": "/codex-home", "PRACTICE_KEY": KEY}
        made = await self.engine.create_exec(self.container, ExecSpec(["sh", "-c", command], env, USER, "/app"))
        await self.engine.start_created_exec(made)
        await (await self.client()).aclose()
        seen = await self.engine.inspect_exec(made)
        assert seen is not None
        return seen.pid

    async def once(self, timeout_s: float = TIMEOUT_S, **bounds: int) -> CodexClient:
        """Connected at the first try."""
        self.clients.append(await connect(self.reach, sink=self.traffic.append, timeout_s=timeout_s, **bounds))
        return self.clients[-1]

    async def client(self, **bounds: int) -> CodexClient:
        """Connected; a server that is still starting is waited for."""
        with anyio.fail_after(START_S):
            while True:
                try:
                    return await self.once(**bounds)
                except ReachError as err:
                    if err.code not in NOT_YET:
                        raise
                await anyio.sleep(0.02)


@asynccontextmanager
async def container(docker_host: str, mounts: tuple[Mount, ...] = ()) -> AsyncIterator[Box]:
    """A container that idles, removed at the end."""
    async with AsyncExitStack() as stack:
        engine = DockerEngine("test", docker_host, call_timeout_s=CALL_TIMEOUT_S)
        stack.push_async_callback(engine.aclose)
        image = await engine.inspect_image(base_image())
        assert image is not None, f"the engine has no image {base_image()}"
        name = f"mdtest-{secrets.token_hex(6)}"
        made = await engine.create_container(ContainerSpec(name, image.id, {"marathond.test": name}, None, mounts=mounts))
        stack.push_async_callback(engine.remove_container, made)
        await engine.start_container(made)
        seen = await engine.inspect_container(made)
        assert seen is not None
        ticks = netns.start_ticks(seen.pid)
        assert ticks is not None
        box = Box(engine, made, seen.pid, ticks)
        stack.push_async_callback(box.close)
        await box.shell(f"mkdir -p /app /codex-home && chown {UID}:{UID} /app /codex-home", user="0")
        yield box


@asynccontextmanager
async def app_server(
    docker_host: str, binary: Path, practice: Practice, *, model: str = "gpt-5.5", goals: bool = False, extra: str = ""
) -> AsyncIterator[tuple[Box, PracticeServer]]:
    """A container with a server that runs, in front of a provider."""
    async with container(docker_host, (Mount(str(binary.parents[1]), "/opt/codex"),)) as box:
        sock = netns.open_listening(box.pid, box.start_ticks, PORT)
        async with practising(practice, sock=sock) as provider:
            provider.enroll(KEY, Identity("t1"))
            text = config(model, f"http://127.0.0.1:{PORT}/v1", goals=goals, extra=extra)
            await box.shell(f"cat > /codex-home/config.toml <<'EOF'\n{text}EOF")
            await box.serve()
            yield box, provider


async def pursue(client: CodexClient, goal: GoalSet, begin: TurnStart) -> tuple[GoalIs, TurnBegun]:
    """Set the goal and say the message.  Both leave before the first is answered: 50 ms between them, and the goal's first turn asks the
    model alone, so that what the message does is done by another turn than it names."""
    return await asyncio.gather(client.request(goal, TIMEOUT_S), client.request(begin, TIMEOUT_S))


async def until(client: CodexClient, method: str, thread_id: str | None = None) -> Event:
    """The next notification of that name (and thread); what comes before it is passed over."""
    while True:
        event = await client.next_event()
        if event.method == method and thread_id in (None, event.thread_id):
            return event


async def turn_end(client: CodexClient, thread_id: str) -> Turn:
    body = (await until(client, "turn/completed", thread_id)).body
    assert isinstance(body, OnTurnCompleted)
    return body.turn
