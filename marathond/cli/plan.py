"""``marathonctl plan``: what the configuration would run, without running or recording anything.

Owns the forecast: cells in order, hours at most, networks at one time, what parks and why.  Durations are the limits, so the hours are
an upper bound; a shorter forecast needs finished trials, and those are in ``status``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import anyio

from marathond.cli.differing import Taken
from marathond.cli.disclosures import short
from marathond.cli.output import Column, Screen, note, say, table, wrapped
from marathond.cli.parks import ArmPark, arm_parks
from marathond.cli.plan_benchmark import (
    UNSUPPORTED,
    BenchmarkPlan,
    benchmark_plan,
    benchmark_words,
    digest_words,
    marks_words,
)
from marathond.cli.plan_money import MoneyPlan, money_plan, money_words
from marathond.cli.turned import Turned, turned_words, values
from marathond.core.disclosure import Disclosure
from marathond.core.errors import EngineError, EngineTimeout
from marathond.core.limits import effective_agent_limit, effective_verifier_limit
from marathond.core.model import Limit, Task, Unrunnable
from marathond.core.names import NetworkPolicy
from marathond.core.order import CellKey, order_cells
from marathond.core.text import UNKNOWN, clean, plural, span
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import EngineInfo
from marathond.service.disclosing import configured
from marathond.service.effective import with_knobs
from marathond.service.settings import Settings
from marathond.service.taskread import Reading, known_marks
from marathond.tasks.support import check_host

ENGINE_WAIT_S = 5.0
"""For one answer."""

IMAGES_WAIT_S = 20.0
"""For all answers about images; those not reached are not spoken of."""

CELLS_SHOWN = 20
WHY_MAX = 4000
"""Characters of one refusal; it may name two folders."""
USERS_SHOWN = 8
"""Tasks named beside an image."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task: its limits with origins, or why its cells park."""

    name: str
    agent_limit: Limit | None
    verifier_limit: Limit | None
    needs_network: bool
    cpus: float | None
    memory_mb: int | None
    parks: str = ""
    why: str = ""
    warnings: tuple[str, ...] = ()
    image: str | None = None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """The engine's word on its host, and which of the images asked for it does not have."""

    info: EngineInfo
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """``remounted``: arms whose mounts do not hold what the submitted campaign's did, a line each.

    ``parked_cells`` and ``cells`` hold no cell of a changed task that has a score already, which stands: ``scored_cells`` are these.
    ``hours_at_most`` None: some cell has no limit.  ``networks_at_once`` counts trials that need one and may run side by side."""

    campaign: str
    arms: tuple[str, ...]
    replicates: int
    order: str
    seed: int
    concurrency: int
    tasks: tuple[TaskPlan, ...]
    cells: tuple[CellKey, ...]
    parked_cells: int
    hours_at_most: float | None
    networks_at_once: int
    networks_cap: int
    host: str
    parked_arms: tuple[ArmPark, ...] = ()
    absent_images: tuple[str, ...] = ()
    disclosures: tuple[Disclosure, ...] = ()
    money: MoneyPlan | None = None
    benchmark: BenchmarkPlan | None = None
    digests: str = ""
    contrasts: tuple[tuple[str, str], ...] = ()
    alone: AlonePlan | None = None
    remounted: tuple[str, ...] = ()
    turned: tuple[Turned, ...] = ()
    refused: tuple[str, ...] = ()
    scored_cells: int = 0


@dataclass(frozen=True, slots=True)
class AlonePlan:
    """Verifiers that run alone, and the hours that this may add: each waits for the others' verifiers (``everything``: and agents)."""

    tasks: tuple[str, ...]
    exclusive_from: str
    cells: int
    hours_at_most: float


