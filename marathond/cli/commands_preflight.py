"""The sub-command that looks at everything before a campaign costs anything: preflight.

Owns its arguments and help.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from marathond.cli.app import Json, app, finish, settled


@app.command(name="preflight")
def preflight_command(
    ctx: typer.Context,
    send: Annotated[
        bool, typer.Option("--notify", help="Send a message over each channel of [notify]; else only its way is tried.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Everything that one checks before paying: engine, images, network, provider, key, disk, limits, clocks, in one table.

    Works without the daemon and beside it; spends no token, builds and pulls nothing, leaves nothing behind.  Run it as root, as the
    daemon is, and in the environment that the daemon gets.  Exit status: 1 something is red, 4 something cannot be seen, else 0.
    """
    from marathond.cli import preflight

    finish(preflight.run(settled(ctx).settings(), os.environ, send=send, as_json=as_json))
