"""A running agent: watched until its own end, its deadline or its budget; then quieted, proven dead, and written down.

Owns the race between these endings and the deadline that moves: time which the gateway held a request is not charged (fault a17).
Must not know how an agent is driven.
"""

from __future__ import annotations

import functools
import math

import anyio

from marathond.agents.registry import AGENTS
from marathond.core.endtime import judged
from marathond.core.errors import EngineError, GateFailed
from marathond.core.model import Arm, Task
from marathond.core.names import AfterAgent, EndedBy, trial_label
from marathond.flow import collecting, grading, ways
from marathond.flow.agent_findings import write_end
from marathond.flow.agentlog import LedgerLog
from marathond.flow.ending import Death, prove_death
from marathond.flow.presence import Presence
from marathond.flow.settled import alone, settled
from marathond.flow.world import World, log
from marathond.ledger.verbs import show, trials, usage
from marathond.ledger.verbs.context import AgentRow, TrialContext
from marathond.ledger.verbs.trials import Fact
from marathond.ports.agent import HALT_S, Agent, AgentEnd, Environment
from marathond.ports.engine import ContainerInfo

SESSION = "agent session"
"""Name of the fact that holds the host's pid of the agent's first process, which is also its session's number."""
CUT = "ended by us"
"""Name of the fact that says that a daemon was about to end the agent, and by what."""
KILLED = 137
TIMER_GRACE_S = 30
"""The container's own timer fires this much after the deadline: it is for a daemon that is away, not a rival of the one that is here."""
SETTLE_S, SETTLE_POLL_S = 5.0, 0.2
BUDGET_LOOK_S = 5.0
"""How often a trial's spending is compared with its cap."""
REPEAT_S = 60.0
"""How often the gateway is told a deadline that has not changed: its file may have been damaged."""
FIRST_LOOK_S = 20.0
"""Where the deadline passed while nobody looked, the agent may have ended long before it: this long it may say so."""


def deadline_mono_ms(row: AgentRow, credit_ms: int) -> int | None:
    """When the agent's time is over on the monotonic clock; None: never."""
    return None if row.limit_ms is None else row.started_mono_ms + row.limit_ms + credit_ms


async def credit_ms(world: World, trial_id: int) -> int:
    """Held time that is not charged so far, bounded alike for every arm; a wait that still goes on is known up to the last look."""
    if world.fixed.gateway is None or not world.fixed.gateway.held_at_most_ms:
        return 0
    return min(await held_ms(world, trial_id), world.fixed.gateway.held_at_most_ms)


async def held_ms(world: World, trial_id: int) -> int:
    """How long the gateway held requests of the agent, charged or not."""
    return await world.ledger.read(usage.held_ms, trial_id, now_mono_ms=world.clock.mono_ms())


async def _know(world: World) -> None:
    """Take in what the gateway has told: what is not known yet must not decide over a deadline."""
    if world.caught_up is not None:
        await world.caught_up()


async def _answered(world: World, trial_id: int) -> bool:
    """Whether the agent's model has answered by now; the gateway tells the end of a request that its client's death cut within a moment."""
    until_ms = world.clock.mono_ms() + int(SETTLE_S * 1000)
    while True:
        await _know(world)
        answered, unended = await world.ledger.read(usage.answers, trial_id)
        if answered or not unended or world.clock.mono_ms() >= until_ms:
            return answered > 0
        await anyio.sleep(SETTLE_POLL_S)


async def _surplus(world: World, trial_id: int, since_ms: int) -> int:
    """How often the gateway has turned the agent away for what it had open itself; 0 if that was only before ``since_ms``."""
    await _know(world)
    return await world.ledger.read(usage.own_surplus, trial_id, since_ms=since_ms)


