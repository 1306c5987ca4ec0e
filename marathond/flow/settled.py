"""The container as it is, not as its engine still believes; and whether it ended alone.

For whoever decides by a container right after something in it was killed.  Must not know what for.
Races prevented: all processes of a container die with its main one and each death is an event of its own; until the engine has worked off
the last of them it shows the container as running, and refuses execs in odd words or answers them with 126.  And an engine that is told to
stop ends its containers first: whoever asks over an older connection still hears of them, and of nothing wrong with the engine.
"""

from __future__ import annotations

import anyio

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable
from marathond.flow.world import World, log
from marathond.ports.engine import ContainerInfo

NOTICED_WITHIN_S = 60.0
"""Longest wait for an engine to notice the end of a container whose main process is no more; a loaded host needs seconds."""


async def settled(world: World, container_id: str) -> ContainerInfo | None:
    """What the engine shows once it agrees with the kernel about the main process; None when it does not know the container."""
    engine, give_up_ms = world.engine, world.clock.mono_ms() + int(NOTICED_WITHIN_S * 1000)
    while True:
        info = await world.look(lambda: engine.inspect_container(container_id))
        if info is None or not info.running or world.clock.mono_ms() >= give_up_ms:
            return info
        try:
            processes = await world.look(lambda: engine.processes(container_id))
        except (EngineUnreachable, EngineTimeout):
            raise
        except EngineError as error:
            log.info("processes_not_seen", container=container_id[:12], error=str(error))  # just ending: the next look tells
            processes = []
        if any(p.pid == info.pid and not p.exiting for p in processes):
            return info
        await anyio.sleep(0.1)


async def alone(world: World, breaks: int) -> bool:
    """A container ended: did its engine go on all the while?  ``breaks`` as it was when the container was known to run."""
    try:
        await world.engine.knock()
    except EngineUnreachable as error:
        world.engine_breaks += 1
        log.warning("engine_away", error=str(error))
    except EngineTimeout:
        return False
    return world.engine_breaks == breaks
