"""What the ledger says of the configured tasks: which are not those that their campaign was submitted with.

Owns the look at the ledger for commands that else need none.  Must not word what differs: :mod:`marathond.core.differing` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marathond.cli.output import note
from marathond.core.differing import Differing, meaning
from marathond.core.errors import LedgerRefused
from marathond.core.model import Task, Unrunnable
from marathond.core.text import clean
from marathond.ledger.verbs.differing import differing
from marathond.service.picture.reader import reading
from marathond.service.settings import Settings


def differing_now(settings: Settings, tasks: Sequence[Task | Unrunnable]) -> tuple[Differing, ...]:
    """Of the configured campaign, if it was submitted; without a ledger nothing was.  One that cannot be read is told on stderr."""
    digests = {task.name: task.digest for task in tasks if isinstance(task, Task)}
    try:
        with reading(settings.daemon.ledger) as c:
            return differing(c, settings.campaign.name, digests, arms=settings.arm_names, replicates=settings.campaign.replicates)
    except LedgerRefused as error:
        if error.code != "missing":
            note(f"note: whether the tasks are those of the submitted campaign is unknown: {clean(error)}")
        return ()


def as_submitted(settings: Settings, tasks: Sequence[Task | Unrunnable]) -> tuple[Task | Unrunnable, ...]:
    """``tasks`` as the submitted campaign takes them: one that differs parks as ``task_changed``, as the daemon parks it; where no cell
    is left to park, it has a note."""
    found = {each.task: each for each in differing_now(settings, tasks)}
    return tuple(_as_submitted(task, found[task.name]) if isinstance(task, Task) and task.name in found else task for task in tasks)


def _as_submitted(task: Task, each: Differing) -> Task | Unrunnable:
    if each.left:
        return Unrunnable(task.name, task.path, "task_changed", meaning(each))
    return replace(task, warnings=(*task.warnings, meaning(each)))
