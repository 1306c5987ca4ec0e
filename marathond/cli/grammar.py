"""The grammar of ``marathonctl``, put together.

Importing the command modules registers their commands; help lists them in the order of :data:`PARTS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from marathond.cli import (
    commands_arms,
    commands_decide,
    commands_doctor,
    commands_image,
    commands_import,
    commands_keep,
    commands_look,
    commands_preflight,
    commands_rehearse,
    commands_report,
    commands_stage,
)
from marathond.cli.app import app
from marathond.service.protocol import Exit

PARTS = (
    *(commands_look, commands_doctor, commands_decide, commands_keep, commands_stage, commands_image),
    *(commands_preflight, commands_rehearse, commands_arms, commands_report, commands_import),
)

_RANK = {part.__name__: rank for rank, part in enumerate(PARTS)}
app.registered_commands.sort(key=lambda command: _RANK[command.callback.__module__] if command.callback else len(PARTS))


def invoke(argv: Sequence[str]) -> int:
    """Run one command line through typer; its exit code."""
    try:
        app(args=list(argv), prog_name="marathonctl")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(Exit.OK)
    return Exit.OK
