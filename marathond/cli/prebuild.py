"""``marathonctl prebuild``: every image that a campaign needs, made before it starts.

Owns the table of results and the exit code; the making is :mod:`marathond.flow.images`, which the daemon uses, too.  Records nothing in
the ledger: the daemon finds the images by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from marathond.cli.output import Column, Screen, note, print_json, say, screen, table
from marathond.core.errors import EngineError
from marathond.core.model import Task, Unrunnable
from marathond.core.preflight.rows import named
from marathond.core.text import clean, plural, span
from marathond.engine.docker import DockerEngine
from marathond.flow.images import AFTER, Failed, ImageMaker, Made, Wish, wishes
from marathond.service.exits import CallFailed, Exit
from marathond.service.knobs import did_you_mean
from marathond.service.settings import Settings, where
from marathond.service.taskpaths import task_folders
from marathond.service.taskread import read_tasks
from marathond.tasks.support import check_host

JOBS = 3
"""At one time, where the configuration does not say: nothing else runs on the host yet."""
ID_SHOWN = 12
READY = "ready"


@dataclass(frozen=True, slots=True)
class Result:
    """One image.  ``outcome``: ``ready``, or the code that the task's cells would park with; ``how`` empty when there is no image."""

    task: str
    role: str
    image_id: str
    how: str
    seconds: float
    size_bytes: int
    outcome: str
    detail: str
    log: str


@dataclass(frozen=True, slots=True)
class Shown:
    """:param parked: tasks that park whatever their image is; none was made."""

    images: list[Result]
    parked: list[Unrunnable]


def run(settings: Settings, environ: Mapping[str, str], *, only: str | None, jobs: int | None, as_json: bool) -> int:
    """Make the images and print the table; the exit code.

    :raises ConfigError: as a submission would.  :raises EngineError: the engine does not answer.  :raises CallFailed: no such task, or
        the folder of logs cannot be written.
    """
    folders = task_folders(settings)
    if only is not None and only not in (names := [folder.name for folder in folders]):
        raise CallFailed(f"--task {only}: no such task in campaign {settings.campaign.name}{did_you_mean(only, names)}", Exit.USAGE)
    read = read_tasks(settings, environ, only=only).tasks
    builds = settings.daemon.state_dir / "builds"
    try:
        builds.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CallFailed(f"{builds}: {error.strerror or error}; be root or the daemon's user") from error
    at_once = jobs or (settings.engine.build_concurrency if where(settings, "engine", "build_concurrency") != "default" else JOBS)
    results, parked = anyio.run(_make, settings, read, builds, at_once)
    failed = sum(result.outcome != READY for result in results)
    if as_json:
        print_json(Shown(results, parked))
    else:
        show(results, screen())
        for task in parked:
            note(f"note: {clean(task.name)} parks whatever its image, none was made: {task.code}: {clean(task.detail)}")
    return Exit.FAILED if failed else Exit.OK


async def _make(settings: Settings, read: Sequence[Task | Unrunnable], builds: Path, at_once: int) -> tuple[list[Result], list[Unrunnable]]:
    engine = DockerEngine(settings.engine.name, settings.engine.url, call_timeout_s=settings.engine.call_timeout_s)
    try:
        info = await engine.info()
        maker = ImageMaker(
            engine,
            builds,
            build_args=settings.engine.build_args,
            network=settings.engine.build_network,
            concurrency=at_once,
            retries=settings.engine.build_retries,
            pull_timeout_s=settings.engine.pull_timeout_s,
            tell=Teller(),
        )
        wanted: list[Wish] = []
        parked: list[Unrunnable] = []
        for task in read:
            refused = (
                task
                if isinstance(task, Unrunnable)
                else check_host(task, info.ncpu, info.memory_bytes, pids=settings.limits.pids or None, limits_pids=info.limits_pids)
            )
            if refused is not None:
                parked.append(refused)
            elif isinstance(task, Task):
                limit_s = task.build_timeout_s * settings.limits.build_timeout_multiplier
                wanted += wishes(task.name, Path(task.path), image=task.image, digest=task.context_digest, build_timeout_s=limit_s)
        results: dict[int, Result] = {}

        async def one(number: int, wish: Wish) -> None:
            results[number] = await _result(maker, wish)

        async with anyio.create_task_group() as group:
            for number, wish in enumerate(wanted):
                group.start_soon(one, number, wish, name=f"image {wish.task}")
        return [results[number] for number in sorted(results)], parked
    finally:
        await engine.aclose()


