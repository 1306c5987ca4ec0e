"""Exit codes of the commands, and the failure that carries one.  Must import next to nothing: `marathonctl status` starts here."""

from __future__ import annotations

from enum import IntEnum

from marathond.core.errors import MarathonError


class Exit(IntEnum):
    """Exit codes of the commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DOWN = 3
    BLIND = 4
    BUSY = 75
    REFUSED_TO_START = 78
    """Of ``marathond`` alone (EX_CONFIG): starting it again would change nothing, so systemd does not."""


class CallFailed(MarathonError):
    """A call or a look that came to nothing; ``exit_code`` is the command's."""

    def __init__(self, message: str, exit_code: int = Exit.FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class Answered(CallFailed):
    """The daemon refused, in its own words: a line each."""
