"""One trial, from its reservation to the proof that nothing of it is left.

Owns the order of the phases and what each ending leads to; every phase begins where the ledger says the trial is, so that a new daemon
enters in the middle (flow/recovery.py decides where).  Must not see other trials, nor decide by the arm: the arm is only handed on.

Cancellation means that the daemon stops: the container and the agent go on and nothing is torn down.  An operator's void cancels the
trial's own scope instead, and then the teardown runs.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread
from structlog.contextvars import bind_contextvars

from marathond.agents.registry import AGENTS
from marathond.core.arms import arm_from_data
from marathond.core.errors import ConnectionBroke, EngineError, EngineTimeout, EngineUnreachable, GateFailed
from marathond.core.limits import effective_agent_limit
from marathond.core.model import Arm, Task
from marathond.core.names import TrialState, cell_label, trial_label
from marathond.flow import environment, gates, grading, mounts, ways
from marathond.flow.agentlog import LedgerLog
from marathond.flow.same_task import same_task
from marathond.flow.teardown import tear_down
from marathond.flow.watching import TIMER_GRACE_S, watch
from marathond.flow.world import Handle, World, log
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import admission, findings, trials
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ledger.verbs.trials import Fact
from marathond.ports.agent import Agent, Environment
from marathond.ports.engine import ContainerInfo

ACCEPTED = "accepted"
"""Void code of a trial that was only to pass its gates: the environment is good, and nothing was run in it."""


async def run_trial(world: World, trial_id: int, *, recovered: bool = False) -> None:
    """Drive one trial to its end.  Returns when it rests and its teardown was tried; raises only on cancellation."""
    handle = world.driven.setdefault(trial_id, Handle())
    try:
        with handle.scope:
            await _guarded(world, trial_id, recovered=recovered)
        if not await _resting(world, trial_id):
            return  # a bug left it unfinished: recovery or a person takes it from here, nothing is torn down under a living agent
        await tear_down(world, trial_id)
    finally:
        world.driven.pop(trial_id, None)
        world.wake.ring()
        world.export_wake.ring()


def name_in_log(context: TrialContext) -> None:
    """Whatever the current task logs from here on can be searched by them."""
    names = {"trial": trial_label(context.trial_id), "cell": cell_label(context.cell_id), "arm": context.arm, "task": context.task}
    bind_contextvars(**names)


async def _resting(world: World, trial_id: int) -> bool:
    context = await world.ledger.read(cell_context, trial_id)
    return context.state in (TrialState.SCORED, TrialState.VOIDED, TrialState.REVIEW)


async def _guarded(world: World, trial_id: int, *, recovered: bool) -> None:
    """A bug closes admission and leaves the trial as it is."""
    try:
        await _phases_or_void(world, trial_id, recovered=recovered)
    except RuleBroken as broken:
        # A person may void a trial between two of our steps, voids among them: the ledger then refuses ours, which is no bug.
        if not (world.driven[trial_id].withdrawn or await _resting(world, trial_id)):
            await _invariant(world, trial_id, broken)
    except Exception as bug:  # noqa: BLE001 - whatever it is, it concerns one trial: it closes admission, and the daemon and the others go on
        await _invariant(world, trial_id, bug)


async def _phases_or_void(world: World, trial_id: int, *, recovered: bool) -> None:
    """Turns broken ports into voids with evidence."""
    breaks = world.engine_breaks
    try:
        await _phases(world, trial_id, recovered=recovered)
    except GateFailed as failure:
        if failure.code == "image_gone":
            # Somebody removed it: forget it, so that it is pulled or built again before the cell's next attempt.
            world.images.pop((await world.ledger.read(cell_context, trial_id)).task_id, None)
        await void(world, trial_id, failure.code, failure.detail, counts_pass=not await _engines_doing(world, trial_id, breaks))
    except EngineError as error:
        world.engine_breaks += isinstance(error, EngineUnreachable | ConnectionBroke)
        await void(world, trial_id, "engine_failed", str(error), counts_pass=not await _engines_doing(world, trial_id, breaks))


async def _engines_doing(world: World, trial_id: int, breaks: int) -> bool:
    """The engine was seen away before the agent began: no pass is used up, for the cell is not to blame and no token was spent."""
    state = (await world.ledger.read(cell_context, trial_id)).state
    return state in (TrialState.RESERVED, TrialState.PREPARING) and world.engine_breaks != breaks


async def _invariant(world: World, trial_id: int, error: Exception) -> None:
    log.error("invariant_broken", trial=trial_label(trial_id), error=str(error), exc_info=error)
    now_ms = world.clock.wall_ms()
    detail = f"{trial_label(trial_id)}: {type(error).__name__}: {error}"
    await world.ledger.write(
        findings.raise_finding,
        code="invariant_broken",
        severity="stop_loss",
        subject=trial_label(trial_id),
        detail=detail,
        campaign_id=world.fixed.campaign_id,
        now_ms=now_ms,
    )
    await world.ledger.write(admission.open_stop, "invariant", detail=detail, author="marathond", until_ms=None, now_ms=now_ms)


async def void(world: World, trial_id: int, code: str, reason: str, *, counts_pass: bool = True) -> None:
    """Record an infrastructure void; parks the cell when its passes are used up."""
    context = await world.ledger.read(cell_context, trial_id)
    evidence = {"engine_breaks": world.engine_breaks, "container": context.container.docker_id if context.container else None}
    breaker = any(stop.kind == "breaker" for stop in await world.ledger.read(admission.stops))
    parked = await world.ledger.write(
        trials.void_by_daemon,
        trial_id,
        code=code,
        reason=reason,
        evidence=evidence,
        counts_pass=counts_pass and not breaker,
        passes=world.knobs.passes,
        now_ms=world.clock.wall_ms(),
    )
    log.warning("voided", trial=trial_label(trial_id), arm=context.arm, task=context.task, code=code, reason=reason, parked=parked)


async def _phases(world: World, trial_id: int, *, recovered: bool) -> None:
    context = await world.ledger.read(cell_context, trial_id)
    name_in_log(context)
    arm = arm_from_data(context.arm_data)
    task = await same_task(world, context)
    prepared, watched = context.state == TrialState.RESERVED, False
    if prepared:
        await _prepare(world, context, task, arm)
        world.turned.ring()
        context = await world.ledger.read(cell_context, trial_id)
    if context.state == TrialState.RUNNING:
        await watch(world, context, task, arm, recovered=recovered and not prepared)
        watched = True
        world.turned.ring()
        context = await world.ledger.read(cell_context, trial_id)
    if watched or context.state == TrialState.VERIFYING:  # one that goes to a person unverified may count, too
        end = await mounts.at_end(world, trial_id, arm.mounts, late=not watched)
        try:
            if context.state == TrialState.VERIFYING:
                await grading.grade(world, context, task, recovered=recovered)
            await end.note()
        finally:
            end.leave()


async def _prepare(world: World, context: TrialContext, task: Task, arm: Arm) -> None:
    """Network, container, gates, agent start."""
    trial_id, agent = context.trial_id, AGENTS[arm.kind]
    # Kept: another trial that finds it gone makes the daemon forget it while this one is under way.
    image = world.images.get(context.task_id)
    if image is None:
        raise GateFailed("image_gone", "the task's image is no longer known to this daemon")
    run = world.run_dir(trial_id)
    try:
        await to_thread.run_sync(environment.make_run_dir, run, task.instruction, agent.harness_folders)
    except OSError as error:
        raise GateFailed("run_dir_lost", str(error)) from error
    network_id = await environment.network_up(world, context)
    spec = environment.container_spec(world, context, task, arm, agent, image, network_id)
    info = await environment.container_up(world, context, task, spec)
    now_ms = world.clock.wall_ms()
    await world.ledger.write(trials.environment_up, trial_id, started_at=info.started_at, detail={"network": network_id}, now_ms=now_ms)
    passed: list[Fact] = []
    if task.uploads_environment:
        # Harbor's rule for a prebuilt image beside files in environment/: they belong into the working directory.
        target = task.workdir or image.workdir or "/"
        await world.engine.put_tree(info.id, Path(task.path) / "environment", target)
        passed.append(Fact("environment files", f"uploaded to {target}", "task"))
    if task.healthcheck is not None:
        tries = await gates.healthy(world, info.id, task.healthcheck)
        passed.append(Fact("gate healthcheck", f"passed at try {tries}", "task"))
    limit = effective_agent_limit(world.fixed.own_limit_s, task.agent_timeout_s, world.fixed.agent_multiplier)
    env = await _environment(world, trial_id, info, task, arm, agent, limit.limit_s)
    passed += [Fact(f"gate {gate.name}", gate.value, "arm") for gate in await agent.gates(env)]
    await ways.close_ways(world, trial_id, "gate")
    if world.fixed.gates_only:
        shown = "; ".join(f"{fact.name.removeprefix('gate ')}: {fact.value}" for fact in passed)
        raise GateFailed(ACCEPTED, shown or "its container is up, and there is no gate")
    # As late as can be: what is edited from here on is another trial's, but for the moment that it takes to start.
    passed += await mounts.facts(arm.mounts, world.mounted)
    exec_id = await agent.create(env)
    started_mono_ms = world.clock.mono_ms()
    if agent.needs_model:
        # Stored at the gateway before the agent can ask: a daemon that is gone a moment later has bounded it already (fault c19).
        await ways.set_deadline(world, trial_id, None if limit.limit_s is None else started_mono_ms + max(1, int(limit.limit_s * 1000)))
    await world.ledger.write(
        _write_start,
        trial_id,
        (*environment.facts(world, task, arm, info), *passed),
        exec_id=exec_id,
        # The deadline starts here, with the agent, never in the queue (fault c09).
        started_mono_ms=started_mono_ms,
        boot_id=world.clock.boot_id,
        limit_ms=None if limit.limit_s is None else max(1, int(limit.limit_s * 1000)),
        limit_origin=limit.origin,
        limit_loser=limit.loser,
        now_ms=world.clock.wall_ms(),
    )
    log.info("agent_started", trial=trial_label(trial_id), arm=context.arm, task=context.task, limit_s=limit.limit_s, origin=limit.origin)
    if exec_id is not None:
        await _begin(world, env, exec_id)


async def _environment(
    world: World, trial_id: int, info: ContainerInfo, task: Task, arm: Arm, agent: Agent, limit_s: float | None
) -> Environment:
    """What the agent is given; for one that needs a model, with its way there open."""
    gateway = world.fixed.gateway
    model = gate = None
    ticks = 0
    if agent.needs_model:
        ticks = await ways.start_ticks(world, info)
        route = "" if gateway is None else gateway.route
        model = await ways.open_way(world, trial_id, info, task, route)
        gate = await ways.open_way(world, trial_id, info, task, "" if gateway is None else gateway.gate_route, "gate")
    # Held time moves the deadline while a daemon is there to see it; the timer must not fire before the latest that it may come to.
    held_s = gateway.held_at_most_ms / 1000 if gateway is not None and agent.needs_model else 0
    return Environment(
        world.engine,
        info.id,
        task,
        arm,
        world.run_dir(trial_id),
        world.fixed.gate_timeout_s,
        LedgerLog(world, trial_id),
        info.pid,
        ticks,
        timer_s=None if limit_s is None else math.ceil(limit_s + held_s) + TIMER_GRACE_S,
        model=model,
        gate_model=gate,
    )


def _write_start(c: sqlite3.Connection, /, trial_id: int, facts: Sequence[Fact], *, now_ms: int, **start: Any) -> None:
    """What applies and the start itself, in one transaction."""
    trials.facts(c, trial_id, facts, now_ms=now_ms)
    trials.agent_started(c, trial_id, now_ms=now_ms, **start)


async def _begin(world: World, env: Environment, exec_id: str) -> None:
    try:
        await AGENTS[env.arm.kind].begin(env, exec_id)
    except EngineTimeout as error:
        info = await world.look(lambda: world.engine.inspect_exec(exec_id))
        if info is None:
            # Its container may well run, under live-restore: not lost, but nobody can say whether the agent began in it.
            raise GateFailed("engine_failed", f"the engine forgot the agent's exec while it was started: {error}") from error
        if not (info.running or info.exit_code is not None):
            raise
    except EngineError as error:
        raise GateFailed("agent_not_started", str(error)) from error
