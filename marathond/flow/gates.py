"""Checks between "the container is up" and "the agent starts".

Owns the healthcheck.  The arm's own gates are the agent's (ports/agent.py).  A gate that says no is
infrastructure, never the agent's fault.
"""

from __future__ import annotations

import anyio

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, GateFailed
from marathond.core.model import Healthcheck
from marathond.flow.world import World
from marathond.ports.engine import ExecSpec

OUTPUT_BYTES = 2048


async def healthy(world: World, container_id: str, check: Healthcheck) -> int:
    """Number of tries until the check passed.  Raises GateFailed("healthcheck_failed").

    Docker's own rule: failures within ``start_period_s`` do not count, and ``retries`` failures in a row after it decide.
    """
    clock, tries, failures = world.clock, 0, 0
    period_ends_ms = clock.mono_ms() + int(check.start_period_s * 1000)
    spec = ExecSpec(("sh", "-c", check.command), user="0")
    while True:
        tries += 1
        starting = clock.mono_ms() < period_ends_ms
        try:
            result = await world.engine.run_exec(container_id, spec, timeout_s=check.timeout_s, max_output=OUTPUT_BYTES)
            if result.exit_code == 0:
                return tries
            said = f"exit {result.exit_code}: {result.output.strip() or 'no output'}"
        except EngineTimeout:
            said = f"no answer in {check.timeout_s:g} s"
        except EngineUnreachable:
            raise
        except EngineError as error:
            # The container is not there to be asked any more: waiting cannot make it healthy.
            raise GateFailed("healthcheck_failed", f"`{check.command}` could not be run: {error}") from error
        failures += 0 if starting else 1
        if failures >= check.retries:
            raise GateFailed("healthcheck_failed", f"`{check.command}` failed {failures} times in a row, last: {said}")
        await anyio.sleep(check.start_interval_s if starting else check.interval_s)
