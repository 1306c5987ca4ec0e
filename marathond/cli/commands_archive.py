"""Sub-commands that make room: archive, prune, sizes.

Owns their arguments and help.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marathond.cli.app import Arm, Campaign, Json, TaskName, Trials, app, finish, now_ms, settled
from marathond.service.exits import CallFailed, Exit

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


@app.command(name="archive")
def archive_command(
    ctx: typer.Context,
    trials: Trials = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The folder for the archives; it must exist.", show_default=False)
    ] = None,
    campaign: Campaign = None,
    task: TaskName = None,
    arm: Arm = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove each folder once its archive stands; needs --reason.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why the folders are removed; kept with your name.")] = "",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Pack finished trials' artifacts, each trial into DIR/CAMPAIGN/TRIAL.tar.gz, read back against the ledger's hashes.

    Without TRIAL the newest campaign's.  Said again it does what is left to do; archives that stand are read and compared.

    Exit status: 1 when something was refused.
    """
    if to is None:
        raise CallFailed("archive: --to DIR is needed: the folder for the archives", Exit.USAGE)
    if remove != bool(reason.strip()):
        raise CallFailed('archive: --remove and --reason "…" belong together: what is removed keeps its reason', Exit.USAGE)
    from marathond.cli import archive
    from marathond.service.picture.reader import trial_number

    paths = settled(ctx).located().paths
    code = archive.run(
        paths,
        to,
        trials=[trial_number(each) for each in trials or []],
        campaign=campaign,
        task=task,
        arm=arm,
        remove=reason.strip(),
        dry_run=dry_run,
        as_json=as_json,
        now_ms=now_ms(),
    )
    finish(code)


@app.command(name="prune")
def prune_command(
    ctx: typer.Context,
    trials: Trials = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="By the ledger's own times: 90m, 12h, 30d, 4w.", show_default=False)
    ] = "",
    campaign: Campaign = None,
    task: TaskName = None,
    arm: Arm = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="artifacts, run-dirs, build-logs or backups; may be said again; by default all.")
    ] = None,
    voids_only: Annotated[bool, typer.Option("--voids-only", help="Of trials only those that are void.")] = False,
    unarchived: Annotated[bool, typer.Option("--unarchived", help="Artifacts that no archive keeps, too: they are lost.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why (needed); kept with your name.", show_default=False)] = "",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove what is old to make room: archived artifacts, run directories that were left, build logs, backups before migrations.

    Rows of the ledger stay, all of them.  What is not provably ours is named and left.  A removal that was broken off is finished first.

    Exit status: 1 when something was refused.
    """
    from marathond.cli import prune
    from marathond.core.keeping import age_ms
    from marathond.service.keeping import Wanted
    from marathond.service.picture.reader import trial_number

    if not older_than:
        raise CallFailed("prune: --older-than AGE is needed, such as 30d", Exit.USAGE)
    if not reason.strip() and not dry_run:
        raise CallFailed('prune: --reason "…" is needed: say why, it is kept with what was removed and your name', Exit.USAGE)
    if unknown := [word for word in only or [] if word not in prune.WORDS]:
        raise CallFailed(f"--only {unknown[0]!r}: must be one of {', '.join(prune.WORDS)}", Exit.USAGE)
    try:
        older_than_ms = age_ms(older_than)
    except ValueError as error:
        raise CallFailed(f"--older-than {older_than!r}: {error}", Exit.USAGE) from error
    kinds = frozenset(prune.WORDS[word] for word in only or prune.WORDS)
    wanted = Wanted(older_than_ms, now_ms(), reason.strip(), kinds, voids_only, unarchived, dry_run)
    numbers = [trial_number(each) for each in trials or []]
    code = prune.run(settled(ctx).located().paths, wanted, trials=numbers, campaign=campaign, task=task, arm=arm, as_json=as_json)
    finish(code)


@app.command(name="sizes")
def sizes_command(ctx: typer.Context, as_json: Json = False) -> None:
    """What takes the room: artifacts and archives by campaign, run directories, staged programs, build logs, ledger, WAL, backups."""
    from marathond.cli import sizes

    finish(sizes.run(settled(ctx).located().paths, as_json=as_json))
