"""Faults that need an engine of the test's own: used-up address pools, and a dockerd that is killed and comes back."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from support.execs import start_exec
from support.private_engine import PrivateEngine, missing, private_dockerd
from support.rig import CALL_TIMEOUT_S

from marathond.core.errors import EngineUnreachable, PoolExhausted
from marathond.core.subnets import AutoPool, NetworkSubnets, auto_capacity
from marathond.engine.docker import DockerEngine
from marathond.engine.host import occupied
from marathond.ports.engine import ContainerSpec, ExecSpec

pytestmark = [pytest.mark.anyio, pytest.mark.docker, pytest.mark.skipif(bool(missing()), reason=missing())]

LABELS = {"marathond.test": "private"}
MORE_THAN_ANY_POOL = 40


async def _capacity(engine: DockerEngine, private: PrivateEngine, resolv_conf: Path) -> AutoPool:
    networks = [NetworkSubnets(net.id, net.labels == LABELS, net.subnets) for net in await engine.list_networks()]
    host = await anyio.to_thread.run_sync(occupied, private.ip_command, resolv_conf)
    return auto_capacity((await engine.info()).address_pools, networks, host)


async def _fill(engine: DockerEngine) -> tuple[int, PoolExhausted]:
    for count in range(MORE_THAN_ANY_POOL):
        try:
            await engine.create_network(f"fill{count}", LABELS, None)
        except PoolExhausted as exc:
            return count, exc
    raise AssertionError("the pool has no end")


@pytest.fixture
def resolv_conf(tmp_path: Path) -> Path:
    """No resolver: 20.10 does not look at them, 28.5 does, and the host's own is none of this test's business."""
    path = tmp_path / "resolv.conf"
    path.write_text("")
    return path


@pytest.fixture
async def tiny() -> AsyncIterator[tuple[PrivateEngine, DockerEngine]]:
    with private_dockerd(pools=[("10.99.0.0/24", 26)]) as private:
        engine = DockerEngine("tiny", private.url, call_timeout_s=CALL_TIMEOUT_S)
        yield private, engine
        await engine.aclose()


async def test_b01_a_used_up_pool_is_told_apart_and_frees_again(tiny: tuple[PrivateEngine, DockerEngine], resolv_conf: Path) -> None:
    private, engine = tiny
    assert (await engine.info()).address_pools == (("10.99.0.0/24", 26),)
    assert await _capacity(engine, private, resolv_conf) == AutoPool(4, 0, 1, 0, 3)
    count, error = await _fill(engine)
    assert count == 3
    assert error.status in (400, 404)
    assert await _capacity(engine, private, resolv_conf) == AutoPool(4, 3, 1, 0, 0)
    explicit = await engine.create_network("beside", LABELS, "198.19.0.0/28")  # an explicit subnet needs no pool
    [freed, *_] = [net.id for net in await engine.list_networks() if net.name == "fill1"]
    assert await engine.remove_network(freed)
    assert (await _capacity(engine, private, resolv_conf)).free == 1
    await engine.create_network("again", LABELS, None)
    assert await engine.remove_network(explicit)


@pytest.mark.parametrize(
    ("commands", "free"),
    [
        ([], 30),
        (["route add 192.168.16.0/20 dev lo"], 29),
        (["route add 172.16.0.0/12 dev lo"], 16),
        (["route add 0.0.0.0/1 dev lo", "route add 128.0.0.0/1 dev lo"], 0),
        (["link add v0 type veth peer v1", "link set v0 up", "addr add 172.20.3.4/24 dev v0"], 29),
        (["route add default dev lo"], 30),
    ],
    ids=["plain", "route", "vpn", "openvpn", "interface", "default"],
)
async def test_b02_the_counted_capacity_is_what_the_engine_then_gives(commands: list[str], free: int, resolv_conf: Path) -> None:
    with private_dockerd() as private:
        for command in commands:
            await anyio.run_process([*private.ip_command, *command.split()])
        engine = DockerEngine("full", private.url, call_timeout_s=CALL_TIMEOUT_S)
        counted = await _capacity(engine, private, resolv_conf)
        given, _ = await _fill(engine)
        assert (counted.free, given) == (free, free)
        after = await _capacity(engine, private, resolv_conf)
        assert (after.free, after.taken_by_ours) == (0, free)
        await engine.aclose()


@pytest.fixture(scope="module")
def restorable_made(docker_host: str) -> Iterator[PrivateEngine]:
    with private_dockerd(live_restore=True) as private:
        private.load(docker_host, os.environ.get("MARATHOND_TEST_IMAGE", "marathond-sample:bookworm"))
        yield private


@pytest.fixture
def restorable(restorable_made: PrivateEngine) -> Iterator[PrivateEngine]:
    """Running, with live-restore, and with the shared engine's image; made once, for it has to load that."""
    plain = list(restorable_made.arguments)
    yield restorable_made
    if restorable_made.arguments != plain or restorable_made.process is None:
        restorable_made.stop()
        restorable_made.arguments[:] = plain
        restorable_made.start()


