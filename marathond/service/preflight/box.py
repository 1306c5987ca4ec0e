"""Containers and networks of a preflight: labelled, short-lived, removed whatever happens.

Owns their names and labels and the order of their removal. Races prevented here: the engine finishes a create whose caller has gone away,
perhaps after the last look at the end, so no create is given up in mid-call by a cancellation; one that had no answer within its deadline
is found by its label; what a killed preflight left is found by the next one, and where there is a ledger by its daemon's sweeper, which
leaves a proof's container alone only while it is young.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from marathond.core.belongings import PROOF_CLAIM, is_ours
from marathond.core.errors import EngineError
from marathond.core.model import Mount
from marathond.core.text import printable
from marathond.engine.processes import read_stat
from marathond.ports.clock import Clock
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, ContainerInfo, ContainerSpec, Engine, NetworkInfo
from marathond.service.preflight.run import Unseen

LABEL_PREFLIGHT = "marathond.preflight"
"""Boot, pid namespace, pid and start time of the preflight that made it, joined by dots."""

CLEAN_UP_S = 60.0
MEMORY_MB = 1024
OLD_MS = 3_600_000
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
"""No preflight lasts so long: what another host's has left, or one's of another boot, is nobody's any more."""

NO_START = ("executable file not found", "no such file or directory", "exec format error", "permission denied")
"""What the runtime says of a program that it cannot run; anything else is not the image's fault."""


class NoShell(Unseen):
    """The engine made the container, and what it was to run did not start."""


class Yard:
    """Where one preflight's containers stand.  Use as an async context manager: at its end nothing of it is left.

    :param ledger_id: of the ledger here, None where there is none.
    """

    def __init__(self, engine: Engine, clock: Clock, ledger_id: str | None) -> None:
        self.engine, self._clock = engine, clock
        stat = read_stat(os.getpid())
        self._place = f"{clock.boot_id}.{Path('/proc/self/ns/pid').stat().st_ino}"
        self._own = f"{self._place}.{os.getpid()}.{stat.start_ticks if stat is not None else 0}"
        self.labels = {LABEL_PREFLIGHT: self._own, LABEL_CLAIM: PROOF_CLAIM, **({LABEL_LEDGER: ledger_id} if ledger_id else {})}
        self._touched = False
        self.left: list[str] = []
        """What could not be removed, in words."""

    async def __aenter__(self) -> Yard:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._touched:
            return
        with anyio.move_on_after(CLEAN_UP_S, shield=True) as scope:
            try:
                self.left = await self._sweep()
            except EngineError as error:
                self.left = [str(error)]
        if scope.cancelled_caught:
            self.left = [f"the engine did not answer within {CLEAN_UP_S:g} s"]

    async def _sweep(self) -> list[str]:
        """What is ours, or of a preflight that is no more; containers first, for a network goes only when it is empty."""
        left = []
        for container in await self.engine.list_containers():
            if self._ours(container) and not await self.engine.remove_container(container.id):
                left.append(f"container {container.name}")
        for network in await self.engine.list_networks():
            if self._ours(network) and not await self.engine.remove_network(network.id):
                left.append(f"network {network.name}")
        return left

    def _ours(self, thing: ContainerInfo | NetworkInfo) -> bool:
        """By label and name: labels alone are easily copied."""
        owner = thing.labels.get(LABEL_PREFLIGHT)
        if not is_ours(thing.name, ledger_id="", trial=None, claim=PROOF_CLAIM):
            return False
        if owner is None or owner == self._own:
            return owner is not None
        place, pid, ticks = (*owner.rsplit(".", 2), "", "")[:3]
        if place != self._place or not (_NUMBER.fullmatch(pid) and _NUMBER.fullmatch(ticks)):
            return abs(self._clock.wall_ms() - thing.created_ms) > OLD_MS
        stat = read_stat(int(pid))
        return stat is None or stat.start_ticks != int(ticks)

    @asynccontextmanager
    async def container(self, image_id: str, *, network: str | None = None, mounts: Sequence[Mount] = ()) -> AsyncIterator[ContainerInfo]:
        """A running container, gone at the end.

        :raises NoShell: it does not start or does not stay.  :raises EngineError: as the engine's calls.
        """
        self._touched = True
        name = f"marathond-preflight-{secrets.token_hex(6)}"
        spec = ContainerSpec(name, image_id, self.labels, network, mounts=mounts, memory_mb=MEMORY_MB)
        with anyio.CancelScope(shield=True):  # bounded by the call's own deadline
            container_id = await self.engine.create_container(spec)
        try:
            try:
                await self.engine.start_container(container_id)
            except EngineError as error:
                if not any(words in error.detail for words in NO_START):
                    raise
                raise NoShell(printable(error.detail, 300)) from error
            info = await self.engine.inspect_container(container_id)
            if info is None or not info.running:
                status = "it is gone" if info is None else f"{info.status}, exit {info.exit_code}"
                raise NoShell(f"it did not stay up ({status})")
            yield info
        finally:
            with anyio.move_on_after(CLEAN_UP_S, shield=True):
                await self.engine.remove_container(container_id)

    @asynccontextmanager
    async def network(self, subnet: str | None) -> AsyncIterator[str]:
        """Id of a bridge network, gone at the end.

        :raises EngineError: as the port's create_network.
        """
        self._touched = True
        with anyio.CancelScope(shield=True):  # as a container's
            network_id = await self.engine.create_network(f"marathond-preflight-{secrets.token_hex(6)}", self.labels, subnet)
        try:
            yield network_id
        finally:
            with anyio.move_on_after(CLEAN_UP_S, shield=True):
                await self.engine.remove_network(network_id)
