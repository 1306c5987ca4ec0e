"""The simulated Docker engine as a server: one over all daemon lives, with its own bad days.

Owns how a request is answered, late, wrongly or never; restarts, hangs and events.  What a request does is fake_state.py, what a client
sees fake_client.py.  Everything is drawn from one random stream and happens in virtual time, so that a seed replays.

Facts modelled: a request whose client is gone usually completes; a connection that breaks after the request was sent leaves the outcome
unknown; an engine that is stopping answers older connections only, while it ends its containers; without live-restore they exit 137, with
it they go on; either way execs are forgotten, and an attached one's process hangs for good under live-restore (b18); events are lost.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import trio

from marathond.core.errors import ConnectionBroke, EngineError, EngineTimeout, EngineUnreachable
from marathond.ports.clock import Clock
from marathond.ports.engine import EngineEvent
from tests.sim.fake_box import KILLED, ContainerRecord, Resolve
from tests.sim.fake_requests import Request, Subscription
from tests.sim.fake_state import EngineState
from tests.sim.faults import FaultModel
from tests.sim.switch import DeadSwitch

if TYPE_CHECKING:
    from tests.sim.fake_client import FakeClient

T = TypeVar("T")

URL = "unix:///simulated.sock"
CALL_S = 30.0
"""Deadline of every call that has none of its own, as in the adapter."""
COMPLETES = 0.9
"""How likely a request whose client is gone completes all the same."""
LATENCY_S = {"network.create": 0.1, "container.create": 0.08, "container.start": 0.4, "container.remove": 0.3, "network.remove": 0.2}
QUICK_S = 0.01
UNKNOWN_EXIT = 255
COLLECTED_S = 10.0
"""Of an exec that ended, in the simulation's short days; a real engine takes 5 to 10 minutes."""
RESYNC = EngineEvent("marathond", "resync", "", {})
CUT = EngineEvent("marathond", "cut", "", {})


