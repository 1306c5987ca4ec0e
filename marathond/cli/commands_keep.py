"""Sub-commands that keep house: notify, clean, init, ledger adopt, ledger check, ledger backup.

Owns their arguments and help.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marathond.cli.app import Json, app, finish, ledger_app, now_ms, settled
from marathond.service.exits import CallFailed, Exit


@app.command(name="notify")
def notify_command(
    ctx: typer.Context,
    test: Annotated[bool, typer.Option("--test", help="Send a test message over each channel and print what it answered.")] = False,
    as_json: Json = False,
) -> None:
    """What was told to somebody, over which channel.  --test needs neither daemon nor ledger.

    Exit status: 1 when a channel did not take a message, or none is configured.
    """
    from marathond.cli import notify

    chosen = settled(ctx)
    if test:
        finish(notify.test(chosen.settings(), now_ms(), as_json=as_json))
    else:
        finish(notify.show(chosen.located().paths.ledger, as_json=as_json))


@app.command(name="clean")
def clean_command(
    ctx: typer.Context,
    ledger: Annotated[str | None, typer.Option("--ledger", help="Id of the lost ledger; without it: which ids there are.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really remove; without it, only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what a lost ledger left on the engine: containers, then networks, by its label and nothing else."""
    from marathond.cli import clean

    settings = settled(ctx).settings()
    finish(clean.run(settings, ledger, really=yes, as_json=as_json))


@app.command()
def init(ctx: typer.Context, as_json: Json = False) -> None:
    """Make the ledger and its folders where the configuration says.  What exists is left as it is."""
    from marathond.cli import house

    paths = settled(ctx).located_for_init().paths
    finish(house.init(paths.ledger, [paths.state_dir, paths.out_dir], as_json=as_json))


@ledger_app.command(name="adopt")
def adopt_command(
    ctx: typer.Context,
    moved: Annotated[bool, typer.Option("--moved", help="It is the ledger itself, at a new place.")] = False,
    copy: Annotated[bool, typer.Option("--copy", help="It is a copy; trials in work belong to the original and are void here.")] = False,
    as_json: Json = False,
) -> None:
    """Tell a ledger that was moved or copied where it is now.  No daemon may use it meanwhile."""
    from marathond.cli import house
    from marathond.ledger.adopt import How

    if moved == copy:
        raise CallFailed("ledger adopt: say --moved or --copy", Exit.USAGE)
    finish(house.adopt_ledger(settled(ctx).located().paths.ledger, How.MOVED if moved else How.COPY, as_json=as_json))


@ledger_app.command(name="check")
def check_command(ctx: typer.Context, as_json: Json = False) -> None:
    """Check the whole file.  Exit status: 1 when something is wrong."""
    from marathond.cli import house

    finish(house.check(settled(ctx).located().paths.ledger, as_json=as_json))


@ledger_app.command(name="backup")
def backup_command(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make; it must not exist.")],
    as_json: Json = False,
) -> None:
    """Make a consistent copy, also while the daemon runs."""
    from marathond.cli import house

    finish(house.backup(settled(ctx).located().paths.ledger, target, as_json=as_json))
