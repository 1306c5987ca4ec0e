"""A trial's way to its model: the listeners that the gateway opens inside the container's network namespace.

Owns the daemon's side of the gateway's files (marathond/gateway/files.py): written before a client is told of them, acknowledged before it
is started, versioned when the deadline is known, removed with the trial.  Must not know what a client asks, nor any real key.
Each is kept a second time in the trial's run directory, where no container reaches: a file that is damaged while the agent runs is written
anew from there, for a gateway that starts again opens nothing by what it cannot read.
Race prevented: a client that starts before its listener is open would see a refused connection and retry in its own way, which differs
over arms; so an ack of the very version that was written is waited for.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio import to_thread

from marathond.core.errors import ArtifactError, ConfigError, GateFailed
from marathond.core.model import Task
from marathond.core.names import trial_label
from marathond.flow.world import Ways, World, log
from marathond.gateway import files
from marathond.gateway.files import Listener
from marathond.gateway.journal_read import is_count
from marathond.ports.agent import ModelAccess
from marathond.ports.clock import Clock
from marathond.ports.engine import ContainerInfo

ACK_S = 20.0
ACK_POLL_S = 0.05
GRACE_MS = 10_000
"""The gateway refuses this much after the deadline: that is for a daemon that is away, not a rival of the one that is here.  Without it a
request that is held at the deadline would be refused before the daemon has moved the deadline by that very hold (fault a17)."""
ALIVE_MS = 15_000
"""Without a sign of life for so long the gateway counts as away; it gives one every two seconds."""
PURPOSES = {"": ("agent", 0), "gate": ("gate", 1), "verifier": ("verifier", 2)}
"""Purpose of a listener: the account its tokens are counted for, and its port's distance from the first."""


class CannotListen(GateFailed):
    """The gateway said no: ``why`` is the code of its ack (``port_taken``, ``container_gone``, …)."""

    def __init__(self, name: str, why: str, detail: str) -> None:
        self.why = why
        super().__init__("gateway_failed", f"the gateway cannot listen for {name}: {why}: {detail}")


def _name(trial_id: int, purpose: str) -> str:
    return trial_label(trial_id) + (f".{purpose}" if purpose else "")


def _ways(world: World) -> Ways:
    if world.fixed.gateway is None:
        raise GateFailed("gateway_failed", "the configuration has no [gateway.routes], and this arm needs a model")
    return world.fixed.gateway


async def start_ticks(world: World, info: ContainerInfo) -> int:
    """Of the container's first process; raises GateFailed when it is not there any more."""
    for process in await world.look(lambda: world.engine.processes(info.id)):
        if process.pid == info.pid:
            return process.start_ticks
    raise GateFailed("container_lost", f"the first process of container {info.id[:12]} is gone")


async def open_way(world: World, trial_id: int, info: ContainerInfo, task: Task, route: str, purpose: str = "") -> ModelAccess:
    """Write the listener and wait until the gateway listens.  Each call makes a new key; the one before opens nothing any more.

    :raises CannotListen: the gateway says why not.  :raises GateFailed: ``gateway_failed``: it says nothing.
    """
    ways, (account, offset) = _ways(world), PURPOSES[purpose]
    key, name = f"mt-{secrets.token_urlsafe(24)}", _name(trial_id, purpose)
    listener = Listener(
        name=name,
        version=await _next_version(ways.folder, name),
        trial=trial_label(trial_id),
        account=account,
        container_id=info.id,
        started_at=info.started_at,
        pid=info.pid,
        start_ticks=await start_ticks(world, info),
        boot_id=world.clock.boot_id,
        port=ways.port + offset,
        key_sha256=files.key_hash(key),
        route=route,
        network=task.network.value,
        strip=ways.strip,
    )
    await _written(world, listener, _kept(world, trial_id, purpose))
    return ModelAccess(f"http://127.0.0.1:{listener.port}/v1", key)


async def _next_version(folder: Path, name: str) -> int:
    """Beyond every version that was ever answered: an ack of an earlier listener of that name must not be taken for this one's."""
    try:
        ack = await to_thread.run_sync(files.read_ack, folder, name)
    except ArtifactError as error:
        raise GateFailed("gateway_failed", str(error)) from error
    return 1 if ack is None else ack.version + 1


async def set_deadline(world: World, trial_id: int, deadline_mono_ms: int | None, purpose: str = "", *, wait: bool = True) -> None:
    """From now on the gateway refuses the listener's requests :data:`GRACE_MS` after this (fault c19).

    A listener file that cannot be read any more is written anew, with the key and the port that it had.

    :param wait: until the gateway has said that it knows.
    :raises GateFailed: ``gateway_failed``.
    """
    ways, name = _ways(world), _name(trial_id, purpose)
    path, kept = files.listener_path(ways.folder, name), _kept(world, trial_id, purpose)
    refused_mono_ms = None if deadline_mono_ms is None else deadline_mono_ms + GRACE_MS
    try:
        try:
            listener = await to_thread.run_sync(_read, path, name)
            if listener.deadline_mono_ms == refused_mono_ms:
                return
            later = replace(listener, version=listener.version + 1, deadline_mono_ms=refused_mono_ms)
        except (ArtifactError, ConfigError) as damage:
            if not await to_thread.run_sync(kept.exists):
                raise
            listener = await to_thread.run_sync(_read, kept, name)
            version = max(listener.version + 1, await _next_version(ways.folder, name))
            later = replace(listener, version=version, deadline_mono_ms=refused_mono_ms)
            log.warning("listener_written_anew", listener=name, version=version, damage=str(damage))
        if not wait:
            await to_thread.run_sync(_write, ways.folder, later, kept)
            return
    except (ArtifactError, ConfigError) as error:
        raise GateFailed("gateway_failed", f"{path}: {error}") from error
    await _written(world, later, kept)


