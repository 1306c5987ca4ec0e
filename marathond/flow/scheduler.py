"""The loop: wake up, take a snapshot, plan, enact.

Owns when to look and how a plan becomes claims, trials and leases.  The decision is core/plan.py, which cannot see an arm.
External events only ring the bell; nothing is decided from them.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path

from anyio import to_thread
from anyio.abc import TaskGroup

from marathond.core.errors import EngineError, EngineUnreachable
from marathond.core.names import cell_label, trial_label
from marathond.core.order import Expected
from marathond.core.plan import Host as HostFacts
from marathond.core.plan import OpenCell, Plan, Snapshot, Waiting, plan
from marathond.core.subnets import NetworkSubnets, auto_capacity
from marathond.flow.breaker import Breaker
from marathond.flow.environment import next_subnets
from marathond.flow.image_keeper import ImageKeeper
from marathond.flow.ingest import gateway_needed
from marathond.flow.money import Treasurer
from marathond.flow.sight import Sight
from marathond.flow.trial import run_trial
from marathond.flow.turns import closed
from marathond.flow.ways import sign_of_life
from marathond.flow.world import Handle, World, log
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import admission, campaigns, findings, networks, ordering, settings
from marathond.ledger.verbs.campaigns import StoredTask
from marathond.ports.host import HostUnknown
from marathond.tasks.support import check_host

TICK_S = 5.0
"""At the latest; every end of a trial, image or command rings the bell."""
LOOK_AHEAD = 200
"""Open cells that one plan looks at: more than any host runs at once, few enough to read in a millisecond."""
ENGINE_LOOK_S = 10.0


class Scheduler:
    def __init__(self, world: World, group: TaskGroup) -> None:
        self.world, self.group = world, group
        self.images = ImageKeeper(world, group)
        self._ncpu: float | None = None
        self._memory_mb: int | None = None
        self._limits_pids = True
        self._engine_down = "not asked yet"
        self._engine_seen_ms = -(10**9)
        self._data_root: Path | None = None
        self._sight = Sight(world)
        self._breaker = Breaker(world)
        self._money = Treasurer(world)

    async def run(self) -> None:
        """For ever.  A ledger that refuses ends it: nothing may be admitted that cannot be written down."""
        while True:
            try:
                await self.step()
            except EngineError as error:
                # The engine went away while the plan was carried out: say so, and decide nothing more from what it said before.
                await self._engine_failed(error)
            except HostUnknown as unknown:
                await self._finding("host_unknown", "networks", str(unknown))
            await self.world.wake.wait(TICK_S)

    async def step(self) -> int:
        """One look.  Number of cells admitted."""
        world = self.world
        await self._breaker.look()
        await self._money.begin()
        fixed = world.fixed
        snapshot = await world.ledger.read(
            admission.snapshot, fixed.campaign_id, engine=fixed.engine_name, limit=LOOK_AHEAD, money=fixed.money
        )
        host = await self._host(snapshot)
        closed_now = host.engine_down or host.disk_low or host.verifying_alone  # what fills a disk faster than a build?
        if snapshot.open_total and not closed_now:
            await self._want_images(snapshot)
        decided = plan(snapshot, world.knobs.limits, host, ready_tasks=world.images.keys(), now_ms=world.clock.wall_ms())
        if await self._begins(decided):
            world.wake.ring()  # the cells have other places now: look at all anew
            return 0
        if decided.admissions and (blind := await self._sight.problem()):
            waits = Waiting("ENGINE", snapshot.open_total, f"ENGINE ({blind})")
            decided = Plan((), (waits,))
        if decided.admissions:
            # An engine that is stopping goes on answering over our old connections: what began in it would only use up passes (fault b11).
            await world.engine.knock()
        admitted = await self._enact(decided) if decided.admissions else 0
        await self._observe(decided, admitted)
        await self._money.look(snapshot, decided)
        if admitted:
            world.wake.ring()
        return admitted

    async def _begins(self, decided: Plan) -> bool:
        """Before the first cell of a replicate is admitted, its blocks learn their order; True: they did just now."""
        world = self.world
        if not decided.admissions or world.knobs.expected is not Expected.LEARNED:
            return False
        campaign_id, slots = world.fixed.campaign_id, world.knobs.limits.concurrency
        replicate = await world.ledger.read(ordering.due, campaign_id, [cell.cell_id for cell in decided.admissions])
        if replicate is None:
            return False
        now_ms = world.clock.wall_ms()
        moved = await world.ledger.write(ordering.begin, campaign_id, replicate, slots=slots, now_ms=now_ms)
        log.info("replicate_begins", replicate=replicate, moved=moved)
        return True

    async def _want_images(self, snapshot: Snapshot) -> None:
        missing = {cell.task_id for cell in snapshot.open_cells} - self.world.images.keys()
        if missing:
            for task in await self.world.ledger.read(campaigns.tasks_of, self.world.fixed.campaign_id):
                if task.task_id in missing and not await self._too_large(task):
                    self.images.want(task)

    async def _too_large(self, task: StoredTask) -> bool:
        """Park a task that no amount of waiting can fit on this host."""
        if self._ncpu is None or self._memory_mb is None:
            return False
        pids, limits_pids = self.world.fixed.pids, self._limits_pids
        refusal = check_host(task, int(self._ncpu), self._memory_mb << 20, pids=pids, limits_pids=limits_pids)
        if refusal is None:
            return False
        now_ms = self.world.clock.wall_ms()
        await self.world.ledger.write(
            admission.park_task, task.task_id, code=refusal.code, detail=refusal.detail, author="marathond", now_ms=now_ms
        )
        log.warning("task_parked", task=task.name, code=refusal.code, detail=refusal.detail)
        self.world.wake.ring()
        return True

    async def _host(self, snapshot: Snapshot) -> HostFacts:
        """What the host has.  What cannot be seen is unknown, and nothing that needs it is admitted."""
        await self._ask_engine()
        free = capacity = None
        if not self._engine_down:
            try:
                free, capacity = await self._networks(snapshot)
            except EngineError as error:
                await self._engine_failed(error)
            except HostUnknown as unknown:
                await self._finding("host_unknown", "networks", str(unknown))
            else:
                await self._over("host_unknown", "networks")
        disk, away, alone = await self._disk(), await self._gateway(), await closed(self.world)
        return HostFacts(self._ncpu, self._memory_mb, free, capacity, disk, self._engine_down, away, alone)

    async def _gateway(self) -> str:
        return (await sign_of_life(self.world)).away if await gateway_needed(self.world) else ""

    async def _ask_engine(self) -> None:
        now_ms = self.world.clock.mono_ms()
        if now_ms - self._engine_seen_ms < ENGINE_LOOK_S * 1000:
            return
        self._engine_seen_ms = now_ms
        try:
            info = await self.world.engine.info()
        except EngineError as error:
            await self._engine_failed(error)
            return
        self._ncpu, self._memory_mb, self._engine_down = float(info.ncpu), info.memory_bytes >> 20, ""
        self._data_root, self._limits_pids = Path(info.data_root), info.limits_pids
        observed = {"ok": True, "detail": "", "server_version": info.server_version, "ncpu": info.ncpu, "memory_mb": self._memory_mb}
        observed["ready_tasks"] = sorted(self.world.images)  # for `marathonctl capacity`, which asks the same plan
        await self.world.ledger.write(settings.observe, "engine", observed, now_ms=self.world.clock.wall_ms())

    async def _engine_failed(self, error: EngineError) -> None:
        """Admission stops and status says why; the next look asks again at once (fault b10)."""
        self.world.engine_breaks += isinstance(error, EngineUnreachable)
        self._engine_down, self._engine_seen_ms = str(error), -(10**9)
        log.warning("engine_away", error=str(error))
        observed = {"ok": False, "detail": str(error)}
        await self.world.ledger.write(settings.observe, "engine", observed, now_ms=self.world.clock.wall_ms())

    async def _networks(self, snapshot: Snapshot) -> tuple[int | None, int]:
        """Networks that may be leased now, and the capacity they are counted against."""
        world, knobs = self.world, self.world.knobs
        if world.fixed.network_mode == "explicit":
            if any(cell.needs_network for cell in snapshot.open_cells):
                await world.host.occupied()  # unknown here is unknown for the plan: nobody gets a subnet that was not checked
            return max(0, knobs.network_cap - snapshot.live_leases), knobs.network_cap
        info, listed = await world.engine.info(), await world.engine.list_networks()
        ours = [NetworkSubnets(n.id, world.owns(n), n.subnets) for n in listed]
        pool = auto_capacity(info.address_pools, ours, await world.host.occupied())
        now_ms = world.clock.wall_ms()
        await world.ledger.write(
            networks.observe_pool,
            world.fixed.engine_name,
            total=pool.total,
            foreign_used=pool.taken_by_foreign,
            host_used=pool.taken_by_host,
            now_ms=now_ms,
        )
        # A lease whose network is not made yet takes one of the free entries too.
        not_made = max(0, snapshot.live_leases - pool.taken_by_ours)
        free = min(pool.free - not_made - knobs.network_margin, knobs.network_cap - snapshot.live_leases)
        capacity = min(pool.total - pool.taken_by_foreign - pool.taken_by_host - knobs.network_margin, knobs.network_cap)
        return max(0, free), max(0, capacity)

    async def _disk(self) -> str:
        """The first file system below the floor or out of sight, in words; empty when all are above it (fault b12)."""
        world, low, seen = self.world, "", []
        for path in await self._watched():
            subject = str(path)
            try:
                disk = await world.host.disk(path)
            except HostUnknown as unknown:
                low = low or f"{path}: unknown ({unknown})"
                await self._finding("disk_low", subject, f"unknown, so nothing is admitted: {unknown}")
                continue
            seen.append(asdict(disk))
            share = 100 * disk.free_bytes / max(disk.total_bytes, 1)
            if disk.free_bytes < world.knobs.disk_floor_bytes or share < world.knobs.disk_floor_percent:
                left = f"{disk.free_bytes >> 20} MB free ({share:.1f} %)" + (f" of {disk.filesystem}" if disk.filesystem else "")
                low = low or f"{path}: {left}"
                await self._finding("disk_low", subject, f"below the floor: {left}")
            else:
                await self._over("disk_low", subject)
        await world.ledger.write(settings.observe, "disk", seen, now_ms=world.clock.wall_ms())
        return low

    async def _watched(self) -> list[Path]:
        """Ours, and the engine's own folder where it lies on this host: builds and containers fill that one."""
        paths = [self.world.fixed.run_root, self.world.fixed.out_dir]
        if self._data_root is not None and await to_thread.run_sync(self._data_root.is_dir):
            paths.append(self._data_root)
        return paths

    async def _enact(self, decided: Plan) -> int:
        """Each admission is one transaction: claim, trial and lease together, or nothing (fault b01)."""
        world = self.world
        wanted = sum(cell.needs_network for cell in decided.admissions)
        explicit = world.fixed.network_mode == "explicit"
        found = await next_subnets(world, wanted) if explicit and wanted else []
        if explicit and len(found) < wanted:
            await self._finding("subnets_exhausted", world.fixed.network_range, "no free subnet is left in network.range")
        elif found:
            await self._over("subnets_exhausted", world.fixed.network_range)
        subnets, admitted = iter(found), 0
        for cell in decided.admissions:
            subnet = next(subnets, None) if explicit and cell.needs_network else None
            if explicit and cell.needs_network and subnet is None:
                continue
            admitted += await self._admit(cell, subnet)
        return admitted

    async def _admit(self, cell: OpenCell, subnet: str | None) -> bool:
        world = self.world
        try:
            row = await world.ledger.write(
                admission.admit,
                cell_id=cell.cell_id,
                token=secrets.token_hex(8),
                engine=world.fixed.engine_name,
                subnet=subnet,
                needs_network=cell.needs_network,
                ledger_id=world.fixed.ledger_id,
                now_ms=world.clock.wall_ms(),
            )
        except RuleBroken as broken:
            # A command may have parked, claimed or leased between the snapshot and here: the next look decides anew.
            log.info("admission_refused", cell=cell_label(cell.cell_id), rule=broken.rule)
            return False
        log.info("admitted", trial=trial_label(row.trial_id), cell=cell_label(cell.cell_id), attempt=row.attempt, subnet=subnet)
        self.start(row.trial_id)
        return True

    def start(self, trial_id: int, *, recovered: bool = False) -> None:
        """Drive a trial in the background; registered at once, so that no sweep takes it for an orphan."""
        self.world.driven[trial_id] = Handle()
        self.group.start_soon(self._drive, trial_id, recovered, name=f"trial {trial_label(trial_id)}")

    async def _drive(self, trial_id: int, recovered: bool) -> None:
        await run_trial(self.world, trial_id, recovered=recovered)

    async def _observe(self, decided: Plan, admitted: int) -> None:
        waiting = [asdict(entry) for entry in decided.waiting]
        refused = len(decided.admissions) - admitted
        if refused:
            waiting.append(asdict(Waiting("NETPOOL", refused, "NETPOOL (no subnet free)")))
        await self.world.ledger.write(settings.observe, "waiting", waiting, now_ms=self.world.clock.wall_ms())

    async def _over(self, code: str, subject: str) -> None:
        await self.world.ledger.write(findings.close_finding, code=code, subject=subject, now_ms=self.world.clock.wall_ms())

    async def _finding(self, code: str, subject: str, detail: str) -> None:
        await self.world.ledger.write(
            findings.raise_finding,
            code=code,
            severity="error",
            subject=subject,
            detail=detail,
            campaign_id=None,
            now_ms=self.world.clock.wall_ms(),
        )
