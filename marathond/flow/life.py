"""The working part of one daemon life: recovery first, then admission, sweeps, exports and events.

Owns the order in which they begin, and what is said while the engine is away.  Must not know the process around it (signals, sockets,
systemd: service/daemon.py).  The simulation runs this very order against an engine of its own.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from marathond.core.errors import EngineError
from marathond.flow.exporter import Exporter
from marathond.flow.recovery import Recovered, recover
from marathond.flow.scheduler import Scheduler
from marathond.flow.sweeper import Sweeper
from marathond.flow.world import World, log
from marathond.ledger.verbs import admission, settings

PROBE_S = 10.0
"""How long the start waits for the engine before it says READY without it."""
RECOVERY_S = 120.0
"""Looking at every unfinished trial takes milliseconds each; more than this means that the engine went away meanwhile."""


class Life:
    """One per daemon life: :meth:`begin`, then :meth:`go_on`; what these start runs in ``group`` until that is cancelled.

    ``away``: why nothing can be admitted for want of an engine; empty when it answered.
    """

    def __init__(self, world: World, group: TaskGroup) -> None:
        self.world, self.group = world, group
        self.away = "the engine did not answer yet"
        self._so_far, self._recovered = Recovered(), False

    async def begin(self) -> None:
        """Ask the engine, for a bounded time, and recover if it answers."""
        await self._probe()
        if not self.away:
            # A Docker that goes away right now must not hold READY back for ever: then recovery starts anew behind it.
            with anyio.move_on_after(RECOVERY_S):
                await recover(self.world, self._so_far)
                self._recovered = True

    async def go_on(self) -> None:
        """Recovery first, if it is not done yet, then admission: nothing new starts while it is unknown what still runs."""
        world, group = self.world, self.group
        if not self._recovered:
            await self._engine_answers()
            await recover(world, self._so_far)
            self._recovered = True
        taken_over, voided = sorted(self._so_far.taken_over), len(self._so_far.voided)
        group.start_soon(self._listen, name="events")
        scheduler = Scheduler(world, group)
        if taken_over or voided:
            log.info("recovered", taken_over=len(taken_over), voided=voided)
        for trial_id in taken_over:
            scheduler.start(trial_id, recovered=True)
        world.recovered = True
        group.start_soon(Sweeper(world).run, name="sweeper")
        group.start_soon(Exporter(world).run, name="exporter")
        group.start_soon(scheduler.run, name="scheduler")

    async def _probe(self) -> None:
        with anyio.move_on_after(PROBE_S):
            try:
                info = await self.world.engine.info()
            except EngineError as error:
                self.away = str(error)
            else:
                self.away = ""
                memory_mb = info.memory_bytes >> 20
                log.info("engine", engine=self.world.engine.name, version=info.server_version, ncpu=info.ncpu, memory_mb=memory_mb)
        if self.away:
            log.warning("degraded", engine=self.world.engine.name, reason=self.away)

    async def _engine_answers(self) -> None:
        """For as long as it takes; status says that the engine is away."""
        pause_s = 0.5
        while True:
            try:
                await self.world.engine.info()
            except EngineError as error:
                self.away = str(error)
                await self._say_engine_is_away(str(error))
            else:
                self.away = ""
                return
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, 10.0)

    async def _say_engine_is_away(self, why: str) -> None:
        """What status prints while nothing can be admitted: the reason of now, not the last one of an earlier life."""
        world = self.world
        now_ms = world.clock.wall_ms()
        await world.ledger.write(settings.observe, "engine", {"ok": False, "detail": why}, now_ms=now_ms)
        count = await world.ledger.read(admission.open_total, world.fixed.campaign_id)
        waiting = [{"code": "ENGINE", "count": count, "text": f"ENGINE ({why})"}] if count else []
        await world.ledger.write(settings.observe, "waiting", waiting, now_ms=now_ms)

    async def _listen(self) -> None:
        """Events are hints: they ring the bell.  A stream that was cut says that the engine went away, before anybody can look again."""
        world = self.world
        async for event in world.engine.events():
            if event.type == "marathond":
                world.engine_breaks += event.action == "cut"
            if event.action in ("die", "destroy", "resync"):
                world.wake.ring()
