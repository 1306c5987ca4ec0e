"""Sub-command ``report``.

Owns its arguments and help, and that ``--json`` and ``--csv`` may stand without a file: then they go to stdout.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from marathond.cli.app import Campaign, app, finish, offered, settled
from marathond.cli.output import screen
from marathond.service.exits import CallFailed, Exit

_OPTIONAL = ("--json", "--csv")


class _Report(TyperCommand):
    """The command has no arguments of its own, so that whatever follows ``--json`` and is no option is its file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        filled = []
        for place, text in enumerate(args):
            filled.append(text)
            after = args[place + 1] if place + 1 < len(args) else "--"
            if text in _OPTIONAL and after.startswith("-") and after != "-":
                filled.append("-")
        return super().parse_args(ctx, filled)


@app.command(cls=_Report)
def report(
    ctx: typer.Context,
    campaign: Campaign = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Compare with this campaign instead: arms of one name, over common cells.",
            autocompletion=offered("campaigns"),
        ),
    ] = None,
    pair: Annotated[
        list[str] | None, typer.Option("--pair", metavar="A=B", help="With --against: an arm here and one there; may be given again.")
    ] = None,
    contrast: Annotated[
        list[str] | None,
        typer.Option(
            "--contrast",
            metavar="A,B",
            help="Compare arm A with arm B, instead of what is declared; may be given again.",
            autocompletion=offered("pairs"),
        ),
    ] = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="One self-contained HTML file; - is stdout.")] = None,
    as_json: Annotated[str | None, typer.Option("--json", metavar="[FILE]", help="Everything as JSON; without FILE to stdout.")] = None,
    as_csv: Annotated[
        str | None, typer.Option("--csv", metavar="[FILE]", help="One row per cell (--columns tells the columns); without FILE to stdout.")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="One page for colleagues: text, or with --html to be printed.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Numbers by arm even while a stop-loss finding is open; it says so.")] = False,
    columns: Annotated[bool, typer.Option("--columns", help="Tell what the columns of the CSV mean, and end.")] = False,
) -> None:
    """What a campaign has shown: what is missing and withdrawn, findings, disclosures, then the comparison.

    Made from the ledger alone: the same ledger gives the same bytes.

    Contrasts come from the configuration; without any, every pair of arms is compared.  Those chosen by --contrast count as not declared,
    and the report says that they were chosen when it was made.

    Exit status: 1 when arms are not ranked, because a stop-loss finding is open.
    """
    from marathond.cli import report as view

    if columns:
        view.show_columns(screen(), as_json=as_json is not None)
        return
    if pair and against is None:
        raise CallFailed("report: --pair needs --against", Exit.USAGE)
    if contrast and against is not None:
        raise CallFailed("report: --contrast chooses arms of one campaign; with --against it is --pair A=B", Exit.USAGE)
    wanted, pairs = view.Wanted(html, as_json, as_csv, page), view.arm_pairs(pair or [])
    finish(view.run(settled(ctx).located().paths.ledger, campaign, against, wanted, pairs, contrast or (), anyway=anyway))
