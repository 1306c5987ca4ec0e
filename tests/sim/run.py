"""One seed from its first daemon life to rest: ``simulate(seed)``.

Owns the two phases.  With faults: lives are killed, frozen, stopped, the host is booted, and every invariant is looked at after each step.
Without: everything must come to rest within a bounded virtual time.  The same seed gives the same trace, in every process.
"""

from __future__ import annotations

import gc
import random
import sqlite3
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio
import trio.testing

from marathond.core.model import Task
from marathond.ledger.connect import settle
from tests.sim import chaos, world
from tests.sim.clock import SimClock
from tests.sim.fake_engine import FakeEngine
from tests.sim.faults import FaultModel
from tests.sim.invariants import Invariants
from tests.sim.lives import DaemonLife, leaves
from tests.sim.person import Operator
from tests.sim.programs import Programs
from tests.sim.seams import replaced, seed_folder
from tests.sim.tracing import Trace
from tests.support.ledgers import _migrated

REST_S, POLL_S = 3600.0, 5.0
"""Virtual time after the last fault within which everything must be at rest."""
STOP_S = 5.0
OLD_IS_HEARD_S = 31.0
"""As long as a call may take."""
STEPS_AT_MOST, CALLS_AT_MOST = 60_000, 400_000
"""More than any seed that comes to rest: what spins in no time would never end."""


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str
    at_ms: int

    def __str__(self) -> str:
        return f"{self.rule}: {self.what} (at {self.at_ms} ms)"


