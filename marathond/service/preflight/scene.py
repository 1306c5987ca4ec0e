"""What a preflight is about: the configuration, its tasks, the ledger's knobs where there is one; and what the engine says, asked once.

Owns the looking up of things that several checks need.  Reads the ledger, never writes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from marathond.agents.registry import AGENTS
from marathond.core.errors import LedgerRefused
from marathond.core.model import Task, Unrunnable
from marathond.core.preflight.host import Size
from marathond.engine.client import EngineClient
from marathond.engine.docker import DockerEngine
from marathond.flow.images import LABEL_CONTEXT, Wish, image_identity, image_tag, wishes
from marathond.flow.world import Knobs
from marathond.ledger.place import read_identity
from marathond.ledger.readonly import house_errors, open_readonly
from marathond.ledger.verbs import networks
from marathond.ledger.verbs import settings as ledger_settings
from marathond.ports.agent import ImageCheck
from marathond.ports.clock import Clock, SystemClock
from marathond.ports.engine import EngineInfo, ImageInfo
from marathond.service.effective import configured_knobs, knobs_from
from marathond.service.knobs import KNOBS
from marathond.service.preflight.box import Yard
from marathond.service.preflight.run import Fact, aside
from marathond.service.settings import Settings
from marathond.service.staged import look_at_trees
from marathond.service.taskread import Reading, read_tasks
from marathond.staging.store import Look
from marathond.tasks.support import check_host

CALL_S = 20.0
"""Of one call to the engine."""
FACT_S = 45.0


@dataclass(frozen=True, slots=True)
class Book:
    """What the ledger tells.  ``why``: it is there and cannot be read; then the configuration's knobs stand in for what it may have."""

    ledger_id: str | None = None
    missing: bool = False
    why: str = ""
    turned: Mapping[str, Any] | None = None
    subnets: tuple[str, ...] = ()


def read_book(settings: Settings, now_ms: int) -> Book:
    """Never raises for a ledger that is missing or refused."""
    path = settings.daemon.ledger
    try:
        with closing(open_readonly(path)) as connection, house_errors(path):
            return _book(connection, path, settings.engine.name, now_ms)
    except LedgerRefused as error:
        return Book(missing=error.code == "missing", why=str(error))


def _book(c: sqlite3.Connection, path: Path, engine: str, now_ms: int) -> Book:
    leased = [row.subnet for row in networks.leases(c, engine) if row.subnet]
    turned = {key: value for key, value in ledger_settings.overrides(c).items() if key in KNOBS}
    return Book(read_identity(c, path).ledger_id, turned=turned, subnets=(*leased, *networks.quarantined(c, engine, now_ms=now_ms)))


@dataclass(frozen=True, slots=True)
class Found:
    """A wish and what the engine has of it.  ``ref``: the name it is looked for under."""

    wish: Wish
    ref: str
    image: ImageInfo | None


class Scene:
    """One preflight's subject.  Use as an async context manager, and its ``yard`` inside it.

    :raises ConfigError: as a submission would (from :func:`marathond.service.taskread.read_tasks`).
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str], *, clock: Clock | None = None) -> None:
        self.settings, self.environ, self.clock = settings, environ, clock or SystemClock()
        self.reading: Reading = read_tasks(settings, environ)
        self.book = read_book(settings, self.clock.wall_ms())
        self.knobs: Knobs = knobs_from({**configured_knobs(settings), **(self.book.turned or {})})
        call_s = min(CALL_S, settings.engine.call_timeout_s)
        self.engine = DockerEngine(settings.engine.name, settings.engine.url, call_timeout_s=call_s)
        self.raw = EngineClient(settings.engine.url, call_s)
        self.yard = Yard(self.engine, self.clock, self.book.ledger_id)
        self.info: Fact[EngineInfo] = Fact(self.engine.info, FACT_S)
        self.images: Fact[tuple[Found, ...]] = Fact(self._images, FACT_S)
        self.trees: Fact[Mapping[str, Look]] = Fact(lambda: aside(lambda: look_at_trees(settings)), FACT_S)

    @property
    def facts(self) -> Sequence[Fact[Any]]:
        return (self.info, self.images, self.trees)

    async def __aenter__(self) -> Scene:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.engine.aclose()
            await self.raw.aclose()

    @property
    def parked(self) -> dict[str, str]:
        """Task → the code that it parks with, by its folder alone."""
        return {task.name: task.code for task in self.reading.tasks if isinstance(task, Unrunnable)}

    @property
    def runnable(self) -> tuple[Task, ...]:
        """By their folders alone."""
        return tuple(task for task in self.reading.tasks if isinstance(task, Task))

    async def too_large(self) -> dict[str, str]:
        """Task → code, of those that the engine's host cannot hold.  Raises Unseen."""
        info, pids = await self.info.get(), self.settings.limits.pids or None
        refused = [check_host(task, info.ncpu, info.memory_bytes, pids=pids, limits_pids=info.limits_pids) for task in self.runnable]
        return {one.name: one.code for one in refused if one is not None}

    def sizes(self, but: Mapping[str, str]) -> list[Size]:
        """Of the tasks that run, those in ``but`` left out."""
        cells, limits = len(self.settings.arm_names) * self.settings.campaign.replicates, self.knobs.limits
        return [
            Size(
                task.name,
                limits.undeclared_cpus if task.cpus is None else task.cpus,
                limits.undeclared_memory_mb if task.memory_mb is None else task.memory_mb,
                task.storage_mb or 0,
                cells,
            )
            for task in self.runnable
            if task.name not in but
        ]

    async def image_checks(self) -> tuple[ImageCheck, ...]:
        """What the arms want to know of an image.

        :raises GateFailed: what an arm mounts is not staged.  :raises Unseen: that cannot be seen.
        """
        trees = {name: seen.tree for name, seen in (await self.trees.get()).items() if seen.tree is not None}
        staged = {tree.package_id: tree.root for tree in trees.values()}
        arms = self.settings.arm_models({name: tree.package_id for name, tree in trees.items()})
        found = (AGENTS[arm.kind].image_check(arm, staged) for arm in arms if arm.kind in AGENTS)
        return tuple(dict.fromkeys(check for check in found if check is not None))

    async def _images(self) -> tuple[Found, ...]:
        """Every image that the tasks need, as ``marathonctl prebuild`` looks for it."""
        found = []
        for task in self.runnable:
            own = wishes(task.name, Path(task.path), image=task.image, digest=task.context_digest, build_timeout_s=task.build_timeout_s)
            for wish in own:
                label = None if wish.image is not None else image_identity(wish.digest, self.settings.engine.build_args)
                ref = wish.image or image_tag(wish.task, label or "")
                image = await self.engine.inspect_image(ref)
                if image is not None and label is not None and image.labels.get(LABEL_CONTEXT) != label:
                    image = None
                found.append(Found(wish, ref, image))
        return tuple(found)
