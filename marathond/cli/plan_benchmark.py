"""What ``marathonctl plan`` says of the benchmark: its profile, the columns there will be, digests, and what is not supported yet.

Owns those words.  Must not know the engine or a ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.output import note
from marathond.core.benchmark import Support, limits_differ
from marathond.core.model import Task, Unrunnable
from marathond.core.text import clean, plural
from marathond.service import digests
from marathond.service.settings import Settings
from marathond.service.taskread import Reading, known_marks

UNSUPPORTED = "task_unsupported"


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column of reports.  ``note``: what it means; where it does not exist, why."""

    name: str
    exists: bool
    note: str


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """``here`` of ``known`` tasks take part; ``known`` 0: the profile lists none.  ``notes``: task by task, of what runs in part only."""

    profile: str
    title: str
    digest: str
    here: int
    known: int
    columns: tuple[ColumnPlan, ...]
    notes: tuple[str, ...]
    differences: tuple[str, ...]


def benchmark_plan(settings: Settings, read: Reading) -> BenchmarkPlan | None:
    """None: the configuration names no profile."""
    benchmark = settings.benchmark
    if benchmark is None:
        return None
    profile, known = benchmark.profile, benchmark.known
    columns = [
        ColumnPlan(name, column.exists, column.note)
        for name in type(profile.scores).model_fields
        if (column := getattr(profile.scores, name))
    ]
    running = [task for task in read.tasks if isinstance(task, Task)]
    return BenchmarkPlan(
        profile=profile.name,
        title=profile.title,
        digest=benchmark.digest,
        here=len(read.tasks),
        known=len(profile.tasks),
        columns=tuple(columns),
        notes=tuple(_notes(settings, running, read)),
        differences=tuple(line for task in running for line in limits_differ(known, task)),
    )


def _notes(settings: Settings, running: Sequence[Task], read: Reading) -> Iterator[str]:
    assert settings.benchmark is not None
    features = settings.benchmark.profile.features
    for task in running:
        for mark in sorted(read.marks(task.name) | known_marks(settings.benchmark.known, task.name)):
            if mark in features and features[mark].support is Support.PARTLY:
                yield f"{task.name}: {mark}: {features[mark].note}"


def benchmark_words(plan: BenchmarkPlan) -> Iterator[str]:
    """Lines of the screen's head."""
    title = f" ({clean(plan.title)})" if plan.title else ""
    tasks = f"{plan.here} of its {plural(plan.known, 'task')}" if plan.known else f"{plural(plan.here, 'task')}, names not checked"
    columns = ", ".join(column.name for column in plan.columns if column.exists) or "none"
    yield f"benchmark {clean(plan.profile)}{title}: {tasks} · columns {columns} · profile {plan.digest.removeprefix('sha256:')[:12]}"
    for column in plan.columns:
        if not column.exists:
            yield f"  no column {column.name}: {clean(column.note)}"


def digest_words(settings: Settings, read: Reading) -> str:
    """How the tasks' contents are checked; empty where nobody asked for either profile or table."""
    if not read.pinned:
        hint = "task digests: not checked (campaign.digests; plan --write-digests FILE writes a table)"
        return hint if settings.benchmark is not None else ""
    changed = sum(isinstance(task, Unrunnable) and task.code == "task_changed" for task in read.tasks)
    good = sum(one.digest is not None for one in read.looks.values()) - changed
    return f"task digests: {good} as in {settings.campaign.digests}" + (f", {plural(changed, 'task')} changed" if changed else "")


def write_digests(path: Path, read: Reading) -> None:
    """Write the table and say so.  :raises Refused: the file exists.  :raises ArtifactError: it cannot be written."""
    count = digests.write(path, read.looks)
    note(f"wrote {plural(count, 'digest')} to {path}: name it in campaign.digests")
    for name, one in read.looks.items():
        if one.digest is None and isinstance(one.outcome, Unrunnable):
            note(f"note: {clean(name)} has no digest: {clean(one.outcome.detail)}")


def marks_words(name: str, read_marks: Sequence[str]) -> str:
    """``zstd-decoder [gpu, offline]``."""
    return f"{clean(name)} [{', '.join(read_marks)}]" if read_marks else clean(name)
