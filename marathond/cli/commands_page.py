"""Sub-command ``page``.  Owns its arguments and help."""

from __future__ import annotations

from typing import Annotated

import typer

from marathond.cli.app import Campaign, app, settled


@app.command()
def page(
    ctx: typer.Context,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="PLACE",
            help="A loopback address with a port, or unix:/path; port 0: any.  Default: [page] listen, else 127.0.0.1:8620.",
        ),
    ] = None,
    campaign: Campaign = None,
) -> None:
    """Serve the live page from the ledger alone, until Ctrl-C: also without a daemon, and without write permission.

    The daemon serves it by itself where [page] listen says so.
    """
    from marathond.cli import page as view

    chosen = settled(ctx)
    paths = chosen.located().paths
    view.run(paths, campaign, listen, None if listen else view.configured(chosen))