async def watch(world: World, context: TrialContext, task: Task, arm: Arm, *, recovered: bool = False) -> None:
    """Until the agent's own end or the deadline; then its death is proven and the ending written down.

    :param recovered: another life started the agent.
    """
    assert context.agent is not None and context.container is not None and context.container.docker_id is not None
    row, container_id, breaks = context.agent, context.container.docker_id, world.engine_breaks
    agent = AGENTS[arm.kind]
    seen = await world.look(lambda: world.engine.inspect_container(container_id))
    env = Environment(
        world.engine,
        container_id,
        task,
        arm,
        world.run_dir(context.trial_id),
        world.fixed.gate_timeout_s,
        LedgerLog(world, context.trial_id),
        seen.pid if seen is not None and seen.running else 0,
        await ways.start_ticks(world, seen) if agent.needs_model and seen is not None and seen.running else 0,
        model_answered=functools.partial(_answered, world, context.trial_id) if world.fixed.gateway is not None else None,
        model_surplus=functools.partial(_surplus, world, context.trial_id) if world.fixed.gateway is not None else None,
    )
    end: AgentEnd | None = AgentEnd(None, "exec") if row.exec_id is None else None
    presence = Presence(world, context.trial_id, row, container_id, recovered=recovered)
    if row.exec_id is not None:
        await _note_session(world, context.trial_id, row.exec_id)
        end = await _ended(world, context, env, agent, row.exec_id, presence)
    death = await _death(world, context.trial_id, container_id, row.exec_id, arm, agent)
    # An agent that did not end well may have died with its container, which the engine shows as running for a moment longer.
    info = await settled(world, container_id)
    await ways.close_ways(world, context.trial_id)
    await _record_end(world, context, agent, end, death, info, presence)
    await collecting.collect(world, context.trial_id)
    if info is None or not info.running:
        shown = "gone" if info is None else f"{info.status}, exit {info.exit_code}, OOMKilled {info.oom_killed}"
        if info is None or not await alone(world, breaks):
            raise GateFailed("container_lost", f"the container ended while the agent ran, and its engine was away: {shown}")
        await grading.doubt(
            world, context.trial_id, "container_ended", f"the container ended under its agent, the engine did not: {shown}", {}
        )


async def _ended(world: World, context: TrialContext, env: Environment, agent: Agent, exec_id: str, presence: Presence) -> AgentEnd | None:
    """The agent's own end or its budget's; None: the deadline."""
    if (before := await world.ledger.read(trials.fact, context.trial_id, CUT)) is not None:
        # An earlier life was about to end it.  What runs still is ended now; else it ran until then, not for as long as nobody was there.
        over, at_ms = EndedBy(before[0]), before[1]
        presence.cut_by_us(None if await _ended_before_us(world, exec_id) is None else at_ms)
        return _cut(over)
    end: AgentEnd | None = None
    over = EndedBy.DEADLINE
    failed: Exception | None = None

    # A failure is carried out of the group by hand: the group would wrap it, and callers tell failures apart by their class.
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            nonlocal end, failed
            try:
                end = await agent.wait(env, exec_id)
            except Exception as error:  # noqa: BLE001 - raised again below
                failed = error
            group.cancel_scope.cancel()

        async def budgets() -> None:
            nonlocal over, failed
            try:
                over = await _over_budget(world, context, agent, exec_id, presence)
            except Exception as error:  # noqa: BLE001 - raised again below
                failed = error
            group.cancel_scope.cancel()

        group.start_soon(wait, name="agent")
        group.start_soon(budgets, name="budgets")
        group.start_soon(presence.keep, exec_id, name="presence")
    presence.settle()
    if presence.unsure and isinstance(failed, GateFailed):
        # Its time was over before anybody was there again: what its driver met after that is no failure of a trial that still had time.
        log.info("failed_after_its_time", trial=trial_label(context.trial_id), error=str(failed))
        failed = None
    if failed is not None:
        raise failed
    if end is not None:
        return end
    known = await _ended_before_us(world, exec_id)
    if known is not None:
        return known
    # Written before it is done: of a daemon that is killed between the kill and the row, the next one would find an agent that somebody
    # killed, and call that the agent's own end.
    fact = Fact(CUT, over.value, "said before it was done")
    await world.ledger.write(trials.facts, context.trial_id, [fact], now_ms=world.clock.wall_ms())
    with anyio.move_on_after(HALT_S):
        try:
            await agent.halt(env, exec_id)
        except (EngineError, GateFailed) as error:
            log.warning("halt_failed", trial=trial_label(context.trial_id), error=str(error))
    presence.cut_by_us()
    return _cut(over)


