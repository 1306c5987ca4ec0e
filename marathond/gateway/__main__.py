"""``python -m marathond.gateway FOLDER``: the gateway by itself, as the unit and the tests start it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from marathond.core.errors import ArtifactError, ConfigError, Refused
from marathond.gateway.serve import serve

EXIT_REFUSED = 78
WAIT_S = 0.5


def _nothing() -> None:
    """Nobody wants to know."""


def _json_lines() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main(
    argv: list[str],
    *,
    wait: bool = False,
    on_ready: Callable[[], object] = _nothing,
    on_poll: Callable[[], object] = _nothing,
    log_to: Callable[[], None] = _json_lines,
) -> int:
    """0 after an orderly end; 2 wrong usage; 78 refused, starting again would not help (settings, another instance); 1 otherwise.

    :param wait: for ``gateway.json``, which the daemon writes, however long that takes; without it a missing one is refused.
    :param log_to: sets the log up; without it a line of JSON per event on stderr.
    :param on_ready: called once it serves, or waits; ``on_poll`` again and again from then on.
    """
    if len(argv) != 1:
        sys.stderr.write("usage: python -m marathond.gateway FOLDER\n")
        return 2
    log_to()
    try:
        if wait:
            _wait(Path(argv[0]) / "gateway.json", on_ready, on_poll)
        asyncio.run(serve(Path(argv[0]), on_ready=on_ready, on_poll=on_poll))
    except (Refused, ConfigError) as err:
        sys.stderr.write(f"{err}\n")
        return EXIT_REFUSED
    except ArtifactError as err:
        sys.stderr.write(f"{err}\n")
        return 1
    return 0


def _wait(settings: Path, on_ready: Callable[[], object], on_poll: Callable[[], object]) -> None:
    if settings.exists():
        return
    structlog.get_logger("marathond.gateway").info("waiting_for_settings", file=str(settings))
    on_ready()
    while not settings.exists():
        on_poll()
        time.sleep(WAIT_S)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
