"""The app-server as a process: what it is started with, what it leaves, and what its own end means.

Owns the names of its files and the judgement of an end that nobody asked for.  Must not know turns.
"""

from __future__ import annotations

from anyio import to_thread

from marathond.agents import forgotten
from marathond.agents.codex import drive, gates
from marathond.agents.codex.state import State
from marathond.agents.forgotten import patiently, until_gone
from marathond.core.errors import GateFailed
from marathond.ports.agent import AgentEnd, Environment
from marathond.ports.engine import ExecSpec

NAME, OUTPUT_NAME, STATUS_NAME = forgotten.AGENT, "codex-server.txt", forgotten.STATUS
OUTPUT, STATUS = f"/logs/agent/{OUTPUT_NAME}", f"{gates.CTL}/{STATUS_NAME}"
TOLD = frozenset({0, *range(129, 193)})
"""Exit codes of a server that was told to end: 0 after INT or TERM, else 128 and the signal; nobody can tell a crash from `kill -ABRT`."""
SEARCHED_BYTES = 1 << 20


async def create(env: Environment) -> str:
    """The exec of the agent's server, not started."""
    assert env.model is not None, "a codex arm is started with a way to the model"
    argv = gates.server_argv(NAME, timer_s=env.timer_s, output=OUTPUT, status=STATUS)
    spec = ExecSpec(argv, env=gates.server_env(env, gates.HOME, env.model), user=gates.user_of(env), cwd=env.arm.cwd)
    return await env.engine.create_exec(env.container_id, spec)


async def exit_code(env: Environment, exec_id: str) -> int | None:
    """When it ended, by the engine's word; None when that has forgotten the exec and no server is seen any more.  Unbounded."""
    info = await env.engine.wait_exec(exec_id)
    if info is not None:
        return info.exit_code
    await until_gone(env, NAME, STATUS)
    return None


async def ended(env: Environment, state: State, exit_code: int | None, *, acted: bool) -> AgentEnd:
    """What it means that the exec ended although nobody here ended it.

    Signals cannot be told apart by their sender.  A container that is gone is the flow's to judge; the container's own timer leaves a word.
    Otherwise, once the agent had run a command, it had the means, and so had what it started: its own end, graded as it is (a void would be
    a free second try for whoever kills its own harness).  So it is once its model had answered: of a command that kills the server at once
    nothing is heard.  Before that only codex itself ran there: infrastructure.

    :param acted: whether an item that does something began, heard in this life or written down before.
    :raises GateFailed: ``driver_failed`` with the server's last line.
    """
    line = await to_thread.run_sync(last_line, env)
    info = await patiently(lambda: env.engine.inspect_container(env.container_id))
    timer = await to_thread.run_sync(gates.tail, env.run_dir.ctl / STATUS_NAME, 16) == "timer"
    if info is None or not info.running or timer or state.halted or (exit_code in TOLD and (acted or await _answered(env))):
        return AgentEnd(exit_code, "exec")
    raise GateFailed("driver_failed", f"codex app-server exited {exit_code}: {line or 'no output'}"[:2000])


async def _answered(env: Environment) -> bool:
    return env.model_answered is not None and await env.model_answered()


def last_line(env: Environment) -> str:
    """Of the server's output."""
    said = gates.tail(env.run_dir.logs / "agent" / OUTPUT_NAME)
    return said.splitlines()[-1][:1000] if said else ""


def sidecar_line(env: Environment) -> str:
    """The first ERROR line that speaks of the sidecar; empty when there is none."""
    said = gates.tail(env.run_dir.logs / "agent" / OUTPUT_NAME, SEARCHED_BYTES)
    found = (line for line in said.splitlines() if "ERROR" in line and drive.SIDECAR_WORDS.search(line))
    return drive.plain(next(found, ""))[:1000]
