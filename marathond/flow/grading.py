"""From the agent's end to a score, a void or a review.

Owns the rounds of verification and the rule that a payload is final only when nothing that could write it lives (fault d08): the
container is removed before the reading that counts.  The decision is core/classify.py, which sees no arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from marathond.core.classify import Again, Evidence, Review, Scored, VerifierEnd, Void, classify
from marathond.core.errors import GateFailed
from marathond.core.limits import overran
from marathond.core.model import AfterAgent, Task, trial_label
from marathond.core.score import ScoreReading
from marathond.flow import verify
from marathond.flow.ending import prove_death
from marathond.flow.same_task import same_task
from marathond.flow.score_row import score_row
from marathond.flow.settled import alone, settled
from marathond.flow.teardown import remove_container
from marathond.flow.world import World, log
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.context import AgentRow, TrialContext
from marathond.ledger.verbs.trials import Fact

MAX_INTERRUPTED = 5
"""Interruptions of one trial's verification before a person is asked; each is an engine restart."""


async def grade(world: World, context: TrialContext, task: Task, *, recovered: bool) -> None:
    """Run the verifier until the trial is scored, void or in review."""
    assert context.container is not None and context.container.docker_id is not None
    trial_id, container_id, breaks = context.trial_id, context.container.docker_id, world.engine_breaks
    # The engine's word on memory covers the container's whole life: what the agent met must not be laid at the verifier's door (fault b09).
    agent_oom = bool(context.agent and context.agent.oom_killed)
    end: VerifierEnd | None
    announced = False
    if context.verifications:
        end = await _resume(world, context)
        # Killed between the event and the row of the round it announces: the event is there and must not be written twice.
        announced = context.verify_agains >= len(context.verifications)
    else:
        await same_task(world, context)
        end = await _round(world, context, task, 1)
    interrupted = sum(row.outcome == "lost" for row in context.verifications)
    while end is not None:
        # A verifier that did not end well may have died with its container, which the engine shows as running for a moment longer.
        well = end.exit_code == 0
        info = await (world.look(lambda: world.engine.inspect_container(container_id)) if well else settled(world, container_id))
        if end.outcome == "lost" and info is not None and info.running and interrupted < MAX_INTERRUPTED:
            interrupted += 1
            end = await _interrupted(world, context, task, end.round, announced=announced)
            announced = False
            continue
        alive = context.container.gone_at_ms is not None or (info is not None and info.running)
        alive = alive or (recovered and end.outcome == "exited")
        dead = end.outcome == "lost" or not alive
        evidence = Evidence(
            verifier=replace(end, round=end.round - interrupted),
            reading=await verify.read(world, trial_id, verifier_exited=end.outcome == "exited"),
            container_alive=alive,
            engine_restarted=dead and ((recovered and info is None) or not await alone(world, breaks)),
            oom_killed=bool(info and info.oom_killed) and not agent_oom,
        )
        match classify(evidence):
            case Again(cause):
                # Before the event: a task that changed meanwhile ends the trial, and then there was no second run.
                await same_task(world, context)
                if not announced:
                    await world.ledger.write(trials.verify_again, trial_id, cause=cause, now_ms=world.clock.wall_ms())
                announced = False
                end = await _round(world, context, task, end.round + 1)
            case Scored(flags):
                flags = (*flags, "verification_interrupted") if interrupted else flags
                if context.agent is not None and overran(context.agent.overrun_ms, context.agent.limit_ms):
                    await _too_long(world, context.trial_id, context.agent, evidence.reading)
                    return
                await _score(world, trial_id, evidence.reading, flags)
                return
            case Review(code, detail, shown):
                await doubt(world, trial_id, code, detail, shown)
                return
            case Void(code, reason):
                raise GateFailed(code, reason)


