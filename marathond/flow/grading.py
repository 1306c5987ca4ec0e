"""From the agent's end to a score, a void or a review.

Owns the rounds of verification and the rule that a payload is final only when nothing that could write it lives (fault d08): the
container is removed before the reading that counts.  The decision is core/classify.py, which sees no arm; what it sees beyond the payload
is gathered by flow/suspicion.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from marathond.core.classify import Again, Decision, Evidence, Review, Scored, VerifierEnd, Void, classify
from marathond.core.errors import GateFailed
from marathond.core.limits import overran
from marathond.core.model import Task
from marathond.core.names import AfterAgent, trial_label
from marathond.core.score import ScoreReading
from marathond.flow import suspicion, verify
from marathond.flow.ending import prove_death
from marathond.flow.same_task import same_task
from marathond.flow.score_row import score_row
from marathond.flow.settled import alone, settled
from marathond.flow.teardown import remove_container
from marathond.flow.turns import wait_for_turn
from marathond.flow.world import World, log
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.as_read import READ, as_read
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
    round_breaks = breaks
    end: VerifierEnd | None
    announced = False
    # The round whose end an earlier life saw; of any other this one looks at the container as it would without a restart.
    final = context.verifications[-1].round if recovered and verify.is_final(context) else 0
    if context.verifications:
        end = await _resume(world, context)
        # Killed between the event and the row of the round it announces: the event is there and must not be written twice.
        announced = context.verify_agains >= len(context.verifications)
    else:
        await same_task(world, context)
        end = await _round(world, context, task, 1)
    # Not the last one: the loop counts that, and counted twice a second round would pass for a first one and earn a third.
    interrupted = sum(row.outcome == "lost" for row in context.verifications[:-1])
    while end is not None:
        # A verifier that did not end well may have died with its container, which the engine shows as running for a moment longer.
        well = end.exit_code == 0
        info = await (world.look(lambda: world.engine.inspect_container(container_id)) if well else settled(world, container_id))
        if end.outcome == "lost" and info is not None and info.running and interrupted < MAX_INTERRUPTED:
            interrupted, round_breaks = interrupted + 1, world.engine_breaks
            end = await _interrupted(world, context, task, end.round, announced=announced)
            announced = False
            continue
        alive = context.container.gone_at_ms is not None or (info is not None and info.running)
        alive = alive or end.round == final
        dead = end.outcome == "lost" or not alive
        evidence = Evidence(
            verifier=replace(end, round=end.round - interrupted),
            reading=await verify.read(world, trial_id, verifier_exited=end.outcome == "exited"),
            container_alive=alive,
            engine_restarted=dead and ((recovered and info is None) or not await alone(world, breaks)),
            oom_killed=bool(info and info.oom_killed) and not agent_oom,
        )
        match await _decided(world, trial_id, evidence, engine_breaks=world.engine_breaks - round_breaks, interrupted=interrupted):
            case Again(cause):
                # Before the event: a task that changed meanwhile ends the trial, and then there was no second run.
                await same_task(world, context)
                if not announced:
                    await world.ledger.write(trials.verify_again, trial_id, cause=cause, now_ms=world.clock.wall_ms())
                announced = False
                round_breaks = world.engine_breaks
                end = await _round(world, context, task, end.round + 1)
            case Scored(flags):
                flags = (*flags, "verification_interrupted") if interrupted else flags
                if context.agent is not None and overran(context.agent.overrun_ms, context.agent.limit_ms):
                    await _too_long(world, context.trial_id, context.agent, evidence.reading, flags)
                    return
                await _score(world, trial_id, evidence.reading, flags)
                return
            case Review(code, detail, shown, flags):
                flags = (*flags, "verification_interrupted") if interrupted else flags
                kept = await _kept(world, trial_id, evidence.reading, flags) if evidence.reading.reward is not None else {}
                await doubt(world, trial_id, code, detail, {**shown, **kept})
                return
            case Void(code, reason):
                raise GateFailed(code, reason)


async def _decided(world: World, trial_id: int, evidence: Evidence, *, engine_breaks: int, interrupted: int) -> Decision:
    """What our own side saw is looked for only where it can matter: not beside a passed trial, nor before a second round."""
    decision, reward = classify(evidence), evidence.reading.reward
    if isinstance(decision, Again | Void) or (isinstance(decision, Scored) and reward is not None and reward.value >= 1):
        return decision
    ours = await suspicion.our_side(world, trial_id, engine_breaks=engine_breaks, interrupted=interrupted)
    return classify(replace(evidence, log=await suspicion.log_words(world, trial_id), ours=ours))


async def _round(world: World, context: TrialContext, task: Task, number: int) -> VerifierEnd | None:
    """One run of the verifier; None when the container did not let it begin, and a person has been asked.

    That is no void: an agent that breaks its container must not earn another attempt by it.
    """
    assert context.container is not None and context.container.docker_id is not None
    trial_id, container_id = context.trial_id, context.container.docker_id
    multiplier = float(context.treatment["verifier_timeout_multiplier"])
    if await wait_for_turn(world, context, number):
        await same_task(world, context)  # somebody may have edited it meanwhile
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


async def _final(world: World, trial_id: int, seen: ScoreReading, flags: tuple[str, ...]) -> tuple[ScoreReading, tuple[str, ...]]:
    """Read once more when nothing can write any longer."""
    if not await remove_container(world, trial_id):
        flags = (*flags, "container_outlived_score")
    final = await verify.read(world, trial_id, verifier_exited=True)
    return final, (*flags, "changed_after_exit") if final != seen else flags


async def _score(world: World, trial_id: int, seen: ScoreReading, flags: tuple[str, ...]) -> None:
    final, flags = await _final(world, trial_id, seen, flags)
    if final.reward is None:
        await doubt(world, trial_id, "score_changed", "the reward was readable, and no longer is", {"flags": list(flags)})
        return
    row = score_row(final, final.reward, flags)
    await world.ledger.write(trials.scored, trial_id, row, now_ms=world.clock.wall_ms())
    log.info("scored", trial=trial_label(trial_id), reward=row.reward, partial=row.partial, flags=list(row.flags))


async def _kept(world: World, trial_id: int, seen: ScoreReading, flags: tuple[str, ...]) -> dict[str, object]:
    """A readable score that is doubted, for the evidence: a person may accept it as it was read, with all its columns."""
    final, flags = await _final(world, trial_id, seen, flags)
    return {} if final.reward is None else {READ: as_read(score_row(final, final.reward, flags))}


async def _too_long(world: World, trial_id: int, agent: AgentRow, reading: ScoreReading, flags: tuple[str, ...]) -> None:
    """It was graded like any other; whether the score may count is a person's word."""
    assert agent.overrun_ms is not None and agent.limit_ms is not None and reading.reward is not None
    words = f"the agent had {agent.overrun_ms / 1000:.0f} s beyond its {agent.limit_ms / 1000:.0f} s, while no daemon was there to end it"
    shown = {"reward": reading.reward.value, "overrun_ms": agent.overrun_ms, "limit_ms": agent.limit_ms}
    kept = await _kept(world, trial_id, reading, (*flags, "overran"))
    await doubt(world, trial_id, "overrun", f"{words}; the verifier read {reading.reward.value:g}", {**shown, **kept})


async def doubt(world: World, trial_id: int, code: str, detail: str, evidence: Mapping[str, object]) -> None:
    """Put a trial before a person, with the evidence."""
    await world.ledger.write(trials.doubted, trial_id, code=code, detail=detail, evidence=dict(evidence), now_ms=world.clock.wall_ms())
    log.warning("review", trial=trial_label(trial_id), code=code, detail=detail)
