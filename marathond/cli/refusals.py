"""What is said when a command is refused, and the exit code that belongs to it.

Owns both for every command; light, for ``status`` needs it.
"""

from __future__ import annotations

from marathond.cli.client import Answered
from marathond.core.errors import ConfigError, EngineTimeout, LedgerRefused, MarathonError, StageError
from marathond.service.protocol import CallFailed, Exit


def refused(error: MarathonError) -> int:
    """One line (a configuration, and the daemon's word on one, may have several) on stderr; the exit code that belongs to it."""
    from marathond.cli.output import note
    from marathond.core.text import clean

    for line in lines_of(error):
        placed = isinstance(error, ConfigError) and error.where
        note(clean(line, 2000) if placed else f"marathonctl: {clean(line, 2000)}")
    return exit_code_of(error)


def lines_of(error: MarathonError) -> list[str]:
    """What is wrong, each thing once; a line break in a name that somebody gave makes no second line of ours."""
    if isinstance(error, Answered):
        return str(error).split("\n")
    each = getattr(error, "errors", (error,))  # of ConfigErrors, whose module is too heavy for `status`
    return [str(one) or type(one).__name__ for one in each]


def exit_code_of(error: MarathonError) -> int:
    """2 what the caller wrote, 75 busy or unknown outcome, a call's own code, 1 everything else."""
    if isinstance(error, CallFailed):
        return error.exit_code
    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, EngineTimeout) or (isinstance(error, LedgerRefused | StageError) and error.code == "busy"):
        return Exit.BUSY
    return Exit.FAILED
