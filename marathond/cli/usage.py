"""A command line through typer, and what is said of one that cannot be read.

Owns both for every command of the house.  Must not know any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from marathond.cli.output import note
from marathond.cli.refusals import Failure, say_failure
from marathond.core.text import clean
from marathond.service.exits import Exit

_USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The root of what typer says of a command line that it cannot read; where it lies differs between its versions."""
_HELP = "NoArgsIsHelpError"
"""Of a group without a command; its words are the help."""


def invoke(app: typer.Typer, argv: Sequence[str], program: str, *, as_json: bool = False) -> int:
    """Run one command line; its exit code."""
    try:
        ended = app(args=list(argv), prog_name=program, standalone_mode=False)
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else int(Exit.OK)
    except typer.Abort:
        return Exit.FAILED
    except Exception as error:
        if not isinstance(error, _USAGE_ERROR):
            raise
        return _unreadable(error, program, as_json=as_json)
    return ended if isinstance(ended, int) else int(Exit.OK)


def _unreadable(error: Exception, program: str, *, as_json: bool) -> int:
    """One line as of every other refusal, and where help is; for a program one object."""
    code = int(getattr(error, "exit_code", Exit.USAGE))
    words = str(getattr(error, "format_message", error.__str__)())
    if type(error).__name__ == _HELP and not as_json:
        note(words.rstrip("\n"))
        return code
    line = " ".join(words.split()).removesuffix(".")
    line = line[:1].lower() + line[1:]
    if as_json:
        say_failure(Failure(line, code))
        return code
    note(f"{program}: {clean(line, 2000)}")
    context = getattr(error, "ctx", None)
    note(f"Try: {getattr(context, 'command_path', program)} --help")
    return code
