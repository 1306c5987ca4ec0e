"""One soak: a campaign on an engine of its own, kills, a drain without any, an end to everything, the count.

Owns the order of things and their bounds.  Whatever happens, what it made is removed; what explains a failure is copied aside before.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from marathond.flow.sight import PROOF_MAX_MS
from tests.soak import leavings
from tests.soak.cells import Cells
from tests.soak.chaos import DAEMON, DOCKERD, GATEWAY, Chaos
from tests.soak.count import Line, count, table
from tests.soak.provider import recording
from tests.support.loopx_env import loopx_tree, loopx_wanted
from tests.support.model_rig import ModelProcessRig
from tests.support.private_engine import PrivateEngine

AT_ONCE = 8
"""Trials."""
AGENTS = 3
SWEPT_S = PROOF_MAX_MS / 1000 + 60
SETTLE_S = 60.0
"""For what the kernel takes away by itself after the last of its users ended."""


@dataclass(frozen=True)
class Plan:
    """``minutes`` of kills of daemon and gateway, at least ``kills`` of them; then ``dockerd_kills``; then at most ``drain_s`` to the end.

    ``pairs``: in place of the minutes, so many pairs of kills, each when at least three agents run: takes as long as the machine needs.
    ``low_water``: so many open cells at least, while there are kills.
    """

    minutes: float
    seed: int
    kills: int
    dockerd_kills: int = 5
    pairs: int = 0
    low_water: int = AT_ONCE
    drain_s: float = 1500.0
    cells: Cells = field(default_factory=Cells)

    @property
    def bound_s(self) -> float:
        """All of it; who is not done then is stopped."""
        return 60 * self.minutes + 120 * self.dockerd_kills + self.drain_s + 600


async def soak(engine: PrivateEngine, plan: Plan, say: Callable[[str], None]) -> list[Line]:
    """The lines of the count; any that is not ok has the evidence kept, and a line that names the folder.

    :param engine: running under live-restore, with the base image; it runs afterwards, too.
    """
    before = leavings.on_engine(engine)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        tasks = plan.cells.tasks(Path(folder))
        async with recording(plan.cells.script(), Path(folder) / "answers.jsonl") as (provider, answers):
            rig = ModelProcessRig(engine.url, provider, tasks=tasks, arms=plan.cells.arms(), overrides=_overrides(plan.cells))
            lines: list[Line] = []
            async with _ended(rig, engine):
                chaos = Chaos(rig, engine, plan.seed, plan.low_water, say)
                try:
                    with anyio.fail_after(plan.bound_s):
                        lines += await _lives(rig, chaos, plan, before)
                        lines += count(rig, plan.cells, chaos.replicates, chaos.kills, answers.all)
                        lines += await _left(engine, rig, plan, before)
                    _keep_if(lines, rig, Path(folder), engine)
                except Exception:
                    say(f"kept: {_keep(rig, Path(folder), engine)}")
                    raise
    return lines


def _overrides(cells: Cells) -> dict[str, object]:
    loopx: dict[str, object] = {}
    if cells.loopx:
        loopx_tree()
        loopx["loopx.python"] = loopx_wanted().python
    room = {"admission.concurrency": AT_ONCE, "admission.cpu_overcommit": 8.0, "admission.memory_overcommit": 8.0}
    # A dockerd that is killed every few seconds rightly opens the breaker: it is to try again within the soak.
    return {**room, "admission.breaker_pause_s": 15.0, **loopx}


@contextlib.asynccontextmanager
async def _ended(rig: ModelProcessRig, engine: PrivateEngine) -> AsyncIterator[None]:
    """The rig's life; at its end there is an engine that can still remove what is left."""
    try:
        async with rig:
            try:
                yield
            finally:
                if engine.process is None:
                    with anyio.CancelScope(shield=True):
                        await to_thread.run_sync(engine.start)
    finally:
        with contextlib.suppress(FileNotFoundError):  # a rig that did not even start has removed nothing
            shutil.rmtree(rig.root)


