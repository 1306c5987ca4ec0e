"""Sub-commands for every day: tail, history, diff, capacity.

Owns their arguments and help.
"""

from __future__ import annotations

from typing import Annotated

import typer

from marathond.cli.app import Arm, Campaign, Json, TaskName, app, finish, offered, settled


@app.command()
def tail(
    ctx: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens from now on, until interrupted.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the newest lines.")] = 20,
    campaign: Campaign = None,
    arm: Arm = None,
    task: TaskName = None,
    trial: Annotated[
        str | None, typer.Option("--trial", help="Only of this trial, such as t0871.", autocompletion=offered("trials"))
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """What happened, as lines in order: trials, voids, findings, stops, settings, parks, reviews, lives of the daemon; and the end of
    the campaign, when no cell is open or running any more.

    From the ledger alone, in the ledger's own order: it works without a daemon, and -f goes on while one is restarted.
    """
    from marathond.cli import tail as view

    ledger = settled(ctx).located().paths.ledger
    view.run(ledger, lines, campaign=campaign, arm=arm, task=task, trial=trial, follow=follow, as_json=as_json)


@app.command()
def history(
    ctx: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]",
            help="t0871, c0012, b0174, a task or an arm: all that ever happened to it.",
            autocompletion=offered("subjects"),
        ),
    ] = None,
    lines: Annotated[int | None, typer.Option("--lines", "-n", min=0, help="How many of the newest lines; 0: all.")] = None,
    campaign: Campaign = None,
    by: Annotated[str | None, typer.Option("--by", help="Only what this author decided.", autocompletion=offered("authors"))] = None,
    each: Annotated[bool, typer.Option("--each", help="Acts of one command one by one, not as one line with their count.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Who decided what, when and why, newest last: voids and their undoing, reviews, acknowledgements, stops, settings, parks,
    submissions, declarations, imports, archives, what was pruned, lives of the daemon.  Without SUBJECT the newest 50.
    """
    from marathond.cli import history as view

    most = (50 if subject is None else 0) if lines is None else lines
    view.run(settled(ctx).located().paths.ledger, subject, most or None, campaign=campaign, by=by, each=each, as_json=as_json)


@app.command()
def diff(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="A campaign of the ledger.", autocompletion=offered("campaigns"))],
    b: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Another one.", autocompletion=offered("campaigns"))],
    as_json: Json = False,
) -> None:
    """What two campaigns differ in: treatment, arms, tasks, operation; then their results side by side over the cells that count in both.

    Means alone; report --campaign A --against B has intervals and tests.
    """
    from marathond.cli import diff as view

    view.run(settled(ctx).located().paths.ledger, a, b, as_json=as_json)


@app.command()
def capacity(ctx: typer.Context, campaign: Campaign = None, as_json: Json = False) -> None:
    """What limits now, and what one more of each thing would give: a slot, a core, memory, a network, money, an end of a stop.

    Asked of the scheduler's own plan, as things are and with one of them changed.  Exit status: 3 daemon down, 4 something is unknown.
    """
    from marathond.cli import capacity as view

    finish(view.run(settled(ctx).located().paths, campaign, as_json=as_json))