def _cut(over: EndedBy) -> AgentEnd | None:
    return None if over is EndedBy.DEADLINE else AgentEnd(None, "driver", over)


async def _over_budget(world: World, context: TrialContext, agent: Agent, exec_id: str, presence: Presence) -> EndedBy:
    """Returns when the time or the money is spent; the deadline moves by what the gateway held.

    Race prevented: a wait that began a moment before the deadline and is not in the ledger yet.  So nothing strikes before a look that
    began at or after the deadline has taken in the journal; and the gateway itself refuses only ways.GRACE_MS later.
    """
    assert context.agent is not None
    row, trial_id = context.agent, context.trial_id
    if not agent.needs_model:
        deadline = deadline_mono_ms(row, 0)
        await anyio.sleep(math.inf if deadline is None else max(0, deadline - world.clock.mono_ms()) / 1000)
        if deadline is not None and presence.away_at(deadline):
            await _first_look(world, exec_id, presence, driven=False)
        return EndedBy.DEADLINE
    cap, known, noted = world.fixed.trial_cap_nusd, False, row.credit_ms
    told: tuple[int | None, int] | None = None
    while True:
        credit = await credit_ms(world, trial_id)
        if credit != noted:
            noted = credit
            await world.ledger.write(trials.credited, trial_id, credit_ms=credit)
        deadline = deadline_mono_ms(row, credit)
        if told is None or told[0] != deadline or world.clock.mono_ms() - told[1] >= REPEAT_S * 1000:
            try:
                await ways.set_deadline(world, trial_id, deadline, wait=False)
                told = deadline, world.clock.mono_ms()
            except GateFailed as error:  # a gateway that is away must not end an agent that works; the next look tries again
                log.warning("deadline_not_moved", trial=trial_label(trial_id), error=str(error))
        left_s = math.inf if deadline is None else (deadline - world.clock.mono_ms()) / 1000
        if left_s <= 0 and known:
            if deadline is not None and presence.away_at(deadline):
                await _first_look(world, exec_id, presence, driven=True)
            return EndedBy.DEADLINE
        if cap is not None and await world.ledger.read(usage.cost_nusd, trial_id) >= cap:
            return EndedBy.MONEY
        await anyio.sleep(max(0, min(left_s, BUDGET_LOOK_S)))
        if left_s <= BUDGET_LOOK_S:  # before that the intake's own looks are often enough
            await _know(world)
        known = left_s <= 0


async def _first_look(world: World, exec_id: str, presence: Presence, *, driven: bool) -> None:
    """The deadline passed while nobody looked: time to learn whether the agent had ended by then, where its exec alone does not tell.

    A driven agent's server goes on after its last turn, and an exec that the engine has forgotten is looked for among the processes.  Who
    has not said so by then may have ended before or not: that is told.
    """
    info = await world.look(lambda: world.engine.inspect_exec(exec_id))
    if info is None or (driven and info.running):
        presence.unsure = True
        await anyio.sleep(FIRST_LOOK_S)


async def _ended_before_us(world: World, exec_id: str) -> AgentEnd | None:
    """Past the deadline: did the agent end by itself first, while no daemon was there to see it?"""
    info = await world.look(lambda: world.engine.inspect_exec(exec_id))
    return AgentEnd(info.exit_code, "exec") if info is not None and not info.running and info.exit_code is not None else None


