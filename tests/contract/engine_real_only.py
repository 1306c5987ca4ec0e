"""What only a real engine can show of the Engine port's promises, each with the reason why a simulated one cannot.

A simulated container has no network stack, no shell, no file system of its own.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from ipaddress import IPv4Network
from pathlib import Path

import anyio
import anyio.abc
import pytest

from marathond.core.errors import NotFound
from marathond.ports.engine import ExecSpec


class RealOnly:
    """Methods are tests; ``bench`` brings a real engine, an image with a shell and fresh labels."""

    # packets

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

    # the shell that idles as the main process

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

    # owners, modes and links inside of the container

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
