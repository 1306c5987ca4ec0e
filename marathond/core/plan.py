"""Which cells may start now, and why the others wait.

Owns the admission rule.  Must not see an arm: nothing here carries one, so no decision can depend on it (promise 2).
Order is given (core/order.py, stored as ``cell.ordinal``); this module only walks it.

The rule: walk the open cells in order and admit while everything fits.  The first cell that does not fit ends the walk, so that a
large task is never starved by small ones behind it, with one exception that harms nobody: a cell that waits only for a network lets
later cells of tasks without network pass, since they take nothing that it waits for.

A breaker that is half-open admits one cell, the probe; see core/breaker.py.

Money is counted by whole blocks (core/money.py): once a new block does not fit below the campaign's cap, no new one begins in this walk,
not even a cheaper one, and cells of blocks that have begun pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from marathond.core.breaker import Trying
from marathond.core.money import Purse, Till
from marathond.core.names import trial_label


@dataclass(frozen=True, slots=True)
class OpenCell:
    """An open cell in plan order.  ``cpus``/``memory_mb`` None: the task declares none."""

    cell_id: int
    task_id: int
    cpus: float | None
    memory_mb: int | None
    needs_network: bool
    block_id: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """What a live claim holds of the host."""

    cpus: float | None
    memory_mb: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why nothing at all is admitted; ``kind`` as in ``admission_stop``.  Of a breaker also what it tries, see core/breaker.py."""

    kind: str
    detail: str
    until_ms: int | None
    trying: Trying | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the ledger says at one instant.

    ``open_cells`` holds the first of ``open_total`` cells; with a cap also those, behind them, of blocks that have begun.
    """

    open_cells: tuple[OpenCell, ...]
    open_total: int
    holdings: tuple[Holding, ...]
    live_leases: int
    stops: tuple[Stop, ...] = ()
    purse: Purse | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Operational knobs; see config.example.toml for their meaning."""

    concurrency: int
    cpu_overcommit: float = 1.0
    memory_overcommit: float = 1.0
    reserve_cpus: float = 0.0
    reserve_memory_mb: int = 0
    undeclared_cpus: float = 0.25
    undeclared_memory_mb: int = 256


