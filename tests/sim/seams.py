"""Everything of the product that is not virtual by itself, made so for one seed and put back afterwards.

Owns the replaced names: worker threads (run inline, behind the life's switch), random tokens and folder names, the kernel's word on
processes, the log, the fake agent's place, trio's order of tasks.  Nothing of the flow's decisions is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import itertools
import json
import math
import random
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

import anyio.from_thread
import anyio.to_thread
import structlog
import trio
import trio._core._run as trio_run
from trio._core._mock_clock import MockClock

from marathond.agents.registry import AGENTS
from marathond.core.errors import ArtifactError
from marathond.core.model import Task, Unrunnable
from marathond.core.names import AgentKind, NetworkPolicy
from marathond.core.subnets import AutoPool, NetworkSubnets, Occupied, auto_capacity
from marathond.flow import environment, exporter
from marathond.ledger.verbs.sql import one
from tests.sim import world
from tests.sim.agents import FakeAgent
from tests.sim.switchboard import SWITCH

if TYPE_CHECKING:
    from tests.sim.run import Sim

T = TypeVar("T")
GC_EVERY = 25
"""Seeds between two collections: one in the middle of a seed costs more than it gives."""
DOCUMENTED_EVERY = 4
"""Seeds between two whose exported documents are made in full; all steps of an export are the same in each."""
_seeds = itertools.count()


@contextlib.contextmanager
def replaced(sim: Sim) -> Iterator[None]:
    rng = random.Random(f"{sim.seed}:secrets")
    folders = iter(range(10**9))

    def mkdtemp(suffix: str | None = None, prefix: str | None = None, dir: Path | None = None) -> str:
        made = Path(dir or sim.folder) / f"{prefix or 'tmp'}{next(folders)}{suffix or ''}"
        made.mkdir(mode=0o700)
        return str(made)

    def read_task(path: Path, environ: Mapping[str, str], undeclared: NetworkPolicy) -> Task | Unrunnable:
        return sim.task(path.name)

    before = AGENTS[AgentKind.CODEX]
    settings, r_state = structlog.get_config(), trio_run._r.getstate()
    structlog.configure(processors=[_listener(sim)], wrapper_class=_level(sim), cache_logger_on_first_use=False)
    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (secrets, "token_hex", lambda n=32: f"{rng.getrandbits(n * 8):0{n * 2}x}"),
            (secrets, "token_urlsafe", lambda n=32: f"{rng.getrandbits(n * 8):0{n * 2}x}"),
            (tempfile, "mkdtemp", mkdtemp),
            (anyio.to_thread, "run_sync", _inline(sim)),
            (anyio.from_thread, "check_cancelled", lambda: None),
            (trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
            (trio_run.TheIOManager, "get_events", _events),
            (MockClock, "current_time", lambda clock: clock._virtual_base),
            (MockClock, "_autojump", _autojump),
            *(() if sim.seed % DOCUMENTED_EVERY == 0 else _undocumented()),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        stack.enter_context(mock.patch("marathond.engine.proof.belongs", lambda pid, container_id: True))
        stack.enter_context(mock.patch("marathond.flow.same_task.read_task", read_task))
        stack.enter_context(mock.patch("marathond.flow.scheduler.auto_capacity", _auto_capacity))
        for module in ("job", "trial"):
            stack.enter_context(mock.patch(f"marathond.tasks.layout.{module}.json_bytes", _json))
        unkind = sim.shape.unkind if sim.shape.agent_unkind is None else sim.shape.agent_unkind
        AGENTS[AgentKind.CODEX] = FakeAgent(lambda trial, what: sim.programs.rng(trial, "fake", what), unkind)
        trio_run._r.seed(f"{sim.seed}:scheduler")
        gc.disable()
        try:
            yield
        finally:
            _collect()
            AGENTS[AgentKind.CODEX] = before
            trio_run._r.setstate(r_state)
            structlog.configure(**settings)


def _collect() -> None:
    number = next(_seeds)
    if number == 0:
        gc.freeze()
    if number % GC_EVERY == GC_EVERY - 1:
        gc.collect()
    gc.enable()


def _auto_capacity(pools: Sequence[tuple[str, int]], ours: Sequence[NetworkSubnets], occupied: Sequence[Occupied]) -> AutoPool:
    return _known_capacity(tuple(pools), tuple(ours), tuple(occupied))


_known_capacity = functools.lru_cache(4096)(auto_capacity)
"""Pure, and a tenth of a seed in mode auto."""


_get_events = trio_run.TheIOManager.get_events


def _events(manager: Any, timeout: float) -> Any:
    """Nothing here waits for a file: the kernel is asked only while somebody means to wake the loop (trio itself, of generators)."""
    waking = trio_run.GLOBAL_RUN_CONTEXT.runner.entry_queue
    return _get_events(manager, timeout) if waking.queue or waking.idempotent_queue else []


def _autojump(clock: MockClock) -> None:
    """As trio's own, without statistics of everything."""
    jump = trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline() - clock.current_time()
    if 0 < jump < math.inf:
        clock.jump(jump)


