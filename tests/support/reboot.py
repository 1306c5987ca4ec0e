"""A host that reboots between two daemon lives, as far as one process can play it.

    rig = Rig(docker_host, clock=Booted(1), …)
    await rig.kill()
    await reboot(rig, engine)

After it every container of the ledger is dead, as dockerd shows them after a boot (status exited, same labels and StartedAt), networks and
run directories are still there, and the next life has another boot id and a monotonic clock that began anew.
"""

from __future__ import annotations

import os
import signal

import anyio

from marathond.engine.docker import DockerEngine
from marathond.ports.clock import SystemClock
from marathond.ports.engine import LABEL_LEDGER
from tests.support.rig import PATIENCE_S, Rig


class Booted(SystemClock):
    """The clock of boot number ``number``; its monotonic time began when it was made, the first boot's with the host's."""

    def __init__(self, number: int = 1) -> None:
        super().__init__()
        self.number = number
        self._began_ms = super().mono_ms() if number > 1 else 0
        if number > 1:
            self.boot_id = f"00000000-0000-4000-8000-{number:012}"

    def mono_ms(self) -> int:
        return super().mono_ms() - self._began_ms


async def reboot(rig: Rig, engine: DockerEngine) -> None:
    """Between :meth:`Rig.kill` and :meth:`Rig.start`."""
    for container in await engine.list_containers({LABEL_LEDGER: rig.ledger_id}):
        seen = await engine.inspect_container(container.id)
        if seen is not None and seen.running:
            os.kill(seen.pid, signal.SIGKILL)
    with anyio.fail_after(PATIENCE_S):
        while any(container.running for container in await engine.list_containers({LABEL_LEDGER: rig.ledger_id})):  # noqa: ASYNC110
            await anyio.sleep(0.05)
    rig.clock = Booted(rig.clock.number + 1 if isinstance(rig.clock, Booted) else 2)