@dataclass(frozen=True, slots=True)
class Host:
    """What the engine's host has.  None: not known, and then nothing that needs it is admitted."""

    ncpu: float | None
    memory_mb: int | None
    networks_free: int | None
    networks_capacity: int | None
    disk_low: str = ""
    engine_down: str = ""
    gateway_away: str = ""
    """Why trials would find no way to their model; empty: they would, or need none."""
    verifying_alone: str = ""
    """A verifier that nothing may begin beside; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """``count`` cells wait for ``code``; ``text`` is what status prints."""

    code: str
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    admissions: tuple[OpenCell, ...]
    waiting: tuple[Waiting, ...]


def _closed(snapshot: Snapshot, host: Host, now_ms: int) -> Waiting | None:
    """The one reason that holds for every cell alike, or None."""
    for stop in snapshot.stops:  # whatever else closes admission holds up the probe, too
        if _tries_one(stop):
            continue
        if stop.kind == "breaker":
            if stop.trying is not None and stop.trying.probe is not None:
                return Waiting("BREAKER", snapshot.open_total, f"BREAKER probe {trial_label(stop.trying.probe)} ({stop.detail})")
            left = max(0, ((stop.until_ms or now_ms) - now_ms + 59_999) // 60_000)
            return Waiting("BREAKER", snapshot.open_total, f"BREAKER {left}m ({stop.detail})")
        code = {"pause": "PAUSED", "drain": "DRAINING"}.get(stop.kind, stop.kind.upper())
        return Waiting(code, snapshot.open_total, f"{code} ({stop.detail})" if stop.detail else code)
    if host.engine_down:
        return Waiting("ENGINE", snapshot.open_total, f"ENGINE ({host.engine_down})")
    if host.disk_low:
        return Waiting("DISK", snapshot.open_total, f"DISK {host.disk_low}")
    if host.verifying_alone:
        return Waiting("VERIFIER", snapshot.open_total, f"VERIFIER ({host.verifying_alone})")
    if snapshot.purse is not None and snapshot.purse.unknown:
        return Waiting("MONEY", snapshot.open_total, f"MONEY unknown ({snapshot.purse.unknown})")
    if host.gateway_away:
        # For every arm alike, also those that ask no model: one that ran ahead alone would meet another hour of the provider.
        return Waiting("GATEWAY", snapshot.open_total, f"GATEWAY ({host.gateway_away})")
    return None


def _tries_one(stop: Stop) -> bool:
    """A breaker whose pause is over and whose probe has not been admitted yet."""
    return stop.kind == "breaker" and stop.trying is not None and stop.trying.half_open and stop.trying.probe is None


class _Room:
    """What is left of the host while the walk goes on."""

    def __init__(self, snapshot: Snapshot, limits: Limits, host: Host) -> None:
        self.limits, self.host = limits, host
        self.slots = limits.concurrency - len(snapshot.holdings)
        self.used_cpus = sum(self._cpus(h.cpus) for h in snapshot.holdings)
        self.used_mb = sum(self._mb(h.memory_mb) for h in snapshot.holdings)
        self.cpus = None if host.ncpu is None else host.ncpu * limits.cpu_overcommit - limits.reserve_cpus
        self.mb = None if host.memory_mb is None else int(host.memory_mb * limits.memory_overcommit) - limits.reserve_memory_mb
        self.networks = host.networks_free
        self.held = len(snapshot.holdings)
        self.till = Till(snapshot.purse)

    def _cpus(self, declared: float | None) -> float:
        return self.limits.undeclared_cpus if declared is None else declared

    def _mb(self, declared: int | None) -> int:
        return self.limits.undeclared_memory_mb if declared is None else declared

    def lacks(self, cell: OpenCell, ready: Collection[int]) -> tuple[str, str] | None:
        """Code and text of the first thing that is missing for ``cell``, or None when it fits."""
        if (money := self.till.lacks(cell.block_id)) is not None:
            return "MONEY", money
        if self.slots <= 0:
            return "CONCURRENCY", f"CONCURRENCY {self.held}/{self.limits.concurrency}"
        if cell.task_id not in ready:
            return "IMAGE", "IMAGE (being built)"
        if self.cpus is None or self.mb is None:
            return "ENGINE", "ENGINE (host size unknown)"
        # An idle host admits one cell whatever its size: tasks that can never fit are parked as host_too_small beforehand.
        if self.held and self.used_cpus + self._cpus(cell.cpus) > self.cpus + 1e-9:
            return "CPU", f"CPU {self.used_cpus:g}/{self.cpus:g}"
        if self.held and self.used_mb + self._mb(cell.memory_mb) > self.mb:
            return "MEM", f"MEM {self.used_mb}/{self.mb} MB"
        if cell.needs_network and (self.networks is None or self.networks <= 0):
            if self.networks is None or self.host.networks_capacity is None:
                return "NETPOOL", "NETPOOL unknown"
            used = self.host.networks_capacity - self.networks
            return "NETPOOL", f"NETPOOL {used}/{self.host.networks_capacity}"
        return None

    def take(self, cell: OpenCell) -> None:
        self.till.take(cell.block_id)
        self.slots -= 1
        self.held += 1
        self.used_cpus += self._cpus(cell.cpus)
        self.used_mb += self._mb(cell.memory_mb)
        if cell.needs_network and self.networks is not None:
            self.networks -= 1


def plan(snapshot: Snapshot, limits: Limits, host: Host, *, ready_tasks: Collection[int], now_ms: int) -> Plan:
    """Admissions and reasons for waiting.

    :param ready_tasks: tasks whose image is there.
    :param now_ms: wall clock, only for the breaker's countdown.
    """
    closed = _closed(snapshot, host, now_ms)
    if closed is not None:
        return Plan((), (closed,) if snapshot.open_total else ())
    probing = next((stop for stop in snapshot.stops if _tries_one(stop)), None)
    tried = probing.trying.tried if probing is not None and probing.trying is not None else ()
    if all(cell.cell_id in tried for cell in snapshot.open_cells):
        tried = ()
    room = _Room(snapshot, limits, host)
    admitted: list[OpenCell] = []
    reasons: Counter[tuple[str, str]] = Counter()
    passing_network = passing_money = False
    for cell in snapshot.open_cells:
        if probing is not None and (admitted or cell.cell_id in tried):
            reasons["BREAKER", f"BREAKER probe ({probing.detail})"] += 1
            continue
        if passing_money and room.till.is_new(cell.block_id):
            reasons[next(key for key in reasons if key[0] == "MONEY")] += 1
            continue
        if passing_network and cell.needs_network:
            reasons[next(key for key in reasons if key[0] == "NETPOOL")] += 1
            continue
        lack = room.lacks(cell, ready_tasks)
        if lack is None:
            room.take(cell)
            admitted.append(cell)
            continue
        reasons[lack] += 1
        if lack[0] == "NETPOOL":
            passing_network = True
        elif lack[0] == "MONEY":
            passing_money = True
        elif lack[0] != "IMAGE":
            break
    explained = sum(reasons.values())
    rest = snapshot.open_total - len(admitted) - explained
    waiting = [Waiting(code, count, text) for (code, text), count in reasons.items()]
    if rest > 0 and waiting:
        last = waiting[-1]
        waiting[-1] = Waiting(last.code, last.count + rest, last.text)
    return Plan(tuple(admitted), tuple(waiting))
