"""Closes admission after repeated voids of one code, and opens it again by itself (fault f12).

Owns the window in which voids are counted.  Decides by the order of the ledger's rows and by monotonic time: a wall clock that steps
neither opens nor shuts it (faults e05, e06).  Must not see an arm.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from marathond.flow.world import World, log
from marathond.ledger.verbs import admission, campaigns, findings, trials
from marathond.ledger.verbs.admission import StopRow

OWN_ENDS = frozenset({"daemon_lost", "host_rebooted", "ledger_copied"})
"""Voids that a restart of ours caused: no sign of an infrastructure that fails again and again."""

OF_ENGINE = frozenset(
    {"network_failed", "container_lost", "engine_failed", "run_dir_lost", "agent_undead", "environment_mismatch", "verifier_not_started"}
)
"""Voids that no single task can cause.  Of every other code one bad task may cause any number (fault f06: it must disturb nobody), so each
task counts for at most PER_TASK of them, unless the campaign has too few tasks to tell."""
PER_TASK = 2
FEW_TASKS = 2


def worst(seen: Iterable[tuple[str, int]], *, tasks: int) -> tuple[str, int]:
    """The code that counts most, and how often; ``("", 0)`` for none.  ``seen``: (code, task) of each void; ``tasks``: of the campaign."""
    counts: Counter[str] = Counter()
    for (code, _), times in Counter(seen).items():
        counts[code] += times if code in OF_ENGINE or tasks <= FEW_TASKS else min(times, PER_TASK)
    return next(iter(counts.most_common(1)), ("", 0))


class Breaker:
    """One per daemon life.  ``look`` is cheap; it is asked before every plan, so that N voids close admission before the next attempt."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._after_void: int | None = None
        self._seen: deque[tuple[int, str, int]] = deque(maxlen=10_000)
        self._opens_mono_ms: int | None = None

    async def look(self) -> None:
        """Count what is new; end a stop whose time is over; begin one when a code was seen too often."""
        world = self.world
        window_ms, mono_ms = int(world.knobs.breaker_pause_s * 1000), world.clock.mono_ms()
        await self._collect(window_ms, mono_ms)
        standing = [stop for stop in await world.ledger.read(admission.stops) if stop.kind == "breaker"]
        if standing:
            await self._maybe_open(standing[0], window_ms, mono_ms)
            return
        if self._opens_mono_ms is not None:  # a person ended it: what was counted has been answered for
            self._opens_mono_ms = None
            self._seen.clear()
        code, count = worst(((code, task_id) for _, code, task_id in self._seen), tasks=await self._tasks())
        if count < world.knobs.breaker_after:
            return
        self._opens_mono_ms = mono_ms + window_ms
        await self._close_admission(f"{count} x {code} within {world.knobs.breaker_pause_s:g} s", window_ms)

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

    async def _maybe_open(self, stop: StopRow, window_ms: int, mono_ms: int) -> None:
        world = self.world
        if self._opens_mono_ms is None:  # an earlier life closed it: what is left by the wall clock, within the bounds that make sense
            left_ms = 0 if stop.until_ms is None else stop.until_ms - world.clock.wall_ms()
            self._opens_mono_ms = mono_ms + min(max(left_ms, 0), window_ms)
        if mono_ms < self._opens_mono_ms:
            return
        now_ms = world.clock.wall_ms()
        self._opens_mono_ms = None
        self._seen.clear()  # what happened before and during the pause has had its effect; the next voids speak for themselves
        await world.ledger.write(admission.end_stop, "breaker", author="marathond", now_ms=now_ms)
        await world.ledger.write(findings.close_finding, code="breaker", subject="admission", now_ms=now_ms)
        log.info("breaker_over", detail=stop.detail)
        world.wake.ring()

    async def _close_admission(self, detail: str, window_ms: int) -> None:
        world, now_ms = self.world, self.world.clock.wall_ms()
        await world.ledger.write(
            admission.open_stop, "breaker", detail=detail, author="marathond", until_ms=now_ms + window_ms, now_ms=now_ms
        )
        log.error("breaker", detail=detail)
        await world.ledger.write(
            findings.raise_finding,
            code="breaker",
            severity="warning",
            subject="admission",
            detail=f"admission is closed for all arms: {detail}",
            campaign_id=None,
            now_ms=now_ms,
        )
