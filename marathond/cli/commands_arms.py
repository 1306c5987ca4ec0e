"""The sub-commands about arms: arms, arms show, arms diff, disclosures.

Owns their arguments and help.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from marathond.cli.app import Campaign, Json, app, finish, offered, settled

arms_app = typer.Typer(
    help="The arms: what each is given, what two of them differ in.", rich_markup_mode=None, pretty_exceptions_enable=False
)
app.add_typer(arms_app, name="arms")
Name = Annotated[str, typer.Argument(metavar="ARM", help="An arm by name.", autocompletion=offered("arms"))]


class SurfaceChoice(StrEnum):
    """How a model's tools are offered."""

    DIRECT = "direct"
    CODE = "code"


Surface = Annotated[SurfaceChoice | None, typer.Option("--surface", help="Of the recorded contract; by default the arm's model's.")]


@arms_app.callback(invoke_without_command=True)
def arms(ctx: typer.Context, as_json: Json = False, campaign: Campaign = None) -> None:
    """The arms: what each is given, what two of them differ in.

    Without a sub-command: list them, from the ledger and the configuration.  Works without the daemon.
    """
    from marathond.cli import arms as view

    if ctx.invoked_subcommand is None:
        view.print_list(view.gather(settled(ctx), campaign), as_json=as_json)


@arms_app.command(name="show")
def show_command(ctx: typer.Context, arm: Name, surface: Surface = None, as_json: Json = False, campaign: Campaign = None) -> None:
    """One arm's row, and of a codex arm the reviewed record of its first request and config.toml (whole with --json)."""
    from marathond.cli import arms as view

    view.print_arm(view.gather(settled(ctx), campaign), arm, None if surface is None else surface.value, as_json=as_json)


@arms_app.command(name="diff")
def diff_command(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="ARM", help="An arm by name.", autocompletion=offered("arms"))],
    b: Annotated[str, typer.Argument(metavar="ARM", help="Another one.", autocompletion=offered("arms"))],
    surface: Surface = None,
    as_json: Json = False,
    campaign: Campaign = None,
) -> None:
    """What two rows differ in, what that declares, and what really differs: in the reviewed records, and in first requests of trials.

    Exit status: 1 when something differs that no row declares, or does not differ that one does.
    """
    from marathond.cli import arms as view
    from marathond.cli import arms_diff

    found = arms_diff.compare(view.gather(settled(ctx), campaign, disclosed=False), a, b, None if surface is None else surface.value)
    arms_diff.show(found, as_json=as_json)
    finish(int(arms_diff.wrong(found)))


@app.command(name="disclosures")
def disclosures_command(ctx: typer.Context, as_json: Json = False, campaign: Campaign = None) -> None:
    """What a reader of the comparison must be told: each deviation, its arms, and what the ordinary way or the earlier public runs did.

    From the ledger, as reports and exports carry it; before the first submission, as the configuration would have it.
    """
    from marathond.cli import disclosures as view

    view.print_all(view.gather(settled(ctx), campaign), as_json=as_json)
