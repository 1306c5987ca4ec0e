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

import anyio
from anyio import to_thread

from marathond.agents.registry import AGENTS
from marathond.core.arms import arm_from_data
from marathond.core.errors import EngineError, EngineTimeout, GateFailed
from marathond.core.limits import effective_agent_limit
from marathond.core.model import Arm, EndedBy, Task, TrialState, trial_label
from marathond.flow import environment, gates, grading
from marathond.flow.ending import Death, prove_death
from marathond.flow.same_task import same_task
from marathond.flow.teardown import tear_down
from marathond.flow.world import Handle, World, log
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import admission, findings, show, trials
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ledger.verbs.trials import Fact
from marathond.ports.agent import AgentEnd, Environment

SESSION = "agent session"
"""Name of the fact that holds the host's pid of the agent's first process, which is also its session's number."""
TIMER_GRACE_S = 30
"""The container's own timer fires this much after the deadline: it is for a daemon that is away, not a rival of the one that is here."""


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


async def _resting(world: World, trial_id: int) -> bool:
    context = await world.ledger.read(cell_context, trial_id)
    return context.state in (TrialState.SCORED, TrialState.VOIDED, TrialState.REVIEW)


async def _guarded(world: World, trial_id: int, *, recovered: bool) -> None:
    """Turns broken ports into voids with evidence; a bug closes admission and leaves the trial as it is."""
    try:
        await _phases(world, trial_id, recovered=recovered)
    except GateFailed as failure:
        if failure.code == "image_gone":
            # Somebody removed it: forget it, so that it is pulled or built again before the cell's next attempt.
            world.images.pop((await world.ledger.read(cell_context, trial_id)).task_id, None)
        await void(world, trial_id, failure.code, failure.detail)
    except EngineError as error:
        await void(world, trial_id, "engine_failed", str(error))
    except RuleBroken as broken:
        # An operator may void a trial between two of our steps: the ledger then refuses ours, and that is no bug.
        if not (world.driven[trial_id].withdrawn or await _resting(world, trial_id)):
            await _invariant(world, trial_id, broken)
    except Exception as bug:  # noqa: BLE001 - whatever it is, it concerns one trial: it closes admission, and the daemon and the others go on
        await _invariant(world, trial_id, bug)


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
    arm = arm_from_data(context.arm_data)
    task = await same_task(world, context)
    if context.state == TrialState.RESERVED:
        await _prepare(world, context, task, arm)
        context = await world.ledger.read(cell_context, trial_id)
    if context.state == TrialState.RUNNING:
        await _watch(world, context, task, arm)
        context = await world.ledger.read(cell_context, trial_id)
    if context.state == TrialState.VERIFYING:
        await grading.grade(world, context, task, recovered=recovered)


async def _prepare(world: World, context: TrialContext, task: Task, arm: Arm) -> None:
    """Network, container, gates, agent start."""
    trial_id, agent = context.trial_id, AGENTS[arm.kind]
    if context.task_id not in world.images:
        raise GateFailed("image_gone", "the task's image is no longer known to this daemon")
    run = world.run_dir(trial_id)
    try:
        await to_thread.run_sync(environment.make_run_dir, run, task.instruction)
    except OSError as error:
        raise GateFailed("run_dir_lost", str(error)) from error
    network_id = await environment.network_up(world, context)
    spec = environment.container_spec(world, context, task, arm, agent, network_id)
    info = await environment.container_up(world, context, task, spec)
    now_ms = world.clock.wall_ms()
    await world.ledger.write(trials.environment_up, trial_id, started_at=info.started_at, detail={"network": network_id}, now_ms=now_ms)
    passed: list[Fact] = []
    if task.uploads_environment:
        # Harbor's rule for a prebuilt image beside files in environment/: they belong into the working directory.
        target = task.workdir or world.images[context.task_id].workdir or "/"
        await world.engine.put_tree(info.id, Path(task.path) / "environment", target)
        passed.append(Fact("environment files", f"uploaded to {target}", "task"))
    if task.healthcheck is not None:
        tries = await gates.healthy(world, info.id, task.healthcheck)
        passed.append(Fact("gate healthcheck", f"passed at try {tries}", "task"))
    limit = effective_agent_limit(world.fixed.own_limit_s, task.agent_timeout_s, world.fixed.agent_multiplier)
    timer_s = None if limit.limit_s is None else math.ceil(limit.limit_s) + TIMER_GRACE_S
    env = Environment(world.engine, info.id, task, arm, run, world.fixed.gate_timeout_s, timer_s)
    passed += [Fact(f"gate {gate.name}", gate.value, "arm") for gate in await agent.gates(env)]
    exec_id = await agent.create(env)
    await world.ledger.write(
        _write_start,
        trial_id,
        (*environment.facts(task, arm, info), *passed),
        exec_id=exec_id,
        # The deadline starts here, with the agent, never in the queue (fault c09).
        started_mono_ms=world.clock.mono_ms(),
        boot_id=world.clock.boot_id,
        limit_ms=None if limit.limit_s is None else max(1, int(limit.limit_s * 1000)),
        limit_origin=limit.origin,
        limit_loser=limit.loser,
        now_ms=world.clock.wall_ms(),
    )
    log.info("agent_started", trial=trial_label(trial_id), arm=context.arm, task=context.task, limit_s=limit.limit_s, origin=limit.origin)
    if exec_id is not None:
        await _begin(world, env, exec_id)
        await _note_session(world, trial_id, exec_id)


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
            raise GateFailed("container_lost", f"the engine forgot the agent's exec while it was started: {error}") from error
        if not (info.running or info.exit_code is not None):
            raise
    except EngineError as error:
        raise GateFailed("agent_not_started", str(error)) from error


