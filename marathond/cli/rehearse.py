"""What ``verify-envs`` and ``canary`` share: a rehearsal begun, followed on stderr, and cleared away.

Owns the frame only; what a rehearsal must show is each command's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import anyio
import structlog

from marathond.cli.output import note
from marathond.core.errors import ArtifactError, MarathonError
from marathond.core.text import clean
from marathond.service.exits import CallFailed
from marathond.service.rehearsal import Ground, clear, prepare, rehearse, remove_leftovers
from marathond.service.settings import Settings

INTERRUPTED = 130

Found = TypeVar("Found")


def ran(
    settings: Settings,
    name: str,
    overrides: Mapping[str, object],
    read: Callable[[Ground], Found],
    *,
    provider: str | None,
    gates_only: bool,
    keep: bool,
) -> Found:
    """What ``read`` finds in the ledger of a rehearsal that came to its end.

    :param provider: see :func:`marathond.service.rehearsal.prepare`.
    :param keep: leave its folder (run directories, logs, ledger) for a look, and name it.
    :raises EngineError: the engine does not answer.  :raises CallFailed: interrupted.  :raises MarathonError: as the daemon's start.
    """
    anyio.run(remove_leftovers, settings, _tell)  # also the first word with the engine: it must answer before anything is made
    ground = prepare(settings, name, overrides, provider)
    whole = False
    try:
        _log_to(ground)
        try:
            ended = anyio.run(_run, ground, gates_only)
        except BaseExceptionGroup as group:
            raise _own(group) from group
        if not ended:
            whole = True  # a person ended it: there is nothing in it to look for
            raise CallFailed("interrupted: what ran was ended and removed", INTERRUPTED)
        found = read(ground)
        whole = True
        return found
    finally:
        structlog.reset_defaults()
        if keep or not whole:
            note(f"kept: {ground.folder} (ledger.db, marathond.log, gateway.log, r/)")
        else:
            try:
                clear(ground)
            except (OSError, ArtifactError) as error:
                note(f"not removed: {ground.folder}: {error}")


async def _run(ground: Ground, gates_only: bool) -> bool:
    return await rehearse(ground, _tell, gates_only=gates_only)


def _tell(words: str) -> None:
    note(clean(words, 300))


def _log_to(ground: Ground) -> None:
    """The daemon's own log is a file here: the terminal is for what is asked."""
    stream = (ground.folder / "marathond.log").open("a", encoding="utf-8", buffering=1)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )


def _own(error: BaseException) -> BaseException:
    """The house's own word if there is one in a group."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [_own(each) for each in error.exceptions]
    return next((each for each in found if isinstance(each, MarathonError)), found[0])
