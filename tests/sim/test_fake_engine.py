"""The simulated engine keeps the Engine contract, in virtual time; and its faults do what real engines were measured to do."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import count
from typing import Any

import pytest
import trio
from contract.benches import AnyBench, Lost
from contract.commands import resolve
from contract.engine_contract import EngineContract
from trio.testing import MockClock

from marathond.ports.engine import Engine
from tests.sim.fake_engine import FakeEngine
from tests.sim.faults import FaultModel
from tests.sim.switch import DeadSwitch

pytestmark = pytest.mark.anyio
SUBNETS = IPv4Network("198.19.0.0/16")


class VirtualClock:
    """Wall and monotonic time of the simulated host."""

    boot_id = "boot"

    def mono_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.mono_ms()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@dataclass
class FakeBench(AnyBench):
    """A simulated engine."""

    server: FakeEngine
    numbers: Any = None

    async def subnet(self) -> str:
        self.numbers = self.numbers or count()
        return str(IPv4Network((int(SUBNETS.network_address) + 16 * next(self.numbers), 28)))

    @asynccontextmanager
    async def losing(self, call: str, word: str) -> AsyncIterator[Lost]:
        """The next such call completes and is not answered; ``word`` is for real engines."""
        self.server.faults.force(call, call.replace(".", "_") + "_done")

        async def arrived() -> None:
            await trio.sleep(1.0)

        async def cut() -> None:
            self.server.sever()

        yield Lost(self.server.client(DeadSwitch()), arrived, cut)

    @asynccontextmanager
    async def deaf(self, call_timeout_s: float) -> AsyncIterator[Engine]:
        async with trio.open_nursery() as nursery:
            server = made(nursery, self.server.version)
            server.hang(1e6)
            yield server.client(DeadSwitch(), call_timeout_s)
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[Engine]:
        async with trio.open_nursery() as nursery:
            server = made(nursery, self.server.version)
            server.restart(live=True, away_s=1e6)
            yield server.client(DeadSwitch())
            nursery.cancel_scope.cancel()


def made(nursery: trio.Nursery, version: str, rates: dict[str, float] | None = None, **options: Any) -> FakeEngine:
    """A server with the dice of seed 1."""
    faults = FaultModel(random.Random("1:faults"), rates or {}, **options)
    return FakeEngine(nursery, random.Random("1:engine"), VirtualClock(), faults, resolve, version=version)


@pytest.fixture(params=["20.10", "28.5"])
async def bench(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[FakeBench]:
    async with trio.open_nursery() as nursery:
        server = made(nursery, request.param)
        image = server.add_image("sample:1", env=("PATH=/bin",))
        yield FakeBench(image.id, {"marathond.test": secrets.token_hex(6)}, server.client(DeadSwitch()), server)
        nursery.cancel_scope.cancel()


class TestFakeEngine(EngineContract):
    """Everything in :class:`EngineContract`."""
