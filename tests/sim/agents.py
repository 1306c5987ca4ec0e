"""A harness of the simulation's own, in the place of codex: what a driver may do beyond the plain command agents.

Its gates and its driving fail with any void code, it keeps a log, ends by rules of its own, gives its tools sessions of their own and
leaves a receipt.  All by seed and trial, so that every daemon life meets the same.  It needs no model: nothing here stands for a gateway.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from marathond.agents.command import OUTPUT, STATUS
from marathond.core.detached import detached_argv
from marathond.core.errors import EngineTimeout, GateFailed
from marathond.core.model import Arm, Mount, Task
from marathond.core.names import EndedBy
from marathond.ports.agent import AgentEnd, Environment, Finished, GatePassed, ImageCheck, Keep, Receipt, RunDir
from marathond.ports.engine import ExecSpec
from tests.sim.programs import FAKE_SERVER

GATE_CODES = (
    *("gate_failed", "sidecar_failed", "config_mismatch", "model_unreachable", "gateway_failed"),
    *("loopx_python", "loopx_copies", "loopx_profile", "loopx_command", "loopx_node", "loopx_skills", "loopx_setup"),
    *("loopx_body", "loopx_doctor", "loopx_quota", "loopx_left"),
)
DRIVE_CODES = ("model_failed", "usage_limit", "driver_failed", "dead_agent", "gateway_failed", "loopx_failed")
ENDS = (EndedBy.BLOCKED, EndedBy.UNBLOCK_CAP, EndedBy.TURN_CAP, EndedBy.NO_PROGRESS, EndedBy.TOKEN_BUDGET, EndedBy.MONEY)
GATE_S = 10.0


def _in_turn(env: Environment, codes: Sequence[str]) -> str:
    """By the trial's number: a campaign that fails often meets them all."""
    return codes[int(env.run_dir.root.name.removeprefix("t")) % len(codes)]


class FakeAgent:
    """Implements :class:`marathond.ports.agent.Agent`.

    :param rng: the stream of a trial's run directory and a purpose.
    """

    needs_model = False
    has_tool_sessions = True
    harness_folders: Sequence[str] = ("state",)
    harness_prefix = "fake-harness"
    keeps: Sequence[Keep] = (Keep("home", "home", ("*.json",)),)

    def __init__(self, rng: Callable[[str, str], random.Random], unkind: float) -> None:
        self._rng, self.unkind = rng, unkind

    def image_check(self, arm: Arm, staged: Mapping[str, Path]) -> ImageCheck | None:
        return None

    def mounts(self, task: Task, arm: Arm, run_dir: RunDir, staged: Mapping[str, Path]) -> Sequence[Mount]:
        return (Mount(str(run_dir.home), "/home/agent", read_only=False),)

    def environment(self, task: Task, arm: Arm) -> Mapping[str, str]:
        return {"FAKE": "1"}

    async def gates(self, env: Environment) -> Sequence[GatePassed]:
        rng = self._rng(env.run_dir.root.name, "gates")
        await env.log.append("prepared", {"pid": env.pid})
        for name in ("user", "sidecar", "model"):
            try:
                result = await env.engine.run_exec(env.container_id, ExecSpec(("gate", name), user="0"), timeout_s=GATE_S)
            except EngineTimeout as error:
                raise GateFailed("gate_failed", f"{name} did not end") from error
            if result.exit_code:
                raise GateFailed("gate_failed", f"{name}: exit {result.exit_code}: {result.output.strip()}")
        if rng.random() < self.unkind:
            raise GateFailed(_in_turn(env, GATE_CODES), "the scripted gate said no")
        return [GatePassed("model", "answered")]

    async def create(self, env: Environment) -> str | None:
        argv = detached_argv("marathond-agent", (FAKE_SERVER,), timer_s=env.timer_s, output=OUTPUT, status=STATUS, tool_sessions=True)
        return await env.engine.create_exec(env.container_id, ExecSpec(argv, user=env.task.agent_user))

    async def begin(self, env: Environment, exec_id: str) -> None:
        await env.engine.start_created_exec(exec_id)

    async def wait(self, env: Environment, exec_id: str) -> AgentEnd:
        """Its own end, or the driver's word: whichever life is there says the same."""
        rng = self._rng(env.run_dir.root.name, "drive")
        await env.log.append("driving", {"entries": len(await env.log.entries())})
        dice = rng.random()
        if dice < self.unkind:
            raise GateFailed(_in_turn(env, DRIVE_CODES), "the scripted driver gave up")
        if dice < self.unkind + 0.15:
            return AgentEnd(None, "driver", rng.choice(ENDS))
        info = await env.engine.wait_exec(exec_id)
        if info is None:
            raise GateFailed("driver_failed", "the engine forgot the server's exec")
        return AgentEnd(info.exit_code, "exec")

    async def halt(self, env: Environment, exec_id: str) -> None:
        await env.log.append("halted", {})

    async def collect(self, run: Finished) -> Receipt | None:
        return Receipt(1, {"trial": run.trial, "entries": len(await run.log.entries()), "kept": [each.path for each in run.kept]})
