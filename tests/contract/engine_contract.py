"""What every implementation of the Engine port must do; subclass it with a ``bench`` fixture."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from ipaddress import IPv4Network
from pathlib import Path

import anyio
import pytest

from marathond.core.errors import EngineError, EngineTimeout, NotFound, SubnetTaken
from marathond.core.model import Mount
from marathond.ports.engine import ContainerSpec, Engine, ExecInfo, ExecSpec, Process

UNKNOWN = "0" * 64


class EngineContract:
    """Methods are tests; ``bench`` brings the engine, an image with a shell and fresh labels."""

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

    async def test_b15_from_an_internal_network_the_host_does_not_answer_on_the_gateway(self, bench) -> None:
        async def reach(internal: bool) -> int:
            subnet = await bench.subnet()
            network = await bench.engine.create_network(bench.name(f"internal-{internal}"), bench.labels, subnet, internal=internal)
            seen = await bench.engine.inspect_network(network)
            assert seen is not None
            assert seen.internal is internal
            container = await bench.container(network=network)
            gateway = next(IPv4Network(subnet).hosts())
            connect = ExecSpec(["timeout", "60", "bash", "-c", f"</dev/tcp/{gateway}/{port}"])
            return (await bench.engine.run_exec(container, connect, timeout_s=240)).exit_code

        async with await anyio.create_tcp_listener(local_host="0.0.0.0") as listener:
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            assert await reach(internal=False) == 0  # the listener can be reached at all
            assert await reach(internal=True) != 0

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
        assert await bench.shell(made, "pwd") == "/srv\n"
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
        assert "proxy" not in (await bench.shell(container, "env")).lower()

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

    async def test_a_mount_is_read_only_or_not_and_its_source_must_exist(self, bench, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "file").write_text("text")
        (tmp_path / "out").mkdir()
        mounts = [Mount(str(tmp_path / "in"), "/in"), Mount(str(tmp_path / "out"), "/out", read_only=False)]
        container = await bench.container(mounts=mounts)
        assert await bench.shell(container, "cat /in/file; cp /in/file /out/copy; touch /in/new 2>/dev/null && echo wrote; true") == "text"
        assert (tmp_path / "out" / "copy").read_text() == "text"
        with pytest.raises(EngineError, match="does not exist"):
            await bench.container(mounts=[Mount(str(tmp_path / "nowhere"), "/x")])
        assert not (tmp_path / "nowhere").exists()

    # processes

    async def test_processes_are_seen_while_paused_and_killed_one_by_one(self, bench) -> None:
        engine = bench.engine
        container = await bench.container()
        doomed = await bench.start_exec(container, ExecSpec(["sleep", "1001"]))
        spared = await bench.start_exec(container, ExecSpec(["sleep", "1002"]))
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
        await bench.start_exec(container, ExecSpec(["sleep", "1003"]))
        real = (await bench.running(container, "sleep 1003"))["sleep 1003"]
        await bench.engine.kill([Process(real.pid, real.ppid, real.session, real.start_ticks - 1, real.argv)])
        await bench.engine.pause(container)  # a signal that was sent would show by now: a killed process is no row
        assert real in await bench.engine.processes(container)

    async def test_pid_1_reaps_and_survives_the_death_of_its_sleep(self, bench) -> None:
        container = await bench.container()
        await bench.running(container, "sleep 86400")
        script = """
            of_one() { grep -l '^PPid:[[:space:]]1$' /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3; }
            old=$(of_one); kill -9 $old
            (sh -c 'exec sleep 0' &)                     # an orphan that ends
            until [ ! -e /proc/$old ] && new=$(of_one) && [ "$(cat /proc/$new/comm)" = sleep ] &&
                ! grep -q ') Z ' /proc/[0-9]*/stat 2>/dev/null; do sleep 0.05; done
        """
        await bench.shell(container, script)
        seen = await bench.engine.inspect_container(container)
        assert seen is not None
        assert seen.running

    async def test_a_stopped_container_has_no_processes(self, bench) -> None:
        container = await bench.engine.create_container(ContainerSpec(bench.name(), bench.image_id, bench.labels, None))
        assert await bench.engine.processes(container) == []

    # execs

    async def test_an_exec_can_be_written_down_before_it_runs(self, bench) -> None:
        engine = bench.engine
        container = await bench.container()
        spec = ExecSpec(["sh", "-c", 'echo "$A $(pwd) $(id -u)" > /tmp/out; exit 7'], env={"A": "a b"}, user="1", cwd="/usr")
        exec_id = await engine.create_exec(container, spec)
        info = await engine.inspect_exec(exec_id)
        assert info is not None
        assert (info.running, info.exit_code, info.pid) == (False, None, 0)
        await engine.start_created_exec(exec_id)
        with anyio.fail_after(240):
            info = await engine.wait_exec(exec_id)
        assert info is not None
        assert (info.running, info.exit_code) == (False, 7)
        assert await bench.shell(container, "cat /tmp/out") == "a b /usr 1\n"
        await engine.start_created_exec(exec_id)  # once more changes nothing
        assert await bench.shell(container, "cat /tmp/out") == "a b /usr 1\n"

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            (ExecSpec(["/no/such/binary"]), "/no/such/binary"),
            (ExecSpec(["true"], cwd="/no/such/folder"), "/no/such/folder"),
            (ExecSpec(["true"], user="nosuchuser"), "nosuchuser"),
        ],
    )
    async def test_b08_what_cannot_start_answers_126_with_the_reason(self, bench, spec: ExecSpec, words: str) -> None:
        container = await bench.container()
        done = await bench.engine.run_exec(container, spec, timeout_s=240)
        assert done.exit_code in (126, 127)
        assert words in done.output
        try:
            exec_id = await bench.start_exec(container, spec)
        except EngineError as exc:  # 28.5 checks the user when the exec is created
            assert (spec.user, exc.status) == ("nosuchuser", 400)
            assert words in exc.detail
            return
        with anyio.fail_after(240):
            info = await bench.engine.wait_exec(exec_id)
        assert info is not None
        assert info.exit_code in (126, 127)

    async def test_output_is_bounded_and_the_command_runs_to_its_end(self, bench) -> None:
        container = await bench.container()
        script = "head -c 3000000 /dev/zero | tr '\\0' x; echo error >&2; touch /tmp/done; exit 3"
        done = await bench.engine.run_exec(container, ExecSpec(["sh", "-c", script]), timeout_s=240, max_output=1000)
        assert (done.exit_code, done.output, done.truncated) == (3, "x" * 1000, True)
        assert await bench.shell(container, "ls /tmp/done") == "/tmp/done\n"
        both = await bench.engine.run_exec(container, ExecSpec(["sh", "-c", "echo out; echo err >&2"]), timeout_s=240)
        assert sorted(both.output.split()) == ["err", "out"]
        assert not both.truncated

    async def test_a_short_command_that_takes_long_is_a_timeout(self, bench) -> None:
        container = await bench.container()
        with pytest.raises(EngineTimeout):
            await bench.engine.run_exec(container, ExecSpec(["sleep", "1004"]), timeout_s=0.5)

    async def test_b09_137_is_oom_only_if_the_engine_says_so(self, bench) -> None:
        killed = await bench.container(memory_mb=64)
        done = await bench.engine.run_exec(killed, ExecSpec(["sh", "-c", "kill -9 $$"]), timeout_s=240)
        assert done.exit_code == 137
        seen = await bench.engine.inspect_container(killed)
        assert seen is not None
        assert not seen.oom_killed
        hungry = await bench.container(memory_mb=32)
        done = await bench.engine.run_exec(hungry, ExecSpec(["sh", "-c", "tail /dev/zero; exit $?"]), timeout_s=240)
        assert done.exit_code == 137
        seen = await bench.engine.inspect_container(hungry)
        assert seen is not None
        assert (seen.running, seen.oom_killed) == (True, True)

    async def test_an_exec_ends_with_its_container(self, bench) -> None:
        container = await bench.container()
        exec_id = await bench.start_exec(container, ExecSpec(["sleep", "1005"]))
        ended: list[ExecInfo | None] = []
        with anyio.fail_after(240):
            async with anyio.create_task_group() as group:

                async def wait() -> None:
                    ended.append(await bench.engine.wait_exec(exec_id))

                group.start_soon(wait)
                await bench.clean()
        assert ended[0] is None or ended[0].exit_code == 137

    # files

    async def test_a_tree_arrives_as_root_with_its_modes_and_links(self, bench, tmp_path: Path) -> None:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (tmp_path / "sub" / "run.sh").chmod(0o754)
        (tmp_path / "big").write_bytes(b"\xaa" * 1_500_001)
        (tmp_path / "link").symlink_to("sub/run.sh")
        (tmp_path / "dangling").symlink_to("/etc/nothing")
        (tmp_path / ("long" * 60)).write_text("")
        container = await bench.container()
        await bench.engine.put_tree(container, tmp_path, "/tests/deep")
        listing = "cd /tests/deep; stat -c '%u:%g %a %s' sub/run.sh; readlink link dangling; ./link; stat -c %s big; ls | wc -l"
        assert await bench.shell(container, listing) == "0:0 754 19\nsub/run.sh\n/etc/nothing\nran\n1500001\n5\n"

    async def test_an_archive_is_unpacked_below_a_folder_that_must_exist(self, bench) -> None:
        container = await bench.container()

        async def tar() -> AsyncIterator[bytes]:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                info = tarfile.TarInfo("hello")
                info.size = 2
                archive.addfile(info, io.BytesIO(b"hi"))
            yield buffer.getvalue()

        await bench.engine.put_archive(container, "/srv", tar)
        assert await bench.shell(container, "cat /srv/hello") == "hi"
        with pytest.raises(NotFound):
            await bench.engine.put_archive(container, "/no/such/folder", tar)

    # events

    async def test_events_tell_of_an_end(self, bench) -> None:
        container = await bench.container()
        events = bench.engine.events()
        heard = []
        with anyio.fail_after(240):
            await anext(events)  # the subscription stands
            exec_id = await bench.start_exec(container, ExecSpec(["true"]))
            async for event in events:
                if event.id == container:
                    heard.append(event.action)
                if event.action == "exec_die" and event.attributes.get("execID") == exec_id:
                    break
        await events.aclose()
        assert heard[-1] == "exec_die"

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
