"""What a new daemon does with the trials it finds unfinished.

Owns the comparison of ledger and engine at start: what still runs is taken over, what is provably lost is void with evidence.
Must not touch anything without our labels; must not decide by the arm.
"""

from __future__ import annotations

from functools import partial

from marathond.core.errors import EngineError
from marathond.core.model import TrialState, trial_label
from marathond.flow import verify
from marathond.flow.sight import remove_leftovers
from marathond.flow.trial import void
from marathond.flow.world import World, log
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ports.engine import LABEL_CLAIM


async def recover(world: World) -> tuple[list[int], int]:
    """Trials to drive on, and how many were voided.  Runs before the scheduler's first look."""
    await remove_leftovers(world)
    taken_over: list[int] = []
    voided = 0
    for trial_id in await world.ledger.read(trials.unfinished):
        context = await world.ledger.read(cell_context, trial_id)
        try:
            lost = await _lost(world, context)
        except EngineError as error:
            # Not seen is not lost: the trial's own coroutine goes on looking, with its own patience and its own evidence.
            log.warning("recovery_blind", trial=trial_label(trial_id), error=str(error))
            lost = None
        if lost is not None:
            code, reason = lost
            # The daemon's own end must not use up a cell's passes.
            await void(world, trial_id, code, reason, counts_pass=code not in ("daemon_lost", "host_rebooted"))
            voided += 1
            continue
        if context.state == TrialState.RUNNING:
            detail = {"boot_id": world.clock.boot_id}
            await world.ledger.write(trials.reattached, trial_id, detail=detail, now_ms=world.clock.wall_ms())
        log.info("taken_over", trial=trial_label(trial_id), state=context.state)
        taken_over.append(trial_id)
    return taken_over, voided


async def _lost(world: World, context: TrialContext) -> tuple[str, str] | None:
    """Void code and evidence, or None when the trial can go on."""
    if context.state in (TrialState.RESERVED, TrialState.PREPARING):
        return "daemon_lost", f"the daemon ended while the trial was {context.state}; its agent had not started"
    boot_id = context.verifications[-1].boot_id if context.verifications else context.agent.boot_id if context.agent else ""
    if boot_id != world.clock.boot_id:
        return "host_rebooted", f"started in boot {boot_id}, this is boot {world.clock.boot_id}"
    container = context.container
    if container is None or container.docker_id is None:
        return "container_lost", "the ledger knows no container of this trial"
    if container.gone_at_ms is not None:
        return None  # removed after the verifier's end, before the score was written: the payload is final and on our disk
    docker_id = container.docker_id
    info = await world.look(lambda: world.engine.inspect_container(docker_id))
    ended = context.verifications and context.verifications[-1].outcome == "exited"
    if info is None and ended:
        return None
    if info is None:
        return "container_lost", f"the engine no longer knows container {docker_id[:12]}"
    if info.labels.get(LABEL_CLAIM) != context.token:
        return "container_lost", f"container {docker_id[:12]} carries another claim than {context.token}"
    if not info.running and not ended and await _engine_went_on(world, context):
        # While a daemon is there to see it, such an end is a question to a person: an agent may have ended its container itself.  That
        # nobody looked just then must not make another attempt of it.
        return None
    if not info.running and not ended:
        return "container_lost", f"container {docker_id[:12]} is {info.status}, exit {info.exit_code}, OOMKilled {info.oom_killed}"
    if container.started_at is not None and info.started_at != container.started_at:
        return "container_lost", f"container {docker_id[:12]} was started again at {info.started_at}; the agent died with its first life"
    if info.paused:
        await world.look(lambda: world.engine.unpause(docker_id))  # the daemon was killed between pause and unpause
    await _begin_verifier(world, context)
    return await _agent_never_began(world, context)


async def _engine_went_on(world: World, context: TrialContext) -> bool:
    """Whether a container of another unfinished trial has run all the while: an engine that ended takes all of its containers along, or,
    under live-restore, none."""
    for trial_id in await world.ledger.read(trials.unfinished):
        other = (await world.ledger.read(cell_context, trial_id)).container
        if trial_id == context.trial_id or other is None or other.docker_id is None or other.started_at is None:
            continue
        seen = await world.look(partial(world.engine.inspect_container, other.docker_id))
        if seen is not None and seen.running and seen.started_at == other.started_at:
            return True
    return False


async def _begin_verifier(world: World, context: TrialContext) -> None:
    """Start a verifier whose row was written and whose start never came; else its whole deadline would be waited for in vain."""
    last = context.verifications[-1] if context.verifications else None
    if last is None or last.ended_at_ms is not None or last.exec_id is None:
        return
    exec_id = last.exec_id
    info = await world.look(lambda: world.engine.inspect_exec(exec_id))
    if info is not None and not info.running and info.exit_code is None:
        log.info("verifier_begun", trial=trial_label(context.trial_id), round=last.round)
        await verify.begin(world, exec_id)


async def _agent_never_began(world: World, context: TrialContext) -> tuple[str, str] | None:
    """The daemon may have been killed between the row and the start of the exec."""
    if context.state != TrialState.RUNNING or context.agent is None or context.agent.exec_id is None:
        return None
    exec_id = context.agent.exec_id
    info = await world.look(lambda: world.engine.inspect_exec(exec_id))
    if info is not None and not info.running and info.exit_code is None:
        return "daemon_lost", "the daemon ended between the record of the agent's start and the start itself"
    return None
