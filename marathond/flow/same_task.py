"""The task of a trial, read again: what runs and what grades must be what was planned (fault a18).

Owns the comparison with the planned digest and the parking of a task that changed or went away.  Must not know what the task is needed for.
"""

from __future__ import annotations

from pathlib import Path

from anyio import to_thread

from marathond.core.errors import GateFailed
from marathond.core.model import Task, Unrunnable
from marathond.flow.world import World
from marathond.ledger.verbs import admission
from marathond.ledger.verbs.context import TrialContext
from marathond.tasks.harbor import read_task


async def same_task(world: World, context: TrialContext) -> Task:
    """The planned task as it lies on disk now.

    :raises GateFailed: ``task_vanished``: it changed, broke or is gone.  Its cells without a result are parked then, by name.
    """
    seen = await to_thread.run_sync(read_task, Path(context.task_path), world.fixed.environ, world.fixed.undeclared_network)
    if isinstance(seen, Task) and seen.digest == context.task_digest:
        return seen
    if isinstance(seen, Unrunnable):
        code, detail = seen.code, seen.detail
    else:
        code, detail = "task_changed", f"{context.task_path}: digest was {context.task_digest}, is {seen.digest}"
    await world.ledger.write(
        admission.park_task, context.task_id, code=code, detail=detail, author="marathond", now_ms=world.clock.wall_ms()
    )
    raise GateFailed("task_vanished", detail)
