"""Known bugs, as switches: what the simulation must catch if anybody makes them again.

Owns the list.  Each plant replaces functions of the product for one seed and names the rules of invariants.py by which it is to be caught;
none of them is anything that a daemon could be told to do.  tests/sim/test_plants.py looks for each over a bounded number of seeds.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from unittest import mock

from marathond.agents.command import CommandAgent
from marathond.core.errors import EngineTimeout, GateFailed
from marathond.core.model import Arm
from marathond.core.names import TrialState
from marathond.core.score import ScoreReading
from marathond.core.score.model import Number
from marathond.flow import environment, grading, recovery, sweeper, teardown, trial, verify, watching
from marathond.flow.ending import Death, prove_death
from marathond.flow.world import World
from marathond.ledger import writer
from marathond.ledger.verbs import networks, trials
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ports.agent import Agent, Environment
from marathond.ports.engine import ContainerSpec
from tests.sim.chaos import Script, script

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Plant:
    """``rules``: of invariants.py, any of which catches it.  ``patches``: (owner, name, what stands there instead).

    ``rates`` and ``planned`` (virtual s, fault) are added to a seed's own faults, so that a bug which needs one is not waited for in
    vain; ``alone``: they stand instead of them, for a bug that other faults hide.  ``acts``: what befalls the lives first.
    ``first``: the seed at which to begin to look.
    """

    name: str
    rules: tuple[str, ...]
    patches: tuple[Patch, ...]
    rates: Mapping[str, float] = field(default_factory=dict)
    planned: tuple[tuple[float, str], ...] = ()
    alone: bool = False
    acts: tuple[str, ...] = ("kill",)
    first: int = 1

    def script(self, seed: int) -> Script:
        """What befalls the seed when this is looked for."""
        own = script(seed)
        if self.alone:
            return replace(own, rates=self.rates, host_rates={}, planned=self.planned, acts=self.acts)
        return replace(own, rates={**own.rates, **self.rates}, planned=(*own.planned, *self.planned), acts=self.acts)


PLANTS: dict[str, Plant] = {}
F = TypeVar("F", bound=Callable[..., Any])


def plant(
    name: str,
    rules: tuple[str, ...],
    *places: tuple[Any, str],
    more: tuple[Patch, ...] = (),
    rates: Mapping[str, float] | None = None,
    planned: tuple[tuple[float, str], ...] = (),
    alone: bool = False,
) -> Callable[[F], F]:
    """The decorated function stands in every one of ``places`` (owner, name); ``more``: further patches of the same bug."""

    def add(instead: F) -> F:
        PLANTS[name] = Plant(name, rules, (*((owner, at, instead) for owner, at in places), *more), rates or {}, planned, alone)
        return instead

    return add


@contextlib.contextmanager
def planted(names: Collection[str]) -> Iterator[None]:
    """:raises KeyError: for a name that is no plant."""
    with contextlib.ExitStack() as stack:
        for name in names:
            for owner, attribute, instead in PLANTS[name].patches:
                stack.enter_context(mock.patch.object(owner, attribute, instead))
        yield


# as they are

_remove_network, _remove_container, _tear_down = teardown.remove_network, teardown.remove_container, teardown.tear_down
_create_agent, _void_by_daemon, _settle = CommandAgent.create, trials.void_by_daemon, recovery._settle
_read, _watch = verify.read, trial.watch


# what is made, and what is left


@plant("network leaked on container death", ("a released lease has no network",), (teardown, "remove_network"))
async def _leaks(world: World, trial_id: int) -> bool:
    """A trial that was lost with its container has no network any more, has it?"""
    context = await world.ledger.read(cell_context, trial_id)
    if context.state != TrialState.VOIDED or context.lease is None or context.lease.network_id is None:
        return await _remove_network(world, trial_id)
    await world.ledger.write(networks.release_lease, context.lease.lease_id, because="seen_gone", now_ms=world.clock.wall_ms())
    return True


async def _nothing_made(world: World, trial_id: int) -> bool:
    context = await world.ledger.read(cell_context, trial_id)
    if context.container is not None and context.container.docker_id is None:
        await world.ledger.write(trials.container_gone, trial_id, now_ms=world.clock.wall_ms())
    return await _remove_container(world, trial_id)


@plant(
    "create time-out read as not created",
    ("a released claim has no container", "a released lease has no network"),
    (environment, "_create"),
    more=((teardown, "remove_container", _nothing_made),),
    rates={"container_create_done": 0.3},
)
async def _no_is_no(world: World, spec: ContainerSpec) -> str:
    """No answer, no container."""
    try:
        return await world.engine.create_container(spec)
    except EngineTimeout as error:
        raise GateFailed("container_failed", str(error)) from error


@plant("recovery forgets leases", ("a released lease has no network",), (recovery, "_settle"))
async def _forgets(world: World, trial_id: int, *rest: Any) -> None:
    """A lease of an earlier life is nobody's: its subnet can be had again."""
    await _settle(world, trial_id, *rest)
    context = await world.ledger.read(cell_context, trial_id)
    if context.state == TrialState.VOIDED and context.lease is not None:
        await world.ledger.write(networks.release_lease, context.lease.lease_id, because="never_created", now_ms=world.clock.wall_ms())