async def _result(maker: ImageMaker, wish: Wish) -> Result:
    began = anyio.current_time()
    try:
        outcome = await maker.make(wish)
    except EngineError as error:
        outcome = Failed("engine_away", str(error))
    log = "" if outcome.log is None else str(outcome.log)
    if isinstance(outcome, Made):
        image, seconds = outcome.image, round(outcome.seconds, 3)
        return Result(wish.task, wish.role, image.id, outcome.how.value, seconds, image.size_bytes, READY, "", log)
    return Result(wish.task, wish.role, "", "", round(anyio.current_time() - began, 3), 0, outcome.code, outcome.detail, log)


class Teller:
    """Lines of progress, beside the data.  What a try says again, of its beginning or of its failure, is no news."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str, str, str]] = set()

    def __call__(self, what: str, wish: Wish, words: str) -> None:
        news = words.partition(": ")[2] if what == "failed" else words  # without the number of the try
        key = wish.task, wish.role, what, news
        if key not in self._said:
            self._said.add(key)
            note(f"{clean(wish.task)}: {what}{'' if what != 'failed' else ','} {clean(words)}")


def show(results: Sequence[Result], where: Screen) -> None:
    """The screen of ``prebuild``."""
    columns = (
        Column("task", least=12),
        *((Column("for"),) if any(result.role != "task" for result in results) else ()),
        Column("image"),
        Column("how"),
        Column("time", right=True),
        Column("size", right=True),
        Column("outcome"),
        Column("log", least=10),
    )
    for line in table(columns, [_row(result, len(columns)) for result in results], where):
        say(line)
    failed = [result for result in results if result.outcome != READY]
    for line in _reasons(failed):
        say(where.fit(line))
    counts = ", ".join(f"{sum(r.how == how for r in results)} {how}" for how in sorted({r.how for r in results if r.how}))
    total = f"{plural(len(results), 'image')}{f': {counts}' if counts else ''}"
    codes = Counter(result.outcome for result in failed)
    of = ", ".join(f"{codes[code]} {code}" for code in sorted(codes))
    say(total if not failed else f"{total}; {len(failed)} could not be had: {of}")


def _reasons(failed: Sequence[Result]) -> Iterator[str]:
    """A line for each thing that images died of: a registry that is away is one, however many tasks need it."""
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in failed:
        # What a pull says begins with its own image, which has no blanks.
        image, tries, words = result.detail.partition(f": {AFTER}")
        alike.setdefault((result.outcome, f"{AFTER}{words}" if tries and " " not in image else result.detail), []).append(result)
    for (outcome, words), same in alike.items():
        if len(same) == 1:
            yield f"{clean(same[0].task)}: {outcome}: {clean(same[0].detail, 2000)}"
        else:
            yield f"{len(same)} x {outcome} ({clean(named(result.task for result in same))}): {clean(words, 2000)}"


def _row(result: Result, columns: int) -> tuple[str, ...]:
    size = "-" if not result.size_bytes else f"{result.size_bytes / 1e6:.0f} MB"
    row = (result.image_id.removeprefix("sha256:")[:ID_SHOWN] or "-", result.how or "-", span(result.seconds * 1000), size, result.outcome)
    role = (result.role,) if columns > len(row) + 2 else ()
    return (clean(result.task), *role, *row, result.log or "-")
