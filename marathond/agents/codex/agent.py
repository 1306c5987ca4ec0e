"""The codex agent: an app-server in the trial's container, driven from outside over its socket.

Owns how the parts of this room make up the Agent port.  Must not know deadlines' origins, scores or the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread

from marathond.agents.codex import config as files
from marathond.agents.codex import gates, leavings, server
from marathond.agents.codex.client import connect
from marathond.agents.codex.conduct import Run
from marathond.agents.codex.errors import CodexError
from marathond.agents.codex.gates import Place
from marathond.agents.codex.state import State, fold
from marathond.agents.loopx import gates as loopx_gates
from marathond.agents.loopx import profile
from marathond.agents.loopx.goal import Goal
from marathond.agents.projectfiles import project_files
from marathond.core.errors import GateFailed
from marathond.core.model import Arm, Mount, Task
from marathond.ports.agent import HALT_S, AgentEnd, Environment, Finished, GatePassed, ImageCheck, Keep, Receipt, RunDir

DRAIN_S = 30.0
"""For the driver to write down what a server said before it ended."""


class CodexAgent:
    """Implements :class:`marathond.ports.agent.Agent` for the kind codex."""

    needs_model = True
    has_tool_sessions = True
    keeps: Sequence[Keep] = leavings.KEEPS
    harness_folders: Sequence[str] = profile.FOLDERS
    harness_prefix = f"{profile.ROOT}/"

    def image_check(self, arm: Arm, staged: Mapping[str, Path]) -> ImageCheck | None:
        return None if arm.codex is None or arm.codex.loopx is None else profile.image_check(arm.codex.loopx, staged)

    def mounts(self, task: Task, arm: Arm, run_dir: RunDir, staged: Mapping[str, Path]) -> Sequence[Mount]:
        assert arm.codex is not None
        tree = staged.get(arm.codex.package)
        if tree is None:
            raise GateFailed("gate_failed", f"codex {arm.codex.package} is not staged here: marathonctl stage")
        loopx = () if arm.codex.loopx is None else profile.mounts(arm.codex.loopx, run_dir, staged)
        return (Mount(str(tree), gates.TREE), Mount(str(run_dir.home), gates.HOME, read_only=False), *loopx, *arm.mounts)

    def environment(self, task: Task, arm: Arm) -> Mapping[str, str]:
        return {}

    async def gates(self, env: Environment) -> Sequence[GatePassed]:
        """See :mod:`marathond.agents.codex.gates` and :mod:`marathond.agents.loopx.gates`.  Raises GateFailed."""
        if env.model is None or env.gate_model is None:
            raise GateFailed("gateway_failed", "a codex arm needs a way to the model, and one for its gates")
        place = await gates.survey(env)
        found = await project_files(env.engine, env.container_id, place.cwd)
        passed = [
            GatePassed("place", f"uid {place.uid}, cwd {place.cwd}"),
            GatePassed("project files", ", ".join(found)[:2000] or "none"),
            await gates.sidecar(env),
            *await gates.install_check(env),
        ]
        goal: Goal | None = None
        if (loopx := gates.codex_of(env).loopx) is not None:
            goal, more = await loopx_gates.check(env, place.cwd, loopx)
            passed += more
        passed += await gates.scripted_turn(env, place, () if goal is None else goal.skills)
        return [*passed, await self.prepare(env, place, goal)]

    @staticmethod
    async def prepare(env: Environment, place: Place, goal: Goal | None = None) -> GatePassed:
        """Write the agent's config.toml, and down what later lives need of all this; ``goal``: of a LoopX arm."""
        assert env.model is not None
        codex = gates.codex_of(env)
        text = files.to_toml(files.config(codex, env.model.base_url, place.untrusted))
        try:
            await to_thread.run_sync(gates.socket_folder, env.run_dir.ctl)
            await to_thread.run_sync(gates.write_home, env.run_dir.home, text)
        except OSError as error:
            raise GateFailed("run_dir_lost", str(error)) from error
        digest = files.sha256(text)
        await env.log.append(
            "prepared",
            {
                "uid": place.uid,
                "cwd": place.cwd,
                "untrusted": list(place.untrusted),
                "base_url": env.model.base_url,
                "config_sha256": digest,
                **({} if goal is None else {"loopx": goal.data()}),
            },
        )
        return GatePassed("config", f"sha256 {digest}")

    async def create(self, env: Environment) -> str | None:
        return await server.create(env)

    async def begin(self, env: Environment, exec_id: str) -> None:
        await env.engine.start_created_exec(exec_id)

    async def wait(self, env: Environment, exec_id: str) -> AgentEnd:
        """Drive it to its end, or until its server ended by itself.  Unbounded: the caller brings the deadline."""
        run = Run(env, await self._state(env))
        if run.state.ended is not None:
            return run.state.driver_end(run.state.ended)
        end: AgentEnd | None = None
        failed: Exception | None = None

        # A failure is carried out of the group by hand: the group would wrap it, and callers tell failures apart by their class.
        async with anyio.create_task_group() as group:

            async def driving() -> None:
                nonlocal end, failed
                try:
                    end = await run.to_its_end()
                except Exception as error:  # noqa: BLE001 - raised again below
                    failed = error
                group.cancel_scope.cancel()

            async def watching() -> None:
                nonlocal end, failed
                try:
                    exit_code = await server.exit_code(env, exec_id)
                    # What it said last may still wait to be taken, and decides whose end this is.
                    with anyio.move_on_after(DRAIN_S):
                        await run.disconnected.wait()
                    driver.cancel()
                    end = await run.server_ended(exit_code)
                except Exception as error:  # noqa: BLE001 - raised again below
                    failed = error
                group.cancel_scope.cancel()

            driver = anyio.CancelScope()

            async def scoped() -> None:
                with driver:
                    await driving()

            group.start_soon(scoped, name="codex driver")
            group.start_soon(watching, name="codex server")
        if failed is not None:
            raise failed
        assert end is not None
        return end

    async def halt(self, env: Environment, exec_id: str) -> None:
        """Pause, interrupt, clean (fault c08).  Raises GateFailed when codex cannot be told."""
        run = Run(env, await self._state(env))
        await run.note("halt")
        if not run.state.thread_id or "uid" not in run.state.prepared:
            return
        try:
            began = time.monotonic()
            client = await connect(run.reach(), sink=run.transcript.write, timeout_s=HALT_S)
            try:
                said = await run.quiet(client)
                await run.note("halted", **said, ms=int((time.monotonic() - began) * 1000))
            finally:
                await client.aclose()
        except CodexError as error:
            raise GateFailed("driver_failed", f"codex could not be told to stop: {error}") from error

    async def collect(self, run: Finished) -> Receipt | None:
        return await leavings.collect(run)

    @staticmethod
    async def _state(env: Environment) -> State:
        return fold((entry.kind, entry.detail) for entry in await env.log.entries())