async def _note_session(world: World, trial_id: int, exec_id: str) -> None:
    """Write down which session the agent's processes have: an engine that restarts under live-restore forgets the exec (fault b18).

    At every attachment: a daemon may have been killed right after the agent's start.
    """
    seen = await world.look(lambda: world.engine.inspect_exec(exec_id))
    if seen is not None and seen.pid:
        fact = Fact(SESSION, str(seen.pid), "engine")
        await world.ledger.write(trials.facts, trial_id, [fact], now_ms=world.clock.wall_ms())


async def _death(world: World, trial_id: int, container_id: str, exec_id: str | None, arm: Arm, agent: Agent) -> Death:
    if exec_id is None:
        info = await world.look(lambda: world.engine.inspect_container(container_id))
        return Death((), (), container_running=info is not None and info.running)
    seen = await world.look(lambda: world.engine.inspect_exec(exec_id))
    pids, policy = [seen.pid] if seen is not None and seen.pid else [], arm.after_agent
    if seen is None:
        known = (await world.ledger.read(show.show, trial_id)).facts
        pids = [int(fact.value) for fact in known if fact.name == SESSION]
        # Forgotten before anybody could ask for its session: what is the agent's nobody can tell, and none of it may live on (fault b07).
        policy = policy if pids else AfterAgent.KILL_ALL
    return await prove_death(world, container_id, pids, policy, tool_sessions=agent.has_tool_sessions, harness=agent.harness_prefix)


async def _record_end(
    world: World,
    context: TrialContext,
    agent: Agent,
    end: AgentEnd | None,
    death: Death,
    seen: ContainerInfo | None,
    presence: Presence,
) -> None:
    """``seen``: the container after the agent's death; None: its engine does not know it."""
    assert context.agent is not None
    row, now_mono_ms, trial_id = context.agent, world.clock.mono_ms(), context.trial_id
    ended = presence.ended(end, seen_ms=now_mono_ms)
    credit, timer_ms = 0, TIMER_GRACE_S * 1000
    if agent.needs_model and world.fixed.gateway is not None:
        await _know(world)
        held, credit = await held_ms(world, trial_id), await credit_ms(world, trial_id)
        timer_ms += world.fixed.gateway.held_at_most_ms - credit  # it was set for the latest deadline that there could be
        fact = Fact("held by the gateway", f"{held / 1000:.1f} s", f"not charged: {credit / 1000:.1f} s")
        await world.ledger.write(trials.facts, trial_id, [fact], now_ms=world.clock.wall_ms())
    deadline_ms = deadline_mono_ms(row, credit)
    ended_by, overrun_ms = judged(
        EndedBy.DEADLINE if end is None else end.ended_by,
        ended,
        seen_ms=now_mono_ms,
        deadline_ms=deadline_ms,
        timer_ms=timer_ms,
        killed=end is not None and end.source != "driver" and end.exit_code == KILLED,
    )
    listed = [(p, "killed") for p in death.killed] + [(p, "kept") for p in death.kept]
    await write_end(
        world,
        context.trial_id,
        ended_by,
        exit_code=end.exit_code if end else None,
        exit_source=end.source if end else "",
        oom_killed=bool(seen and seen.oom_killed),
        pids_refused=(seen and seen.pids_refused) or 0,
        overrun_ms=overrun_ms,
        processes=[{"pid": p.pid, "ppid": p.ppid, "argv": p.argv[:200], "fate": fate} for p, fate in listed[:200]],
        ended_mono_ms=ended.at_ms,
        ended_at_ms=None if ended.at_ms is None else world.clock.wall_ms() - (world.clock.mono_ms() - ended.at_ms),
        time_source=ended.source.value,
        credit_ms=credit,
    )
    log.info(
        "agent_ended", trial=trial_label(context.trial_id), arm=context.arm, task=context.task, by=ended_by.value, kept=len(death.kept)
    )
