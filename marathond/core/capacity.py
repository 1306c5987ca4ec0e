"""What limits admission now, and what one more of each thing would give.

Owns which things there are one more of.  Every answer is the scheduler's own :func:`~marathond.core.plan.plan`, asked again about the same
snapshot with one thing changed, so it cannot say anything that the scheduler would not do.  Must not see an arm, as the plan does not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from marathond.core.money import Purse, dollars
from marathond.core.plan import Host, Limits, Plan, Snapshot, plan

MEMORY_STEP_MB = 1024


@dataclass(frozen=True, slots=True)
class Used:
    """What live claims hold, of what there is.  None: unknown.

    ``cpus`` and ``memory_mb`` are what the plan counts: what tasks declare, and the knobs' numbers for those that declare none.  What there
    is of them is the host's times its overcommit, less the reserve.
    """

    slots: int
    slots_of: int
    cpus: float
    cpus_of: float | None
    memory_mb: int
    memory_mb_of: int | None
    networks: int
    networks_of: int | None


@dataclass(frozen=True, slots=True)
class OneMore:
    """``starts``: cells that would begin at once beyond those that begin anyhow; None: unknown, ``then`` says why.  Below 0 where a large
    one that waited for a network would take the room of several.

    ``then``: what the rest would wait for; empty: nothing would wait.
    """

    what: str
    starts: int | None
    then: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """``now``: what the plan says as things are.  ``more``: of each thing, in the order in which the plan asks for them."""

    now: Plan
    used: Used
    more: tuple[OneMore, ...]


def outlook(snapshot: Snapshot, limits: Limits, host: Host, *, ready_tasks: Collection[int], now_ms: int) -> Outlook:
    """The same arguments as the plan's."""
    now = plan(snapshot, limits, host, ready_tasks=ready_tasks, now_ms=now_ms)
    begun = len(now.admissions)
    more = []
    for what, changed in _changes(snapshot, limits, host, ready_tasks):
        if isinstance(changed, str):
            more.append(OneMore(what, None, changed))
            continue
        then = plan(changed.snapshot, changed.limits, changed.host, ready_tasks=changed.ready, now_ms=now_ms)
        rest = " · ".join(f"{waiting.count} {waiting.text}" for waiting in then.waiting)
        more.append(OneMore(what, len(then.admissions) - begun, rest))
    return Outlook(now, _used(snapshot, limits, host), tuple(more))


@dataclass(frozen=True, slots=True)
class _Asked:
    snapshot: Snapshot
    limits: Limits
    host: Host
    ready: Collection[int]


def _changes(snapshot: Snapshot, limits: Limits, host: Host, ready: Collection[int]) -> list[tuple[str, _Asked | str]]:
    """(what, the plan's arguments with one more of it, or why that is unknown)."""
    asked = _Asked(snapshot, limits, host, ready)
    found: list[tuple[str, _Asked | str]] = []
    for stop in snapshot.stops:
        others = tuple(each for each in snapshot.stops if each is not stop)
        found.append((f"without the {stop.kind.replace('_', '-')}", replace(asked, snapshot=replace(snapshot, stops=others))))
    if host.engine_down:
        found.append(("an engine that answers", replace(asked, host=replace(host, engine_down=""))))
    if host.disk_low:
        found.append(("room on the disk", replace(asked, host=replace(host, disk_low=""))))
    if host.verifying_alone:
        found.append(("no verifier that runs alone", replace(asked, host=replace(host, verifying_alone=""))))
    if host.gateway_away:
        found.append(("a gateway that is there", replace(asked, host=replace(host, gateway_away=""))))
    found += _of_money(asked)
    found.append(("a slot", replace(asked, limits=replace(limits, concurrency=limits.concurrency + 1))))
    missing = {cell.task_id for cell in snapshot.open_cells} - set(ready)
    if missing:
        found.append(("every image", replace(asked, ready={*ready, *missing})))
    unknown = "the host's size is unknown"
    cpu: _Asked | str = unknown if host.ncpu is None else replace(asked, host=replace(host, ncpu=host.ncpu + 1))
    memory: _Asked | str = unknown
    if host.memory_mb is not None:
        memory = replace(asked, host=replace(host, memory_mb=host.memory_mb + MEMORY_STEP_MB))
    network: _Asked | str = "how many there are is unknown"
    if host.networks_free is not None and host.networks_capacity is not None:
        one_more = replace(host, networks_free=host.networks_free + 1, networks_capacity=host.networks_capacity + 1)
        network = replace(asked, host=one_more)
    return [*found, ("a core", cpu), ("a GiB of memory", memory), ("a network", network)]


def _of_money(asked: _Asked) -> list[tuple[str, _Asked | str]]:
    """One more block's money: of the first in the plan's order that has not begun."""
    purse = asked.snapshot.purse
    if purse is None:
        return []
    if purse.unknown:
        return [("money for a block", purse.unknown)]
    block = next((cell.block_id for cell in asked.snapshot.open_cells if cell.block_id in purse.blocks), None)
    if block is None:
        return []
    if (cost := purse.blocks[block]) is None:
        return [("money for a block", "what a block will cost is unknown")]
    # The plan may begin several before it meets the cap: what is missing then is for the first that it lets wait.
    larger = replace(purse, cap_nusd=max(purse.cap_nusd, _met(asked, purse)))
    return [(f"money for a block ({dollars(cost)})", replace(asked, snapshot=replace(asked.snapshot, purse=larger)))]


def _met(asked: _Asked, purse: Purse) -> int:
    """The cap by which one block more than now may begin."""
    spent = purse.spent_nusd + purse.promised_nusd
    for block in dict.fromkeys(cell.block_id for cell in asked.snapshot.open_cells if cell.block_id in purse.blocks):
        spent += purse.blocks[block] or 0
        if spent > purse.cap_nusd:
            return spent
    return purse.cap_nusd


def _used(snapshot: Snapshot, limits: Limits, host: Host) -> Used:
    held = snapshot.holdings
    networks = snapshot.live_leases
    if host.networks_capacity is not None and host.networks_free is not None:
        networks = host.networks_capacity - host.networks_free
    return Used(
        slots=len(held),
        slots_of=limits.concurrency,
        cpus=sum(limits.undeclared_cpus if each.cpus is None else each.cpus for each in held),
        cpus_of=None if host.ncpu is None else host.ncpu * limits.cpu_overcommit - limits.reserve_cpus,
        memory_mb=sum(limits.undeclared_memory_mb if each.memory_mb is None else each.memory_mb for each in held),
        memory_mb_of=None if host.memory_mb is None else int(host.memory_mb * limits.memory_overcommit) - limits.reserve_memory_mb,
        networks=networks,
        networks_of=host.networks_capacity,
    )
