"""Which cells of a configuration can be told to park before anything runs.  Shared by ``plan`` and ``config check``.

Owns what parks one arm alone; what parks a whole task is the task reader's word.  Must not know the ledger or an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marathond.core.model import Task, Unrunnable
from marathond.core.names import AgentKind
from marathond.service.settings import Settings

NO_SOLUTION = "no_solution"


@dataclass(frozen=True, slots=True)
class ArmPark:
    """Every replicate of one task under one arm."""

    task: str
    arm: str
    code: str
    why: str


def arm_parks(settings: Settings, tasks: Sequence[Task | Unrunnable]) -> list[ArmPark]:
    """The oracle's cells of tasks that have no solution."""
    oracles = [arm.name for arm in settings.arm_models() if arm.kind is AgentKind.ORACLE]
    return [
        ArmPark(task.name, arm, NO_SOLUTION, f"arm {arm} needs solution/solve.sh, and there is none")
        for task in tasks
        if not isinstance(task, Unrunnable) and not task.has_solution
        for arm in oracles
    ]