async def test_b11_an_engine_that_is_stopping_answers_over_old_connections_and_takes_no_new_ones(restorable: PrivateEngine) -> None:
    """It waits for a container that does not heed its signal: long enough to be seen in the middle."""
    restorable.stop()
    restorable.arguments.remove("--live-restore")
    restorable.start()
    engine = DockerEngine("stopping", restorable.url, call_timeout_s=CALL_TIMEOUT_S)
    image = await engine.inspect_image(os.environ.get("MARATHOND_TEST_IMAGE", "marathond-sample:bookworm"))
    assert image is not None
    container = await engine.create_container(ContainerSpec("stubborn", image.id, LABELS, None))
    await engine.start_container(container)
    events = engine.events()
    assert (await anext(events)).action == "resync"
    await engine.knock()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, restorable.stop)
        with anyio.fail_after(240):
            while True:
                try:
                    await engine.knock()
                except EngineUnreachable:
                    break
                await anyio.sleep(0.05)
            while (await anext(events)).action != "cut":
                pass
    await events.aclose()
    await engine.aclose()


async def test_b18_a_killed_dockerd_comes_back_and_detached_work_goes_on(restorable: PrivateEngine) -> None:
    engine = DockerEngine("restored", restorable.url, call_timeout_s=CALL_TIMEOUT_S)
    image = await engine.inspect_image(os.environ.get("MARATHOND_TEST_IMAGE", "marathond-sample:bookworm"))
    assert image is not None
    assert (await engine.info()).live_restore
    container = await engine.create_container(ContainerSpec("survivor", image.id, LABELS, None))
    await engine.start_container(container)
    script = "while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done > /tmp/out; exec sleep 1008"
    exec_id = await start_exec(engine, container, ExecSpec(["sh", "-c", script]))
    before = await engine.inspect_container(container)
    async with anyio.create_task_group() as group:
        outcome: list[object] = []

        async def wait() -> None:
            outcome.append(await engine.wait_exec(exec_id))

        group.start_soon(wait)
        await anyio.to_thread.run_sync(restorable.kill)
        with pytest.raises(EngineUnreachable):
            await engine.info()
        await anyio.to_thread.run_sync(restorable.start)
    assert outcome == [None]  # exec ids are lost: the caller looks at processes and files instead
    after = await engine.inspect_container(container)
    assert before is not None
    assert after is not None
    assert (after.running, after.pid, after.started_at) == (True, before.pid, before.started_at)
    look = "touch /tmp/go; n=0; until [ -e /tmp/out ] || [ $n -gt 3000 ]; do n=$((n+1)); sleep 0.1; done; cat /tmp/out"
    assert (await engine.run_exec(container, ExecSpec(["sh", "-c", look]), timeout_s=480)).output == "done\n"
    with anyio.fail_after(240):
        while "sleep 1008" not in {process.argv for process in await engine.processes(container)}:  # noqa: ASYNC110
            await anyio.sleep(0.05)
    await engine.aclose()