class FakeEngine(EngineState):
    """See the module.  ``nursery`` must outlive every daemon life; the engine's own tasks and all programs run in it."""

    def __init__(
        self,
        nursery: trio.Nursery,
        rng: random.Random,
        clock: Clock,
        faults: FaultModel,
        resolve: Resolve,
        *,
        name: str = "default",
        version: str | None = None,
    ) -> None:
        super().__init__(nursery, rng, clock, faults, resolve, version=version)
        self.name = name
        self.hung, self.stopping, self.slow = False, False, False
        self.boot = 0
        self.answers = trio.Event()
        self.answers.set()
        self._broken = trio.Event()
        self._pending: dict[Request, None] = {}
        self._queued: list[Request] = []
        self._subscriptions: dict[Subscription, None] = {}
        self.connected, self._silent = True, False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_serial = 0
        self._timer_scope: trio.CancelScope | None = None
        faults.on_stop(self._unstick)
        nursery.start_soon(self._keep_time)
        for planned in faults.planned:
            self.later(planned.at_s, lambda planned=planned: self._strike(planned.name))  # type: ignore[misc]

    def client(self, switch: DeadSwitch, call_timeout_s: float = CALL_S) -> FakeClient:
        """The port as one daemon life sees it."""
        from tests.sim.fake_client import FakeClient

        return FakeClient(self, switch, call_timeout_s)

    # time

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Once, in virtual time."""
        self._timer_serial += 1
        at_s = trio.current_time() + seconds
        heapq.heappush(self._timers, (at_s, self._timer_serial, call))
        if self._timer_scope is not None and self._timers[0][0] == at_s:
            self._timer_scope.deadline = at_s

    async def _keep_time(self) -> None:
        while True:
            while self._timers and self._timers[0][0] <= trio.current_time():
                heapq.heappop(self._timers)[2]()
            with trio.CancelScope(deadline=self._timers[0][0] if self._timers else float("inf")) as self._timer_scope:
                await trio.sleep_forever()

    # requests

    async def serve(self, call: str, effect: Callable[[], T], *, reads: bool = False, deadline_s: float = CALL_S, subject: str = "") -> T:
        """One request: its answer, or what its client gets instead.

        :raises EngineUnreachable, EngineTimeout: as the adapter would.
        """
        if not self.up or (self.stopping and call == "version"):
            await trio.sleep(0.001)
            raise EngineUnreachable(call, 0, f"cannot reach Docker at {URL}: connection refused (is dockerd running?)")
        fault, boot = self.faults.of_call(call), self.boot
        request = Request(call, effect, reads=reads, subject=subject)
        self._pending[request] = None
        began = trio.current_time()
        try:
            if not fault and not self.slow:
                await trio.sleep(LATENCY_S.get(call, QUICK_S) * (0.5 + self.rng.random()))
            else:
                await self._disturbed(request, fault, boot, deadline_s)
            if self.hung:
                await self._hanging(request, boot, began + deadline_s)
        except trio.Cancelled:
            self._dropped(request)
            raise
        finally:
            self._pending.pop(request, None)
            if fault:
                self.faults.trouble()
        if boot != self.boot:
            raise self._broke(request)
        request.done = True
        return effect()

    def _dropped(self, request: Request) -> None:
        """Its client is gone; a request that was sent usually completes."""
        if request.done or request.reads:
            return
        if self.hung:
            self._queued.append(request)
        elif self.rng.random() < COMPLETES:
            self.later(self.rng.uniform(0.0, 0.3), lambda boot=self.boot: request.complete() if boot == self.boot else None)  # type: ignore[misc]

    def _broke(self, request: Request) -> EngineError:
        if request.reads:
            return EngineUnreachable(request.call, 0, f"the connection to Docker at {URL} broke: Server disconnected")
        words = f"the connection to Docker at {URL} broke before it answered (Server disconnected); the outcome is unknown"
        return ConnectionBroke(request.call, 0, words)

    def _silence(self, call: str) -> EngineTimeout:
        return EngineTimeout(call, 0, f"no answer from Docker at {URL} in time; the outcome is unknown")

    async def _unanswered(self, request: Request, boot: int, deadline_s: float) -> None:
        """Until the caller gives up, or the connection breaks."""
        with trio.move_on_after(deadline_s):
            await self._broken.wait()
        raise self._broke(request) if boot != self.boot else self._silence(request.call)

    async def _hanging(self, request: Request, boot: int, until_s: float) -> None:
        """The whole engine accepts and does not answer.  What it took it may carry out when it goes on, with nobody left to hear of it."""
        while self.hung and boot == self.boot:
            with trio.move_on_at(until_s) as scope:
                await self.answers.wait()
            if scope.cancelled_caught:
                if not request.reads:
                    self._queued.append(request)
                raise self._silence(request.call)

    async def _disturbed(self, request: Request, fault: str, boot: int, deadline_s: float) -> None:
        """The faults of one call; returns when the request is to be carried out and answered as usual."""
        call = request.call
        await trio.sleep(LATENCY_S.get(call, QUICK_S) * (0.5 + self.rng.random()))
        if self.slow or fault == "slow":
            pause_s = self.rng.uniform(1.0, 8.0) if self.slow else self.rng.uniform(1.0, 1.3 * deadline_s)
            if pause_s > deadline_s and not request.reads:
                self.later(pause_s, lambda: request.complete() if boot == self.boot else None)
            if pause_s > deadline_s:
                await self._unanswered(request, boot, deadline_s)
            await trio.sleep(pause_s)
        if boot != self.boot or not self._applies(request, fault):
            return
        self.faults.count(fault)
        if fault.endswith("_done"):
            request.complete()
        elif fault.endswith("_late"):
            delay_s = deadline_s + self.rng.uniform(0.1, 20.0)
            self.later(delay_s, lambda: request.complete() if boot == self.boot else None)
        if fault == "hang" or fault.endswith(("_done", "_undone", "_late")):
            await self._unanswered(request, boot, deadline_s)
        if (refusal := self._refusal(call, fault)) is not None:
            request.done = True
            raise refusal
        match fault:
            case "exec_missing_binary":
                self._missing_binary = True
            case "subnet_taken":
                self.add_foreign_network(request.subject)
            case "network_undeletable" | "container_undeletable":
                self._holds(request.subject)

    def _applies(self, request: Request, fault: str) -> bool:
        """A rival takes an explicit subnet, the engine's own pools run out; what is gone cannot be held."""
        match fault:
            case "subnet_taken":
                return bool(request.subject)
            case "pool_exhausted":
                return not request.subject
            case "network_undeletable" | "container_undeletable":
                return request.subject in self.networks or request.subject in self.containers
        return bool(fault)

    def _holds(self, thing: str) -> None:
        """Something keeps a network or a container for a while."""
        held = self.networks.get(thing) or self.containers[thing]
        held.undeletable = True
        self.later(self.rng.uniform(5.0, 200.0), lambda: setattr(held, "undeletable", False))

    def _refusal(self, call: str, fault: str) -> EngineError | None:
        match fault:
            case "http_500":
                return EngineError(call, 500, "Server error: an error of the storage driver: input/output error")
            case "pool_exhausted":
                return self.exhausted()
            case "pull_failed":
                return EngineError(call, 500, "Get https://registry.invalid/v2/: net/http: TLS handshake timeout")
            case "build_failed":
                return EngineError(call, 0, "The command '/bin/sh -c make' returned a non-zero code: 2")
            case "pause_refused":
                return EngineError(call, 500, "cannot pause container: unable to freeze: device or resource busy")
            case "unpause_refused":
                return EngineError(call, 500, "cannot unpause container: unable to thaw: device or resource busy")
        return None

    @property
    def trouble_s(self) -> float:
        """Until when, in virtual time, something was wrong with the engine; now, if it is."""
        sick = self.slow or self.hung or self.stopping or not self.up
        return trio.current_time() if sick else self.faults.last_s

    # events

    def publish(self, kind: str, action: str, thing: str, attributes: Mapping[str, str]) -> None:
        if not self._subscriptions or not self.connected or self._silent:
            return
        event = EngineEvent(kind, action, thing, attributes)
        for subscription in self._subscriptions:
            subscription.put(event)

    def subscribe(self) -> Subscription:
        """A new client's stream; begins with ``resync`` as soon as it stands."""
        made = Subscription()
        self._subscriptions[made] = None
        if self.connected:
            made.put(RESYNC)
        return made

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)
        subscription.ready.set()

    def _cut(self) -> None:
        if self.connected:
            self.connected = False
            for subscription in self._subscriptions:
                subscription.put(CUT)

    def _reconnect(self) -> None:
        if self.up and not self.connected:
            self.connected = True
            for subscription in self._subscriptions:
                subscription.put(RESYNC)

    # the engine's own bad days

    def _strike(self, name: str) -> None:
        """A planned fault comes."""
        if self.faults.off:
            return
        self.faults.count(name)
        uniform = self.rng.uniform
        match name:
            case "engine_restart":
                self.restart(live=False, away_s=10 ** uniform(-0.3, 1.6))
            case "engine_restart_live":
                self.restart(live=True, away_s=10 ** uniform(-0.3, 1.6))
            case "engine_hang":
                self.hang(uniform(2.0, 90.0))
            case "engine_slow":
                self.slow = True
                self.later(uniform(10.0, 120.0), self._hurry)
            case "events_cut":
                self._cut()
                self.later(uniform(0.1, 10.0), self._reconnect)
            case "events_lost":
                self._silent = True
                self.later(uniform(5.0, 120.0), lambda: setattr(self, "_silent", False))
            case "execs_collected":
                self.collect_execs(COLLECTED_S)
            case "subnet_rival" | "foreign_network":
                self.add_foreign_network()
            case "label_forged":
                self.forge()
            case _:
                self.faults.begin(name)
                self.later(uniform(10.0, 120.0), lambda: self.faults.end(name))

    def hang(self, seconds: float) -> None:
        """Accepts, and answers nothing until then."""
        if self.up and not self.hung:
            self.hung, self.answers = True, trio.Event()
            self.later(seconds, self._unhang)

    def _hurry(self) -> None:
        self.slow = False
        self.faults.trouble()

    def _unhang(self) -> None:
        if self.hung:
            self.hung = False
            self.faults.trouble()
            if self.up:
                self.answers.set()
                queued, self._queued = self._queued, []
                for request in queued:
                    if self.rng.random() < COMPLETES:
                        request.complete()

    def restart(self, *, live: bool, away_s: float) -> None:
        """dockerd ends and comes back: a while of stopping, in which containers end, then nobody answers."""
        if not self.up or self.stopping:
            return
        self.stopping = True
        if live:
            self._down(live=True, away_s=away_s)
            return
        alive = [record for record in self.containers.values() if record.running]
        for number, record in enumerate(alive, start=1):
            self.later(number * 0.1, lambda record=record: self.end_container(record, KILLED))  # type: ignore[misc]
        self.later(len(alive) * 0.1 + 0.5, lambda: self._down(live=False, away_s=away_s))

    def sever(self) -> None:
        """Every connection breaks, whatever was asked over it; about half of it is carried out."""
        self.boot += 1
        broken, self._broken = self._broken, trio.Event()
        broken.set()
        for request in list(self._pending):
            if not request.reads and self.rng.random() < 0.5:
                request.complete()
        self._cut()

    def _down(self, *, live: bool, away_s: float) -> None:
        self.stopping, self.up, self.hung = False, False, False
        self._queued.clear()
        self.answers.set()  # whoever hangs sees that the connection broke
        self.answers = trio.Event()
        self.sever()
        if not live:
            for record in list(self.containers.values()):
                self.end_container(record, KILLED)
        for made in self.execs.values():
            if made.process is not None and made.process.attached:
                made.process.blocked = True  # its output goes to a stream that nobody reads any more (b18)
            made.ended.set()
        self.changed("engine.down", "")
        self.later(away_s, self._go_up)

    def _go_up(self) -> None:
        if self.up:
            return
        self.up = True
        self.faults.trouble()
        for made in list(self.execs.values()):
            self.forget_exec(made)
        for record in self.containers.values():
            if record.ended_unseen:  # 28.5 does not know how it ended
                record.exit_code, record.ended_unseen = record.exit_code if self.old else UNKNOWN_EXIT, False
        self.answers.set()
        self.changed("engine.up", "")
        self.later(self.rng.uniform(0.1, 5.0), self._reconnect)

    def reboot(self, away_s: float) -> None:
        """The host went down with everything on it: no live-restore helps."""
        for record in list(self.containers.values()):
            self.end_container(record, 255)
        if self.up:
            self._down(live=False, away_s=away_s)

    def on_started(self, record: ContainerRecord) -> None:
        for name, status in (("container_dies", KILLED), ("container_exits", 1)):
            if self.faults.hits(name):
                self._befalls(record, lambda status=status: self.end_container(record, status))  # type: ignore[misc]
        if self.faults.hits("oom"):
            self._befalls(record, lambda: self._out_of_memory(record))

    def _befalls(self, record: ContainerRecord, what: Callable[[], None]) -> None:
        life = record.started_at

        def strike() -> None:
            if record.running and record.started_at == life and not self.faults.off:
                what()

        self.later(self.rng.expovariate(1 / 60.0), strike)

    def _out_of_memory(self, record: ContainerRecord) -> None:
        """The kernel takes one of the processes that an exec began, if there is one."""
        self.oom(record)
        doomed = [process for process in record.processes.values() if process.exec is not None]
        if doomed:
            self.kill_process(self.rng.choice(doomed))

    def _unstick(self) -> None:
        """All faults end."""
        if self.slow:
            self._hurry()
        self._silent = self._missing_binary = False
        self._unhang()
        self._go_up()
        self._reconnect()
        for network in self.networks.values():
            network.undeletable = False
        for container in self.containers.values():
            container.undeletable = False
