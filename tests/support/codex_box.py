"""The real codex in a container without network, in front of a practice provider that listens inside the container's own loopback.

Owns one detached app-server on a unix socket that the host reaches through a bind mount, as a trial's is.  Not the product's client.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from marathond.core.model import Mount, Task
from marathond.gateway import netns
from marathond.ports.engine import ExecSpec
from marathond.practice.script import Practice
from marathond.practice.server import PracticeServer, practising
from tests.support.codex_turns import KEY, Thread, config
from tests.support.yard import Yard

PORT, HOME, START_S = 18555, "/codex-home", 240.0


class BoxedCodex(Thread):
    """A thread of the server behind ``socket``."""

    def __init__(self, cwd: str, container: str, folder: Path, socket: aiohttp.ClientWebSocketResponse) -> None:
        super().__init__(cwd)
        self.container, self.folder, self.socket = container, folder, socket

    async def _send(self, message: dict[str, Any]) -> None:
        await self.socket.send_json(message)

    async def _receive(self) -> str:
        message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, f"codex ended: {message.type.name} {(self.folder / 'stderr').read_text()[-2000:]}"
        return str(message.data)


@asynccontextmanager
async def boxed(
    yard: Yard, task: Task, binary: Path, practice: Practice, model: str, *, goals: bool = False, cpus: float | None = None
) -> AsyncIterator[tuple[BoxedCodex, PracticeServer]]:
    """A fresh container of the task's image, codex in it as the task's agent user, and the provider; all gone at the end."""
    async with AsyncExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="mb-", dir="/tmp"))  # short: a socket's path holds 107 bytes
        stack.callback(shutil.rmtree, folder)
        uid = 0 if task.agent_user is None else 65534
        for name in ("home", "ctl"):
            (folder / name).mkdir(mode=0o700)
            os.chown(folder / name, uid, -1)
        text = config(model, f"http://127.0.0.1:{PORT}/v1", goals=goals, extra='web_search = "disabled"')
        (folder / "home" / "config.toml").write_text(text + f'[projects."{task.workdir}"]\ntrust_level = "untrusted"\n')
        mounts = [
            Mount(str(binary.parents[1]), "/opt/codex"),
            Mount(str(folder / "home"), HOME, read_only=False),
            Mount(str(folder / "ctl"), f"/tmp/codex-daemon-{uid}", read_only=False),
        ]
        container = await yard.container(task, mounts, cpus)
        stack.push_async_callback(yard.remove, container)
        seen = await yard.engine.inspect_container(container)
        assert seen is not None
        ticks = netns.start_ticks(seen.pid)
        assert ticks is not None, f"the container of {task.name} has ended"
        sock = netns.open_listening(seen.pid, ticks, PORT)
        server = await stack.enter_async_context(practising(practice, sock=sock))
        command = f"exec /opt/codex/bin/codex app-server --strict-config --listen unix://{HOME}/sock >{HOME}/stdout 2>{HOME}/stderr"
        env = {"CODEX_HOME": HOME, "HOME": HOME, "PRACTICE_KEY": KEY}
        started = await yard.engine.create_exec(container, ExecSpec(["sh", "-c", command], env, task.agent_user, task.workdir))
        await yard.engine.start_created_exec(started)
        socket = await _connected(stack, folder)
        codex = BoxedCodex(task.workdir or "/", container, folder / "home", socket)
        await codex.begin()
        yield codex, server


async def _connected(stack: AsyncExitStack, folder: Path) -> aiohttp.ClientWebSocketResponse:
    refused = ""
    with anyio.move_on_after(START_S):
        while True:
            if found := next((path for path in (folder / "ctl").iterdir() if path.is_socket()), None):
                session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(found))))
                try:
                    return await stack.enter_async_context(session.ws_connect("http://localhost/", max_msg_size=0))
                except aiohttp.ClientConnectorError as err:  # bound, and a moment later listened at
                    refused = f"; {err}"
            await anyio.sleep(0.02)
    said = (folder / "home" / "stderr").read_text() if (folder / "home" / "stderr").exists() else "nothing"
    raise AssertionError(f"codex opened no socket within {START_S:g} s{refused}; it said: {said[-2000:]}")
