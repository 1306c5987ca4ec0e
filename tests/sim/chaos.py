"""What befalls a seed: which faults, how often; when a life is killed, frozen, replaced or told to stop.

Owns the script by seed and its carrying out.  By construction every seed has at least three faults of the whole engine and one kill.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from tests.sim import world
from tests.sim.faults import OF_CALLS, OF_CONTAINERS, OF_ENGINE
from tests.sim.lives import DaemonLife

if TYPE_CHECKING:
    from tests.sim.run import Sim

GAPS_S = (0.0, 0.0, 0.2, 1.0, 4.0, 15.0)
"""Between two lives."""
OLD_S = 60.0
"""Within which a life that was replaced ends itself: its next write."""
STOP_S = 5.0
ACTS = (
    ("kill", 12),
    ("kill_in_a_row", 2),
    ("overlap", 2),
    ("term", 2),
    ("drain", 1),
    ("stop_now", 1),
    ("reboot", 1),
    ("clock", 2),
    ("image_removed", 1),
    ("task_changed", 1),
)
PLANNED = tuple(name for name in OF_ENGINE if name != "label_forged")


@dataclass(frozen=True, slots=True)
class Script:
    """``rates`` as faults.FaultModel takes them; ``planned``: (virtual s, fault); ``acts``: in this order first, then by dice."""

    shape: world.Shape
    rates: Mapping[str, float] = field(default_factory=dict)
    host_rates: Mapping[str, float] = field(default_factory=dict)
    planned: tuple[tuple[float, str], ...] = ()
    acts: tuple[str, ...] = ("kill",)
    person: bool = True
    """Whether somebody gives commands."""


def script(seed: int) -> Script:
    rng = random.Random(f"{seed}:script")
    shape = world.shape(seed)
    calm = rng.choice((0.3, 1.0, 2.0))
    rates = {name: calm * rng.choice((0.002, 0.005, 0.01)) for name in rng.sample(sorted(OF_CALLS), 8)}
    for sticky in ("network_undeletable", "container_undeletable", "subnet_taken", "pause_refused"):
        if sticky in rates:
            rates[sticky] = calm * 0.08
    rates |= {name: calm * rng.choice((0.02, 0.05)) for name in rng.sample(OF_CONTAINERS, 2)}
    if rng.random() < 0.3:
        rates["label_forged"] = 2.0
    early = shape.horizon_s * 0.6
    planned = tuple((round(rng.uniform(1.0, early), 2), rng.choice(PLANNED)) for _ in range(rng.randint(3, 5)))
    host_rates = {}
    if rng.random() < 0.2:
        host_rates[rng.choice(("run_dir_fails", "out_dir_fails", "limits_ignored"))] = 0.05
    return Script(shape, rates, host_rates, planned)


def furnish(sim: Sim) -> None:
    """What the engine has before the first life: images, and other people's things."""
    engine, rng = sim.engine, random.Random(f"{sim.seed}:furniture")
    engine.add_image("other:1")
    image = engine.add_image(world.IMAGE, workdir="/app")
    engine.add_image(world.BASE)
    engine.registry[world.IMAGE] = image
    if rng.random() < 0.3:
        engine.images.pop(world.IMAGE)  # to be pulled
    for _ in range(rng.randint(0, 3)):
        engine.add_foreign_network()
    engine.add_foreign_container({"com.docker.compose.project": "other"})