async def _lives(rig: ModelProcessRig, chaos: Chaos, plan: Plan, before: dict[str, set[str]]) -> list[Line]:
    """Kills, drain, and an orderly end of daemon and gateway."""
    await (chaos.strike_running(plan.pairs, AGENTS) if plan.pairs else chaos.strike(plan.minutes))
    lines = []
    if plan.dockerd_kills:
        if not plan.pairs:
            chaos.low_water *= 3  # no daemon ends before the drain, so none will find more cells
        took_s = await chaos.restart()
        lines.append(Line("SIGTERM in between", None, f"the daemon ended in {took_s:.1f} s"))
        await chaos.strike_dockerd(plan.dockerd_kills, 1 if plan.pairs else AT_ONCE // 2, at_once=bool(plan.pairs))
    chaos.say(f"{time.monotonic() - chaos.began_s:6.0f} s  no more kills: drain to the end")
    began_s, drained = time.monotonic(), ""
    try:
        await rig.until_done(plan.drain_s)
    except AssertionError as error:
        drained = str(error)[:6000]
    lines.append(Line("drained", not drained, drained or f"in {time.monotonic() - began_s:.0f} s, bound {plan.drain_s:.0f} s"))
    await chaos.lives()
    await _swept(chaos, before)
    await rig.gateway.serving()
    rig.strike(signal.SIGTERM)
    ends = {DAEMON: await rig.ended(), GATEWAY: await rig.gateway.end()}
    wrong = [*chaos.by_themselves, *(f"{name}, at SIGTERM, with {status}" for name, status in ends.items() if status != 0)]
    lines.append(Line("nothing ended by itself", not wrong, "daemon and gateway ended when they were killed or told to", wrong))
    struck = sum(kill.victim != DOCKERD for kill in chaos.kills)
    lines.append(Line("kills", struck >= plan.kills, f"{struck} of daemon and gateway, bar {plan.kills}; seed {plan.seed}"))
    dockerd = len(chaos.kills) - struck
    lines.append(Line("kills of dockerd", dockerd >= plan.dockerd_kills, f"{dockerd} under live-restore, bar {plan.dockerd_kills}"))
    return lines


async def _swept(chaos: Chaos, before: dict[str, set[str]]) -> None:
    """Give the daemon's sweeper its time: a container of a question or a proof is an orphan only when it is some minutes old."""
    with anyio.move_on_after(SWEPT_S):
        while True:
            now = await to_thread.run_sync(leavings.on_engine, chaos.engine)
            if not any(now[kind] - before[kind] for kind in leavings.LISTS):
                return
            await anyio.sleep(1.0)


async def _left(engine: PrivateEngine, rig: ModelProcessRig, plan: Plan, before: dict[str, set[str]]) -> list[Line]:
    """After everything has ended: what is on the engine that was not there before, and what names our folder in the kernel."""
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        now = await to_thread.run_sync(leavings.on_engine, engine)
        found = {kind: now[kind] - before[kind] for kind in now} | await to_thread.run_sync(leavings.in_kernel, rig.root)
        ghosts = _ghosts(found["interfaces"]) if plan.dockerd_kills else set()
        found["interfaces"] -= ghosts
        if not any(found.values()) or time.monotonic() > deadline_s:
            break
        await anyio.sleep(0.5)
    text = ", ".join(f"{len(names)} {kind}" for kind, names in found.items())
    cases = [f"{kind}: {name}" for kind, names in found.items() for name in sorted(names)]
    lines = [Line("nothing left", not cases, text, cases)]
    if ghosts:
        lines.append(Line("    dockerd's own", None, f"{len(ghosts)} bridges of networks that it lost when it was killed in mid-create"))
    return lines


def _ghosts(interfaces: set[str]) -> set[str]:
    """Bridges without a network: the driver's store has them, no list shows them, and nobody can remove them over the API."""
    return {name for name in interfaces if name.startswith("br-")}


def _keep_if(lines: list[Line], rig: ModelProcessRig, folder: Path, engine: PrivateEngine) -> None:
    if any(line.ok is False for line in lines):
        kept = _keep(rig, folder, engine)
        lines.append(Line("kept", None, str(kept)))
        (kept / "table").write_text(table(lines) + "\n")


def _keep(rig: ModelProcessRig, folder: Path, engine: PrivateEngine) -> Path:
    """Ledger, logs, journal, artifacts, kills and the provider's answers."""
    kept = Path(tempfile.mkdtemp(prefix="marathond-soak-"))
    copy: dict[str, Any] = {"symlinks": True, "dirs_exist_ok": True, "ignore": _no_sockets}
    with contextlib.suppress(shutil.Error):  # what vanishes while it is copied is no evidence
        shutil.copytree(rig.root, kept / "rig", **copy)
    shutil.copytree(folder, kept / "provider", **copy)
    shutil.copy(engine.root / "log", kept / "dockerd.log")
    with contextlib.suppress(subprocess.SubprocessError):
        listing = subprocess.run(["docker", "-H", engine.url, "ps", "-a"], check=True, capture_output=True, timeout=30)
        (kept / "ps").write_bytes(listing.stdout)
    return kept


def _no_sockets(place: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "provider.key" or (Path(place) / name).is_socket()}
