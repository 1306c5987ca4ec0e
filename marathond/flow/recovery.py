"""What a new daemon does with the trials it finds unfinished.

Owns the comparison of ledger and engine at start: what still runs is taken over, what is provably lost is void with evidence.
Must not touch anything without our labels; must not decide by the arm.
Race prevented: an engine that goes away in the middle of it, so that it begins again, must not take a trial over twice in one life.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import anyio

from marathond.core.errors import EngineError
from marathond.core.names import TrialState, trial_label
from marathond.flow import verify
from marathond.flow.sight import remove_leftovers
from marathond.flow.trial import name_in_log, void
from marathond.flow.world import World, log
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ports.engine import LABEL_CLAIM

AT_ONCE = 8
"""Trials that are looked at at one time: a container that its engine does not answer for must not hold up the others."""


@dataclass(slots=True)
class Recovered:
    """What is known of this life's recovery so far: trials to drive on, and those that were voided.  Each trial is in it once."""

    taken_over: set[int] = field(default_factory=set)
    voided: set[int] = field(default_factory=set)


async def recover(world: World, so_far: Recovered) -> None:
    """Look at every unfinished trial that ``so_far`` does not name yet, and name it there.  Runs before the scheduler's first look.

    May be cut anywhere, and called again.
    """
    await remove_leftovers(world)
    slots = anyio.CapacityLimiter(AT_ONCE)
    async with anyio.create_task_group() as group:
        for trial_id in await world.ledger.read(trials.unfinished):
            if trial_id not in so_far.taken_over:
                group.start_soon(_settle, world, trial_id, so_far, slots, name=f"recovery of {trial_label(trial_id)}")


async def _settle(world: World, trial_id: int, so_far: Recovered, slots: anyio.CapacityLimiter) -> None:
    async with slots:
        context = await world.ledger.read(cell_context, trial_id)
        name_in_log(context)
        try:
            lost = await _lost(world, context)
        except EngineError as error:
            # Not seen is not lost: the trial's own coroutine goes on looking, with its own patience and its own evidence.
            log.warning("recovery_blind", trial=trial_label(trial_id), error=str(error))
            lost = None
        # From here on to its end in one go: what is written is noted as well, whatever cuts this.
        with anyio.CancelScope(shield=True):
            try:
                await _conclude(world, context, lost, so_far)
            except RuleBroken:
                # A person may have voided it while it was looked at: then it rests, and the sweeper tears it down.
                if trial_id in await world.ledger.read(trials.unfinished):
                    raise


async def _conclude(world: World, context: TrialContext, lost: tuple[str, str] | None, so_far: Recovered) -> None:
    trial_id = context.trial_id
    if lost is not None:
        code, reason = lost
        # The daemon's own end must not use up a cell's passes.
        await void(world, trial_id, code, reason, counts_pass=code not in ("daemon_lost", "host_rebooted"))
        so_far.voided.add(trial_id)
        return
    if context.state == TrialState.RUNNING:
        detail = {"boot_id": world.clock.boot_id}
        await world.ledger.write(trials.reattached, trial_id, detail=detail, now_ms=world.clock.wall_ms())
    so_far.taken_over.add(trial_id)
    log.info("taken_over", trial=trial_label(trial_id), state=context.state)


async def _lost(world: World, context: TrialContext) -> tuple[str, str] | None:
    """Void code and evidence, or None when the trial can go on."""
    if context.state in (TrialState.RESERVED, TrialState.PREPARING):
        return "daemon_lost", f"the daemon ended while the trial was {context.state}; its agent had not started"
    container, ended = context.container, verify.is_final(context)
    if container is not None and container.gone_at_ms is not None and context.verifications:
        return None  # removed after the verifier's end, before the score was written: the payload is final and on our disk
    boot_id = context.verifications[-1].boot_id if context.verifications else context.agent.boot_id if context.agent else ""
    if boot_id != world.clock.boot_id and not ended:  # of a verifier that had exited the payload lies on our disk, whatever has died since
        return "host_rebooted", f"started in boot {boot_id}, this is boot {world.clock.boot_id}"
    if container is None or container.docker_id is None:
        return "container_lost", "the ledger knows no container of this trial"
    docker_id = container.docker_id
    info = await world.look(lambda: world.engine.inspect_container(docker_id))
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