class Chaos:
    def __init__(self, sim: Sim) -> None:
        self.sim, self.rng = sim, random.Random(f"{sim.seed}:lives")

    async def run(self) -> None:
        """The first phase."""
        sim, waiting = self.sim, list(self.sim.script.acts)
        sim.next_life()
        names, weights = [name for name, _ in ACTS], [weight for _, weight in ACTS]
        while waiting or trio.current_time() < sim.shape.horizon_s:
            act = waiting.pop(0) if waiting else self.rng.choices(names, weights)[0]
            sim.trace.add(f"act {act}")
            sim.count(f"act {act}")
            await getattr(self, f"_{act}")(self._life())

    def _life(self) -> DaemonLife:
        newest = self.sim.newest
        return newest if newest is not None and not newest.over.is_set() else self.sim.next_life()

    async def _gap(self) -> None:
        await trio.sleep(self.rng.choice(GAPS_S))

    async def _struck(self, life: DaemonLife, strike: str, *, soon: bool = False) -> None:
        """``strike`` comes at a call that is chosen now, or after some time, whichever is first."""
        at = life.switch.calls + int(10 ** self.rng.uniform(0.3, 1.5 if soon else 3.2))
        struck = trio.Event()

        def now() -> None:
            getattr(life, strike)()
            struck.set()

        life.switch.at_call(at, now)
        with trio.move_on_after(self.rng.uniform(5.0, 40.0)) as late:
            while not struck.is_set() and not life.over.is_set():
                with trio.move_on_after(1.0):
                    await struck.wait()
        if late.cancelled_caught:
            life.switch.at_call(-1, now)
            getattr(life, strike)()

    async def _kill(self, life: DaemonLife) -> None:
        await self._struck(life, "kill")
        await self._gap()

    async def _kill_in_a_row(self, life: DaemonLife) -> None:
        """A daemon that crashes again and again."""
        for _ in range(self.rng.randint(2, 4)):
            await self._struck(self._life(), "kill", soon=True)
            await trio.sleep(self.rng.choice((0.0, 0.5)))

    async def _overlap(self, life: DaemonLife) -> None:
        """The old one is stopped, replaced, and goes on: it may change nothing, and ends itself."""
        await self._struck(life, "freeze")
        if life.over.is_set():
            return
        await self._gap()
        self.sim.next_life()
        await trio.sleep(self.rng.choice((0.5, 5.0, 20.0)))
        life.thaw()
        with trio.move_on_after(OLD_S) as late:
            await life.over.wait()
        if late.cancelled_caught:
            self.sim.violated("an old epoch ends itself", f"L{life.number} is still there {OLD_S:g} s after it went on")
        self.sim.count("old epoch" if life.ended == "old epoch" else "old epoch, otherwise")

    async def _term(self, life: DaemonLife) -> None:
        await trio.sleep(self.rng.uniform(1.0, 20.0))
        if life.daemon is not None:
            life.daemon.request_stop("term", "ana", "upgrade")
            await self._over(life, STOP_S)
        await self._gap()

    async def _over(self, life: DaemonLife, seconds: float) -> None:
        with trio.move_on_after(seconds + 0.001) as late:
            await life.over.wait()
        if late.cancelled_caught:
            self.sim.violated("a stop takes five seconds at most", f"L{life.number} is still there after {seconds:g} s")

    async def _drain(self, life: DaemonLife) -> None:
        await trio.sleep(self.rng.uniform(1.0, 10.0))
        if not await self.sim.operator.ask(life, "drain", {"reason": "maintenance"}):
            return
        with trio.move_on_after(self.rng.choice((20.0, 60.0, 120.0))):
            await life.over.wait()
            return
        if self.rng.random() < 0.5:
            await self.sim.operator.ask(life, "resume", {"reason": "not today"})

    async def _stop_now(self, life: DaemonLife) -> None:
        await trio.sleep(self.rng.uniform(1.0, 15.0))
        if await self.sim.operator.ask(life, "stop", {"now": True, "reason": "enough"}):
            with trio.move_on_after(120.0):
                await life.over.wait()

    async def _reboot(self, life: DaemonLife) -> None:
        await trio.sleep(self.rng.uniform(1.0, 20.0))
        self.sim.count("reboot")
        for each in self.sim.lives:
            each.kill()
        self.sim.engine.reboot(self.rng.uniform(0.5, 30.0))
        self.sim.clock.boot()
        await trio.sleep(self.rng.choice((1.0, 10.0)))

    async def _clock(self, life: DaemonLife) -> None:
        self.sim.count("clock step")
        self.sim.clock.step_wall(self.rng.choice((-3_600_000, 3_600_000, -90_000, 45_000)))
        await trio.sleep(self.rng.uniform(1.0, 10.0))

    async def _image_removed(self, life: DaemonLife) -> None:
        """Somebody prunes images that nothing uses just now."""
        images = self.sim.engine.images
        named = [image for ref, image in sorted(images.items()) if ref == world.IMAGE or ref.startswith("marathond/")]
        doomed = self.rng.choice(named) if named else None
        for ref in [ref for ref, image in images.items() if image is doomed]:
            del images[ref]
        self.sim.count("image removed")
        await trio.sleep(self.rng.uniform(0.0, 5.0))

    async def _task_changed(self, life: DaemonLife) -> None:
        """Somebody edits a task, and takes it back."""
        name = self.rng.choice(self.sim.shape.tasks)
        self.sim.changed_tasks.add(name)
        self.sim.count("task changed")
        await trio.sleep(self.rng.uniform(2.0, 15.0))
        self.sim.changed_tasks.discard(name)
