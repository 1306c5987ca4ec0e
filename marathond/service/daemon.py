"""The daemon between its start and its stop: puts the coroutines of the flow together.

Owns the order of things and nothing that happens in between.  Start: submit the configured campaign, open the control socket, probe the
engine for a bounded time, recover, say READY, then admit.  Without an engine it says READY, degraded, and recovers when one answers.
Stop (SIGTERM): close admission, leave running trials alone, exit within seconds (fault f08), also in the middle of a submission and when
Docker hangs (ports/leaving.py, service/departure.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskGroup
from structlog.contextvars import bind_contextvars

from marathond import __version__
from marathond.core.errors import PASSING, LedgerRefused, Refused
from marathond.core.parting import named
from marathond.engine.docker import DockerEngine
from marathond.flow.auditor import Auditor
from marathond.flow.ingest import Intake
from marathond.flow.life import Life
from marathond.flow.mounts import with_held
from marathond.flow.world import Fixed, Knobs, Wake, World
from marathond.ledger.open import OpenedLedger
from marathond.ledger.patient import PatientLedger
from marathond.ledger.verbs import admission, campaigns, networks, runs
from marathond.ledger.verbs import settings as ledger_settings
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.ports.leaving import Leaving, new_life
from marathond.service import effective, gateway_file, left_out, range_check, roots, submission, taskpaths
from marathond.service.channels import channels_of
from marathond.service.commands import StopMode
from marathond.service.departure import TIDY_S
from marathond.service.engine_choice import refuse_other_engine
from marathond.service.gateway_file import GatewayFile
from marathond.service.host import SystemHost
from marathond.service.knobs import KNOBS, KnobValue
from marathond.service.lag import LoopLag
from marathond.service.notices import About, Herald
from marathond.service.notify import Notifier
from marathond.service.page import life as page_life
from marathond.service.page.place import Place
from marathond.service.settings import Settings, load
from marathond.service.staged import package_ids, staged_trees
from marathond.service.treatment import needs_restart
from marathond.service.winding_down import URGENCY, StopRequest, carry_out
from marathond.staging.mounted import Mounted

log = structlog.get_logger("marathond")

ServeControl = Callable[["Daemon", TaskGroup], Awaitable[None]]


class Daemon:
    """One daemon life.  Implements what the control socket's commands need (service/commands.DaemonControl)."""

    def __init__(
        self,
        settings: Settings,
        opened: OpenedLedger,
        ledger: SqliteLedger,
        engine: DockerEngine,
        clock: SystemClock,
        *,
        gates_only: bool = False,
    ) -> None:
        self.settings, self.opened, self.ledger, self.engine, self.clock = settings, opened, ledger, engine, clock
        self._patient = PatientLedger(ledger)
        """For all that this life writes of itself; a command's answer does not wait for room on a disk."""
        self._began = settings
        """What this life began with: it keeps that for everything that only a restart can change."""
        self._gates_only = gates_only
        self.notifier = Notifier(os.environ)
        self.lag = LoopLag()
        self.stop: StopRequest | None = None
        self.departs: Callable[[], None] = lambda: None
        """Called when the end must come within seconds; :attr:`departed`: when the ledger holds it."""
        self.departed: Callable[[], None] = lambda: None
        self._leaving: Leaving | None = None
        self._threads: anyio.CapacityLimiter | None = None
        self._stopping = anyio.Event()
        self.world: World | None = None
        self._life: Life | None = None
        self._values: dict[str, KnobValue] = {}
        self._staged: dict[str, Path] = {}
        self._mounted = Mounted()
        self._settings_changed = Wake()
        self._gateway_file: GatewayFile | None = None

    @property
    def degraded(self) -> str:
        """Why nothing can be admitted, for want of room for the ledger or of an engine; empty when both are there."""
        return self._patient.waits or (self._life.away if self._life is not None else "")

    # ── what commands ask of the daemon ──

    def wake(self) -> None:
        """State changed: look again."""
        if self.world is not None:
            self.world.wake.ring()
            self.world.export_wake.ring()

    def trial_voided(self, trial_id: int) -> None:
        """An operator voided a live trial."""
        if self.world is not None:
            self.world.withdraw(trial_id)

    def request_stop(self, mode: StopMode, author: str, reason: str) -> None:
        """Ends :meth:`run`; a second request may only be more urgent."""
        if self.stop is not None and URGENCY.index(mode) <= URGENCY.index(self.stop.mode):
            return
        self.stop = StopRequest(mode, author, reason)
        if mode == "term":
            self._leave()
        self._stopping.set()

    def _asked(self) -> StopRequest:
        assert self.stop is not None
        return self.stop

    def _leave(self) -> None:
        """From here on the end is a matter of seconds."""
        self.departs()
        if self._leaving is not None:
            self._leaving.begin(TIDY_S)

    def last_words(self) -> tuple[str, list[str]]:
        """What this life's end was asked for by (empty: something broke), and clauses for what it has cut.  From any thread."""
        asked = self.stop.text if self.stop is not None else ""
        undone = list(self._leaving.undone) if self._leaving is not None else []
        borrowers = list(self._threads.statistics().borrowers) if self._threads is not None else []
        names = sorted({task.get_name() for task in borrowers if isinstance(task, asyncio.Task)})
        return asked, [*undone, *(f"blocking work of task {name}" for name in names)]

    def apply_settings(self) -> None:
        """Operational knobs changed in the ledger: soon they hold; nothing that runs is killed."""
        self._settings_changed.ring()

    def effective(self, key: str) -> KnobValue:
        """The value of a knob that counts now."""
        return self._values[key]

    def configured(self, key: str) -> KnobValue:
        """The configuration's value of a knob, whatever `set` says."""
        return effective.configured_knobs(self.settings)[key]

    async def submit(self, author: str) -> SubmitResult:
        """Read the configuration again and add what is new in it.

        :raises ConfigError: it is wrong now.  :raises Refused: it names another campaign, or a changed treatment.
        """
        fresh = await to_thread.run_sync(load, self.settings.config_path)
        if fresh.campaign.name != self.settings.campaign.name:
            raise Refused(
                f"the configuration now names campaign {fresh.campaign.name}, this daemon runs {self.settings.campaign.name}: "
                "restart marathond to begin another campaign"
            )
        # What only a restart changes is not the campaign's yet: this life goes on writing to where it began to.
        result = await self._submit(fresh.model_copy(update={"daemon": self._began.daemon}), author)
        self.settings = fresh
        await self._patient.write(left_out.record, (), campaign_id=result.campaign_id, now_ms=self.clock.wall_ms())
        if self.world is not None:
            self.world.scores = effective.score_rules(fresh)
        if self._gateway_file is not None:
            await self._gateway_file.tell(fresh.gateway)
        self.apply_settings()
        return replace(result, needs_restart=needs_restart(self._began, fresh))

    def health(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "degraded": self.degraded,
            "driven": len(self.world.driven) if self.world else 0,
        }

    # ── life ──

    async def run(self, serve_control: ServeControl) -> None:
        """From the submission to the end that :meth:`request_stop` asks for, at any moment of it."""
        self._leaving, self._threads = new_life(), to_thread.current_default_thread_limiter()
        if self.stop is not None and self.stop.mode == "term":
            self._leave()
        async with anyio.create_task_group() as group:
            self._show_itself(group)
            group.start_soon(self._work, serve_control, group, name="life")
            try:
                while not await self._wind_down():
                    pass
            finally:
                # Also when a broken part ends it: what is shielded has no longer than at an orderly end.
                self._leave()
                group.cancel_scope.cancel()

    def _show_itself(self, group: TaskGroup) -> None:
        """What tells of this process, by its configuration; nothing of the campaign depends on it."""
        bind_contextvars(campaign=self.settings.campaign.name)
        group.start_soon(self.lag.measure, name="loop lag")
        group.start_soon(self.lag.tell, self.ledger, self.clock, name="loop lag, told")
        if not self._gates_only:
            group.start_soon(page_life.keep, self._page_place(), self._began.page.listen, self.ledger, self.clock, name="page")

    def _page_place(self) -> Place:
        daemon = self._began.daemon
        return Place(self.opened.path, daemon.state_dir, daemon.control_socket, self._began.campaign.name)

    async def _work(self, serve_control: ServeControl, group: TaskGroup) -> None:
        """Until cancelled; what it starts goes on in ``group``."""
        now_ms = self.clock.wall_ms()
        await self.ledger.read(refuse_other_engine, self.settings.engine.name, self.engine.url)
        await self.ledger.write(admission.end_stop, "drain", author="marathond", now_ms=now_ms)  # a start means: go on
        begun = await self._known_tasks()
        result = await self._submit(self.settings, "marathond", begun=begun)
        log.info("campaign", name=self.settings.campaign.name, created=result.created, cells_added=result.added_cells, parked=result.parked)
        # For whoever asks after another one: none of its cells begins while this life lasts.
        await self._patient.write(ledger_settings.observe, "campaign", self.settings.campaign.name, now_ms=self.clock.wall_ms())
        fixed = effective.fixed(self.settings, self.opened.ledger_id, result.campaign_id, os.environ, self._staged)
        fixed = replace(fixed, gates_only=self._gates_only)
        for folder in (fixed.run_root, fixed.out_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self.world = World(fixed, await self._knobs(fixed), self._patient, self.engine, SystemHost(self.clock.mono_ms), self.clock)
        self.world.scores, self.world.mounted = effective.score_rules(self.settings), self._mounted
        await self._name_what_is_left_out(result.campaign_id, begun)
        meet = None if fixed.gateway is None else fixed.gateway.folder
        async with gateway_file.kept(meet, self.settings.gateway) as self._gateway_file:
            await serve_control(self, group)
            await self._intake(group)
            if not self._gates_only:  # where every trial is void by design, nobody waits for a comparison
                group.start_soon(Auditor(self.world, self.ledger.path).run, name="audit")
            group.start_soon(self._begin, group, name="begin")
            await anyio.sleep_forever()

    async def _known_tasks(self) -> dict[str, str] | None:
        """Of a campaign that the ledger has: each task's folder by its name; None: it begins."""
        row = await self.ledger.read(campaigns.campaign_by_name, self.settings.campaign.name)
        return None if row is None else {task.name: task.path for task in await self.ledger.read(campaigns.tasks_of, row.campaign_id)}

    async def _name_what_is_left_out(self, campaign_id: int, begun: Mapping[str, str] | None) -> None:
        found = () if begun is None else await to_thread.run_sync(taskpaths.left_out, self.settings, begun)
        await self._patient.write(left_out.record, found, campaign_id=campaign_id, now_ms=self.clock.wall_ms())

    async def _intake(self, group: TaskGroup) -> None:
        """What the gateway has told meanwhile comes first: deadlines depend on it."""
        assert self.world is not None
        if self.world.fixed.gateway is not None:
            intake = Intake(self.world)
            await intake.meet()
            self.world.caught_up = intake.catch_up
            group.start_soon(intake.run, name="intake")

    async def _begin(self, group: TaskGroup) -> None:
        """Up to READY and beyond; beside the wait for a stop, which must not wait for an engine that hangs (fault f08)."""
        assert self.world is not None
        self._life = Life(self.world, group)
        # From the start: recovery beside an engine that hangs writes nothing for minutes, and one that was replaced meanwhile is to end.
        group.start_soon(self._watchdog, name="watchdog")
        await self._life.begin()
        await self._patient.write(runs.mark_ready, now_ms=self.clock.wall_ms())
        self.notifier.ready(self._status_line())
        log.info("ready", pid=os.getpid(), degraded=self.degraded or None)
        group.start_soon(self._keep_settings, name="settings")
        group.start_soon(roots.watch, self.world, name="roots")
        if channels := channels_of(self._began.notify):
            about = About(self.world.fixed.campaign_id, self.world.fixed.campaign, self.world.fixed.ledger_id)
            herald = Herald(self._patient, self.clock, about, channels, no_score_hours=self._began.notify.no_score_hours)
            group.start_soon(herald.run, name="notices")
        await self._life.go_on()
        group.start_soon(range_check.watch, self.world, name="range")

    async def _keep_settings(self) -> None:
        assert self.world is not None
        while True:
            await self._settings_changed.wait(3600)
            self.world.knobs = await self._knobs(self.world.fixed)
            self.world.wake.ring()

    async def _watchdog(self) -> None:
        """Pings depend on the event loop and the ledger only, never on Docker."""
        period_s = min((self.notifier.watchdog_s or 20.0) / 3, 10.0)
        while True:
            await self._say_alive()
            self._keep_ledger()
            self.notifier.watchdog()
            self.notifier.status(self._status_line())
            await anyio.sleep(period_s)

    async def _say_alive(self) -> None:
        """A ledger that says "no room" answers: another life would fare no better, so this one is not to be ended for it."""
        try:
            await self.ledger.write(runs.mark_seen, now_ms=self.clock.wall_ms())
        except LedgerRefused as refused:
            if refused.code not in PASSING:
                raise

    def _keep_ledger(self) -> None:
        """Ends this life when its ledger was moved away under it or another began beside it; at every beat, by two looks at names."""
        try:
            if self.opened.keep():
                log.warning("lock_taken_again", file=str(self.opened.lock.path))
        except LedgerRefused as refused:
            if refused.code in ("replaced", "in_use"):
                raise
            log.warning("lock_not_kept", error=str(refused))

    async def _wind_down(self) -> bool:
        """Wait for a request to stop and carry it out; False when a drain was called off by `resume`."""
        await self._stopping.wait()
        stop = self._asked()
        driven = [] if self.world is None else sorted(self.world.driven)
        log.info("stopping", mode=stop.mode, author=stop.author, reason=stop.reason, trials=len(driven), named=named(driven))
        if self.world is not None and not await carry_out(self.world, self.notifier, self._asked):
            log.info("drain_called_off")
            if self.stop is stop:  # else a more urgent one came while this was found out
                self.stop, self._stopping = None, anyio.Event()
                # One that was asked for meanwhile passed for the one that has just been called off.
                for again in await self.ledger.read(admission.stops):
                    if again.kind == "drain":
                        self.request_stop("drain", again.author, again.detail)
            return False
        self.notifier.stopping(f"stopping ({self._asked().mode})")
        return True

    def _status_line(self) -> str:
        driven = len(self.world.driven) if self.world else 0
        return f"campaign {self.settings.campaign.name}, {driven} trials" + (f", degraded: {self.degraded}" if self.degraded else "")

    async def _submit(self, settings: Settings, author: str, *, begun: Mapping[str, str] | None = None) -> SubmitResult:
        await to_thread.run_sync(submission.refuse_foreign_artifacts, settings, self.opened.ledger_id)
        trees = await to_thread.run_sync(staged_trees, settings)
        self._staged.update({tree.package_id: tree.root for tree in trees.values()})
        known = await self._known_tasks() if begun is None else None
        build = partial(submission.build, settings, author, dict(os.environ), package_ids(trees), begun=begun, known=known)
        made = await to_thread.run_sync(build)
        if begun is None:
            made = await with_held(made, settings.arm_models({}), self._mounted)
        result = await self.ledger.write(campaigns.submit, made, now_ms=self.clock.wall_ms())
        return replace(result, notes=submission.notes(made.tasks))

    async def _knobs(self, fixed: Fixed) -> Knobs:
        """Effective knobs: the configuration's, overlaid by `marathonctl set`; made known to the ledger and to status.

        Only knobs: where subnets come from stays as this life began, whatever the configuration says by now.
        """
        configured = effective.configured_knobs(self.settings)
        set_by_hand = await self.ledger.read(ledger_settings.overrides)
        values = {**configured, **{key: value for key, value in set_by_hand.items() if key in KNOBS}}
        now_ms = self.clock.wall_ms()
        await self._patient.write(
            networks.set_pool,
            fixed.engine_name,
            url=self.engine.url,
            mode=fixed.network_mode,
            range=fixed.network_range,
            prefix=fixed.network_prefix,
            cap=int(values["network.cap"]),
            margin=int(values["network.margin"]),
        )
        await self._patient.write(ledger_settings.observe, "limits", values, now_ms=now_ms)
        row = await self.ledger.read(campaigns.campaign_by_name, self.settings.campaign.name)
        order, seed = str(values["admission.order"]), int(values["admission.seed"])
        if row is not None and (row.order, row.seed) != (order, seed):
            await self._patient.write(campaigns.reorder, row.campaign_id, order=order, seed=seed)
        self._values = values
        return effective.knobs_from(values)
