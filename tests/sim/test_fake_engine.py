"""The simulated engine keeps the Engine contract, in virtual time; and its faults do what real engines were measured to do."""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from contract.benches import AnyBench, Lost
from contract.commands import TRUE, resolve, sleeps, ticks
from contract.engine_contract import EngineContract
from trio.testing import MockClock

from marathond.core.errors import EngineTimeout, EngineUnreachable, PoolExhausted, SubnetTaken
from marathond.core.model import Mount
from marathond.ports.engine import LABEL_CLAIM, LABEL_TRIAL, ContainerSpec, Engine, Process
from tests.sim.fake_engine import CALL_S, FakeEngine
from tests.sim.faults import CREATES, OF_ENGINE, FaultModel
from tests.sim.switch import DeadSwitch, Killed

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


# what goes wrong, as it was measured


@pytest.mark.parametrize("outcome", ["done", "undone", "late"])
@pytest.mark.parametrize("call", CREATES)
async def test_b05_no_answer_says_nothing_of_what_was_done(bench: FakeBench, call: str, outcome: str) -> None:
    engine, server = bench.engine, bench.server
    subnet, container = await bench.subnet(), await bench.container()
    created = await engine.create_container(ContainerSpec(bench.name("new"), bench.image_id, bench.labels, None))
    exec_id = await engine.create_exec(container, TRUE.spec())
    calls = {
        "network.create": (lambda: engine.create_network(bench.name(), bench.labels, subnet), lambda: len(server.networks)),
        "container.create": (
            lambda: engine.create_container(ContainerSpec(bench.name(), bench.image_id, bench.labels, None)),
            lambda: len(server.containers) - 2,
        ),
        "container.start": (lambda: engine.start_container(created), lambda: int(server.containers[created].running)),
        "exec.create": (lambda: engine.create_exec(container, TRUE.spec()), lambda: len(server.execs) - 1),
        "exec.start": (lambda: engine.start_created_exec(exec_id), lambda: int(server.execs[exec_id].started)),
    }
    ask, there = calls[call]
    server.faults.force(call, f"{call.replace('.', '_')}_{outcome}")
    began_s = trio.current_time()
    with pytest.raises(EngineTimeout, match="unknown"):
        await ask()
    assert trio.current_time() - began_s == pytest.approx(CALL_S, abs=1.0)
    assert there() == (outcome == "done")
    await trio.sleep(30.0)
    assert there() == (outcome != "undone")
    assert server.faults.fired.total() == 1


async def test_b11_a_restart_ends_containers_by_137_leaves_networks_and_forgets_execs(bench: FakeBench) -> None:
    engine, server = bench.engine, bench.server
    network = await engine.create_network(bench.name(), bench.labels, await bench.subnet())
    container = await bench.container(network=network)
    exec_id = await bench.start_exec(container, sleeps(1000).spec())
    events = engine.events()
    assert (await anext(events)).action == "resync"
    server.restart(live=False, away_s=10.0)
    await trio.sleep(0.3)
    with pytest.raises(EngineUnreachable):
        await engine.knock()  # it is stopping, and answers older connections alone
    seen = await engine.inspect_container(container)
    assert (seen.status, seen.exit_code) == ("exited", 137)
    await trio.sleep(1.0)
    for call in (engine.info, lambda: engine.pause(container), engine.list_containers):
        with pytest.raises(EngineUnreachable):
            await call()
    assert await engine.wait_exec(exec_id) is None
    assert await engine.inspect_network(network) is not None
    assert await engine.remove_network(network) is True
    await trio.sleep(10.0)
    heard = [event.action for event in events._subscription.queue]
    assert heard.index("die") < heard.index("cut") < heard.index("resync")


async def test_b18_under_live_restore_containers_go_on_and_an_attached_process_hangs_for_good(bench: FakeBench, tmp_path: Path) -> None:
    engine, server = bench.engine, bench.server
    container = await bench.container(mounts=[Mount(str(tmp_path), "/out", read_only=False)])
    dying = await bench.container()
    detached = await bench.start_exec(container, ticks("/out/detached").spec())
    told: list[EngineTimeout] = []

    async def attached() -> None:
        with pytest.raises(EngineTimeout) as caught:
            await engine.run_exec(container, ticks("/out/attached").spec(), timeout_s=1000.0)
        told.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(attached)
        await trio.sleep(1.0)
        server.restart(live=True, away_s=5.0)
        await trio.sleep(1.0)
        server.end_container(server.containers[dying], 7)
    assert "unknown" in told[0].detail
    assert await engine.wait_exec(detached) is None
    seen = await engine.inspect_container(container)
    assert (seen.running, (await engine.inspect_container(dying)).exit_code) == (True, 7 if server.old else 255)
    sizes = [(tmp_path / name).stat().st_size for name in ("detached", "attached")]
    await trio.sleep(10.0)
    assert (tmp_path / "detached").stat().st_size > sizes[0]
    assert (tmp_path / "attached").stat().st_size == sizes[1]
    assert len(await engine.processes(container)) == 4  # both still stand there


async def test_b10_what_a_hanging_engine_took_it_may_carry_out_later(bench: FakeBench) -> None:
    engine, server = bench.engine, bench.server
    server.hang(100.0)
    told = 0
    async with trio.open_nursery() as nursery:

        async def create(number: int) -> None:
            nonlocal told
            with pytest.raises(EngineTimeout):
                await engine.create_container(ContainerSpec(bench.name(str(number)), bench.image_id, bench.labels, None))
            told += 1

        for number in range(20):
            nursery.start_soon(create, number)
    assert (told, len(server.containers)) == (20, 0)
    await trio.sleep(100.0)
    assert 10 < len(await engine.list_containers()) <= 20


