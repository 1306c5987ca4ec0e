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
from marathond.ports.ledger import Ledger
from marathond.service.commands import StopMode
from marathond.service.notify import Notifier

URGENCY: tuple[StopMode, ...] = ("drain", "now", "term")
"""Of two requests to stop, the later in this order counts."""
TORN_DOWN_S = 60.0
"""How long an end waits for teardowns: `stop --now` for those that it has begun, a drain for what Docker did not remove at once."""
TELL_MS, DRAIN_LOOK_S = 30_000, 0.5
"""How often a drain says for whom it waits; and looks whether it still does."""

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


async def carry_out(world: World, ledger: Ledger, notifier: Notifier, asked: Asked) -> bool:
    """Returns when the process may leave; False when a drain was called off by `resume`.

    A trial tries its teardown once.  A busy Docker refuses a removal whose kill it has not seen end yet; the sweeper repeats it, and a life
    that left before would leave an agent's container running with nobody to remove it: both ways wait for it.

    :param ledger: one that refuses for want of room where the flow's own would wait for it.
    """
    if asked().mode == "term":
        return True
    before = frozenset((await ledger.read(runs.left)).loose)
    if asked().mode == "drain" and not await _drained(world, ledger, notifier, asked, before):
        return False
    if asked().mode == "now":
        # Not STOPPING yet: systemd kills what takes longer after it than TimeoutStopSec, and would start it again as failed.
        notifier.status("stop --now: tearing down")
        await void_everything(world, ledger, asked())
        await _torn_down(world, ledger, asked, before)
        await ledger.write(admission.end_stop, "drain", author="marathond", now_ms=world.clock.wall_ms())
    return True


async def _drained(world: World, ledger: Ledger, notifier: Notifier, asked: Asked, before: frozenset[int]) -> bool:
    """True when nothing runs, everything is exported and torn down (but ``before``, or for at most TORN_DOWN_S), or when a more urgent
    stop came; False when the drain was called off."""
    began_ms, said_ms = world.clock.mono_ms(), -TELL_MS
    rests_ms: int | None = None
    while True:
        waiting: list[int] = await ledger.read(artifacts.not_exported)
        loose = set((await ledger.read(runs.left)).loose) - before
        now_ms = world.clock.mono_ms()
        waited_ms = now_ms - began_ms
        rests_ms = None if world.driven or waiting else now_ms if rests_ms is None else rests_ms
        if rests_ms is not None and (not loose or now_ms - rests_ms >= TORN_DOWN_S * 1000):
            log.info("drained", waited_s=waited_ms // 1000)
            return True
        if asked().mode != "drain":
            return True
        if not any(stop.kind == "drain" for stop in await ledger.read(admission.stops)):
            return False
        if waited_ms - said_ms >= TELL_MS:
            said_ms, driven = waited_ms, sorted(world.driven)
            exports = len(set(waiting) - world.driven.keys())
            log.info("draining", waited_s=waited_ms // 1000, trials=len(driven), named=named(driven), exports=exports, loose=len(loose))
            rest = plural(exports, "export") if exports else f"the teardown of {named(sorted(loose))}"
            notifier.status(f"draining for {waited_ms // 1000} s, waits for {f'{len(driven)} trials: {named(driven)}' if driven else rest}")
        world.export_wake.ring()
        await anyio.sleep(DRAIN_LOOK_S)


async def void_everything(world: World, ledger: Ledger, stop: StopRequest) -> None:
    """Void what runs, and begin to tear it down."""
    now_ms = world.clock.wall_ms()
    await ledger.write(admission.open_stop, "drain", detail=stop.reason, author=stop.author, until_ms=None, now_ms=now_ms)
    done = await ledger.write(operator.void_unfinished, code="stop_now", reason=stop.reason, author=stop.author, now_ms=now_ms)
    live = [trial.trial_id for trial in done.voided]
    for trial_id in live:
        world.withdraw(trial_id)
    log.info("voided_all", trials=len(live), named=named(live), torn_down_within_s=TORN_DOWN_S)


async def _torn_down(world: World, ledger: Ledger, asked: Asked, before: frozenset[int]) -> None:
    """Wait until nothing of a trial is left at the engine but of ``before``; TORN_DOWN_S, and until a SIGTERM at the latest."""
    with anyio.move_on_after(TORN_DOWN_S):
        while asked().mode != "term":
            if not world.driven and before.issuperset((await ledger.read(runs.left)).loose):
                break
            await anyio.sleep(0.1)
