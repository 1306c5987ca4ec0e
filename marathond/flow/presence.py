"""Whether somebody looked while an agent ran, so that its end has a time.

Owns the beats of one watch: a gap between them is a daemon that was frozen or a host that slept, a break an engine that could not be
asked.  What follows for the end's time is core/endtime.py.  Must not know deadlines.
Race prevented: a daemon that wakes up hears of the end before the beat that would have told of its sleep, so the gap is looked for once
more when the end is known.
"""

from __future__ import annotations

import anyio

from marathond.agents.pinned import written_ms
from marathond.core.endtime import Ended, TimeSource, Watched, of_driver, of_process
from marathond.core.errors import EngineError
from marathond.flow.world import World
from marathond.ledger.verbs.context import AgentRow
from marathond.ports.agent import AgentEnd

BEAT_S = 5.0
LATE_MS = 10_000
"""A beat that is later than this was missed; a loaded host's are late by less."""


class Presence:
    """Of one life at one agent."""

    def __init__(self, world: World, trial_id: int, row: AgentRow, *, recovered: bool) -> None:
        """``recovered``: another life started it, and it may have ended since."""
        self._world, self._trial_id, self._row = world, trial_id, row
        self._beat_ms, self._breaks = row.started_mono_ms, world.engine_breaks
        self._watched = Watched(row.started_mono_ms, row.started_mono_ms, alive=not recovered)
        if recovered:
            self._gap()
        self._beat()
        self.cut = False
        """It was we who ended it, so it ran until then."""

    async def keep(self, exec_id: str) -> None:
        """Never returns."""
        while True:
            await self._ask(exec_id)
            await anyio.sleep(BEAT_S)
            self._beat()

    def _beat(self) -> None:
        now_ms, breaks = self._world.clock.mono_ms(), self._world.engine_breaks
        if now_ms - self._beat_ms > BEAT_S * 1000 + LATE_MS or breaks != self._breaks:
            self._gap()
        self._beat_ms, self._breaks = now_ms, breaks

    def _gap(self) -> None:
        before_ms = self._beat_ms if self._watched.alive else self._watched.before_ms
        self._watched = Watched(self._world.clock.mono_ms(), before_ms, alive=False)

    async def _ask(self, exec_id: str) -> None:
        """After a gap: does it run still?  An engine that cannot be asked sees no end either."""
        if self._watched.alive:
            return
        asked_ms = self._world.clock.mono_ms()
        try:
            info = await self._world.engine.inspect_exec(exec_id)
        except EngineError:
            self._gap()
            return
        if info is not None and info.running:
            self._watched = Watched(self._watched.since_ms, asked_ms, alive=True)

    def away_at(self, mono_ms: int) -> bool:
        """Whether nobody looked then, and somebody does only since."""
        self._beat()
        return self._watched.since_ms > mono_ms

    def settle(self) -> None:
        """Its end is known, by whatever was heard first."""
        self._beat()

    def ended(self, end: AgentEnd | None, *, seen_ms: int) -> Ended:
        """``seen_ms``: after its death was proven."""
        if self.cut or end is None:
            return Ended(seen_ms, TimeSource.WATCHED)
        if self._row.exec_id is None:  # nothing ran
            return Ended(self._row.started_mono_ms, TimeSource.WATCHED)
        if end.source == "driver":
            return of_driver(self._watched, started_ms=self._row.started_mono_ms, seen_ms=seen_ms, word_ms=self._mono_ms(end.at_ms))
        written = written_ms(self._world.run_dir(self._trial_id).ctl / "exit-status")
        return of_process(self._watched, seen_ms=seen_ms, written_ms=self._mono_ms(written))

    def _mono_ms(self, wall_ms: int | None) -> int | None:
        clock = self._world.clock
        return None if wall_ms is None else clock.mono_ms() - (clock.wall_ms() - wall_ms)