async def test_b04_what_cannot_be_removed_says_so_until_it_can(bench: FakeBench) -> None:
    engine, server = bench.engine, bench.server
    network, container = await engine.create_network(bench.name(), bench.labels, await bench.subnet()), await bench.container()
    for name, thing, remove in (("network", network, engine.remove_network), ("container", container, engine.remove_container)):
        server.faults.force(f"{name}.remove", f"{name}_undeletable")
        assert await remove(thing) is False
        assert await remove(thing) is False
    seen = await engine.inspect_container(container)
    assert (seen.running, seen.exit_code) == (False, 137)  # killed it was
    server.faults.stop()
    assert await engine.remove_network(network) is True
    assert await engine.remove_container(container) is True


async def test_b01_others_take_subnets_and_the_pools_run_out(bench: FakeBench) -> None:
    engine, server, subnet = bench.engine, bench.server, await bench.subnet()
    server.faults.force("network.create", "subnet_taken")
    with pytest.raises(SubnetTaken) as taken:
        await engine.create_network(bench.name(), bench.labels, subnet)
    assert (taken.value.status, len(server.foreign)) == (403, 1)
    for number in range(30):  # beside docker0's
        await engine.create_network(bench.name(f"auto{number}"), bench.labels, None)
    with pytest.raises(PoolExhausted) as full:
        await engine.create_network(bench.name("full"), bench.labels, None)
    assert full.value.status == (404 if server.old else 400)


async def test_f02_a_killed_life_reaches_nothing_and_what_it_had_asked_for_usually_comes(bench: FakeBench) -> None:
    server, came, process = bench.server, 0, Process(1, 0, 1, 1, "x")
    for number in range(40):
        switch = DeadSwitch()
        client = server.client(switch)
        with pytest.RaisesGroup(Killed):
            async with trio.open_nursery() as nursery:
                spec = ContainerSpec(bench.name(f"k{number}"), bench.image_id, bench.labels, None)
                nursery.start_soon(client.create_container, spec)
                await trio.sleep(0.01)
                switch.kill()
                nursery.cancel_scope.cancel()
        for call in (client.info, client.knock, lambda c=client: c.kill([process]), lambda c=client: c.wait_exec("x")):
            with pytest.raises(Killed):
                await call()
        await trio.sleep(1.0)
        came = len(server.containers)
    assert 30 <= came < 40


async def test_b08_a_binary_that_is_gone_shows_on_the_exec_alone(bench: FakeBench) -> None:
    container = await bench.container()
    bench.server.faults.force("exec.start", "exec_missing_binary")
    exec_id = await bench.start_exec(container, TRUE.spec())
    info = await bench.engine.inspect_exec(exec_id)
    assert (info.running, info.exit_code) == (False, 126 if bench.server.old else 127)
    assert (await bench.run(container, TRUE)).exit_code == 0


async def test_a_finished_exec_is_forgotten_after_minutes_and_one_that_never_began_is_not(bench: FakeBench) -> None:
    container = await bench.container()
    ended, created = await bench.start_exec(container, TRUE.spec()), await bench.engine.create_exec(container, TRUE.spec())
    await trio.sleep(290.0)
    assert await bench.engine.inspect_exec(ended) is not None
    await trio.sleep(400.0)
    assert await bench.engine.inspect_exec(ended) is None
    assert await bench.engine.inspect_exec(created) is not None


async def test_what_befalls_a_container_is_named_and_ends_with_the_faults(anyio_backend: object) -> None:
    async with trio.open_nursery() as nursery:
        server = made(nursery, "20.10", {"container_dies": 1.0, "oom": 1.0})
        image = server.add_image("sample:1")
        client = server.client(DeadSwitch())
        for number in range(20):
            made_id = await client.create_container(ContainerSpec(f"c{number}", image.id, {}, None))
            await client.start_container(made_id)
        await trio.sleep(20.0)
        server.faults.stop()
        await trio.sleep(1000.0)
        dead = [record for record in server.containers.values() if not record.running]
        assert 0 < len(dead) < 20
        assert {record.exit_code for record in dead} == {137}
        assert any(record.oom_killed for record in server.containers.values())
        assert server.faults.fired == {"container_dies": 20, "oom": 20}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", OF_ENGINE)
async def test_every_fault_of_the_engine_comes_when_planned_is_counted_and_is_over_at_the_end(name: str, anyio_backend: object) -> None:
    async with trio.open_nursery() as nursery:
        faults = FaultModel(random.Random(1), {})
        faults.at(5.0, name)
        server = FakeEngine(nursery, random.Random(2), VirtualClock(), faults, resolve, version="28.5")
        image = server.add_image("sample:1")
        client = server.client(DeadSwitch())
        ours = await client.create_container(ContainerSpec("ours", image.id, {LABEL_TRIAL: "t0001", LABEL_CLAIM: "c"}, None))
        await client.start_container(ours)
        await trio.sleep(6.0)
        assert faults.fired == {name: 1}
        faults.stop()
        assert await client.inspect_container(ours) is not None
        assert not faults.stands(name)
        assert server.touched == []
        assert (trio.current_time() - server.trouble_s) < 2.0
        nursery.cancel_scope.cancel()


def test_a_name_that_is_no_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no_such"):
        FaultModel(random.Random(1), {"no_such": 1.0})
