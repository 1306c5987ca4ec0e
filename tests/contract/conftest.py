"""A real engine and a bench of its own for each test: unique labels, everything with them removed afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from contract.benches import AnyBench, Lost
from support import worker
from support.relay import Relay
from support.rig import CALL_TIMEOUT_S

from marathond.engine.docker import DockerEngine
from marathond.engine.host import occupied
from marathond.ports.engine import Engine, ExecSpec

SHELL_S = 300.0

# Their asserts shall say what they saw, as those of test files do.
pytest.register_assert_rewrite("contract.engine_contract", "contract.exec_contract", "contract.unknown_contract")


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name (107 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="mdt"))
    yield path
    shutil.rmtree(path)


@asynccontextmanager
async def relayed(upstream: Path | None) -> AsyncIterator[Relay]:
    """A relay in a folder whose path is short enough."""
    with tempfile.TemporaryDirectory(prefix="mdt") as folder:
        async with Relay(Path(folder) / "s", upstream) as relay:
            yield relay


@dataclass
class Bench(AnyBench):
    """A real engine."""

    engine: DockerEngine

    async def subnet(self) -> str:
        """A /28 that nobody uses now."""
        networks = [text for net in await self.engine.list_networks() for text in net.subnets if ":" not in text]
        taken = [*networks, *(item.cidr for item in await anyio.to_thread.run_sync(occupied))]
        return worker.any_subnet(taken)

    async def shell(self, container_id: str, script: str) -> str:
        """Run a script that must succeed; its output."""
        done = await self.engine.run_exec(container_id, ExecSpec(["sh", "-c", script]), timeout_s=SHELL_S)
        assert done.exit_code == 0, done
        return done.output

    @asynccontextmanager
    async def losing(self, call: str, word: str) -> AsyncIterator[Lost]:
        """From the first request that holds ``word`` on, no answer comes back; ``call`` is for engines that are not real."""
        async with relayed(Path(self.engine.url.removeprefix("unix://"))) as relay:
            engine = DockerEngine("losing", relay.url, call_timeout_s=CALL_TIMEOUT_S)
            await engine.info()
            relay.mute_at = word.encode()
            arrived = relay.sees(word.encode())
            yield Lost(engine, arrived.wait, relay.cut)
            await engine.aclose()

    @asynccontextmanager
    async def deaf(self, call_timeout_s: float) -> AsyncIterator[Engine]:
        """An engine that takes requests and never answers."""
        async with relayed(None) as relay:
            engine = DockerEngine("deaf", relay.url, call_timeout_s=call_timeout_s)
            yield engine
            await engine.aclose()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[Engine]:
        """An engine at whose socket nobody listens."""
        async with relayed(None) as relay:
            await relay.cut()
            engine = DockerEngine("away", relay.url, call_timeout_s=CALL_TIMEOUT_S)
            yield engine
            await engine.aclose()


@pytest.fixture
async def bench(docker_host: str) -> AsyncIterator[Bench]:
    engine = DockerEngine("test", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    ref = os.environ.get("MARATHOND_TEST_IMAGE", "marathond-sample:bookworm")
    image = await engine.inspect_image(ref)
    if image is None:
        await engine.aclose()
        pytest.fail(f"the engine has no image {ref} (MARATHOND_TEST_IMAGE)")
    made = Bench(image.id, {"marathond.test": secrets.token_hex(6)}, engine)
    yield made
    await made.clean()
    await engine.aclose()
