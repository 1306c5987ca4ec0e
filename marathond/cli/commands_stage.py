"""The sub-command that fetches programs for containers: stage.

Owns its arguments and help.
"""

from __future__ import annotations

from typing import Annotated

import typer

from marathond.cli.app import Json, app, finish, settled


@app.command(name="stage")
def stage_command(
    ctx: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Fetch nothing, only read every byte of what is staged.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch the configured codex, or copy it from codex.folder, into state_dir/staged.  What is there and whole stays as it is.

    Works without the daemon.  Exit status: 1 when it cannot be staged, or with --verify when it is not staged or altered; 75 when
    another one has been at work for too long.
    """
    from marathond.cli import stage

    settings = settled(ctx).settings()
    finish(stage.run(settings.daemon.state_dir, settings.codex.wanted(), verify_only=verify, as_json=as_json))
