"""Sub-command ``page``.  Owns its arguments and help."""

from __future__ import annotations

from typing import Annotated

import typer

from marathond.cli.app import Campaign, app, settled


@app.command()
def page(
    ctx: typer.Context,
    listen: Annotated[
        str, typer.Option("--listen", metavar="PLACE", help="A loopback address with a port, or unix:/path; port 0: any.")
    ] = "127.0.0.1:8620",
    campaign: Campaign = None,
) -> None:
    """Serve the live page from the ledger alone, until Ctrl-C: also without a daemon, and without write permission.

    The daemon serves it by itself where [page] listen says so.
    """
    from marathond.cli import page as view

    view.run(settled(ctx).located().paths, campaign, listen)