def _undocumented() -> Sequence[tuple[Any, str, Any]]:
    """Nobody reads the exported documents here, and what they tell costs a sixth of a seed.  Whether and when they are written stays."""

    def brief(c: sqlite3.Connection, trial_id: int) -> SimpleNamespace:
        row = one(c, _BRIEF, (trial_id,))
        assert row is not None
        return SimpleNamespace(context=SimpleNamespace(**dict(row)), folder=row["folder"])

    return (
        (exporter, "show", SimpleNamespace(show=brief)),
        (exporter, "trial_view", lambda *_: None),
        (exporter, "line_of", lambda _: None),
        (exporter, "trial_documents", lambda _: {"result.json": b"{}\n"}),
        (exporter, "job_view", lambda *_: None),
        (exporter, "job_documents", lambda _: {"result.json": b"{}\n"}),
    )


_BRIEF = """
SELECT out_dir, campaign.name AS campaign, task.name AS task, arm.name AS arm, replicate, folder
FROM trial JOIN cell USING (cell_id) JOIN campaign ON campaign.campaign_id = cell.campaign_id JOIN task ON task.task_id = cell.task_id
    JOIN arm ON arm.arm_id = cell.arm_id LEFT JOIN artifact_export USING (trial_id)
WHERE trial_id = ?"""


def _json(document: Mapping[str, Any]) -> bytes:
    """Nobody reads the exported documents here; in the product's form they cost a fifth of a seed."""
    return json.dumps(document, default=str).encode()


def _inline(sim: Sim) -> Callable[..., Any]:
    async def run_sync(func: Callable[..., T], *args: Any, **_: Any) -> T:
        if getattr(func, "__name__", "") == "close":
            return func(*args)  # the kernel closes what a killed process had open
        switch = SWITCH.get()
        if switch is None:
            await trio.lowlevel.checkpoint()
            return func(*args)
        await trio.lowlevel.checkpoint()
        await switch.point()
        if func is environment.make_run_dir and sim.hit("run_dir_fails"):
            raise OSError(errno.ENOSPC, "No space left on device")
        if getattr(func, "__name__", "") in ("_copy", "_write") and "exporter" in func.__module__ and sim.hit("out_dir_fails"):
            raise ArtifactError("io", str(sim.folder / "out"), "Stale file handle")
        result = func(*args)
        await switch.point()
        return result

    return run_sync


def _level(sim: Sim) -> type[Any]:
    return structlog.make_filtering_bound_logger(0 if sim.trace.listened else 50)


def _listener(sim: Sim) -> Callable[[Any, str, MutableMapping[str, Any]], Any]:
    def listen(_: Any, name: str, event: MutableMapping[str, Any]) -> Any:
        words = " ".join(f"{key}={value!s:.160}" for key, value in event.items() if key not in ("event", "exc_info"))
        sim.trace.aside(f"{name} {event['event']} {words}")
        raise structlog.DropEvent

    return listen


@contextlib.contextmanager
def seed_folder(seed: int) -> Iterator[Path]:
    folder = world.root() / f"s{seed}"
    for made in (folder, folder / "r", folder / "out", folder / "builds"):
        made.mkdir(mode=0o711, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