async def _note_session(world: World, trial_id: int, exec_id: str) -> None:
    """Write down which session the agent's processes have: an engine that restarts under live-restore forgets the exec (fault b18)."""
    seen = await world.look(lambda: world.engine.inspect_exec(exec_id))
    if seen is not None and seen.pid:
        fact = Fact(SESSION, str(seen.pid), "engine")
        await world.ledger.write(trials.facts, trial_id, [fact], now_ms=world.clock.wall_ms())


async def _watch(world: World, context: TrialContext, task: Task, arm: Arm) -> None:
    """Until the agent's own end or the deadline; then its death is proven and the ending written down."""
    assert context.agent is not None and context.container is not None and context.container.docker_id is not None
    row, container_id, breaks = context.agent, context.container.docker_id, world.engine_breaks
    env = Environment(world.engine, container_id, task, arm, world.run_dir(context.trial_id), world.fixed.gate_timeout_s)
    end: AgentEnd | None = AgentEnd(None, "exec") if row.exec_id is None else None
    if row.exec_id is not None:
        left_s = math.inf if row.limit_ms is None else max(0, row.started_mono_ms + row.limit_ms - world.clock.mono_ms()) / 1000
        with anyio.move_on_after(left_s):
            end = await AGENTS[arm.kind].wait(env, row.exec_id)
        if end is None:
            end = await _ended_before_us(world, row.exec_id)
    death = await _death(world, context.trial_id, container_id, row.exec_id, arm)
    info = await world.look(lambda: world.engine.inspect_container(container_id))
    await _record_end(world, context, end, death, oom_killed=bool(info and info.oom_killed))
    if not death.container_running:
        shown = "gone" if info is None else f"{info.status}, exit {info.exit_code}, OOMKilled {info.oom_killed}"
        if info is None or world.engine_breaks != breaks:
            raise GateFailed("container_lost", f"the container ended while the agent ran, and its engine was away: {shown}")
        await grading.doubt(
            world, context.trial_id, "container_ended", f"the container ended under its agent, the engine did not: {shown}", {}
        )


async def _ended_before_us(world: World, exec_id: str) -> AgentEnd | None:
    """Past the deadline: did the agent end by itself first, while no daemon was there to see it?"""
    info = await world.look(lambda: world.engine.inspect_exec(exec_id))
    return AgentEnd(info.exit_code, "exec") if info is not None and not info.running and info.exit_code is not None else None


async def _death(world: World, trial_id: int, container_id: str, exec_id: str | None, arm: Arm) -> Death:
    if exec_id is None:
        info = await world.look(lambda: world.engine.inspect_container(container_id))
        return Death((), (), container_running=info is not None and info.running)
    seen = await world.look(lambda: world.engine.inspect_exec(exec_id))
    pids = [seen.pid] if seen is not None and seen.pid else []
    if seen is None:
        known = (await world.ledger.read(show.show, trial_id)).facts
        pids = [int(fact.value) for fact in known if fact.name == SESSION]
    return await prove_death(world, container_id, pids, arm.after_agent)


async def _record_end(world: World, context: TrialContext, end: AgentEnd | None, death: Death, *, oom_killed: bool) -> None:
    assert context.agent is not None
    row, now_mono_ms = context.agent, world.clock.mono_ms()
    deadline_ms = None if row.limit_ms is None else row.started_mono_ms + row.limit_ms
    overrun_ms = None if deadline_ms is None else max(0, now_mono_ms - deadline_ms)
    if end is None:
        ended_by = EndedBy.DEADLINE
    elif end.exit_code == 137 and overrun_ms:
        # The container's own timer: it fires TIMER_GRACE_S after the deadline, however late somebody looks.
        ended_by, overrun_ms = EndedBy.TIMER, min(overrun_ms, TIMER_GRACE_S * 1000)
    else:
        # It ended by itself, at the latest when the timer would have fired; when exactly nobody saw.
        ended_by, overrun_ms = EndedBy.AGENT, None if overrun_ms else overrun_ms
    listed = [(p, "killed") for p in death.killed] + [(p, "kept") for p in death.kept]
    await world.ledger.write(
        trials.agent_ended,
        context.trial_id,
        ended_by=ended_by.value,
        exit_code=end.exit_code if end else None,
        exit_source=end.source if end else "",
        oom_killed=oom_killed,
        overrun_ms=overrun_ms,
        processes=[{"pid": p.pid, "ppid": p.ppid, "argv": p.argv[:200], "fate": fate} for p, fate in listed[:200]],
        ended_mono_ms=now_mono_ms,
        now_ms=world.clock.wall_ms(),
    )
    log.info(
        "agent_ended", trial=trial_label(context.trial_id), arm=context.arm, task=context.task, by=ended_by.value, kept=len(death.kept)
    )
