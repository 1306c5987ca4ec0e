"""One daemon life of a seed: the product's own order of things, on ports that can be struck at any call.

Owns how a life begins and how it may end: killed (every port dead first, then cancelled), frozen and replaced, told to stop.  The working
part is flow/life.Life; what the real daemon does around it (submission, knobs, watchdog, winding down) is service/daemon's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import trio
from anyio.abc import TaskGroup

from marathond import __version__
from marathond.core.errors import LedgerRefused
from marathond.flow.auditor import Auditor
from marathond.flow.life import Life
from marathond.flow.world import Fixed, Knobs, World
from marathond.ledger.verbs import admission, campaigns, networks, runs
from marathond.ledger.verbs import settings as ledger_settings
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.service import effective
from marathond.service.commands import Commands
from marathond.service.daemon import Daemon
from marathond.service.knobs import KNOBS, KnobValue
from marathond.service.notify import Notifier
from tests.sim import world
from tests.sim.switch import Killed
from tests.sim.switchboard import SWITCH, LifeEngine, LifeLedger, LifeSwitch
from tests.sim.tracing import LIFE

if TYPE_CHECKING:
    from tests.sim.run import Sim


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


class SimDaemon(Daemon):
    """The product's daemon without its process: no configuration file, no socket, ports that are given."""

    def __init__(self, sim: Sim, ledger: LifeLedger, engine: LifeEngine) -> None:
        super().__init__(cast(Any, None), cast(Any, None), cast(Any, ledger), cast(Any, engine), cast(Any, sim.clock))
        self.sim, self.notifier = sim, Notifier({})

    async def live(self) -> None:
        """From the submission to the end that :meth:`request_stop` asks for, and its last words."""
        await self.run(cast(Any, None))
        asked, undone = self.last_words()
        await self.ledger.write(runs.part, asked=asked, undone=undone, now_ms=self.clock.wall_ms())

    async def _work(self, _: object, group: TaskGroup) -> None:
        sim, now_ms = self.sim, self.clock.wall_ms()
        await self.ledger.write(admission.end_stop, "drain", author="marathond", now_ms=now_ms)
        result = await self.submit("marathond")
        fixed = world.fixed(sim.shape, sim.folder, result.campaign_id)
        self.world = World(fixed, await self._knobs(fixed), self.ledger, cast(Any, self.engine), sim.host, self.clock)
        if sim.shape.audited:
            group.start_soon(Auditor(self.world).run, name="audit")
        group.start_soon(self._begin, group, name="begin")
        await trio.sleep_forever()

    def _show_itself(self, _: TaskGroup) -> None:
        """There is no process to be shown; its loop is never late in virtual time."""

    def _keep_ledger(self) -> None:
        """There is no file whose lock could be lost."""

    async def _begin(self, group: TaskGroup) -> None:
        assert self.world is not None
        self._life = Life(self.world, group)
        group.start_soon(self._watchdog, name="watchdog")
        await self._life.begin()
        await self.ledger.write(runs.mark_ready, now_ms=self.clock.wall_ms())
        self.sim.trace.add(f"ready {self.degraded}")
        group.start_soon(self._keep_settings, name="settings")
        await self._life.go_on()

    def _status_line(self) -> str:
        return ""

    async def submit(self, author: str) -> SubmitResult:
        made = world.submission(self.sim.shape, self.sim.folder / "out")
        return await self.ledger.write(campaigns.submit, made, now_ms=self.clock.wall_ms())

    def configured(self, key: str) -> KnobValue:
        return self.sim.shape.knobs[key]

    async def _knobs(self, fixed: Fixed) -> Knobs:
        set_by_hand = await self.ledger.read(ledger_settings.overrides)
        values = {**self.sim.shape.knobs, **{key: value for key, value in set_by_hand.items() if key in KNOBS}}
        await self.ledger.write(
            networks.set_pool,
            fixed.engine_name,
            mode=fixed.network_mode,
            range=fixed.network_range,
            prefix=fixed.network_prefix,
            cap=int(values["network.cap"]),
            margin=int(values["network.margin"]),
        )
        await self.ledger.write(ledger_settings.observe, "limits", values, now_ms=self.clock.wall_ms())
        self._values = values
        return effective.knobs_from(values)


class DaemonLife:
    """:meth:`run` is its process.  ``ended``: how it came to its end, empty while it lives."""

    def __init__(self, sim: Sim, number: int) -> None:
        self.sim, self.number = sim, number
        self.switch = LifeSwitch()
        self.scope = trio.CancelScope()
        self.ledger = LifeLedger(sim.conn, self.switch, self._wrote, self._undone)
        self.engine = LifeEngine(sim.engine.client(self.switch), self.switch)
        self.daemon: SimDaemon | None = None
        self.commands: Commands | None = None
        self.run_id = 0
        self.ended = ""
        self.over = trio.Event()
        self.was_frozen, self.over_s = False, 0.0

    def _wrote(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.sim.wrote(self, verb, args, kwargs)

    def _undone(self, verb: str, error: BaseException) -> None:
        self.sim.undone(self, verb, error)

    # ── how it is struck ──

    def kill(self) -> None:
        """kill -9, at whatever the life is doing right now."""
        if not self.over.is_set() and not self.switch.dead:
            self.sim.trace.add(f"kill L{self.number} at call {self.switch.calls}")
            self.sim.count("kill")
            self.switch.kill()
            self.switch.thaw()
            self.scope.cancel()

    def freeze(self) -> None:
        """SIGSTOP."""
        if not self.over.is_set() and not self.switch.dead:
            self.sim.trace.add(f"freeze L{self.number} at call {self.switch.calls}")
            self.was_frozen = True
            self.switch.freeze()

    def thaw(self) -> None:
        self.sim.trace.add(f"thaw L{self.number}")
        self.switch.thaw()

    # ── its process ──

    async def run(self) -> None:
        LIFE.set(self.number)
        SWITCH.set(self.switch)
        sim = self.sim
        try:
            with self.scope:
                self.run_id = await self.ledger.begin_life(
                    pid=4000 + self.number,
                    pid_start_ticks=self.number,
                    host="build7",
                    boot_id=sim.clock.boot_id,
                    version=__version__,
                    now_ms=sim.clock.wall_ms(),
                )
                sim.began(self)
                self.daemon = SimDaemon(sim, self.ledger, self.engine)
                self.commands = Commands(cast(Any, self.ledger), self.daemon, sim.clock)
                await self.daemon.live()
            self.ended = "killed" if self.switch.dead else "stopped"
        except BaseException as error:
            self.ended = self._why(error)
            if not self.ended:
                raise
        finally:
            sim.trace.add(f"life L{self.number} over: {self.ended}")
            self.over_s = trio.current_time()
            self.over.set()

    def _why(self, error: BaseException) -> str:
        """Empty: it is no end of a life, but of the simulation."""
        found = list(leaves(error))
        if self.switch.dead and all(isinstance(each, Killed | trio.Cancelled | LedgerRefused) for each in found):
            return "killed"
        if self.run_id != self.sim.newest_run and all(isinstance(each, LedgerRefused) and each.code == "old_epoch" for each in found):
            return "old epoch"
        if any(isinstance(each, trio.Cancelled) for each in found):
            return ""
        self.sim.violated("a life ends only when it is told to", f"L{self.number} crashed: {found!r}", error)
        return "crashed"
