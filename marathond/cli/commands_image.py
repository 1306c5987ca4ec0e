"""The sub-command that makes images ahead of a campaign: prebuild.

Owns its arguments and help.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from marathond.cli.app import Json, TaskName, app, finish, settled


@app.command(name="prebuild")
def prebuild_command(
    ctx: typer.Context,
    task: TaskName = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, max=64, help="Builds and pulls at one time; by default engine.build_concurrency, else 3."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make every image that the campaign needs: found, pulled or built, several at one time.

    Works without the daemon and beside it: no image is built twice.  Exit status: 1 when one could not be had.
    """
    from marathond.cli import prebuild

    finish(prebuild.run(settled(ctx).settings(), os.environ, only=task, jobs=jobs, as_json=as_json))
