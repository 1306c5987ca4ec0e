"""What is said when a command is refused, and the exit code that belongs to it.

Owns both for every command, as text and, with ``--json``, as one object in one line of stderr; light, for ``status`` needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marathond.core.errors import ConfigError, EngineTimeout, LedgerRefused, MarathonError, StageError
from marathond.service.exits import Answered, CallFailed, Exit

JSON = "--json"
_WITH_VALUE = ("--config", "-c")
_OTHERS_WORDS = ("exec",)
"""Commands whose arguments are another program's."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong key of a configuration.

    :param where: file and line (``marathond.toml:31``), variable or option; empty: nowhere in particular.
    :param what: the key and its value, as somebody wrote them.
    :param expected: what would have been right.
    """

    where: str
    what: str
    expected: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command came to nothing.  With --json this is the last line of stderr, and stdout holds nothing, or (of a stream) whole lines.

    :param error: in words, a line each where there are several; as others may have written it, control characters included.
    :param exit: the command's exit status.
    :param problems: of a configuration that is wrong: every wrong key; else empty.
    """

    error: str
    exit: int
    problems: tuple[Problem, ...] = ()


def wants_json(argv: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, as far as its words tell: it may be one that cannot be read."""
    words = list(argv)
    if command_of(words) in _OTHERS_WORDS:
        return False
    own = words[: words.index("--")] if "--" in words else words
    return any(word == JSON or word.startswith(f"{JSON}=") for word in own)


def command_of(argv: Sequence[str]) -> str:
    """The first word that is neither a global option nor its value; empty: none."""
    rest = iter(argv)
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


def refused(error: MarathonError, *, as_json: bool = False, exit_code: int | None = None) -> int:
    """One line (a configuration, and the daemon's word on one, may have several) on stderr; the exit code that belongs to it.

    :param exit_code: where the command has a word of its own for it.
    """
    from marathond.cli.output import note
    from marathond.core.text import clean

    code = int(exit_code_of(error) if exit_code is None else exit_code)
    if as_json:
        say_failure(Failure("\n".join(lines_of(error)), code, _problems(error)))
        return code
    for line in lines_of(error):
        placed = isinstance(error, ConfigError) and error.where
        note(clean(line, 2000) if placed else f"marathonctl: {clean(line, 2000)}")
    return code


def say_failure(failure: Failure) -> None:
    from marathond.cli.output import json_text, note

    note(json_text(failure))


def _problems(error: MarathonError) -> tuple[Problem, ...]:
    each = getattr(error, "errors", (error,))  # of ConfigErrors, whose module is too heavy for `status`
    return tuple(Problem(one.where, one.what, one.expected) for one in each if isinstance(one, ConfigError))


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