def make_plan(
    settings: Settings,
    reading: Reading,
    engine: EngineSeen | str,
    taken: Taken | None = None,
    turned: Sequence[Turned] = (),
    refused: Sequence[str] = (),
) -> CampaignPlan:
    """:param engine: what the engine says of its host, or why it could not be asked.
    :param taken: the tasks as a campaign that was submitted already takes them, see :mod:`marathond.cli.differing`; None: as they are read.
    :param turned: knobs that were set in the ledger, which count there in place of the configuration's.
    :param refused: why a submission of this, or the next start, would be refused, see :mod:`marathond.cli.changed`.
    """
    settings = with_knobs(settings, values(turned))
    taken = Taken(tuple(reading.tasks)) if taken is None else taken
    read, scored = taken.tasks, sum(taken.scored.values())
    tasks = tuple(_task_plan(settings, task, engine, _marks(settings, reading, task.name)) for task in read)
    arms, replicates = settings.arm_names, settings.campaign.replicates
    whole = {task.name for task in tasks if task.parks}
    alone = tuple(park for park in arm_parks(settings, read) if park.task not in whole)
    unsolved = {(park.task, park.arm) for park in alone}
    keys = [
        CellKey(task.name, arm, replicate, _declared(task))
        for task in tasks
        if not task.parks
        for replicate in range(1, replicates + 1)
        for arm in arms
        if (task.name, arm) not in unsolved
    ]
    admission = settings.admission
    cells = tuple(order_cells(keys, order=admission.order, seed=admission.seed, arms=arms))
    by_name = {task.name: task for task in tasks}
    apart = _alone_plan(settings, by_name, cells)
    hours = hours_at_most([_longest_s(by_name[cell.task]) for cell in cells], admission.concurrency)
    return CampaignPlan(
        campaign=settings.campaign.name,
        arms=arms,
        replicates=replicates,
        order=admission.order.value,
        seed=admission.seed,
        concurrency=admission.concurrency,
        tasks=tasks,
        cells=cells,
        parked_cells=(len(whole) * len(arms) + len(alone)) * replicates - scored,
        hours_at_most=None if hours is None else hours + (apart.hours_at_most if apart else 0),
        networks_at_once=min(admission.concurrency, sum(by_name[cell.task].needs_network for cell in cells)),
        networks_cap=settings.network.cap,
        host=engine if isinstance(engine, str) else f"{engine.info.ncpu} processors, {engine.info.memory_bytes >> 20} MiB",
        parked_arms=alone,
        absent_images=() if isinstance(engine, str) else tuple(sorted(engine.absent)),
        disclosures=configured(settings, reading.tasks),
        money=money_plan(settings, cells, settings.daemon.ledger),
        benchmark=benchmark_plan(settings, reading),
        digests=digest_words(settings, reading),
        contrasts=settings.comparison.contrasts,
        alone=apart,
        turned=tuple(turned),
        refused=tuple(refused),
        scored_cells=scored,
    )


def _alone_plan(settings: Settings, tasks: Mapping[str, TaskPlan], cells: Sequence[CellKey]) -> AlonePlan | None:
    """None: no cell's verifier runs alone."""
    mine = [cell.task for cell in cells if cell.task in settings.verifier.exclusive]
    if not mine:
        return None
    verifiers = {name: (task.verifier_limit.limit_s if task.verifier_limit else None) or 0.0 for name, task in tasks.items()}
    agents = max((_declared(task) or 0.0 for task in tasks.values()), default=0.0)
    waits = max(verifiers.values()) + (agents if settings.verifier.exclusive_from == "everything" else 0.0)
    hours = sum(verifiers[name] + waits for name in mine) / 3600
    return AlonePlan(tuple(sorted(set(mine))), settings.verifier.exclusive_from, len(mine), hours)


def alone_words(alone: AlonePlan) -> str:
    what = (
        "agents, too, end before it: admission is closed until then" if alone.exclusive_from == "everything" else "agents go on beside it"
    )
    names = f"{', '.join(map(clean, alone.tasks[:USERS_SHOWN]))}{' …' if len(alone.tasks) > USERS_SHOWN else ''}"
    return f"verifies alone: {names} ({plural(alone.cells, 'cell')}, at most {alone.hours_at_most:.1f} h of the time above); {what}"


def _marks(settings: Settings, reading: Reading, name: str) -> tuple[str, ...]:
    """What the folder shows and what the profile knows beside it."""
    known = frozenset() if settings.benchmark is None else known_marks(settings.benchmark.known, name)
    return tuple(mark.value for mark in sorted(reading.marks(name) | known))