async def _round(world: World, context: TrialContext, task: Task, number: int) -> VerifierEnd | None:
    """One run of the verifier; None when the container did not let it begin, and a person has been asked.

    That is no void: an agent that breaks its container must not earn another attempt by it.
    """
    assert context.container is not None and context.container.docker_id is not None
    trial_id, container_id = context.trial_id, context.container.docker_id
    multiplier = float(context.treatment["verifier_timeout_multiplier"])
    started = await verify.start(world, trial_id, container_id, task, number, multiplier)
    if isinstance(started, verify.Blocked):
        await doubt(world, trial_id, "verifier_not_started", started.why, {"round": number})
        return None
    if started.removed and number == 1:
        fact = Fact("removed before verification", ", ".join(started.removed), "written by the agent to /logs/verifier")
        await world.ledger.write(trials.facts, trial_id, [fact], now_ms=world.clock.wall_ms())
    return await verify.finish(world, trial_id, container_id, started)


async def _interrupted(world: World, context: TrialContext, task: Task, number: int, *, announced: bool) -> VerifierEnd | None:
    """The engine restarted under a verifier and forgot its exec (live-restore): end whatever is left of it, run it again, say so.

    What the agent detached dies with it: without the exec's id the two cannot be told apart, and two verifiers must never run at once.
    """
    assert context.container is not None and context.container.docker_id is not None
    container_id = context.container.docker_id
    await prove_death(world, container_id, [], AfterAgent.KILL_ALL)
    await same_task(world, context)
    if not announced:
        await world.ledger.write(trials.verify_again, context.trial_id, cause="interrupted", now_ms=world.clock.wall_ms())
    return await _round(world, context, task, number + 1)


async def _resume(world: World, context: TrialContext) -> VerifierEnd:
    """Take over a verification that an earlier daemon began: its process runs detached and its output is on disk."""
    last = context.verifications[-1]
    if last.ended_at_ms is not None:
        return VerifierEnd(last.outcome or "lost", last.exit_code, last.round)
    assert context.container is not None and context.container.docker_id is not None
    started = verify.Started(last.exec_id or "", last.round, last.started_mono_ms + last.limit_ms)
    log.info("verification_taken_over", trial=trial_label(context.trial_id), round=last.round)
    return await verify.finish(world, context.trial_id, context.container.docker_id, started)


async def _score(world: World, trial_id: int, seen: ScoreReading, flags: tuple[str, ...]) -> None:
    """Read once more when nothing can write any longer, and record that."""
    if not await remove_container(world, trial_id):
        flags = (*flags, "container_outlived_score")
    final = await verify.read(world, trial_id, verifier_exited=True)
    if final != seen:
        flags = (*flags, "changed_after_exit")
    if final.reward is None:
        await doubt(world, trial_id, "score_changed", "the reward was readable, and no longer is", {"flags": list(flags)})
        return
    row = score_row(final, final.reward, flags)
    await world.ledger.write(trials.scored, trial_id, row, now_ms=world.clock.wall_ms())
    log.info("scored", trial=trial_label(trial_id), reward=row.reward, partial=row.partial, flags=list(row.flags))


async def _too_long(world: World, trial_id: int, agent: AgentRow, reading: ScoreReading) -> None:
    """It was graded like any other; whether the score may count is a person's word."""
    assert agent.overrun_ms is not None and agent.limit_ms is not None and reading.reward is not None
    words = f"the agent had {agent.overrun_ms / 1000:.0f} s beyond its {agent.limit_ms / 1000:.0f} s, while no daemon was there to end it"
    shown = {"reward": reading.reward.value, "overrun_ms": agent.overrun_ms, "limit_ms": agent.limit_ms}
    await doubt(world, trial_id, "overrun", f"{words}; the verifier read {reading.reward.value:g}", shown)


async def doubt(world: World, trial_id: int, code: str, detail: str, evidence: Mapping[str, object]) -> None:
    """Put a trial before a person, with the evidence."""
    await world.ledger.write(trials.doubted, trial_id, code=code, detail=detail, evidence=dict(evidence), now_ms=world.clock.wall_ms())
    log.warning("review", trial=trial_label(trial_id), code=code, detail=detail)
