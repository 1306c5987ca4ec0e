"""What every implementation of the Engine port must do with networks, containers and processes; ``bench`` brings the engine.

Owns the rules that hold for real engines and the simulated one alike; what only a real one can show is engine_real_only.py.  Commands come
from commands.py, which both kinds can run.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from contract import commands
from contract.exec_contract import ExecContract
from contract.unknown_contract import UnknownContract

from marathond.core.errors import EngineError, NotFound, SubnetTaken
from marathond.core.model import Mount
from marathond.ports.engine import ContainerSpec, Engine, Process

UNKNOWN = "0" * 64


class ContainerContract:
    """Methods are tests; ``bench`` brings the engine, an image and fresh labels."""

    async def test_an_engine_that_lives_answers_a_knock(self, bench) -> None:
        await bench.engine.knock()

    # networks

    async def test_a_network_is_made_found_and_removed_by_id(self, bench) -> None:
        subnet = await bench.subnet()
        made = await bench.engine.create_network(bench.name(), bench.labels, subnet)
        seen = await bench.engine.inspect_network(made)
        assert seen is not None
        assert (seen.id, seen.name, seen.subnets, seen.internal, seen.driver) == (made, bench.name(), (subnet,), False, "bridge")
        assert seen.labels == bench.labels
        assert seen.created_ms > 1_600_000_000_000
        assert seen in await bench.engine.list_networks()
        assert await bench.engine.remove_network(made) is True
        assert await bench.engine.inspect_network(made) is None
        assert await bench.engine.remove_network(made) is True  # gone already is success

    async def test_two_requests_for_one_subnet_one_wins_the_other_is_told(self, bench) -> None:
        subnet = await bench.subnet()
        won: list[str] = []
        lost: list[SubnetTaken] = []

        async def ask(word: str) -> None:
            try:
                won.append(await bench.engine.create_network(bench.name(word), bench.labels, subnet))
            except SubnetTaken as exc:
                lost.append(exc)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "a")
            group.start_soon(ask, "b")
        assert (len(won), len(lost)) == (1, 1)
        assert lost[0].status == 403

    async def test_a_subnet_with_host_bits_is_refused_before_the_engine_is_asked(self, bench) -> None:
        with pytest.raises(EngineError, match="canonical"):
            await bench.engine.create_network(bench.name(), bench.labels, "198.19.0.1/28")

    async def test_b04_a_network_in_use_stays_and_says_so(self, bench) -> None:
        network = await bench.engine.create_network(bench.name(), bench.labels, await bench.subnet())
        container = await bench.container(network=network)
        assert await bench.engine.remove_network(network) is False
        assert await bench.engine.inspect_network(network) is not None
        seen = await bench.engine.inspect_container(container)
        assert seen is not None
        assert (seen.network_mode, seen.network_ids) == (network, (network,))
        assert await bench.engine.remove_container(container) is True
        # b03: the container's end leaves the network
        assert await bench.engine.inspect_network(network) is not None
        assert await bench.engine.remove_network(network) is True

    async def test_b04_a_created_container_does_not_hold_its_network(self, bench) -> None:
        """What the sweeper must know: such a network looks unused, and the start fails once it is gone."""
        network = await bench.engine.create_network(bench.name(), bench.labels, await bench.subnet())
        made = await bench.engine.create_container(ContainerSpec(bench.name(), bench.image_id, bench.labels, network))
        [listed] = await bench.engine.list_containers(bench.labels)
        assert listed.network_mode == network
        assert await bench.engine.remove_network(network) is True
        with pytest.raises(NotFound):
            await bench.engine.start_container(made)
        seen = await bench.engine.inspect_container(made)
        assert seen is not None
        assert not seen.running

    async def test_a_second_network_of_one_name_is_refused(self, bench) -> None:
        """When they are asked for one after the other; 20.10 makes both when it is asked at once."""
        made = await bench.engine.create_network(bench.name(), bench.labels, await bench.subnet())
        with pytest.raises(EngineError, match="already exists") as caught:
            await bench.engine.create_network(bench.name(), bench.labels, await bench.subnet())
        assert caught.value.status == 409
        assert [network.id for network in await bench.networks()] == [made]

    # containers

    async def test_a_container_lives_from_create_to_removal(self, bench) -> None:
        made = await bench.engine.create_container(
            ContainerSpec(bench.name(), bench.image_id, bench.labels, None, env={"A": "b c"}, workdir="/srv", cpus=0.5, memory_mb=64)
        )
        seen = await bench.engine.inspect_container(made)
        assert seen is not None
        assert (seen.running, seen.status, seen.exit_code, seen.network_mode) == (False, "created", None, "none")
        assert (seen.cpus, seen.memory_mb) == (0.5, 64)
        await bench.engine.start_container(made)
        await bench.engine.start_container(made)  # started already is success
        seen = await bench.engine.inspect_container(made)
        assert seen is not None
        assert (seen.running, seen.paused, seen.exit_code, seen.name, seen.image_id) == (True, False, None, bench.name(), bench.image_id)
        assert seen.pid > 1
        assert seen.started_at.startswith("2")
        listed = await bench.engine.list_containers(bench.labels)
        assert [(item.id, item.running, item.network_mode, item.labels) for item in listed] == [(made, True, "none", bench.labels)]
        assert (await bench.run(made, commands.PWD)).output == "/srv\n"
        assert await bench.engine.remove_container(made) is True
        assert await bench.engine.inspect_container(made) is None
        assert await bench.engine.remove_container(made) is True
        assert await bench.engine.list_containers(bench.labels) == []

    async def test_b13_a_running_container_has_the_environment_it_was_given_and_no_proxy(self, bench) -> None:
        container = await bench.container(env={"A": "1"})
        seen = await bench.engine.inspect_container(container)
        assert seen is not None
        assert "A=1" in seen.env
        assert (seen.cpus, seen.memory_mb) == (None, None)
        assert "proxy" not in (await bench.run(container, commands.ENV)).output.lower()

    async def test_unknown_things_are_none_or_not_found(self, bench) -> None:
        engine = bench.engine
        assert await engine.inspect_container(UNKNOWN) is None
        assert await engine.inspect_network(UNKNOWN) is None
        assert await engine.inspect_exec(UNKNOWN) is None
        assert await engine.inspect_image(f"sha256:{UNKNOWN}") is None
        assert await engine.wait_exec(UNKNOWN) is None
        spec = ContainerSpec(bench.name(), f"sha256:{UNKNOWN}", bench.labels, None)
        with pytest.raises(NotFound):
            await engine.create_container(spec)
        for call in (engine.start_container, engine.pause, engine.processes):
            with pytest.raises(NotFound):
                await call(UNKNOWN)
        with pytest.raises(NotFound):
            await bench.container(network=UNKNOWN)

    async def test_a_name_belongs_to_one_container(self, bench) -> None:
        """What a create that timed out and completed leads to when it is asked again."""
        spec = ContainerSpec(bench.name(), bench.image_id, bench.labels, None)
        made = await bench.engine.create_container(spec)
        with pytest.raises(EngineError, match="already in use") as caught:
            await bench.engine.create_container(spec)
        assert caught.value.status == 409
        assert [info.id for info in await bench.engine.list_containers(bench.labels)] == [made]

    async def test_a_container_is_listed_by_all_the_labels_asked_for(self, bench) -> None:
        made = await bench.container(labels={**bench.labels, "more": "1"})
        await bench.container()
        both = await bench.engine.list_containers({**bench.labels, "more": "1"})
        assert [info.id for info in both] == [made]
        assert await bench.engine.list_containers({**bench.labels, "more": "2"}) == []
        assert len(await bench.engine.list_containers(bench.labels)) == 2
        assert made in [info.id for info in await bench.engine.list_containers()]

    async def test_a_mount_is_read_only_or_not_and_its_source_must_exist(self, bench, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "file").write_text("text")
        (tmp_path / "out").mkdir()
        mounts = [Mount(str(tmp_path / "in"), "/in"), Mount(str(tmp_path / "out"), "/out", read_only=False)]
        container = await bench.container(mounts=mounts)
        assert (await bench.run(container, commands.reads("/in/file"))).output == "text"
        assert (await bench.run(container, commands.writes("/out/copy", "word"))).exit_code == 0
        assert (tmp_path / "out" / "copy").read_text() == "word"
        assert (await bench.run(container, commands.writes("/in/new", "word"))).exit_code != 0
        assert not (tmp_path / "in" / "new").exists()
        with pytest.raises(EngineError, match="does not exist"):
            await bench.container(mounts=[Mount(str(tmp_path / "nowhere"), "/x")])
        assert not (tmp_path / "nowhere").exists()

    async def test_b09_a_container_whose_main_process_dies_ends_with_everything_in_it(self, bench) -> None:
        engine = bench.engine
        container = await bench.container()
        exec_id = await bench.start_exec(container, commands.sleeps(1013).spec())
        await bench.running(container, "sleep 1013", "sleep 86400")
        seen = await engine.inspect_container(container)
        assert seen is not None
        main = next(process for process in await engine.processes(container) if process.pid == seen.pid)
        await engine.kill([main])
        ended = await bench.until(lambda: engine.inspect_container(container), lambda info: not info.running)
        assert (ended.status, ended.exit_code, ended.oom_killed, ended.pid) == ("exited", 137, False, 0)
        assert await engine.processes(container) == []
        with anyio.fail_after(240):
            info = await engine.wait_exec(exec_id)
        assert info is None or info.exit_code == 137
        with pytest.raises(EngineError) as caught:
            await engine.create_exec(container, commands.TRUE.spec())
        assert caught.value.status == 409
        await engine.start_container(container)  # somebody else may: its second life shows
        again = await engine.inspect_container(container)
        assert again is not None
        assert (again.running, again.started_at != seen.started_at) == (True, True)

    # processes

    async def test_processes_are_seen_while_paused_and_killed_one_by_one(self, bench) -> None:
        engine = bench.engine
        container = await bench.container()
        doomed = await bench.start_exec(container, commands.sleeps(1001).spec())
        spared = await bench.start_exec(container, commands.sleeps(1002).spec())
        await bench.running(container, "sleep 1001", "sleep 1002", "sleep 86400")
        await engine.pause(container)
        await engine.pause(container)
        seen = await engine.inspect_container(container)
        assert seen is not None
        assert (seen.running, seen.paused, seen.status) == (True, True, "paused")
        found = {process.argv: process for process in await engine.processes(container)}
        target = found["sleep 1001"]
        info = await engine.inspect_exec(doomed)
        assert info is not None
        assert (info.pid, info.running) == (target.pid, True)
        assert target.session == target.pid  # an exec is the leader of its own session, by host ids
        assert found["sleep 86400"].session == seen.pid  # what idles belongs to PID 1's
        await engine.kill([target])
        await engine.unpause(container)
        await engine.unpause(container)
        with anyio.fail_after(240):
            ended = await engine.wait_exec(doomed)
        assert ended is not None
        assert (ended.running, ended.exit_code) == (False, 137)
        left = await engine.processes(container)
        assert target.pid not in {process.pid for process in left}
        assert "sleep 1002" in {process.argv for process in left}
        other = await engine.inspect_exec(spared)
        assert other is not None
        assert other.running
        await engine.kill([target])  # gone already is success

    async def test_f10_a_reused_pid_is_not_hit(self, bench) -> None:
        container = await bench.container()
        await bench.start_exec(container, commands.sleeps(1003).spec())
        real = (await bench.running(container, "sleep 1003"))["sleep 1003"]
        await bench.engine.kill([Process(real.pid, real.ppid, real.session, real.start_ticks - 1, real.argv)])
        await bench.engine.pause(container)  # a signal that was sent would show by now: a killed process is no row
        assert real in await bench.engine.processes(container)

    async def test_b07_a_session_outlives_its_leader_and_one_of_its_own_outlives_both(self, bench) -> None:
        engine = bench.engine
        container = await bench.container()
        leader = await bench.start_exec(container, commands.LEAVES_ONE_BEHIND.spec())
        found = await bench.running(container, "sleep 1008", "sleep 1009")
        detached, own = found["sleep 1008"], found["sleep 1009"]
        assert detached.session == detached.pid
        assert own.session == own.pid
        await bench.start_exec(container, commands.HAS_A_CHILD.spec())
        found = await bench.running(container, "sleep 1010", "sleep 1011")
        child = found["sleep 1010"]
        parent = next(process for process in found.values() if process.pid == child.ppid)
        assert child.session == parent.pid == parent.session
        await engine.kill([own, parent])
        with anyio.fail_after(240):
            ended = await engine.wait_exec(leader)
        assert ended is not None
        assert ended.exit_code == 137
        seen = await engine.inspect_container(container)
        assert seen is not None
        left = {p.argv: p for p in await bench.until(lambda: engine.processes(container), lambda ps: all(p.pid != parent.pid for p in ps))}
        assert (left["sleep 1008"].session, left["sleep 1008"].ppid) == (detached.pid, seen.pid)  # adopted by the main process
        assert (left["sleep 1010"].session, left["sleep 1010"].ppid) == (parent.pid, seen.pid)

    async def test_what_is_paused_does_nothing_and_takes_no_exec(self, bench, tmp_path: Path) -> None:
        engine, log = bench.engine, tmp_path / "ticks"
        container = await bench.container(mounts=[Mount(str(tmp_path), "/out", read_only=False)])
        await bench.start_exec(container, commands.ticks("/out/ticks").spec())
        with anyio.fail_after(240):
            while not log.exists() or not log.stat().st_size:  # noqa: ASYNC110 - a file has no bell
                await anyio.sleep(0.05)
        await engine.pause(container)
        await anyio.sleep(0.2)  # a write that was under way
        size = log.stat().st_size
        await anyio.sleep(0.5)
        assert log.stat().st_size == size
        with pytest.raises(EngineError, match="paused") as caught:
            await engine.create_exec(container, commands.TRUE.spec())
        assert caught.value.status == 409
        await engine.unpause(container)
        with anyio.fail_after(240):
            while log.stat().st_size == size:  # noqa: ASYNC110
                await anyio.sleep(0.05)

    async def test_a_stopped_container_has_no_processes(self, bench) -> None:
        container = await bench.engine.create_container(ContainerSpec(bench.name(), bench.image_id, bench.labels, None))
        assert await bench.engine.processes(container) == []

    # images

    async def test_an_image_is_found_by_tag_and_by_id(self, bench) -> None:
        image = await bench.engine.inspect_image(bench.image_id)
        assert image is not None
        assert image.id == bench.image_id
        assert image.id.startswith("sha256:")

    async def test_the_port_is_kept(self, bench) -> None:
        engine: Engine = bench.engine
        info = await engine.info()
        assert info.ncpu > 0
        assert info.memory_bytes > 0
        assert tuple(map(int, info.api_version.split("."))) >= (1, 40)
        assert info.data_root.startswith("/")


class EngineContract(ContainerContract, ExecContract, UnknownContract):
    """Everything that a simulated engine and a real one have in common."""