@plant(
    "claim released before the container is gone",
    ("a released claim has no container",),
    (trial, "tear_down"),
    (sweeper, "tear_down"),
)
async def _claim_first(world: World, trial_id: int) -> bool:
    """The cell is free as early as possible."""
    now_ms = world.clock.wall_ms()
    await world.ledger.write(trials.container_gone, trial_id, now_ms=now_ms)
    await world.ledger.write(trials.release_claim, trial_id, now_ms=now_ms)
    return await _tear_down(world, trial_id)


@plant("old epoch accepted", ("no write of an old epoch",), (writer, "check_epoch"))
def _any_epoch(conn: sqlite3.Connection, run_id: int, where: str) -> None:
    """Whoever has the file open may write."""


@plant("foreign things are ours", ("what is not ours is not touched",), (World, "owns"))
def _all_ours(self: World, thing: Any) -> bool:
    """Whatever stands on this engine may be swept away."""
    return True


async def _nobody(self: sweeper.Sweeper) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(), frozenset()


PLANTS["living trials are swept away"] = Plant(
    "living trials are swept away", ("nothing is torn down under a living agent",), ((sweeper.Sweeper, "_owners", _nobody),)
)


@plant("voids use up no passes", ("passes are never exceeded",), (trials, "void_by_daemon"), rates={"container_exits": 0.6})
def _for_ever(c: sqlite3.Connection, trial_id: int, *, passes: int, **given: Any) -> bool:
    """The next attempt will do."""
    return _void_by_daemon(c, trial_id, passes=99, **given)


# the agent's beginning and end


@plant("agent begun before it is written down", ("the row comes before the act",), (CommandAgent, "create"))
async def _begun(self: CommandAgent, env: Environment) -> str | None:
    """What is created may as well be started."""
    exec_id = await _create_agent(self, env)
    if exec_id is not None:
        await env.engine.start_created_exec(exec_id)
    return exec_id


async def _dead_already(*_: Any, **__: Any) -> Death:
    """Its exec has ended or its time is over: it will be dead."""
    return Death((), (), container_running=True)


PLANTS["verifier started beside a living agent"] = Plant(
    "verifier started beside a living agent",
    ("no verifier beside a living agent", "an ended agent is dead"),
    ((watching, "_death", _dead_already),),
)


@plant(
    "agent of a forgotten exec lives on",
    ("an ended agent is dead", "no verifier beside a living agent"),
    (watching, "_death"),
    planned=tuple((at_s, "engine_restart_live") for at_s in range(10, 90, 16)),
    alone=True,
)
async def _by_exec_alone(world: World, trial_id: int, container_id: str, exec_id: str | None, arm: Arm, agent: Agent) -> Death:
    """Only what the engine still knows can be running."""
    seen = None if exec_id is None else await world.engine.inspect_exec(exec_id)
    pids = [] if seen is None else [seen.pid]
    return await prove_death(
        world, container_id, pids, arm.after_agent, tool_sessions=agent.has_tool_sessions, harness=agent.harness_prefix
    )


PLANTS["verifier past its deadline is read"] = Plant(
    "verifier past its deadline is read",
    ("one verifier at a time", "a scored payload is final"),
    ((verify, "prove_death", _dead_already),),
)
PLANTS["verification runs again beside itself"] = Plant(
    "verification runs again beside itself",
    ("one verifier at a time",),
    ((grading, "prove_death", _dead_already),),
    planned=tuple((at_s, "engine_restart_live") for at_s in range(8, 100, 12)),
    first=3,
)


@plant("recovery voids what runs", ("only what is gone is voided",), (recovery, "_lost"))
async def _all_lost(world: World, context: TrialContext) -> tuple[str, str] | None:
    """A new daemon knows nothing of what its predecessor began."""
    return "container_lost", "the daemon ended"


async def _from_now(world: World, context: TrialContext, *rest: Any, **more: Any) -> None:
    """The time of an agent begins when somebody looks."""
    assert context.agent is not None
    await _watch(world, replace(context, agent=replace(context.agent, started_mono_ms=world.clock.mono_ms())), *rest, **more)


PLANTS["deadline begun anew at re-attachment"] = Plant(
    "deadline begun anew at re-attachment",
    ("a deadline holds over restarts",),
    ((trial, "watch", _from_now),),
    alone=True,
    acts=("kill",) * 4,
    first=9,
)


# scores


@plant("no reward read as 0", ("a score is what a verifier wrote",), (verify, "read"))
async def _nought(world: World, trial_id: int, *, verifier_exited: bool) -> ScoreReading:
    """What does not pass has failed."""
    seen = await _read(world, trial_id, verifier_exited=verifier_exited)
    return seen if seen.reward is not None else replace(seen, reward=Number(0.0, "reward.txt", ""))
