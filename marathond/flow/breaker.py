"""Closes admission after repeated voids of one code, tries one trial after a pause, and opens it again (fault f12).

Owns the window in which voids are counted, and the steps from closed over half-open to open.  Decides by the order of the ledger's rows and
by monotonic time: a wall clock that steps neither opens nor shuts it (faults e05, e06).  Must not see an arm.
Race prevented: a daemon that is killed while one trial is tried; what is tried lies in the ledger, and the next life waits for that one.
"""

from __future__ import annotations

from collections import deque

from marathond.core.breaker import OF_ENGINE, OWN_ENDS, PROBES, Probe, Trying, Verdict, pause_ms, verdict, worst
from marathond.core.breaker import detail as words_of_stop
from marathond.core.names import trial_label
from marathond.flow.world import World, log
from marathond.ledger.verbs import admission, campaigns, probing, trials, voids
from marathond.ledger.verbs.admission import StopRow


class Breaker:
    """One per daemon life.  ``look`` is cheap; it is asked before every plan, so that N voids close admission before the next attempt."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._after_void: int | None = None
        self._seen: deque[tuple[int, str, int]] = deque(maxlen=10_000)
        self._standing: bool | None = None
        self._ends_mono_ms: int | None = None

    async def look(self) -> None:
        """Count what is new; lead a standing breaker one step on; begin one when a code was seen too often."""
        world = self.world
        window_ms, mono_ms = int(world.knobs.breaker_pause_s * 1000), world.clock.mono_ms()
        await self._collect(window_ms, mono_ms)
        standing = next((stop for stop in await world.ledger.read(admission.stops) if stop.kind == "breaker"), None)
        if standing is not None:
            self._standing = True
            await self._step(standing, window_ms, mono_ms)
            return
        if self._standing is not False:  # a person ended it, perhaps while no daemon lived: what was counted has been answered for
            await self._forget()
        code, count = worst(((code, task_id) for _, code, task_id in self._seen), tasks=await self._tasks())
        if count < world.knobs.breaker_after:
            return
        self._standing, self._ends_mono_ms, now_ms = True, mono_ms + window_ms, world.clock.wall_ms()
        example = await world.ledger.read(voids.example, code)  # for the words alone: what is decided was decided above
        detail = words_of_stop(code, count, world.knobs.breaker_pause_s, example)
        log.error("breaker", detail=detail)
        words = f"admission is closed for all arms: {detail}"
        await world.ledger.write(probing.close, detail=detail, until_ms=now_ms + window_ms, words=words, now_ms=now_ms)

    async def _tasks(self) -> int:
        return len(await self.world.ledger.read(campaigns.tasks_of, self.world.fixed.campaign_id)) if self._seen else 0

    async def _collect(self, window_ms: int, mono_ms: int) -> None:
        """Voids since the last look carry this look's time; a new life counts afresh, for its predecessor's times mean nothing to it."""
        if self._after_void is None:
            self._after_void = await self.world.ledger.read(trials.newest_void)
        for void_id, code, task_id in await self.world.ledger.read(trials.voids_after, self._after_void):
            self._after_void = void_id
            if code not in OWN_ENDS:
                self._seen.append((mono_ms, code, task_id))
        while self._seen and self._seen[0][0] <= mono_ms - window_ms:
            self._seen.popleft()

    async def _step(self, stop: StopRow, window_ms: int, mono_ms: int) -> None:
        """Closed until its time is over; then one trial, and what that shows."""
        world = self.world
        trying = await world.ledger.read(probing.trying)
        if trying is None:  # a person ended it just now
            return
        if trying.probe is not None:
            await self._judge(stop, trying, await world.ledger.read(probing.probe, trying.probe), window_ms, mono_ms)
            return
        if trying.half_open:
            return
        if self._ends_mono_ms is None:  # an earlier life closed it: what is left by the wall clock, within the bounds that make sense
            left_ms = 0 if stop.until_ms is None else stop.until_ms - world.clock.wall_ms()
            self._ends_mono_ms = mono_ms + min(max(left_ms, 0), pause_ms(window_ms, trying.failed))
        if mono_ms >= self._ends_mono_ms:
            self._ends_mono_ms = None
            log.info("breaker_half_open", detail=stop.detail)
            await self._try_one(stop, trying)

    async def _judge(self, stop: StopRow, trying: Trying, seen: Probe, window_ms: int, mono_ms: int) -> None:
        world, label = self.world, trial_label(trying.probe or 0)
        shows = verdict(seen)
        if shows is Verdict.GOOD:
            await self._open(stop.detail, f"{label} shows that it is over")
        elif shows is Verdict.NOTHING:
            log.info("breaker_probe_says_nothing", trial=label, code=seen.void_code)
            await self._try_one(stop, trying)
        elif shows is Verdict.BAD:
            # A void that no task can cause says nothing of the cell it hit, so that one may be tried again.
            tried = trying.tried if seen.void_code in OF_ENGINE else (*trying.tried, seen.cell_id)
            if seen.void_code not in OF_ENGINE and not await self._tells_more(tried):
                await self._open(stop.detail, f"{label} was void, too ({seen.void_code}), and no cell is left whose trial could tell more")
                return
            longer_ms = pause_ms(window_ms, trying.failed + 1)
            self._ends_mono_ms, now_ms = mono_ms + longer_ms, world.clock.wall_ms()
            log.error("breaker_probe_failed", trial=label, code=seen.void_code, again_in_s=longer_ms // 1000)
            again = f"{label}, which was tried, was void, too ({seen.void_code}); the next one in {longer_ms / 1000:g} s"
            words = f"admission is closed for all arms: {stop.detail}; {again}"
            await world.ledger.write(probing.close_again, trying, tried=tried, until_ms=now_ms + longer_ms, words=words, now_ms=now_ms)

    async def _try_one(self, stop: StopRow, trying: Trying) -> None:
        words = f"one trial is tried, all others wait: {stop.detail}"
        await self.world.ledger.write(probing.half_open, trying, words=words, now_ms=self.world.clock.wall_ms())

    async def _tells_more(self, tried: tuple[int, ...]) -> bool:
        return len(tried) < PROBES and await self.world.ledger.read(probing.others_open, self.world.fixed.campaign_id, tried)

    async def _open(self, detail: str, because: str) -> None:
        log.info("breaker_over", detail=detail, because=because)
        await self._forget()
        self.world.wake.ring()

    async def _forget(self) -> None:
        """What happened before and meanwhile has had its effect; the next voids speak for themselves."""
        self._standing, self._ends_mono_ms = False, None
        self._seen.clear()
        await self.world.ledger.write(probing.open_again, now_ms=self.world.clock.wall_ms())
