"""A campaign on the side: its own ledger, folders and gateway below ``state_dir/x/``, run to its end in this process.

Owns what differs from the configured campaign, and that nothing of it is left afterwards.  What is rehearsed is the product itself: the
same daemon, gateway, images and staged trees.  Must not know what the rehearsal is for (``verify-envs``, ``canary``).
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from marathond.core.belongings import is_ours
from marathond.core.errors import ArtifactError, EngineError, LedgerRefused, MarathonError, Refused
from marathond.engine.docker import DockerEngine
from marathond.engine.processes import read_stat
from marathond.ledger.open import create, open_for_daemon
from marathond.ledger.readonly import open_readonly
from marathond.ports.clock import SystemClock
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, LABEL_TRIAL, ContainerInfo, NetworkInfo
from marathond.service.daemon import Daemon
from marathond.service.main import living
from marathond.service.settings import Settings, load
from marathond.tasks.removal import remove_tree

FOLDER = "x"
"""Below state_dir: its path must leave room for sockets."""
LOOK_S = 0.25
SAY_WAITING_S = 20.0
GATEWAY_PID, KEY = "gateway.pid", "no.key"
NOBODY = "http://127.0.0.1:9/v1"
"""For a rehearsal that asks no provider: whatever should leave for one arrives nowhere, and costs nothing."""
KILLED_S = 10.0
OWNER = "owner.pid"
"""Boot, pid and start time of the process whose rehearsal it is; there before the ledger is.  Until that holds its lock, this alone says
that the folder is somebody's; how old it is says nothing (fault e05: clocks of storage differ)."""
PASS_ONCE: Mapping[str, object] = {
    # One attempt per cell, and no attempt's end stops the others: what fails is what one wants to see, all of it.
    "admission.passes": 1,
    "admission.breaker_after": 1000,
    "campaign.replicates": 1,
    "notify.command": [],
}
_ENDED = "SELECT trial, arm, task, state, void_code FROM v_trial WHERE state IN ('scored', 'voided', 'review') ORDER BY trial"
_LEFT = """
SELECT (SELECT count(*) FROM cell) = 0,  -- not submitted yet
    (SELECT count(*) FROM cell_state WHERE state IN ('open', 'claimed')),
    (SELECT count(*) FROM claim WHERE released_at_ms IS NULL),
    (SELECT count(*) FROM trial) - (SELECT count(*) FROM artifact_export)"""
_TOTAL = "SELECT count(*) AS n FROM cell_state WHERE state <> 'parked'"
_STOPS = "SELECT kind, detail FROM admission_stop WHERE ended_at_ms IS NULL AND kind <> 'drain'"
"""Whatever closes admission, but for our own word to end now."""
_WAITING = "SELECT value_json FROM observation WHERE key = 'waiting'"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a rehearsal takes place; ``settings``: the configured ones with what differs."""

    folder: Path
    settings: Settings
    ledger_id: str

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Of the rehearsal's ledger, while it runs and afterwards."""
        connection = open_readonly(self.settings.daemon.ledger)
        try:
            return [dict(row) for row in connection.execute(sql, values).fetchall()]
        finally:
            connection.close()


