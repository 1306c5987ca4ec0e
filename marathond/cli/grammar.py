"""The grammar of ``marathonctl``, put together.

Importing the command modules registers their commands; in which order help lists them :mod:`marathond.cli.grouped_help` says.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    usage,
)
from marathond.cli.app import app
from marathond.cli.refusals import wants_json

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
    """Run one command line of ``marathonctl``; its exit code."""
    if any("-completion" in word for word in argv):
        _mend_zsh()
    return usage.invoke(app, argv, "marathonctl", as_json=wants_json(argv))
