"""The sub-command that fetches programs for containers: stage.

Owns its arguments and help.
"""

from __future__ import annotations

from typing import Annotated

import typer

from marathond.cli.app import Json, app, finish, settled
from marathond.cli.output import note


@app.command(name="stage")
def stage_command(
    ctx: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Fetch nothing, only read every byte of what is staged.")] = False,
    as_json: Json = False,
) -> None:
    """Put what the campaign's arms drive into state_dir/staged: codex; LoopX with its Node and Python, where an arm has it.

    Each is fetched as it is pinned, or copied from the folder that the configuration names.  What is there and whole stays as it is.
    What no arm of the campaign needs is left out, and said so.
    Works without the daemon.  Exit status: 1 when it cannot be staged, or with --verify when it is not staged or altered; 75 when
    another one has been at work for too long.
    """
    from marathond.cli import stage
    from marathond.service.staged import wanted_trees

    settings = settled(ctx).settings()
    asked = wanted_trees(settings)
    code = stage.run(settings.daemon.state_dir, asked, verify_only=verify, as_json=as_json)
    if words := stage.left_out({each.name for each in asked}, settings.campaign.name):
        note(words)
    finish(code)