def prepare(settings: Settings, name: str, overrides: Mapping[str, object], provider: str | None) -> Ground:
    """Folders, settings and an empty ledger.

    :param provider: base URL that takes every route's place, with a key that opens nothing; None: the routes as they are, with their keys.
    :raises ConfigError: an override is wrong.  :raises ArtifactError: the state directory cannot be written.
    """
    state = settings.daemon.state_dir
    folder = state / FOLDER / secrets.token_hex(2)
    try:
        (state / "staged").mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True)
        (folder / "staged").symlink_to(state / "staged")
        (folder / OWNER).write_text(_myself())
        (folder / KEY).write_text("marathond-rehearsal\n")
    except OSError as error:
        raise ArtifactError("io", str(folder), f"{error.strerror or error}; be root or the daemon's user") from error
    own: dict[str, object] = {
        "daemon.state_dir": str(folder),
        "daemon.out_dir": str(folder / "out"),
        "daemon.ledger": str(folder / "ledger.db"),
        "daemon.control_socket": str(folder / "control.sock"),
        "campaign.name": name,
    }
    if provider is not None:
        own["gateway.routes"] = {name: {"base_url": provider, "key_file": str(folder / KEY)} for name in settings.gateway.routes}
    made = load(settings.config_path, {**PASS_ONCE, **overrides, **own})
    return Ground(folder, made, create(made.daemon.ledger, host=socket.gethostname(), now_ms=time.time_ns() // 1_000_000))


def clear(ground: Ground) -> None:
    """Remove its folders.  Raises OSError."""
    remove_tree(ground.folder)
    parent = ground.folder.parent
    if not any(parent.iterdir()):
        parent.rmdir()


async def rehearse(ground: Ground, tell: Tell, *, gates_only: bool = False) -> bool:
    """Run it until no cell is open; False when a person interrupted it: then everything of it was ended and removed first.

    :param tell: told each ending, and what is waited for.
    :raises MarathonError: it cannot go on: the gateway ended, or admission was closed for good.
    """
    interrupted = False
    async with _gateway(ground) as gateway, living(ground.settings, gates_only=gates_only) as daemon, anyio.create_task_group() as group:

        async def signals() -> None:
            nonlocal interrupted
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
                async for _ in received:
                    interrupted = True
                    tell("interrupted: ending what runs")
                    daemon.request_stop("now", "rehearsal", "interrupted")

        async def until_done() -> None:
            try:
                await _watch(ground, gateway, tell)
            except MarathonError:
                daemon.request_stop("now", "rehearsal", "it cannot go on")
                raise
            daemon.request_stop("term", "rehearsal", "it is over")

        failed: MarathonError | None = None

        async def watching() -> None:
            nonlocal failed
            try:
                await until_done()
            except MarathonError as error:  # carried out by hand: the group would wrap it
                failed = error

        group.start_soon(signals, name="signals")
        group.start_soon(watching, name="watch")
        await daemon.run(_without_control)
        group.cancel_scope.cancel()
    # A trial that a broken invariant left as it was, say: of a rehearsal nothing may stay.
    await _remove_labelled(ground.settings, ground.ledger_id)
    if failed is not None:
        raise failed
    return not interrupted


async def remove_leftovers(settings: Settings, tell: Tell) -> None:
    """What killed rehearsals left: their containers, networks and folders.  One that still runs holds its ledger's lock.

    :raises EngineError: the engine does not answer.
    """
    engine = DockerEngine(settings.engine.name, settings.engine.url, call_timeout_s=settings.engine.call_timeout_s)
    try:
        await engine.info()
    finally:
        await engine.aclose()
    for folder in sorted((settings.daemon.state_dir / FOLDER).glob("*")):
        ledger_id = await to_thread.run_sync(_abandoned, folder)
        if ledger_id is None:
            continue
        tell(f"removing what a rehearsal left in {folder}")
        await to_thread.run_sync(_end_gateway, folder)
        await _remove_labelled(settings, ledger_id)
        await to_thread.run_sync(remove_tree, folder)


def _abandoned(folder: Path) -> str | None:
    """The id of a rehearsal's ledger that nobody holds; None while it is held, or is about to be."""
    path = folder / "ledger.db"
    try:
        if _lives(folder):
            return None
        opened = open_for_daemon(path, host=socket.gethostname(), filesystem_type="", now_ms=time.time_ns() // 1_000_000)
    except (OSError, EngineError, LedgerRefused):
        return None
    opened.close()
    return opened.ledger_id


def _myself() -> str:
    seen = read_stat(os.getpid())
    return f"{SystemClock().boot_id} {os.getpid()} {0 if seen is None else seen.start_ticks}\n"


def _lives(folder: Path) -> bool:
    """Whether the process that made it still runs.  Raises OSError, EngineError: it cannot be told."""
    try:
        boot_id, pid, ticks = (folder / OWNER).read_text().split()
        seen = read_stat(int(pid))
    except (FileNotFoundError, ValueError):
        return False  # torn, or of a marathond that wrote none: the ledger's lock decides
    return boot_id == SystemClock().boot_id and seen is not None and seen.start_ticks == int(ticks) and not seen.runs_nothing


async def _remove_labelled(settings: Settings, ledger_id: str) -> None:
    engine = DockerEngine(settings.engine.name, settings.engine.url, call_timeout_s=settings.engine.call_timeout_s)
    try:
        for container in await engine.list_containers({LABEL_LEDGER: ledger_id}):
            if _made_by(container, ledger_id):
                await engine.remove_container(container.id)
        for network in await engine.list_networks():
            if network.labels.get(LABEL_LEDGER) == ledger_id and _made_by(network, ledger_id):
                await engine.remove_network(network.id)
    finally:
        await engine.aclose()


def _made_by(thing: ContainerInfo | NetworkInfo, ledger_id: str) -> bool:
    return is_ours(thing.name, ledger_id=ledger_id, trial=thing.labels.get(LABEL_TRIAL), claim=thing.labels.get(LABEL_CLAIM))


async def _without_control(_daemon: Daemon, _group: TaskGroup) -> None:
    """Nobody steers a rehearsal but its own process."""


async def _watch(ground: Ground, gateway: subprocess.Popen[bytes] | None, tell: Tell) -> None:
    seen: set[str] = set()
    said_at = time.monotonic()
    total = 0
    while True:
        rows = await to_thread.run_sync(ground.rows, _ENDED)
        total = total or (await to_thread.run_sync(ground.rows, _TOTAL))[0]["n"]
        for row in rows:
            if row["trial"] not in seen:
                seen.add(row["trial"])
                said_at = time.monotonic()
                tell(f"{len(seen)}/{total} {row['task']} {row['arm']}: {row['void_code'] or row['state']}")
        left = await to_thread.run_sync(ground.rows, _LEFT)
        if not any(left[0].values()):
            return
        if gateway is not None and gateway.poll() is not None:
            raise Refused(f"the gateway ended with {gateway.returncode}; see {ground.folder / 'gateway.log'}")
        for stop in await to_thread.run_sync(ground.rows, _STOPS):
            raise Refused(f"admission was closed ({stop['kind']}): {stop['detail']}")
        if time.monotonic() - said_at > SAY_WAITING_S:
            said_at = time.monotonic()
            seen_waiting = await to_thread.run_sync(ground.rows, _WAITING)
            reasons = [f"{row['count']} {row['text']}" for row in json.loads(seen_waiting[0]["value_json"])] if seen_waiting else []
            tell(f"waiting: {' · '.join(reasons) or 'for what runs'}")
        await anyio.sleep(LOOK_S)


@asynccontextmanager
async def _gateway(ground: Ground) -> AsyncIterator[subprocess.Popen[bytes] | None]:
    """A gateway process of the rehearsal's own, where an arm needs one; it waits for what the daemon tells it."""
    if not ground.settings.drives_codex:
        yield None
        return
    process = await to_thread.run_sync(_begun, ground.folder)
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            process.terminate()
            await to_thread.run_sync(_ended, process)


def _begun(folder: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "marathond.cli.daemon", "gateway", "--wait", str(folder / "gateway")]
    with (folder / "gateway.log").open("ab") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
    seen = read_stat(process.pid)
    (folder / GATEWAY_PID).write_text(f"{process.pid} {0 if seen is None else seen.start_ticks}\n")
    return process


def _end_gateway(folder: Path) -> None:
    """One that outlived its rehearsal; by pid and start time (fault f10)."""
    try:
        pid, ticks = map(int, (folder / GATEWAY_PID).read_text().split())
        handle = os.pidfd_open(pid)
    except (OSError, ValueError):
        return
    try:
        if (seen := read_stat(pid)) is not None and seen.start_ticks == ticks:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], KILLED_S)  # readable once it is dead: what it still wrote would bring its folder back
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
