"""A trial's way to its model: the listeners that the gateway opens inside the container's network namespace.

Owns the daemon's side of the gateway's files (marathond/gateway/files.py): written before a client is told of them, acknowledged before it
is started, versioned when the deadline is known, removed with the trial.  Must not know what a client asks, nor any real key.
Race prevented: a client that starts before its listener is open would see a refused connection and retry in its own way, which differs
over arms; so an ack of the very version that was written is waited for.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import anyio
from anyio import to_thread

from marathond.core.errors import ArtifactError, GateFailed
from marathond.core.model import Task, trial_label
from marathond.flow.world import Ways, World, log
from marathond.gateway import files
from marathond.gateway.files import Listener
from marathond.ports.agent import ModelAccess
from marathond.ports.engine import ContainerInfo

ACK_S = 20.0
ACK_POLL_S = 0.05
PURPOSES = {"": ("agent", 0), "gate": ("gate", 1), "verifier": ("verifier", 2)}
"""Purpose of a listener: the account its tokens are counted for, and its port's distance from the first."""


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
    """Write the listener and wait until the gateway listens.  Raises GateFailed("gateway_failed")."""
    ways, (account, offset) = _ways(world), PURPOSES[purpose]
    key = f"mt-{secrets.token_urlsafe(24)}"
    listener = Listener(
        name=_name(trial_id, purpose),
        version=1,
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
    await _written(world, listener)
    return ModelAccess(f"http://127.0.0.1:{listener.port}/v1", key)


async def set_deadline(world: World, trial_id: int, deadline_mono_ms: int | None) -> None:
    """From now on the gateway refuses the agent's requests after this (fault c19).  Raises GateFailed("gateway_failed")."""
    ways = _ways(world)
    path = files.listener_path(ways.folder, _name(trial_id, ""))
    try:
        told = await to_thread.run_sync(files.read_json, path)
    except ArtifactError as error:
        raise GateFailed("gateway_failed", f"{path}: {error}") from error
    if told is None:
        raise GateFailed("gateway_failed", f"{path} is gone")
    listener = files.parse_listener(_name(trial_id, ""), told)
    if listener.deadline_mono_ms != deadline_mono_ms:
        await _written(world, replace(listener, version=listener.version + 1, deadline_mono_ms=deadline_mono_ms))


async def close_ways(world: World, trial_id: int, *purposes: str) -> None:
    """Remove the listeners (all of the trial's by default); the gateway closes them.  Again is fine."""
    if world.fixed.gateway is None:
        return
    for purpose in purposes or PURPOSES:
        try:
            await to_thread.run_sync(files.remove_listener, world.fixed.gateway.folder, _name(trial_id, purpose))
        except OSError as error:
            log.warning("listener_left", trial=trial_label(trial_id), purpose=purpose, error=str(error))


async def _written(world: World, listener: Listener) -> None:
    folder = _ways(world).folder
    try:
        await to_thread.run_sync(files.write_listener, folder, listener)
        with anyio.move_on_after(ACK_S):
            while True:
                ack = await to_thread.run_sync(files.read_ack, folder, listener.name)
                if ack is not None and ack.version == listener.version and ack.container_id == listener.container_id:
                    if ack.state == "listening":
                        return
                    if ack.state in ("failed", "refused"):
                        raise GateFailed("gateway_failed", f"the gateway cannot listen for {listener.name}: {ack.code} {ack.detail}")
                await anyio.sleep(ACK_POLL_S)
    except ArtifactError as error:
        raise GateFailed("gateway_failed", str(error)) from error
    raise GateFailed("gateway_failed", f"no ack of {listener.name} version {listener.version} within {ACK_S:g} s: is the gateway running?")
