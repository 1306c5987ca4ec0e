"""Whether somebody looked while an agent ran, so that its end has a time.

Owns the beats of one watch: a gap between them is a daemon that was frozen, a break an engine that could not be asked.  What follows for
the end's time is core/endtime.py.  Must not know deadlines.
Race prevented: a daemon that wakes up hears of the end before the beat that would have told of its sleep, so the gap is looked for once
more when the end is known.
"""

from __future__ import annotations

import anyio

from marathond.agents.forgotten import AGENT, STATUS, runs
from marathond.agents.pinned import written_ms
from marathond.core.endtime import Ended, TimeSource, Watched, of_driver, of_process
from marathond.core.errors import EngineError
from marathond.flow.world import World
from marathond.ledger.verbs.context import AgentRow
from marathond.ports.agent import AgentEnd

BEAT_S = 5.0
LATE_MS = 10_000
"""A beat that is later than this was missed; a loaded host's are late by less.  Two beats' time lie between two of them at most."""


class Presence:
    """Of one life at one agent."""

    def __init__(self, world: World, trial_id: int, row: AgentRow, container_id: str, *, recovered: bool) -> None:
        """``recovered``: another life started it, and it may have ended since."""
        self._world, self._trial_id, self._row, self._container_id = world, trial_id, row, container_id
        # What is between the start and here, in the same life, is no absence: a gateway that is slow to take a deadline, a slow engine.
        self._beat_ms, self._breaks = world.clock.mono_ms(), world.engine_breaks
        self._watched = Watched(row.started_mono_ms, alive=not recovered)
        self._heard_since_ms = self._settled_ms = row.started_mono_ms
        if recovered:
            self._gap()
            self._heard_since_ms = self._beat_ms
        self._cut = False
        self._cut_at_ms: int | None = None
        self.unsure = False
        """Whether it had not ended before we did, nobody could tell in time."""

    async def keep(self, exec_id: str) -> None:
        """Never returns."""
        while True:
            with anyio.move_on_after(BEAT_S):  # a slow engine must not make the next beat late
                await self._ask(exec_id)
            await anyio.sleep(BEAT_S)
            self._beat()

    def _beat(self) -> None:
        now_ms, breaks = self._world.clock.mono_ms(), self._world.engine_breaks
        late = now_ms - self._beat_ms > 2 * BEAT_S * 1000 + LATE_MS
        if late or breaks != self._breaks:
            self._gap()
        if late:
            self._heard_since_ms = now_ms
        self._beat_ms, self._breaks = now_ms, breaks

    def _gap(self) -> None:
        before_ms = self._beat_ms if self._watched.alive else self._watched.before_ms
        self._watched = Watched(before_ms, alive=False)

    async def _ask(self, exec_id: str) -> None:
        """After a gap: does it run still?  An engine that cannot be asked sees no end either."""
        if self._watched.alive:
            return
        asked_ms = self._world.clock.mono_ms()
        try:
            engine = self._world.engine
            info = await engine.inspect_exec(exec_id)
            # An exec that a restart under live-restore forgot is there as a process.
            running = await runs(engine, self._container_id, AGENT, STATUS) if info is None else info.running
        except EngineError:
            self._gap()
            return
        if running:
            self._watched = Watched(asked_ms, alive=True)

    def away_at(self, mono_ms: int) -> bool:
        """Whether nobody was there then, and somebody is only since."""
        self._beat()
        return self._heard_since_ms > mono_ms

    def cut_by_us(self, at_ms: int | None = None) -> None:
        """It was we who ended it: now, or (since 1970) in an earlier life."""
        self._cut, self._cut_at_ms = True, at_ms

    def settle(self) -> None:
        """Its end is known, by whatever was heard first; what proves its death takes time that is not its own."""
        self._beat()
        self._settled_ms = self._world.clock.mono_ms()

    def ended(self, end: AgentEnd | None, *, seen_ms: int) -> Ended:
        """``seen_ms``: after its death was proven, for one that ran until then."""
        if self._cut or end is None:
            cut_ms = self._mono_ms(self._cut_at_ms)
            at_ms = seen_ms if cut_ms is None else min(max(cut_ms, self._row.started_mono_ms), seen_ms)
            return Ended(None, TimeSource.UNKNOWN) if self.unsure else Ended(at_ms, TimeSource.WATCHED)
        if self._row.exec_id is None:  # nothing ran
            return Ended(self._row.started_mono_ms, TimeSource.WATCHED)
        started_ms, seen_ms = self._row.started_mono_ms, self._settled_ms
        if end.source == "driver":
            return of_driver(since_ms=self._heard_since_ms, started_ms=started_ms, seen_ms=seen_ms, word_ms=self._mono_ms(end.at_ms))
        written = written_ms(self._world.run_dir(self._trial_id).ctl / STATUS)
        return of_process(self._watched, seen_ms=seen_ms, written_ms=self._mono_ms(written))

    def _mono_ms(self, wall_ms: int | None) -> int | None:
        clock = self._world.clock
        return None if wall_ms is None else clock.mono_ms() - (clock.wall_ms() - wall_ms)