def _task_plan(settings: Settings, task: Task | Unrunnable, engine: EngineSeen | str, marks: tuple[str, ...]) -> TaskPlan:
    if not isinstance(task, Unrunnable) and not isinstance(engine, str):
        info, pids = engine.info, settings.limits.pids or None
        task = check_host(task, info.ncpu, info.memory_bytes, pids=pids, limits_pids=info.limits_pids) or task
    if isinstance(task, Unrunnable):
        return TaskPlan(task.name, None, None, False, None, None, parks=task.code, why=task.detail, marks=marks)
    limits = settings.limits
    return TaskPlan(
        task.name,
        effective_agent_limit(limits.agent_timeout_s, task.agent_timeout_s, limits.agent_timeout_multiplier),
        effective_verifier_limit(task.verifier_timeout_s, limits.verifier_timeout_multiplier, declared=task.verifier_timeout_declared),
        task.network is not NetworkPolicy.NONE,
        task.cpus,
        task.memory_mb,
        warnings=tuple(task.warnings),
        image=task.image,
        marks=marks,
    )


def _declared(task: TaskPlan) -> float | None:
    return None if task.agent_limit is None else task.agent_limit.limit_s


def _longest_s(task: TaskPlan) -> float | None:
    """Agent and verifier, each to its deadline."""
    if task.agent_limit is None or task.verifier_limit is None or task.agent_limit.limit_s is None or task.verifier_limit.limit_s is None:
        return None
    return task.agent_limit.limit_s + task.verifier_limit.limit_s


def hours_at_most(durations_s: Sequence[float | None], slots: int) -> float | None:
    """When the last cell ends if each takes its longest time and the next one starts in the first free slot."""
    free = [0.0] * min(slots, max(1, len(durations_s)))
    for duration in durations_s:
        if duration is None:
            return None
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free) / 3600


def ask_engine(settings: Settings, tasks: Sequence[Task | Unrunnable]) -> EngineSeen | str:
    """The engine's word on its host and the tasks' images, or one line on why there is none.  Nothing is pulled."""
    wanted = sorted({task.image for task in tasks if isinstance(task, Task) and task.image})

    async def ask() -> EngineSeen:
        engine = DockerEngine(settings.engine.name, settings.engine.url, call_timeout_s=min(ENGINE_WAIT_S, settings.engine.call_timeout_s))
        try:
            info, absent = await engine.info(), set()
            with anyio.move_on_after(IMAGES_WAIT_S):
                for image in wanted:
                    if await engine.inspect_image(image) is None:
                        absent.add(image)
            return EngineSeen(info, frozenset(absent))
        finally:
            await engine.aclose()

    try:
        return anyio.run(ask)
    except (EngineError, EngineTimeout) as error:
        return f"{UNKNOWN}: {error}"


