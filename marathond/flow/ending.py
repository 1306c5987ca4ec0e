"""Proves that an agent (or a verifier past its deadline) is dead before anything else may start.

Owns pause → read → decide → kill → unpause → look again.  The decision itself is core/death.py.
Race prevented: a process that forks between the list and the kill (nothing forks while the container is paused), and a reused pid
(the engine compares start times before it kills, fault f10).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import anyio

from marathond.core.death import Proc, Verdict, judge
from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, GateFailed, NotFound
from marathond.core.names import AfterAgent
from marathond.flow.world import World, log
from marathond.ports.engine import Engine, Process
from marathond.ports.leaving import last_act

UNPAUSE_S = 30.0
ROUNDS = 20
"""Looks before giving up; SIGKILL takes effect within milliseconds unless a process hangs in the kernel."""


@dataclass(frozen=True, slots=True)
class Death:
    """``killed`` and ``kept`` for the record; ``container_running`` as last seen."""

    killed: tuple[Proc, ...]
    kept: tuple[Proc, ...]
    container_running: bool


def _procs(processes: Iterable[Process]) -> list[Proc]:
    return [Proc(p.pid, p.ppid, p.session, p.start_ticks, p.argv) for p in processes]


async def prove_death(
    world: World,
    container_id: str,
    agent_pids: Iterable[int],
    policy: AfterAgent,
    *,
    tool_sessions: bool = False,
    harness: str = "",
) -> Death:
    """Until no process of the agent's sessions lives.  Raises GateFailed("agent_undead") when that cannot be shown."""
    engine, pids = world.engine, frozenset(agent_pids)
    decided = functools.partial(judge, agent_pids=pids, policy=policy, tool_sessions=tool_sessions, harness=harness)
    killed: dict[int, Proc] = {}
    paused_once = False
    for attempt in range(ROUNDS):
        info = await world.look(lambda: engine.inspect_container(container_id))
        if info is None or not info.running:
            return Death(tuple(killed.values()), (), container_running=False)
        main_pid = info.pid
        verdict = decided(await _list(world, container_id), main_pid=main_pid)
        # Only what lives can fork: with nothing to kill and nothing detached, no pause is needed to be sure.
        if not verdict.kill and not verdict.keep:
            return Death(tuple(killed.values()), (), container_running=True)
        if verdict.kill or not paused_once:
            seen = await _paused(world, container_id, functools.partial(decided, main_pid=main_pid))
            if seen is not None and not seen.kill:
                return Death(tuple(killed.values()), seen.keep, container_running=True)
            if seen is not None:
                verdict, paused_once = seen, True
                killed.update((p.pid, p) for p in seen.kill)
        else:
            return Death(tuple(killed.values()), verdict.keep, container_running=True)
        await anyio.sleep(min(0.01 * 2**attempt, 1.0))
    if not paused_once:
        raise GateFailed("agent_undead", f"the container could not be paused in {ROUNDS} tries, so its processes cannot be told for sure")
    left = ", ".join(f"{p.pid} {p.argv[:60]}" for p in verdict.kill)
    raise GateFailed("agent_undead", f"still alive after {ROUNDS} rounds of SIGKILL: {left}")


async def _list(world: World, container_id: str) -> list[Proc]:
    try:
        return _procs(await world.look(lambda: world.engine.processes(container_id)))
    except NotFound:
        return []


async def _paused(world: World, container_id: str, decide: Callable[[list[Proc]], Verdict]) -> Verdict | None:
    """One look and kill while nothing can run; None when it could not be paused.  It is unpaused whatever happens in between."""
    engine: Engine = world.engine
    refused = False
    try:
        try:
            await world.look(lambda: engine.pause(container_id))
        except (EngineUnreachable, EngineTimeout):
            raise
        except EngineError as error:
            # A container that is just ending cannot be frozen, and each engine says so in other words: the caller looks again.
            refused = True
            log.info("pause_refused", container=container_id[:12], error=str(error))
            return None
        processes = await world.look(lambda: engine.processes(container_id))
        verdict = decide(_procs(processes))
        doomed = {p.pid for p in verdict.kill}
        await engine.kill([p for p in processes if p.pid in doomed])
        return verdict
    finally:
        # Shielded: a paused container would hang until the next daemon's recovery if this one is told to stop right here.  Also after a
        # pause whose answer never came: it may have been carried out.
        if not refused:
            with last_act(f"unpausing container {container_id[:12]} (it may be paused until the next start)", UNPAUSE_S):
                await _unpause(engine, container_id)


async def _unpause(engine: Engine, container_id: str) -> None:
    try:
        await engine.unpause(container_id)
    except NotFound:
        return
    except EngineError as error:
        if "not paused" not in error.detail and "not running" not in error.detail:
            raise
