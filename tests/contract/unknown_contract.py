"""What every implementation of the Engine port must say of calls whose answer never came: unknown, never no.

The bench loses answers on purpose: a relay before a real engine, the simulated one by its faults.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from contract import commands

from marathond.core.errors import ConnectionBroke, EngineError, EngineTimeout, EngineUnreachable
from marathond.ports.engine import ContainerSpec, ExecSpec


class UnknownContract:
    """Methods are tests; ``bench.losing`` is an engine whose answer to one call is lost, ``bench.deaf`` one that never answers."""

    async def test_a_create_whose_connection_broke_is_unknown_and_what_it_made_is_found_by_label(self, bench) -> None:
        subnet = await bench.subnet()
        async with bench.losing("network.create", bench.name()) as lost:
            outcome: list[EngineError] = []

            async def create() -> None:
                try:
                    await lost.engine.create_network(bench.name(), bench.labels, subnet)
                except EngineError as error:
                    outcome.append(error)

            async with anyio.create_task_group() as group:
                group.start_soon(create)
                await lost.arrived()
                await lost.cut()
            [error] = outcome
            assert isinstance(error, ConnectionBroke)
            assert "unknown" in error.detail
        [made] = await bench.until(bench.networks, bool)
        assert (made.name, made.subnets) == (bench.name(), (subnet,))

    async def test_a_create_that_was_cancelled_still_completes(self, bench) -> None:
        """Write the row first, look by label afterwards."""
        subnet = await bench.subnet()
        async with bench.losing("network.create", bench.name()) as lost, anyio.create_task_group() as group:
            group.start_soon(lost.engine.create_network, bench.name(), bench.labels, subnet)
            await lost.arrived()
            group.cancel_scope.cancel()
        await bench.until(bench.networks, bool)

    async def test_a_start_whose_answer_was_lost_may_be_asked_again(self, bench) -> None:
        made = await bench.engine.create_container(ContainerSpec(bench.name(), bench.image_id, bench.labels, None))
        async with bench.losing("container.start", f"{made}/start") as lost, anyio.create_task_group() as group:

            async def start() -> None:
                with pytest.raises(EngineTimeout):
                    await lost.engine.start_container(made)

            group.start_soon(start)
            await lost.arrived()
            await lost.cut()
        first = await bench.until(lambda: bench.engine.inspect_container(made), lambda info: info.running)
        await bench.engine.start_container(made)
        again = await bench.engine.inspect_container(made)
        assert again is not None
        assert again.started_at == first.started_at

    async def test_an_exec_whose_start_was_lost_is_looked_up(self, bench) -> None:
        container = await bench.container()
        exec_id = await bench.engine.create_exec(container, commands.exits(5).spec())
        async with bench.losing("exec.start", f"{exec_id}/start") as lost, anyio.create_task_group() as group:

            async def start() -> None:
                with pytest.raises(EngineTimeout):
                    await lost.engine.start_created_exec(exec_id)

            group.start_soon(start)
            await lost.arrived()
            await lost.cut()
        with anyio.fail_after(240):
            info = await bench.engine.wait_exec(exec_id)
        assert info is not None
        assert info.exit_code == 5

    async def test_b10_an_engine_that_never_answers_ends_every_call_at_its_deadline(self, bench, tmp_path: Path) -> None:
        spec = ContainerSpec("n", "sha256:1", {}, None)

        async def tar() -> AsyncIterator[bytes]:
            yield b"\0" * 10240

        async def log(_: bytes) -> None:
            return None

        (tmp_path / "Dockerfile").write_text("FROM scratch\n")
        async with bench.deaf(0.2) as engine:
            calls = [
                engine.info,
                engine.knock,
                lambda: engine.create_network("n", {}, None),
                engine.list_networks,
                lambda: engine.inspect_network("n"),
                lambda: engine.remove_network("n"),
                lambda: engine.create_container(spec),
                lambda: engine.start_container("n"),
                lambda: engine.list_containers({"a": "b"}),
                lambda: engine.inspect_container("n"),
                lambda: engine.remove_container("n"),
                lambda: engine.pause("n"),
                lambda: engine.unpause("n"),
                lambda: engine.processes("n"),
                lambda: engine.create_exec("n", ExecSpec(["x"])),
                lambda: engine.start_created_exec("n"),
                lambda: engine.inspect_exec("n"),
                lambda: engine.run_exec("n", ExecSpec(["x"]), timeout_s=0.2),
                lambda: engine.put_archive("n", "/", tar),
                lambda: engine.path_exists("n", "/"),
                lambda: engine.inspect_image("n"),
                lambda: engine.pull_image("n", timeout_s=0.2),
                lambda: engine.build_image(tmp_path, tag="n", labels={}, build_args={}, network=None, timeout_s=0.2, log=log),
            ]
            told: list[EngineError] = []

            async def ask(number: int) -> None:
                try:
                    await calls[number]()
                except EngineTimeout as error:
                    told.append(error)

            with anyio.fail_after(240):
                async with anyio.create_task_group() as group:
                    for number in range(len(calls)):
                        group.start_soon(ask, number)
            assert len(told) == len(calls)
            assert all("unknown" in error.detail for error in told)

    async def test_where_nobody_listens_nothing_was_changed(self, bench) -> None:
        async with bench.away() as engine:
            for call in (engine.info, engine.knock, lambda: engine.create_network("x", {}, "198.19.0.0/28"), lambda: engine.pause("x")):
                with pytest.raises(EngineUnreachable):
                    await call()
