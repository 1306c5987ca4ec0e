"""What the ledger says of the configured tasks, and of what arms mount: which are not those that their campaign was submitted with.

Owns the look at the ledger for commands that else need none.  Must not word what differs: :mod:`marathond.core.differing` and
:mod:`marathond.core.mounts` do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from marathond.cli.output import note
from marathond.core.differing import Differing, meaning
from marathond.core.errors import LedgerRefused
from marathond.core.model import Task, Unrunnable
from marathond.core.mounts import UNREAD
from marathond.core.mounts import meaning as meaning_of_mount
from marathond.core.text import clean
from marathond.ledger.verbs.differing import differing
from marathond.ledger.verbs.mounts import remounted
from marathond.ledger.verbs.stored import campaign_by_name, tasks_of
from marathond.service.picture.reader import reading
from marathond.service.settings import Settings

READ_S = 20.0
"""For all mounts together; the daemon, at a submission, waits longer."""


def differing_now(settings: Settings, tasks: Sequence[Task | Unrunnable]) -> tuple[Differing, ...]:
    """Of the configured campaign, if it was submitted; without a ledger nothing was.  One that cannot be read is told on stderr."""
    digests = {task.name: task.digest for task in tasks if isinstance(task, Task)}
    try:
        with reading(settings.daemon.ledger) as c:
            return differing(c, settings.campaign.name, digests, arms=settings.arm_names, replicates=settings.campaign.replicates)
    except LedgerRefused as error:
        if error.code != "missing":
            note(f"note: whether tasks and arms are those of the submitted campaign is unknown: {clean(error)}")
        return ()


def known_now(settings: Settings) -> dict[str, str]:
    """Each task of the submitted campaign to its folder, for :func:`~marathond.service.taskread.read_tasks`; without a ledger nothing was
    submitted, and of one that cannot be read :func:`differing_now`, in the same command, tells."""
    try:
        with reading(settings.daemon.ledger) as c:
            row = campaign_by_name(c, settings.campaign.name)
            return {} if row is None else {task.name: task.path for task in tasks_of(c, row.campaign_id)}
    except LedgerRefused:
        return {}


def remounted_now(settings: Settings) -> tuple[str, ...]:
    """Arms of the submitted campaign whose mounts do not hold what they held, a sentence each; what cannot be read in time is a note, and
    so is what may have changed: a submission takes it."""
    campaign = settings.campaign.name
    now = _held_now(settings)
    try:
        if not any(now.values()):
            return ()
        with reading(settings.daemon.ledger) as c:
            row = campaign_by_name(c, campaign)
            found = () if row is None else remounted(c, row.campaign_id, now)
    except LedgerRefused as error:
        if error.code != "missing":
            note(f"note: whether arms mount what they did is unknown: {clean(error)}")
        return ()
    for each in found:
        if not each.sure:
            note(f"note: arm {clean(each.arm)} {meaning_of_mount(each, campaign)}")
    return tuple(f"arm {clean(each.arm)} {meaning_of_mount(each, campaign)}" for each in found if each.sure)


def _held_now(settings: Settings) -> dict[str, dict[str, str]]:
    """Arm to target to value; read before the ledger is, of which nobody must hold an old state for as long as a disk takes."""
    if not settings.daemon.ledger.exists():
        return {}
    from marathond.staging.mounted import Mounted

    mounted, until = Mounted(), monotonic() + READ_S
    arms = settings.arm_models({})
    looks = {source: mounted.ask(source) for source in {m.source for arm in arms for m in arm.mounts if m.read_only}}  # side by side
    values = {source: mounted.answer(look, until) for source, look in looks.items()}
    now = {arm.name: {m.target: values[m.source] for m in arm.mounts if m.read_only} for arm in arms}
    for name, held in now.items():
        for target, value in held.items():
            if value.startswith(UNREAD):
                note(f"note: arm {clean(name)}: what it mounts at {clean(target)}: {clean(value)}")
    return now


@dataclass(frozen=True, slots=True)
class Taken:
    """Tasks as a campaign takes them.

    ``scored``: of those that park as ``task_changed``, how many cells have a score: it stands, and they do not park.
    """

    tasks: tuple[Task | Unrunnable, ...]
    scored: Mapping[str, int] = field(default_factory=dict)


def as_submitted(settings: Settings, tasks: Sequence[Task | Unrunnable]) -> Taken:
    """``tasks`` as the submitted campaign takes them: one that differs parks as ``task_changed``, as the daemon parks it; where no cell
    is left to park, it has a note."""
    found = {each.task: each for each in differing_now(settings, tasks)}
    return Taken(
        tuple(_as_submitted(task, found[task.name]) if isinstance(task, Task) and task.name in found else task for task in tasks),
        {name: each.scored for name, each in found.items() if each.left},
    )


def _as_submitted(task: Task, each: Differing) -> Task | Unrunnable:
    if each.left:
        return Unrunnable(task.name, task.path, "task_changed", meaning(each))
    return replace(task, warnings=(*task.warnings, meaning(each)))
