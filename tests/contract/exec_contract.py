"""What every implementation of the Engine port must do with execs, files and events."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from contract import commands

from marathond.core.errors import EngineError, EngineTimeout, NotFound
from marathond.ports.engine import ExecInfo, ExecSpec

NOWHERE = "0" * 64


class ExecContract:
    """Methods are tests; ``bench`` brings the engine, an image and fresh labels."""

    async def test_an_exec_can_be_written_down_before_it_runs(self, bench) -> None:
        engine = bench.engine
        container = await bench.container()
        exec_id = await engine.create_exec(container, commands.TELLS_WHO_IT_IS.spec(env={"A": "a b"}, user="1", cwd="/usr"))
        info = await engine.inspect_exec(exec_id)
        assert info is not None
        assert (info.running, info.exit_code, info.pid) == (False, None, 0)
        await engine.start_created_exec(exec_id)
        with anyio.fail_after(240):
            info = await engine.wait_exec(exec_id)
        assert info is not None
        assert (info.running, info.exit_code) == (False, 7)
        assert info.pid > 1  # an ended exec still names its session
        for _ in range(2):
            assert (await bench.run(container, commands.reads("/tmp/out"))).output == "a b /usr 1\n"
            await engine.start_created_exec(exec_id)  # once more changes nothing

    async def test_an_exec_that_ended_says_how_at_once(self, bench) -> None:
        container = await bench.container()
        for status in (0, 3):
            exec_id = await bench.start_exec(container, commands.exits(status).spec())
            with anyio.fail_after(240):
                info = await bench.engine.wait_exec(exec_id)
            assert info == await bench.engine.inspect_exec(exec_id)
            assert info is not None
            assert (info.running, info.exit_code) == (False, status)

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
        done = await bench.engine.run_exec(container, commands.SAYS_MUCH.spec(), timeout_s=240, max_output=1000)
        assert (done.exit_code, done.output, done.truncated) == (3, "x" * 1000, True)
        assert await bench.engine.path_exists(container, "/tmp/done")
        both = await bench.engine.run_exec(container, commands.SAYS_ON_BOTH.spec(), timeout_s=240)
        assert sorted(both.output.split()) == ["err", "out"]
        assert not both.truncated

    async def test_a_short_command_that_takes_long_is_a_timeout(self, bench) -> None:
        container = await bench.container()
        for timeout_s in (0.5, 5.0, 50.0):  # an engine with much to do may not have begun it within the first
            with pytest.raises(EngineTimeout):
                await bench.engine.run_exec(container, commands.sleeps(1004).spec(), timeout_s=timeout_s)
            if "sleep 1004" in {process.argv for process in await bench.engine.processes(container)}:
                break
        assert "sleep 1004" in await bench.running(container, "sleep 1004")  # nothing here can end it

    async def test_b09_137_is_oom_only_if_the_engine_says_so(self, bench) -> None:
        killed = await bench.container(memory_mb=64)
        done = await bench.engine.run_exec(killed, commands.KILLS_ITSELF.spec(), timeout_s=240)
        assert done.exit_code == 137
        seen = await bench.engine.inspect_container(killed)
        assert seen is not None
        assert not seen.oom_killed
        hungry = await bench.container(memory_mb=32)
        done = await bench.engine.run_exec(hungry, commands.EATS_MEMORY.spec(), timeout_s=240)
        assert done.exit_code == 137
        seen = await bench.engine.inspect_container(hungry)
        assert seen is not None
        assert (seen.running, seen.oom_killed) == (True, True)

    async def test_an_exec_ends_with_its_container(self, bench) -> None:
        container = await bench.container()
        exec_id = await bench.start_exec(container, commands.sleeps(1005).spec())
        await bench.running(container, "sleep 1005")
        ended: list[ExecInfo | None] = []
        with anyio.fail_after(240):
            async with anyio.create_task_group() as group:

                async def wait() -> None:
                    ended.append(await bench.engine.wait_exec(exec_id))

                group.start_soon(wait)
                await bench.clean()
        assert ended[0] is None or ended[0].exit_code == 137

    # files

    async def test_what_was_put_there_is_there(self, bench, tmp_path: Path) -> None:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "file").write_text("x")
        container = await bench.container()
        await bench.engine.put_tree(container, tmp_path, "/tests/deep")
        for path, there in (("/tests/deep/sub/file", True), ("/tests", True), ("/tests/deep/none", False), ("/nowhere/at/all", False)):
            assert await bench.engine.path_exists(container, path) is there, path
        for call in (bench.engine.put_tree(NOWHERE, tmp_path, "/x"), bench.engine.path_exists(NOWHERE, "/")):
            with pytest.raises(NotFound):
                await call
        with pytest.raises(EngineError, match="absolute"):
            await bench.engine.put_tree(container, tmp_path, "tests")
        with pytest.raises(EngineError, match="No such file"):
            await bench.engine.put_tree(container, tmp_path / "none", "/tests")

    # events

    async def test_events_tell_of_an_end(self, bench) -> None:
        container = await bench.container()
        events = bench.engine.events()
        heard = []
        with anyio.fail_after(240):
            await anext(events)  # the subscription stands
            exec_id = await bench.start_exec(container, commands.TRUE.spec())
            async for event in events:
                if event.id == container:
                    heard.append(event.action)
                if event.action == "exec_die" and event.attributes.get("execID") == exec_id:
                    break
        await events.aclose()
        assert heard[-1] == "exec_die"