def _kept(world: World, trial_id: int, purpose: str) -> Path:
    """Where a listener is kept a second time: beside what is mounted, not below it.  It goes with the run directory."""
    return world.run_dir(trial_id).root / f"listener-{_name(trial_id, purpose)}.json"


def _read(path: Path, name: str) -> Listener:
    """:raises GateFailed: it is not there.  :raises ArtifactError, ConfigError: it is damaged."""
    told = files.read_json(path)
    if told is None:
        raise GateFailed("gateway_failed", f"{path} is gone")
    return files.parse_listener(name, told)


def _write(folder: Path, listener: Listener, kept: Path) -> None:
    """The gateway's first: a daemon that is killed in between has at least told it."""
    files.write_listener(folder, listener)
    files.write_json(kept, files.listener_json(listener))


async def close_ways(world: World, trial_id: int, *purposes: str) -> None:
    """Remove the listeners (all of the trial's by default); the gateway closes them.  Again is fine."""
    if world.fixed.gateway is None:
        return
    for purpose in purposes or PURPOSES:
        try:
            await to_thread.run_sync(files.remove_listener, world.fixed.gateway.folder, _name(trial_id, purpose))
        except OSError as error:
            log.warning("listener_left", trial=trial_label(trial_id), purpose=purpose, error=str(error))


async def _written(world: World, listener: Listener, kept: Path) -> None:
    folder = _ways(world).folder
    try:
        await to_thread.run_sync(_write, folder, listener, kept)
        with anyio.move_on_after(ACK_S):
            while True:
                ack = await to_thread.run_sync(files.read_ack, folder, listener.name)
                if ack is not None and ack.version == listener.version and ack.container_id == listener.container_id:
                    if ack.state == "listening":
                        return
                    if ack.state in ("failed", "refused"):
                        raise CannotListen(listener.name, ack.code, ack.detail)
                await anyio.sleep(ACK_POLL_S)
    except ArtifactError as error:
        raise GateFailed("gateway_failed", str(error)) from error
    raise GateFailed("gateway_failed", f"no ack of {listener.name} version {listener.version} within {ACK_S:g} s: is the gateway running?")


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """What the gateway said of itself last.  ``away``: why it counts as away, empty: it lives; the rest is of a living one."""

    away: str = ""
    journal: str = ""
    config_error: str = ""
    journal_error: str = ""
    key_errors: Mapping[str, str] = field(default_factory=dict)
    not_opened: int = 0


async def sign_of_life(world: World) -> SignOfLife:
    """Cheap: one small file.  What cannot be read is away."""
    return await to_thread.run_sync(read_sign_of_life, _ways(world).folder, world.clock)


def read_sign_of_life(folder: Path, clock: Clock) -> SignOfLife:
    """:param folder: where daemon and gateway meet."""
    try:
        told = files.read_json(folder / "alive.json")
    except ArtifactError as error:
        return SignOfLife(f"its sign of life cannot be read: {error}")
    if told is None:
        return SignOfLife("it has never given a sign of life: is marathond-gateway running?")
    if told.get("boot_id") != clock.boot_id:
        return SignOfLife("no sign of life since the host was started")
    at_ms = told.get("mono_ms")
    age_ms = clock.mono_ms() - at_ms if is_count(at_ms) else ALIVE_MS + 1
    if age_ms > ALIVE_MS:
        return SignOfLife(f"no sign of life for {age_ms // 1000} s: is marathond-gateway running?")
    keys, not_opened = told.get("key_errors"), told.get("not_opened", 0)
    if not is_count(not_opened):
        return SignOfLife(f"its sign of life cannot be read: not_opened is {not_opened!r:.40}")
    return SignOfLife(
        journal=str(told.get("journal", "")),
        config_error=str(told.get("config_error", "")),
        journal_error=str(told.get("journal_error", "")),
        key_errors={str(name): str(why) for name, why in keys.items()} if isinstance(keys, dict) else {},
        not_opened=not_opened,
    )


async def shut_listeners(world: World) -> dict[str, tuple[str, str]]:
    """Listeners that the gateway could not open, or had to shut, by name: the code and words of its ack."""
    return await to_thread.run_sync(_shut_listeners, _ways(world).folder)


def _shut_listeners(folder: Path) -> dict[str, tuple[str, str]]:
    shut = {}
    for path in sorted((folder / "listeners").glob("*.json")):
        try:
            ack = files.read_ack(folder, path.stem)
        except ArtifactError as error:
            shut[path.stem] = ("io", str(error))
            continue
        if ack is not None and ack.state in ("failed", "refused"):
            shut[path.stem] = (ack.code, ack.detail)
    return shut