def show(plan: CampaignPlan, where: Screen, *, all_cells: bool) -> None:
    """The screen of ``plan``."""
    cells = len(plan.cells) + plan.parked_cells + plan.scored_cells
    say(
        f"campaign {plan.campaign}: {plural(cells, 'cell')} = {plural(len(plan.tasks), 'task')} x "
        f"{plural(len(plan.arms), 'arm')} ({', '.join(plan.arms)}) x {plural(plan.replicates, 'replicate')}"
    )
    hours = "no upper bound: at least one task has no limit" if plan.hours_at_most is None else f"at most {plan.hours_at_most:.1f} h"
    say(f"time {hours}, {plan.concurrency} at one time · networks {plan.networks_at_once} at one time, cap {plan.networks_cap}")
    say(f"order {plan.order}, seed {plan.seed} · host {clean(plan.host)}")
    for each in plan.turned:
        for part in wrapped(turned_words(each), where):
            say(part)
    if plan.alone:
        say(where.fit(alone_words(plan.alone)))
    if words := contrast_words(plan.arms, plan.contrasts):
        say(where.fit(words))
    for line in benchmark_words(plan.benchmark) if plan.benchmark else ():
        say(line)
    if plan.digests:
        say(clean(plan.digests))
    for line in money_words(plan.money) if plan.money else ():
        say(line)
    say()
    limits = (Column("task", least=12), Column("agent limit", least=12), Column("verifier limit", least=12))
    sizes = (Column("network"), Column("cpus", right=True), Column("MiB", right=True))
    for line in table((*limits, *sizes), [_task_row(task) for task in plan.tasks if not task.parks], where):
        say(line)
    for line in _obstacles(plan):
        for part in wrapped(line, where):
            say(part)
    say()
    say("first cells:" if len(plan.cells) > CELLS_SHOWN and not all_cells else "cells in order:")
    for number, cell in enumerate(plan.cells if all_cells else plan.cells[:CELLS_SHOWN], start=1):
        say(where.fit(f"  {number:>4}  {clean(cell.task)}  {clean(cell.arm)}  replicate {cell.replicate}"))
    if len(plan.cells) > CELLS_SHOWN and not all_cells:
        say(f"  … {len(plan.cells) - CELLS_SHOWN} more (--cells shows all)")
    say()
    for line in short(plan.disclosures, plan.arms, where):
        say(line)
    for line in (*plan.benchmark.differences, *plan.benchmark.notes) if plan.benchmark else ():
        note(f"note: {clean(line)}")
    for line in plan.remounted:
        note(f"changed: {line}")
    for task in plan.tasks:
        for warning in task.warnings:
            note(f"note: {clean(task.name)}: {clean(warning)}")


def contrast_words(arms: Sequence[str], contrasts: Sequence[tuple[str, str]]) -> str:
    """What will be compared; empty for one arm alone."""
    if contrasts:
        return f"compares {', '.join(f'{clean(a)} against {clean(b)}' for a, b in contrasts)}"
    pairs = len(arms) * (len(arms) - 1) // 2
    return f"compares every pair of arms, {pairs} in all: [comparison] declares none" if pairs else ""


def _obstacles(plan: CampaignPlan) -> Iterator[str]:
    """What parks, and what may."""
    waiting = [task for task in plan.tasks if task.parks == UNSUPPORTED]
    parked = [(task.name, task.parks, task.why) for task in plan.tasks if task.parks and task.parks != UNSUPPORTED]
    parked += [(park.task, park.code, park.why) for park in plan.parked_arms]
    beyond = len(waiting) * len(plan.arms) * plan.replicates
    if waiting:
        yield ""
        yield f"not supported yet: {plural(beyond, 'cell')} of {plural(len(waiting), 'task')}, parked as {UNSUPPORTED}"
        yield from (f"  {marks_words(task.name, task.marks)}: {clean(task.why)}" for task in waiting)
    if parked:
        yield ""
        yield f"parked: {plural(plan.parked_cells - beyond, 'cell')} of {plural(len({name for name, *_ in parked}), 'task')}"
        yield from (f"  {clean(name)}: {code}: {clean(why)}" for name, code, why in parked)
    if plan.refused:
        yield ""
        yield "changed since the campaign was submitted; a submission of it, or the next start, would be refused:"
        yield from (f"  {clean(why, WHY_MAX)}" for why in plan.refused)
    if plan.absent_images:
        yield ""
        yield "images that are not on the engine; the campaign pulls them, and parks the task (image_missing) when no registry has one:"
        for image in plan.absent_images:
            users = [clean(task.name) for task in plan.tasks if task.image == image]
            more = f" and {len(users) - USERS_SHOWN} more" if len(users) > USERS_SHOWN else ""
            yield f"  {clean(image)}: {', '.join(users[:USERS_SHOWN])}{more}"


def _task_row(task: TaskPlan) -> tuple[str, ...]:
    return (
        clean(task.name),
        _limit(task.agent_limit),
        _limit(task.verifier_limit),
        "public" if task.needs_network else "none",
        "-" if task.cpus is None else f"{task.cpus:g}",
        "-" if task.memory_mb is None else str(task.memory_mb),
    )


def _limit(limit: Limit | None) -> str:
    if limit is None or limit.limit_s is None:
        return "no limit"
    return f"{span(limit.limit_s * 1000)} ({limit.origin}{f'; {limit.loser} does not apply' if limit.loser else ''})"
