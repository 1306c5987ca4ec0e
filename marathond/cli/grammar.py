"""The grammar of ``marathonctl``, put together.

Importing the command modules registers their commands; in which order help lists them :mod:`marathond.cli.grouped_help` says.
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
from marathond.cli.refusals import Failure, say_failure, wants_json
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
    if wants_json(argv):
        return _invoke_for_a_program(argv)
    try:
        app(args=list(argv), prog_name="marathonctl")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(Exit.OK)
    return Exit.OK


def _invoke_for_a_program(argv: Sequence[str]) -> int:
    """A usage error as one object, without the text around it that typer would print."""
    try:
        ended = app(args=list(argv), prog_name="marathonctl", standalone_mode=False)
    except typer.Abort:
        return Exit.FAILED
    except Exception as error:
        if not isinstance(error, _USAGE_ERROR):
            raise
        words, code = getattr(error, "format_message", error.__str__)(), int(getattr(error, "exit_code", Exit.USAGE))
        say_failure(Failure(" ".join(words.split()), code))
        return code
    return ended if isinstance(ended, int) else int(Exit.OK)
