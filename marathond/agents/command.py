"""The oracle, nop and command agents: a command line that runs detached in the trial's container.

Owns what each kind runs, and the gates before it.  Must not know other arms, deadlines' origins or the ledger.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from marathond.agents import forgotten
from marathond.agents.forgotten import until_gone
from marathond.agents.pinned import open_regular
from marathond.core.detached import detached_argv
from marathond.core.errors import EngineTimeout, GateFailed
from marathond.core.model import Arm, Mount, Task
from marathond.core.names import AgentKind
from marathond.ports.agent import AgentEnd, Environment, Finished, GatePassed, ImageCheck, Keep, Receipt, RunDir
from marathond.ports.engine import ExecSpec

NAME, OUTPUT = forgotten.AGENT, "/logs/agent/output.txt"
CTL = "/marathond/ctl"
STATUS = f"{CTL}/{forgotten.STATUS}"
INPUTS = "/marathond/inputs"
INSTRUCTION = f"{INPUTS}/instruction.md"

# $1: the command's first word, looked up as the wrapper will: by PATH, or as a path from the working folder.  Without this a harness that
# is not there would be graded as an agent that did nothing (fault b08).
CAN_START = """
case $1 in
*/*)
    [ -f "$1" ] || { echo "no such file"; exit 1; }
    [ -x "$1" ] || { echo "not executable by $(id -un 2>/dev/null || id -u)"; exit 1; }
    ;;
*) command -v "$1" >/dev/null || { echo "not in PATH=$PATH"; exit 1; } ;;
esac
"""

KILLED = 137
"""What the engine would have said of a process group that its own timer killed."""


class CommandAgent:
    """Implements :class:`marathond.ports.agent.Agent` for the kinds oracle, nop and command."""

    needs_model = False
    has_tool_sessions = False
    harness_folders: Sequence[str] = ()
    harness_prefix = ""
    keeps: Sequence[Keep] = ()

    def image_check(self, arm: Arm, staged: Mapping[str, Path]) -> ImageCheck | None:
        return None

    def mounts(self, task: Task, arm: Arm, run_dir: RunDir, staged: Mapping[str, Path]) -> Sequence[Mount]:
        return arm.mounts

    def environment(self, task: Task, arm: Arm) -> Mapping[str, str]:
        return {"MARATHOND_INSTRUCTION": INSTRUCTION} if arm.kind is AgentKind.COMMAND else {}

    async def gates(self, env: Environment) -> Sequence[GatePassed]:
        """Uploads the oracle's solution, runs the arm's install check, looks for the command.  Raises GateFailed."""
        passed: list[GatePassed] = []
        if env.arm.kind is AgentKind.ORACLE:
            if not env.task.has_solution:
                raise GateFailed("gate_failed", f"{env.task.path}: the oracle needs solution/solve.sh, and there is none")
            solution = Path(env.task.path) / "solution"
            await env.engine.put_tree(env.container_id, solution, "/solution")
            if not (solution / "solve.sh").stat().st_mode & stat.S_IXOTH:
                # Modes are kept by the upload; the agent's user may be one that cannot change them.
                spec = ExecSpec(("chmod", "a+rx", "/solution/solve.sh"), user="0")
                await env.engine.run_exec(env.container_id, spec, timeout_s=env.gate_timeout_s)
            passed.append(GatePassed("solution", "uploaded to /solution"))
        if env.arm.install_check:
            await self._gate(env, env.arm.install_check, "install_check_failed", f"install check {list(env.arm.install_check)}")
            passed.append(GatePassed("install_check", "exit 0"))
        if (command := self._command(env)) is not None:
            argv = ("sh", "-c", CAN_START, "marathond-gate", command[0][0])
            await self._gate(env, argv, "agent_not_started", f"looking for the agent's command {command[0][0]}")
            passed.append(GatePassed("command", f"{command[0][0]} is there"))
        return passed

    @staticmethod
    async def _gate(env: Environment, argv: Sequence[str], code: str, name: str) -> None:
        """Run ``argv`` as the agent would be run: its user, folder and variables."""
        spec = ExecSpec(argv, env=dict(env.arm.env), user=env.arm.user or env.task.agent_user, cwd=env.arm.cwd)
        try:
            result = await env.engine.run_exec(env.container_id, spec, timeout_s=env.gate_timeout_s, max_output=4096)
        except EngineTimeout as error:
            raise GateFailed(code, f"{name} did not end within {env.gate_timeout_s:g} s") from error
        if result.exit_code != 0:
            raise GateFailed(code, f"{name} exited {result.exit_code}: {result.output.strip() or 'no output'}")

    def _command(self, env: Environment) -> tuple[Sequence[str], dict[str, str]] | None:
        match env.arm.kind:
            case AgentKind.NOP:
                return None
            case AgentKind.ORACLE:
                return ("/solution/solve.sh",), dict(env.task.solution_env)
            case _:
                return env.arm.argv, dict(env.arm.env)

    async def create(self, env: Environment) -> str | None:
        command = self._command(env)
        if command is None:
            return None
        argv, variables = command
        spec = ExecSpec(
            argv=detached_argv(NAME, argv, timer_s=env.timer_s, output=OUTPUT, status=STATUS),
            env=variables,
            user=env.arm.user or env.task.agent_user,
            cwd=env.arm.cwd,
        )
        return await env.engine.create_exec(env.container_id, spec)

    async def begin(self, env: Environment, exec_id: str) -> None:
        await env.engine.start_created_exec(exec_id)

    async def wait(self, env: Environment, exec_id: str) -> AgentEnd:
        """Until the command ended.  Unbounded: the caller brings the deadline."""
        info = await env.engine.wait_exec(exec_id)
        if info is not None:
            return AgentEnd(info.exit_code, "exec")
        await until_gone(env, NAME, STATUS)
        return self._from_file(env)

    async def halt(self, env: Environment, exec_id: str) -> None:
        """Nothing to say to a command: it is killed."""

    async def collect(self, run: Finished) -> Receipt | None:
        return None

    def _from_file(self, env: Environment) -> AgentEnd:
        """What the container wrote of its own end: forgeable, so it is opened with care, bounded, and marked."""
        try:
            stream = open_regular(env.run_dir.ctl / forgotten.STATUS)
            if stream is None:
                return AgentEnd(None, "file")
            with stream:
                text = stream.read(16).decode("ascii", errors="replace").strip()
        except OSError:
            return AgentEnd(None, "file")
        if text == "timer":
            return AgentEnd(KILLED, "file")
        return AgentEnd(int(text) if text.isdigit() and int(text) < 256 else None, "file")
