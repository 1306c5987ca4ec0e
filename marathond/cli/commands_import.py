"""The sub-command that takes over what was measured elsewhere: import.

Owns its arguments and help.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from marathond.cli.app import Json, app, finish, settled
from marathond.service.exits import CallFailed, Exit


class ArmBy(StrEnum):
    """What makes an arm of Harbor's jobs."""

    AGENT = "agent"
    JOB = "job"


@app.command(name="import")
def import_command(
    ctx: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Runs of the old scripts, a Harbor job, or a folder of jobs.")
    ] = None,
    table: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="A table of trials, a row each, instead of DIR.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The campaign's name; by default the folder's or file's own.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--map", metavar="COLUMN=FIELD", help="Which field a column of the table is; may be given again.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="USER|UID", help="Whose folders are taken; by default those of DIR's own owner.")
    ] = None,
    arm_by: Annotated[ArmBy, typer.Option("--arm-by", help="Of Harbor's jobs: an arm is an agent with its model, or a job.")] = ArmBy.AGENT,
    replicates: Annotated[
        int | None, typer.Option("--replicates", min=1, max=10_000, help="Trials that count per task and arm; by default as DIR says.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken.")] = False,
    as_json: Json = False,
) -> None:
    """Take over trials that were measured elsewhere, as a campaign of its own that nothing ever runs in.

    DIR is only read.  The first valid trial of a cell counts, never the best; again, it adds only what is new.  Needs a ledger that no
    daemon holds.  Exit status: 1 when something was refused that a person must look at: a source that changed, rows that cannot be read.
    """
    from marathond.cli import import_runs

    if (folder is None) == (table is None):
        raise CallFailed("import: give DIR, or --csv FILE", Exit.USAGE)
    wanted = import_runs.wanted(folder, table, name=name, columns=columns or [], owner=owner, arm_by=arm_by.value, replicates=replicates)
    finish(import_runs.run(settled(ctx).located().paths.ledger, wanted, dry_run=dry_run, as_json=as_json))
