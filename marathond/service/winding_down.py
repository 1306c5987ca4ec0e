"""What a request to stop does to the trials before the process leaves: nothing, wait for them, or void them.

Owns the order of the three and for how long each is waited.  Must not know what the process does afterwards (service/departure.py), nor
how a trial is torn down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio
import structlog

from marathond.core.parting import named
from marathond.core.text import plural
from marathond.flow.world import World
from marathond.ledger.verbs import admission, artifacts, operator, runs
from marathond.service.commands import StopMode
from marathond.service.notify import Notifier

URGENCY: tuple[StopMode, ...] = ("drain", "now", "term")
"""Of two requests to stop, the later in this order counts."""
TORN_DOWN_S = 60.0
"""How long an end waits for teardowns."""
TELL_MS, DRAIN_LOOK_S, VOID_LOOK_S = 30_000, 0.5, 0.1
"""How often a drain says for whom it waits; how often it and `stop --now` look whether they still do."""
EXPORT_MS = 5_000
"""How often a drain has tried again what could not be exported."""

log = structlog.get_logger("marathond")


@dataclass(frozen=True, slots=True)
class StopRequest:
    """``mode``: term (leave trials running), drain (wait for them), now (void them)."""

    mode: StopMode
    author: str
    reason: str

    @property
    def text(self) -> str:
        """For the life's last words."""
        if self.author == "signal":
            return self.reason
        return f"{ {'term': 'stop', 'drain': 'drain', 'now': 'stop --now'}[self.mode] } by {self.author} ({self.reason})"


Asked = Callable[[], StopRequest]
"""The most urgent request so far."""


async def carry_out(world: World, notifier: Notifier, asked: Asked) -> bool:
    """Returns when the process may leave; False when a drain was called off by `resume`.

    A trial tries its teardown once.  A busy Docker refuses a removal whose kill it has not seen end yet; the sweeper repeats it, and a life
    that left before would leave an agent's container running with nobody to remove it: both ways wait for it, TORN_DOWN_S at most.
    """
    began_ms, voids = world.clock.mono_ms(), False
    while (stop := asked()).mode == "drain":
        if await _drained(world, notifier, asked):
            break
        if asked() is stop:
            return False
    if asked().mode == "now":
        # Not STOPPING yet: systemd kills what takes longer after it than TimeoutStopSec, and would start it again as failed.
        notifier.status("stop --now: tearing down")
        voids, began_ms = True, world.clock.mono_ms()
    while asked().mode == "now" and not await _voided(world, asked()):
        if world.clock.mono_ms() - began_ms >= TORN_DOWN_S * 1000:
            break
        await anyio.sleep(VOID_LOOK_S)
    if voids:
        await world.ledger.write(admission.end_stop, "drain", author="marathond", now_ms=world.clock.wall_ms())
    return True


async def _drained(world: World, notifier: Notifier, asked: Asked) -> bool:
    """True when nothing runs and everything is exported and torn down, or when a more urgent stop came; False when it was called off.

    Before recovery is over, a trial that the ledger has running is driven by nobody, and is waited for all the same.
    """
    began_ms = rung_ms = world.clock.mono_ms()
    said_ms = -TELL_MS
    rests_ms: int | None = None
    while asked().mode == "drain":
        if not any(stop.kind == "drain" for stop in await world.ledger.read(admission.stops)):
            return False
        waiting: list[int] = await world.ledger.read(artifacts.not_exported)
        live = [] if world.recovered else [trial_id for trial_id, _ in (await world.ledger.read(runs.left)).live]
        loose = await _loose(world)
        now_ms = world.clock.mono_ms()
        waited_ms, driven = now_ms - began_ms, sorted(world.driven.keys() | set(live))
        rests_ms = None if driven or waiting else now_ms if rests_ms is None else rests_ms
        if rests_ms is not None and (not loose or now_ms - rests_ms >= TORN_DOWN_S * 1000):
            log.info("drained", waited_s=waited_ms // 1000)
            return True
        if waited_ms - said_ms >= TELL_MS:
            said_ms, exports = waited_ms, len(set(waiting) - set(driven))
            log.info("draining", waited_s=waited_ms // 1000, trials=len(driven), named=named(driven), exports=exports, loose=len(loose))
            rest = plural(exports, "export") if exports else f"the teardown of {named(loose)}"
            waits = f"{len(driven)} trials: {named(driven)}" if driven else rest
            notifier.status(f"draining for {waited_ms // 1000} s, waits for {waits}")
        if now_ms - rung_ms >= EXPORT_MS:
            rung_ms = now_ms
            world.export_wake.ring()
        await anyio.sleep(DRAIN_LOOK_S)
    return True


async def _voided(world: World, stop: StopRequest) -> bool:
    """Void what runs; whether nothing is left.  Asked again and again: an admission that was decided before is written after the first."""
    closed = any(each.kind == "drain" for each in await world.ledger.read(admission.stops))
    if not closed or (await world.ledger.read(runs.left)).live:
        await void_everything(world, stop)
    return not world.driven and not await _loose(world)


async def _loose(world: World) -> list[int]:
    """Trials that came to rest lately and are not torn down.  What Docker does not remove for longer is a finding, and holds nobody up."""
    return await world.ledger.read(runs.lately_loose, since_ms=world.clock.wall_ms() - int(TORN_DOWN_S * 1000))


async def void_everything(world: World, stop: StopRequest) -> None:
    """Void what runs, and begin to tear it down."""
    now_ms = world.clock.wall_ms()
    await world.ledger.write(admission.open_stop, "drain", detail=stop.reason, author=stop.author, until_ms=None, now_ms=now_ms)
    done = await world.ledger.write(operator.void_unfinished, code="stop_now", reason=stop.reason, author=stop.author, now_ms=now_ms)
    live = [trial.trial_id for trial in done.voided]
    for trial_id in live:
        world.withdraw(trial_id)
    log.info("voided_all", trials=len(live), named=named(live), torn_down_within_s=TORN_DOWN_S)
