"""structlog's set-up: one entry per event: fields in the journal under systemd, a line of JSON on stderr elsewhere, colours on a terminal.

Owns the choice of format only.  Secrets and prompts are never logged; texts from agents are bounded where they are made.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import structlog

from marathond.service import journal

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(level: str, fmt: str, identifier: str = "marathond") -> None:
    """``fmt``: ``json``, ``console`` or ``auto`` (the journal where stderr is connected to it, console on a terminal, else json).

    :param identifier: what the journal shows in front of each entry.
    """
    console = fmt == "console" or (fmt == "auto" and sys.stderr.isatty())
    native = fmt == "auto" and journal.connected(os.environ, sys.stderr)
    renderer: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(ensure_ascii=False)
    if native:
        one = journal.JournalLogger(identifier)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if console else [structlog.processors.format_exc_info]),
            journal.handed if native else renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=(lambda *_names: one) if native else structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
