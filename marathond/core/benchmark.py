"""Does a folder of tasks fit a benchmark that is known by name: the words for what a task needs, and the comparison.

Owns the vocabulary of marks and what contradicts them.  Pure.  Must not know how a profile is written (:mod:`marathond.service.benchmark`)
nor how a task directory is read (:mod:`marathond.tasks.look`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from marathond.core.model import Task

NAMES_SHOWN = 8
"""Tasks named in one refusal."""


class Mark(StrEnum):
    """What a task needs beyond one container with a network.  All but ``ux-stage`` can be seen in its folder."""

    GPU = "gpu"
    OFFLINE = "offline"
    """Neither its environment nor its agent has a network."""
    SEPARATE_VERIFIER = "separate-verifier"
    VERIFIER_IMAGE = "verifier-image"
    """There is a Dockerfile in ``tests/``."""
    MULTI_STEP = "multi-step"
    COMPOSE = "compose"
    UX_STAGE = "ux-stage"
    """A second grading stage that looks at a user interface, usually with a model as judge."""


NOT_RUN = frozenset({Mark.GPU, Mark.SEPARATE_VERIFIER, Mark.MULTI_STEP, Mark.COMPOSE})
"""Tasks with one of these park as ``task_unsupported`` by their own folder, whatever a profile says."""

UNSEEN = frozenset({Mark.UX_STAGE})
"""No folder shows these: a profile's word for them is neither confirmed nor contradicted."""


class Support(StrEnum):
    """How much of a feature this version runs.  ``partly``: tasks run, and something is to be known about them."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task as a profile knows it.  What is None is not known.  Seconds, cores, GiB."""

    marks: frozenset[Mark] = frozenset()
    agent_s: float | None = None
    verifier_s: float | None = None
    build_s: float | None = None
    cpus: float | None = None
    memory_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A benchmark's tasks by name; none: any task may be of it.

    ``exact``: marks that the profile states of every task that has them, so that one without the mark must not show it.
    ``image_folders``: folders of a task in which a Dockerfile is expected.
    """

    name: str
    tasks: Mapping[str, KnownTask] = field(default_factory=dict)
    exact: frozenset[Mark] = frozenset()
    image_folders: tuple[str, ...] = ("environment",)


def names_differ(known: Known, chosen: Collection[str], *, included: Collection[str], excluded: Collection[str]) -> Iterator[str]:
    """What is wrong with the names of the ``chosen`` tasks, a line each.

    :param included: by name; where there are none the campaign takes every task there is, and one that is not there is missing.
    :param excluded: by name; those are left out on purpose.
    """
    if not known.tasks:
        return
    strange = [name for name in sorted(chosen) if name not in known.tasks]
    if strange:
        are, them = ("is not one", "it") if len(strange) == 1 else ("are not any", "them")
        yield f"{_some(strange)} {are} of its {len(known.tasks)} tasks: leave {them} out by campaign.exclude, or take another profile"
    missing = [name for name in sorted(known.tasks) if name not in chosen and name not in excluded]
    if missing and not included:
        they = "is" if len(missing) == 1 else "are"
        yield f"{_some(missing)} {they} missing of its {len(known.tasks)} tasks: name those that are meant in campaign.include"


def marks_differ(known: Known, name: str, seen: frozenset[Mark]) -> Iterator[str]:
    """Where what the folder of the task ``name`` shows contradicts the profile, a line each."""
    task = known.tasks.get(name)
    if task is not None:
        for mark in sorted(task.marks - UNSEEN - seen):
            yield f"{name}: is known as {mark}, and its folder does not show it"
        for mark in sorted((seen & known.exact) - task.marks):
            yield f"{name}: its folder shows {mark}, and it is not known as that"
    if Mark.VERIFIER_IMAGE in seen and "tests" not in known.image_folders:
        yield f"{name}: tests/Dockerfile: images are expected in {', '.join(known.image_folders)} only"


def limits_differ(known: Known, task: Task) -> Iterator[str]:
    """Limits and sizes that are not those the profile knows, a line each.  They are no other task, and a reader must be told."""
    expected = known.tasks.get(task.name)
    if expected is None:
        return
    declared_gb = None if task.memory_mb is None else task.memory_mb / 1024
    rows = (
        ("agent limit", task.agent_timeout_s, expected.agent_s, " s"),
        ("verifier limit", task.verifier_timeout_s, expected.verifier_s, " s"),
        ("build limit", task.build_timeout_s, expected.build_s, " s"),
        ("cpus", task.cpus, expected.cpus, ""),
        ("memory", declared_gb, expected.memory_gb, " GiB"),
    )
    for what, seen, wanted, unit in rows:
        if wanted is not None and seen != wanted:
            yield f"{task.name}: {what} {'none' if seen is None else f'{seen:g}{unit}'}, {known.name} has {wanted:g}{unit}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
