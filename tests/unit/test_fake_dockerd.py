"""The simulated engine behind Docker's API (tests/bench), asked by the real adapter: benches on it measure what runs on Docker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from bench.fake_dockerd import Server

from marathond.agents.command import OUTPUT, STATUS
from marathond.core.detached import detached_argv
from marathond.core.errors import NotFound
from marathond.core.model import Mount
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import LABEL_TRIAL, ContainerSpec, ExecSpec

pytestmark = pytest.mark.anyio

LABELS = {LABEL_TRIAL: "t0001", "other": "x"}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[DockerEngine]:
    server = Server(agent_s=0.3)
    await server.start()
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "d.sock")).start()
    engine = DockerEngine("fake", f"unix://{tmp_path}/d.sock")
    yield engine
    await engine.aclose()
    await runner.cleanup()
    await server.stop()


async def test_the_adapter_sees_networks_and_containers_as_it_asked_for_them(engine: DockerEngine, tmp_path: Path) -> None:
    info = await engine.info()
    assert (info.server_version, info.api_version) == ("20.10.24+dfsg1", "1.41")
    image = await engine.inspect_image("some/image:tag")
    assert image is not None
    network = await engine.create_network("n", LABELS, "198.19.0.0/28")
    (listed,) = await engine.list_networks()
    assert (listed.id, listed.name, listed.subnets, listed.labels) == (network, "n", ("198.19.0.0/28",), LABELS)
    assert await engine.inspect_network(network) == listed
    spec = ContainerSpec("c", image.id, LABELS, network, {"A": "b=c"}, (Mount(str(tmp_path), "/logs", False),), "/w", 1.5, 64, 100)
    made = await engine.create_container(spec)
    await engine.start_container(made)
    seen = await engine.inspect_container(made)
    assert seen is not None
    assert (seen.running, seen.network_mode, seen.labels, seen.cpus, seen.memory_mb, seen.pids) == (True, network, LABELS, 1.5, 64, 100)
    assert "A=b=c" in seen.env
    (row,) = await engine.list_containers({"other": "x"})
    assert (row.id, row.name, row.status, row.network_ids) == (made, "c", "running", (network,))
    assert await engine.list_containers({"other": "y"}) == []
    assert not await engine.remove_network(network)
    await engine.pause(made)
    paused = await engine.inspect_container(made)
    assert paused is not None and paused.paused
    await engine.unpause(made)
    assert await engine.remove_container(made)
    assert await engine.inspect_container(made) is None
    assert await engine.remove_network(network)
    with pytest.raises(NotFound):
        await engine.start_container(made)


async def test_an_agent_runs_its_time_and_a_gate_answers_on_its_stream(engine: DockerEngine, tmp_path: Path) -> None:
    image = await engine.inspect_image("i")
    assert image is not None
    (tmp_path / "logs" / "agent").mkdir(parents=True)
    (tmp_path / "ctl").mkdir()
    mounts = (Mount(str(tmp_path / "logs"), "/logs", False), Mount(str(tmp_path / "ctl"), "/marathond/ctl", False))
    made = await engine.create_container(ContainerSpec("c", image.id, LABELS, None, mounts=mounts))
    await engine.start_container(made)
    missing = await engine.run_exec(made, ExecSpec(("no-such-program",)), timeout_s=30)
    assert missing.exit_code == 126 and "executable file not found" in missing.output
    argv = detached_argv("marathond-agent", ("work",), timer_s=60, output=OUTPUT, status=STATUS)
    agent = await engine.create_exec(made, ExecSpec(argv))
    await engine.start_created_exec(agent)
    running = await engine.inspect_exec(agent)
    assert running is not None and running.running
    ended = await engine.wait_exec(agent)
    assert ended is not None and ended.exit_code == 0
    assert (tmp_path / "logs" / "agent" / "output.txt").read_text().startswith("agent of t0001")
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    assert not await engine.path_exists(made, "/tests")
    await engine.put_tree(made, tmp_path / "tree", "/tests")
    assert await engine.path_exists(made, "/tests")
    assert await engine.inspect_exec("0" * 64) is None
