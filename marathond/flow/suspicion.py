"""Gathers what our own side saw of a verification, and what the verifier's log speaks of, for core/classify.py.

Owns small looks: at the ledger (gateway, disks, other trials of the task) and at both ends of the verifier's output, which lies where the
agent may write.  Decides nothing.  Race prevented: the gateway tells the end of a request a moment after the verifier's, so its ends are
waited for, bounded.
"""

from __future__ import annotations

import anyio
from anyio import to_thread

from marathond.core import ourside
from marathond.core.errors import ArtifactError
from marathond.core.logwords import Said, said
from marathond.core.names import trial_label
from marathond.core.ourside import Judge, OurSide
from marathond.flow import ways
from marathond.flow.verify import STDOUT, VERIFIER
from marathond.flow.world import World, log
from marathond.ledger.verbs import evidence
from marathond.ledger.verbs.context import VerificationRow, verifications_of
from marathond.ports.agent import RunDir
from marathond.tasks.artifacts import read_ends

HEAD_BYTES, TAIL_BYTES = 64 << 10, 256 << 10
"""Of the verifier's output: set-up speaks first, the verdict last."""
TOLD_S, TOLD_POLL_S = 10.0, 0.2
"""For the gateway to tell how the verifier's last requests ended."""


async def log_words(world: World, trial_id: int) -> tuple[Said, ...]:
    """What the verifier's output speaks of; nothing where it cannot be read."""
    own = world.fixed.gateway
    addresses = [f"127.0.0.1:{own.port + ways.PURPOSES[VERIFIER][1]}"] if own is not None else []
    try:
        text = await to_thread.run_sync(_output, world.run_dir(trial_id))
    except ArtifactError as error:
        log.info("verifier_log_unread", trial=trial_label(trial_id), error=str(error))
        return ()
    return await to_thread.run_sync(said, text, addresses)


def _output(run: RunDir) -> str:
    data = read_ends(run.logs, f"verifier/{STDOUT}", head=HEAD_BYTES, tail=TAIL_BYTES)
    return "" if data is None else data.decode("utf-8", "replace")


async def our_side(world: World, trial_id: int, *, engine_breaks: int, interrupted: int) -> OurSide:
    """Of the last run of the verifier that the ledger knows."""
    runs = await world.ledger.read(verifications_of, trial_id)
    last = runs[-1] if runs else None
    disks = await world.ledger.read(evidence.disks_low, since_ms=last.started_at_ms) if last is not None else ()
    others = ourside.alike(await world.ledger.read(evidence.other_trials, trial_id))
    return OurSide(await _judge(world, trial_id, last), engine_breaks, interrupted, disks, others)


async def _judge(world: World, trial_id: int, last: VerificationRow | None) -> Judge:
    if world.caught_up is None or last is None:
        return Judge()
    until_ms = world.clock.mono_ms() + int(TOLD_S * 1000)
    while True:
        await world.caught_up()
        seen = await world.ledger.read(evidence.judge_seen, trial_id, since_mono_ms=last.started_mono_ms)
        if not seen.open or world.clock.mono_ms() >= until_ms:
            return ourside.judge(seen.requests, seen.turned_away)
        await anyio.sleep(TOLD_POLL_S)
