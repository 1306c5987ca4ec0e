"""The campaign's tasks as they lie on disk, checked against what is known of them: the one way in which settings become tasks.

Owns the order of the checks: names against the benchmark's profile, then each folder, its marks against the profile, its digest against
``campaign.digests``.  What contradicts the profile is refused by name; what is only wrong with one task parks that one.  Once a campaign
has begun a daemon refuses no folder that it knows: running agents must not lose it over one that somebody edited or copied (fault f06).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from marathond.core.benchmark import Known, Mark, Support, marks_differ, names_differ
from marathond.core.errors import ConfigError
from marathond.core.judge import seen_by_tasks
from marathond.core.model import Task, Unrunnable
from marathond.service import digests
from marathond.service.benchmark import Benchmark
from marathond.service.settings import Settings, where
from marathond.service.settings_errors import ConfigErrors
from marathond.service.taskpaths import task_folders
from marathond.service.tomlfile import is_there, show
from marathond.tasks.harbor import look
from marathond.tasks.look import Look


@dataclass(frozen=True, slots=True)
class Reading:
    """``tasks``: as they run or park, by name.  ``looks``: as the folders are, by the task's name.  ``pinned``: digests were compared."""

    tasks: tuple[Task | Unrunnable, ...]
    looks: Mapping[str, Look]
    pinned: bool = False

    def marks(self, name: str) -> frozenset[Mark]:
        """What the folder shows; nothing where it cannot be read."""
        return self.looks[name].marks or frozenset()


def read_tasks(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    only: str | None = None,
    pins: bool = True,
    begun: Mapping[str, str] | None = None,
    known: Mapping[str, str] | None = None,
) -> Reading:
    """Read every task of the campaign (seconds for large benchmarks), or the one named ``only``.

    :param environ: the caller's environment; of it tasks see what :func:`~marathond.core.judge.seen_by_tasks` lets through.
    :param pins: False leaves ``campaign.digests`` unread: it is about to be written.
    :param begun: as :func:`~marathond.service.taskpaths.task_folders` has it; a task that does not fit parks as ``task_changed``.
    :param known: as there.
    :raises ConfigErrors: a path, pattern or name that fits nothing; a profile that does not fit the folders; a wrong table of digests.
    """
    folders = task_folders(settings, begun=begun, known=known)
    benchmark = settings.benchmark
    if benchmark is not None and begun is None:
        names, campaign = [folder.name for folder in folders], settings.campaign
        _refuse(settings, names_differ(benchmark.known, names, included=campaign.include, excluded=campaign.exclude))
    table = _table(settings) if pins else None
    seen = seen_by_tasks(environ, settings.gateway.verifier_env)
    found = (look(folder, seen, settings.undeclared_network) for folder in folders if only in (None, folder.name))
    looks = {one.outcome.name: one for one in found}
    if benchmark is not None and begun is None:
        shown = {name: one.marks for name, one in looks.items() if one.marks is not None}
        _refuse(settings, (line for name, marks in shown.items() for line in marks_differ(benchmark.known, name, marks)))
    if table is not None and begun is None and (missing := digests.unlisted(table, looks)):
        raise ConfigErrors(missing)
    tasks = tuple(_task(benchmark, one if table is None else _pinned(table, one)) for one in looks.values())
    return Reading(tasks, looks, table is not None)


def unsupported_mark(benchmark: Benchmark, name: str, seen: frozenset[Mark]) -> Mark | None:
    """The first mark of a task, shown or known, of which the profile says that it is not run."""
    features = benchmark.profile.features
    marks = seen | known_marks(benchmark.known, name)
    return next((mark for mark in sorted(marks) if mark in features and features[mark].support is Support.NO), None)


def known_marks(known: Known, name: str) -> frozenset[Mark]:
    """As the profile has them."""
    return known.tasks[name].marks if name in known.tasks else frozenset()


def _table(settings: Settings) -> digests.Table | None:
    path = settings.campaign.digests
    if path is None:
        return None
    if not is_there(path):
        place, expected = where(settings, "campaign", "digests"), "no such file; marathonctl plan --write-digests FILE writes one"
        raise ConfigError(place, f"campaign.digests = {path}", expected)
    return digests.read(path, Path.cwd())


def _pinned(table: digests.Table, one: Look) -> Look:
    return Look(digests.checked(table, one), one.digest, one.marks)


def _task(benchmark: Benchmark | None, one: Look) -> Task | Unrunnable:
    """A feature that only the profile knows of parks its tasks, too; and what does not fit it, in a campaign that has begun."""
    task = one.outcome
    if benchmark is None or isinstance(task, Unrunnable):
        return task
    mark = unsupported_mark(benchmark, task.name, one.marks or frozenset())
    if mark is not None:
        detail = f"{mark}: {benchmark.profile.features[mark].note} (profile {benchmark.name})"
        return Unrunnable(task.name, task.path, "task_unsupported", detail)
    known, marks = benchmark.known, one.marks or frozenset()
    # Before a campaign begins these were refused already.
    wrong = [*names_differ(known, [task.name], included=[task.name], excluded=[]), *marks_differ(known, task.name, marks)]
    return Unrunnable(task.name, task.path, "task_changed", f"profile {benchmark.name}: {wrong[0]}") if wrong else task


def _refuse(settings: Settings, lines: Iterable[str]) -> None:
    place, what = where(settings, "campaign", "benchmark"), show("campaign.benchmark", settings.campaign.benchmark)
    if errors := [ConfigError(place, what, line) for line in lines]:
        raise ConfigErrors(errors)
