"""What can go wrong with the simulated engine and its host, by name; how often it did.

Owns the dice: which call is hit by what, and when the engine as a whole is.  Must not know what a fault does (fake_engine.py).
Each fault is one of three kinds: of a call (its rate is a probability for each call that it can hit), of a container (its rate is a
probability for each start), or of the whole engine or host (its rate is the expected number within the horizon).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import trio

CREATES = ("network.create", "container.create", "container.start", "exec.create", "exec.start")
CHANGES = (*CREATES, "network.remove", "container.remove", "container.pause", "container.unpause", "archive.put", "image.tag")
READS = ("info", "network.inspect", "network.list", "container.inspect", "container.list", "container.top", "exec.inspect", "image.inspect")
ANY = (*CHANGES, *READS, "exec.run", "version")


def _outcomes(suffix: str) -> dict[str, tuple[str, ...]]:
    return {f"{call.replace('.', '_')}_{suffix}": (call,) for call in CREATES}


OF_CALLS: Mapping[str, Sequence[str]] = {
    **_outcomes("done"),
    **_outcomes("undone"),
    **_outcomes("late"),
    "hang": ANY,
    "slow": ANY,
    "http_500": ANY,
    "subnet_taken": ("network.create",),
    "pool_exhausted": ("network.create",),
    "network_undeletable": ("network.remove",),
    "container_undeletable": ("container.remove",),
    "pause_refused": ("container.pause",),
    "unpause_refused": ("container.unpause",),
    "exec_missing_binary": ("exec.start", "exec.run"),
    "pull_failed": ("image.pull",),
    "build_failed": ("image.build",),
}
"""Fault of a call → the calls that it can hit.  ``…_done``: no answer, and it completed on the server; ``…_undone``: no answer, and it
never will; ``…_late``: no answer, and it completes only after the caller was told so."""

OF_CONTAINERS = ("container_dies", "container_exits", "oom", "pid_reused")
"""``container_dies``: 137; ``container_exits``: 1; ``oom``: the kernel ends one of its processes."""

OF_ENGINE = (
    "engine_restart",
    "engine_restart_live",
    "engine_hang",
    "engine_slow",
    "events_cut",
    "events_lost",
    "execs_collected",
    "subnet_rival",
    "foreign_network",
    "label_forged",
    "disk_low",
    "routes_unknown",
)
"""``engine_restart``: without live-restore, containers exit 137; ``engine_restart_live``: with it; ``execs_collected``: the engine forgets
execs that ended some time ago.  The last two are the host's."""

NAMES = (*OF_CALLS, *OF_CONTAINERS, *OF_ENGINE)


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault of the whole engine or host, ``at_s`` after the model's start."""

    at_s: float
    name: str


class FaultModel:
    """The dice of one seed.

    :param rates: by name of the fault; absent: never.
    :param off: nothing happens at all.
    :param horizon_s: within which the faults of the whole engine are planned, in virtual seconds.
    :raises ValueError: for a name that is no fault.
    """

    def __init__(self, rng: random.Random, rates: Mapping[str, float], off: bool = False, *, horizon_s: float = 600.0) -> None:
        if unknown := set(rates) - set(NAMES):
            raise ValueError(f"no such faults: {sorted(unknown)}")
        self.rng, self.rates, self.off = rng, dict(rates), off
        self.fired: Counter[str] = Counter()
        self.last_s = -math.inf
        self.planned = self._plan(horizon_s)
        self._on_stop: list[Callable[[], None]] = []
        self._standing: Counter[str] = Counter()
        self._forced: list[tuple[str, str]] = []
        self._by_call: dict[str, tuple[tuple[float, str], ...]] = {}
        for name, calls in OF_CALLS.items():
            if rate := self.rates.get(name, 0.0):
                for call in calls:
                    before = self._by_call.get(call, ())
                    self._by_call[call] = (*before, ((before[-1][0] if before else 0.0) + rate, name))

    def _plan(self, horizon_s: float) -> list[Planned]:
        found = []
        for name in OF_ENGINE:
            expected = self.rates.get(name, 0.0)
            times = math.floor(expected) + (self.rng.random() < expected % 1)
            found += [Planned(self.rng.uniform(0.0, horizon_s), name) for _ in range(times)]
        return sorted(found, key=lambda planned: planned.at_s)

    def at(self, at_s: float, name: str) -> None:
        """Plan one by hand, before the engine is made."""
        self.planned = sorted([*self.planned, Planned(at_s, name)], key=lambda planned: planned.at_s)

    def force(self, call: str, name: str) -> None:
        """The next such call is hit by this, whatever the dice say."""
        self._forced.append((call, name))

    def of_call(self, call: str) -> str:
        """The fault that hits this call; empty: none.  Counted by whoever carries it out."""
        if self._forced and not self.off:
            for number, (wanted, name) in enumerate(self._forced):
                if wanted == call:
                    del self._forced[number]
                    return name
        chances = self._by_call.get(call)
        if chances is None or self.off:
            return ""
        dice = self.rng.random()
        if dice >= chances[-1][0]:
            return ""
        return next(name for bound, name in chances if dice < bound)

    def hits(self, name: str) -> bool:
        """Whether a fault of a container happens now; counted."""
        if self.off or self.rng.random() >= self.rates.get(name, 0.0):
            return False
        self.count(name)
        return True

    def count(self, name: str) -> None:
        """It was carried out."""
        self.fired[name] += 1
        self.trouble()

    def trouble(self) -> None:
        """Something goes wrong, or did until now."""
        self.last_s = trio.current_time()

    # what lasts

    def begin(self, name: str) -> None:
        """``name`` stands until as many :meth:`end` came."""
        self._standing[name] += 1

    def end(self, name: str) -> None:
        self._standing[name] = max(0, self._standing[name] - 1)

    def stands(self, name: str) -> bool:
        """Whether a lasting fault is on: ``disk_low`` and ``routes_unknown`` are asked by the simulated host."""
        return self._standing[name] > 0

    def on_stop(self, call: Callable[[], None]) -> None:
        """What to do when all faults end: what is stuck becomes unstuck."""
        self._on_stop.append(call)

    def stop(self) -> None:
        """The second phase: nothing goes wrong any more, and what was stuck is not."""
        self.off = True
        self._standing.clear()
        for call in self._on_stop:
            call()
