"""An exec that the engine has forgotten while its container went on, which is so after a restart under live-restore: when it has ended.

Owns the look at the process list in the engine's stead, and the patience with an engine that is away.  Must not know what ran.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from marathond.core.errors import EngineTimeout, EngineUnreachable, NotFound
from marathond.ports.agent import Environment
from marathond.ports.engine import Engine

AGENT, STATUS = "marathond-agent", "exit-status"
"""Name of every agent's process, and of the file in its control folder that it is told to write."""
POLL_S, PAUSE_S = 2.0, 1.0
LOOKS = 2

Answer = TypeVar("Answer")


async def until_gone(env: Environment, name: str, status: str) -> None:
    """Return when no process is named ``name`` and told to write ``status``, or the container is gone.  Unbounded.

    It is believed on the second look in a row: an engine answers the start of an exec a moment before the process there bears the wrapper's
    name (until then it is the runtime's own), and an agent that had only begun would pass for one that ended.
    """
    missed = 0
    while True:
        try:
            seen = await patiently(lambda: runs(env.engine, env.container_id, name, status))
        except NotFound:
            return
        missed = 0 if seen else missed + 1
        if missed == LOOKS:
            return
        await anyio.sleep(POLL_S)


async def runs(engine: Engine, container_id: str, name: str, status: str) -> bool:
    """Whether such a process is listed now.  Raises EngineError."""
    return any(name in process.argv and status in process.argv for process in await engine.processes(container_id))


async def patiently(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask an engine that is away until it answers: its silence is no end of the agent."""
    while True:
        try:
            return await call()
        except (EngineTimeout, EngineUnreachable):
            await anyio.sleep(PAUSE_S)
