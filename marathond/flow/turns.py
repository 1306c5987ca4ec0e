"""Waits until a trial's verifier may begin, where some tasks time their own code.

Owns when to look again.  The decision is core/turns.py, granted inside the ledger; the deadline of a verifier begins with the verifier,
never in this queue (fault c09).  Cancelled at any point it leaves a turn that waits, or one that is held by a trial that goes on.
"""

from __future__ import annotations

from marathond.core.names import trial_label
from marathond.core.turns import Alone, alone_of
from marathond.flow.world import World, log
from marathond.ledger.verbs import turns
from marathond.ledger.verbs.context import TrialContext

POLL_S = 2.0
"""Between two looks at the queue, at the latest; every trial's end rings."""


async def wait_for_turn(world: World, context: TrialContext, round: int) -> bool:
    """Return when the verifier of this round may begin; whether it had to wait for that.

    At once where no campaign of the ledger has a verifier that runs alone.
    """
    if not await world.ledger.read(turns.in_use):
        return False
    trial_id, alone = context.trial_id, alone_of(context.treatment, context.task)
    await turn_over(world, trial_id, round)
    asked_ms = world.clock.mono_ms()
    why = first = await _take(world, trial_id, round, alone)
    if why:
        log.info("verifier_waits", trial=trial_label(trial_id), why=why)
    while why:
        await world.turned.wait(POLL_S)
        seen = await world.ledger.read(turns.look, building=world.building, now_ms=world.clock.wall_ms())
        if trial_id in seen.granted:
            why = await _take(world, trial_id, round, alone)
    if first or alone is not Alone.NO:
        log.info("verifier_turn", trial=trial_label(trial_id), alone=alone.value, waited_ms=world.clock.mono_ms() - asked_ms)
    return bool(first)


async def _take(world: World, trial_id: int, round: int, alone: Alone) -> str:
    now_ms = world.clock.wall_ms()
    return await world.ledger.write(turns.take, trial_id, round=round, alone=alone, building=world.building, now_ms=now_ms)


async def turn_over(world: World, trial_id: int, before: int | None = None) -> None:
    """The trial rests and was torn down, or it asks again, for round ``before``: the next may begin."""
    if await world.ledger.read(turns.has_open, trial_id, before=before):
        await world.ledger.write(turns.over, trial_id, before=before, now_ms=world.clock.wall_ms())
    world.turned.ring()


async def closed(world: World) -> str:
    """Why nothing may be admitted or built now, for a verifier's sake; empty: it may."""
    if not await world.ledger.read(turns.in_use):
        return ""
    return (await world.ledger.read(turns.look, building=world.building, now_ms=world.clock.wall_ms())).closed


async def alone_now(world: World) -> bool:
    """Whether a verifier runs alone at this moment."""
    return await world.ledger.read(turns.in_use) and await world.ledger.read(turns.lone_runs)
