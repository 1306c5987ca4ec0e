"""The sub-commands ``top`` and ``explain``.  Owns their arguments and help."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from marathond.cli.app import Campaign, Json, app, finish, offered, settled
from marathond.service.exits import CallFailed, Exit


@app.command()
def top(
    ctx: typer.Context,
    campaign: Campaign = None,
    every: Annotated[float, typer.Option("--every", min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
) -> None:
    """The first screen that stays: arms, trials in work, findings; Enter opens a trial and its logs, v withdraws it, q ends.

    Exit status: as of status, at the last look.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CallFailed("top: needs a terminal; in a pipe: marathonctl status --watch, or tail -f", Exit.USAGE)
    from marathond.cli.top.app import run
    from marathond.cli.top.look import Place

    finish(run(Place(settled(ctx).located().paths, campaign), every_s=every))


@app.command()
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="Of a finding, void, review, park or disclosure, or why cells wait; without one: all.",
            autocompletion=offered("codes"),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What a code means and what to do about it."""
    from marathond.cli import explain as view
    from marathond.cli.output import screen

    view.run(code, screen(), as_json=as_json)