@dataclass(slots=True)
class Outcome:
    """What a seed came to.  ``digest``: of its trace."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    cells: int = 0
    trials: int = 0
    lives: int = 0
    steps: int = 0
    checks: int = 0
    virtual_s: float = 0.0
    digest: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    transitions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    voids: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    last: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.counts["kill"]


class Sim:
    """One seed in work; everybody in it finds the others here."""

    def __init__(self, seed: int, conn: sqlite3.Connection, folder: Path, script: chaos.Script, say: Callable[[str], None] | None) -> None:
        self.seed, self.conn, self.folder, self.script = seed, conn, folder, script
        self.shape = script.shape
        self.outcome = Outcome(seed, cells=self.shape.cells)
        self.transitions, self.voids, self.findings = self.outcome.transitions, self.outcome.voids, self.outcome.findings
        self.clock = SimClock()
        self.trace = Trace(self.clock.virtual_ms, str(folder), say)
        self.programs = Programs(seed, unkind=self.shape.unkind)
        self.faults = FaultModel(random.Random(f"{seed}:faults"), script.rates, horizon_s=self.shape.horizon_s)
        for at_s, name in script.planned:
            self.faults.at(at_s, name)
        self.host = world.SimHost(self.faults)
        self.dice = random.Random(f"{seed}:host")
        self.engine: FakeEngine
        self.nursery: trio.Nursery
        self.invariants = Invariants(self, conn)
        self.operator = Operator(self)
        self.lives: list[DaemonLife] = []
        self.newest_run = 0
        self.passes_most = 3
        self.changed_tasks: set[str] = set()
        self.scope = trio.CancelScope()

    # ── what others ask and tell ──

    @property
    def newest(self) -> DaemonLife | None:
        return self.lives[-1] if self.lives else None

    @property
    def old_is_heard(self) -> bool:
        """Whether the engine may still carry out what a life asked for that was stopped, replaced and went on.

        The engine cannot be fenced: such a life ends itself at its next write, and one request of each of its tasks may have gone out
        before that.  Nothing at the engine is judged meanwhile; the ledger always is.
        """
        now_s = trio.current_time()
        old = [life for life in self.lives if life.was_frozen and life.run_id != self.newest_run]
        return any(not life.over.is_set() or now_s - life.over_s < OLD_IS_HEARD_S for life in old)

    def count(self, what: str) -> None:
        self.outcome.counts[what] += 1

    def hit(self, name: str) -> bool:
        """Whether a fault of the host's file systems happens now."""
        rate = self.script.host_rates.get(name, 0.0)
        if not rate or self.faults.off or self.dice.random() >= rate:
            return False
        self.outcome.faults[name] += 1
        self.trace.add(f"fault {name}")
        return True

    def task(self, name: str) -> Task:
        """As it lies on disk now."""
        read = world.tasks()[name]
        return replace(read, digest="0" * 64) if name in self.changed_tasks else read

    def began(self, life: DaemonLife) -> None:
        self.newest_run = max(self.newest_run, life.run_id)
        self.trace.add(f"life begins as run {life.run_id}")

    def wrote(self, life: DaemonLife, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.trace.add(f"wrote {verb}" if verb == "submit" else f"wrote {verb} {args} {kwargs}")
        self.invariants.wrote(life.run_id)
        if self.trace.steps > STEPS_AT_MOST or life.switch.calls > CALLS_AT_MOST:
            self.violated("a seed comes to rest", f"{self.trace.steps} steps, {life.switch.calls} calls: something spins")

    def undone(self, life: DaemonLife, verb: str, error: BaseException) -> None:
        self.trace.add(f"undone {verb}: {type(error).__name__}")
        self.invariants.undone()

    def engine_changed(self, verb: str, thing: str) -> None:
        self.trace.add(f"engine {verb} {thing[:12]}")
        if verb == "container.create" and self.hit("limits_ignored"):
            made = self.engine.containers[thing]
            made.spec = replace(made.spec, memory_mb=4)
        self.invariants.changed(verb, thing)

    def violated(self, rule: str, what: str, error: BaseException | None = None) -> None:
        """The first one ends the seed: what comes after it says little."""
        if not self.outcome.violations:
            self.trace.add(f"VIOLATED {rule}: {what}")
            self.outcome.violations.append(Violation(rule, what.replace(str(self.folder), "~"), self.clock.virtual_ms()))
            if error is not None and self.trace.listened:
                traceback.print_exception(error)
            self.scope.cancel()

    # ── the two phases ──

    def next_life(self) -> DaemonLife:
        life = DaemonLife(self, len(self.lives) + 1)
        self.lives.append(life)
        self.nursery.start_soon(life.run)
        return life

    async def whole(self) -> None:
        async with trio.open_nursery() as self.nursery:
            with self.scope:
                rng = random.Random(f"{self.seed}:engine")
                self.engine = FakeEngine(self.nursery, rng, self.clock, self.faults, self.programs)
                chaos.furnish(self)
                self.engine.changed = self.engine_changed
                if self.script.person:
                    self.nursery.start_soon(self.operator.run)
                await chaos.Chaos(self).run()
                await self._rest()
            self.nursery.cancel_scope.cancel()
        self._conclude()

    async def _rest(self) -> None:
        """No fault any more: it must come to rest."""
        self.trace.add("second phase")
        self.operator.quiet = True
        self.faults.stop()
        self.changed_tasks.clear()
        for life in self.lives:
            life.thaw() if life.switch.frozen else None
        give_up_s, resume_s = trio.current_time() + REST_S, 0.0
        while left := self.invariants.left():
            newest = self.newest
            if newest is None or newest.over.is_set():
                newest = self.next_life()
                resume_s = 0.0
            if trio.current_time() >= resume_s and await self.operator.ask(newest, "resume", {"reason": "all is well"}):
                resume_s = trio.current_time() + 60.0
            if trio.current_time() >= give_up_s:
                self.violated("everything comes to rest", "; ".join(left[:12]))
                return
            await trio.sleep(POLL_S)
        await self._last_stop()

    async def _last_stop(self) -> None:
        life = self.newest
        if life is not None and not life.over.is_set() and life.daemon is not None:
            life.daemon.request_stop("term", "ana", "the end")
            with trio.move_on_after(STOP_S) as late:
                await life.over.wait()
            if late.cancelled_caught:
                self.violated("a stop takes five seconds at most", f"L{life.number} is still there")
        for each in self.lives:
            each.kill()

    def _conclude(self) -> None:
        outcome = self.outcome
        if not outcome.violations:
            self.invariants.whole()
        outcome.trials = self.conn.execute("SELECT count(*) FROM trial").fetchone()[0]
        outcome.lives, outcome.steps, outcome.checks = len(self.lives), self.trace.steps, self.invariants.checks
        outcome.faults.update({name: count for name, count in self.faults.fired.items() if count})
        outcome.counts.update(self.programs.seen)
        outcome.virtual_s, outcome.digest = trio.current_time(), self.trace.digest
        outcome.last = list(self.trace.last)


def ledger() -> sqlite3.Connection:
    """An empty one in memory; all statements of the product stay prepared, which is most of what a small transaction costs."""
    conn = sqlite3.connect(":memory:", isolation_level=None, cached_statements=1000)
    settle(conn, ":memory:", busy_ms=0, readonly=False)
    _migrated().backup(conn)
    return conn


@contextmanager
def _few_collections() -> Iterator[None]:
    """A tenth of a seed's time went into looking for cycles among what the process had loaded before."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def simulate(
    seed: int, plants: Collection[str] = (), *, script: chaos.Script | None = None, say: Callable[[str], None] | None = None
) -> Outcome:
    """Run one seed.

    :param plants: bugs to plant (tests/sim/plants.py), by name.
    :param script: what befalls the seed; None: what the seed says.
    :param say: is given each line of the trace as it comes.
    """
    world.tasks()
    with seed_folder(seed) as folder, closing(ledger()) as conn, _few_collections():
        sim = Sim(seed, conn, folder, script or chaos.script(seed), say)
        with ExitStack() as stack:
            stack.enter_context(replaced(sim))
            if plants:
                from tests.sim.plants import planted

                stack.enter_context(planted(plants))
            try:
                trio.run(sim.whole, clock=trio.testing.MockClock(autojump_threshold=0))
            except Exception as error:  # noqa: BLE001 - a seed that cannot be run to its end is told like one that broke a rule
                words = "; ".join(f"{type(each).__name__}: {each}" for each in leaves(error))
                where = traceback.extract_tb(next(leaves(error)).__traceback__)[-1]
                sim.outcome.violations.append(Violation("the simulation itself holds", f"{words} ({where.name}:{where.lineno})", 0))
                if say is not None:
                    traceback.print_exception(error)
    return sim.outcome
