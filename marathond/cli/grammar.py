"""The grammar of ``marathonctl``, put together.

Importing the command modules registers their commands; in which order help lists them :mod:`marathond.cli.grouped_help` says.  Owns what is
said of a command line that cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from marathond.cli import (
    commands_archive,
    commands_arms,
    commands_decide,
    commands_doctor,
    commands_habits,
    commands_image,
    commands_import,
    commands_keep,
    commands_look,
    commands_page,
    commands_preflight,
    commands_rehearse,
    commands_report,
    commands_schema,
    commands_stage,
    commands_top,
)
from marathond.cli.app import app
from marathond.cli.output import note
from marathond.cli.refusals import Failure, say_failure, wants_json
from marathond.core.text import clean
from marathond.service.exits import Exit

PARTS = (
    *(
        commands_look,
        commands_habits,
        commands_top,
        commands_page,
        commands_doctor,
        commands_decide,
        commands_keep,
        commands_archive,
        commands_stage,
        commands_image,
    ),
    *(commands_preflight, commands_rehearse, commands_arms, commands_report, commands_import, commands_schema),
)
"""All that register commands."""


_USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The root of what typer says of a command line that it cannot read; where it lies differs between its versions."""
_HELP = "NoArgsIsHelpError"
"""Of a group without a command; its words are the help."""

_AT_ITS_FIRST_TAB = """
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  %(complete_func)s "$@"
fi
"""


def _mend_zsh() -> None:
    """zsh reads an installed completion at a shell's first tab, as a function's body: typer's defines another and calls none."""
    from typer import _completion_shared as shared

    scripts = shared._completion_scripts
    if _AT_ITS_FIRST_TAB not in scripts["zsh"]:
        scripts["zsh"] += _AT_ITS_FIRST_TAB


def invoke(argv: Sequence[str]) -> int:
    """Run one command line through typer; its exit code."""
    if any("-completion" in word for word in argv):
        _mend_zsh()
    try:
        ended = app(args=list(argv), prog_name="marathonctl", standalone_mode=False)
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else int(Exit.OK)
    except typer.Abort:
        return Exit.FAILED
    except Exception as error:
        if not isinstance(error, _USAGE_ERROR):
            raise
        return _unreadable(error, as_json=wants_json(argv))
    return ended if isinstance(ended, int) else int(Exit.OK)


def _unreadable(error: Exception, *, as_json: bool) -> int:
    """A command line that cannot be read: one line as of every other refusal, and where help is; for a program one object."""
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
    note(f"marathonctl: {clean(line, 2000)}")
    context = getattr(error, "ctx", None)
    note(f"Try: {getattr(context, 'command_path', 'marathonctl')} --help")
    return code
