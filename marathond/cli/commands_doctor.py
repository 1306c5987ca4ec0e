"""The sub-commands doctor and audit: arguments and help."""

from __future__ import annotations

import typer

from marathond.cli.app import Campaign, Json, app, finish, now_ms, settled
from marathond.cli.output import screen
from marathond.cli.refusals import refused
from marathond.core.errors import LedgerRefused
from marathond.service.exits import Exit


@app.command()
def doctor(ctx: typer.Context, as_json: Json = False, campaign: Campaign = None) -> None:
    """Can the watcher see (a planted fault per rule), and is what it counts by alive?  Reads only; needs no daemon.

    Exit status: 0 all good, 1 a proof failed or a source is dead, 4 something is unknown or the ledger cannot be looked at.
    """
    from marathond.cli import doctor as view

    try:
        report = view.gather(settled(ctx).located().paths, campaign, now_ms())
    except LedgerRefused as error:  # what cannot be looked at is unknown (fault e04)
        finish(refused(error, as_json=as_json, exit_code=Exit.BUSY if error.code == "busy" else Exit.BLIND))
        return
    view.show(report, screen(), as_json_=as_json)
    finish(report.exit_code)


@app.command()
def audit(ctx: typer.Context, as_json: Json = False, campaign: Campaign = None) -> None:
    """Ask every rule of the audit now, and say over how much it could look.  Reads only; needs no daemon.

    Exit status: 0 nothing found but information and warnings, 1 an error or a stop-loss is found or open, 4 a rule could not see or the
    ledger cannot be looked at.  What the files of an import do not tell is listed as unknown, and is no 4.
    """
    from marathond.cli import audit as view

    try:
        report = view.gather(settled(ctx).located().paths, campaign, now_ms())
    except LedgerRefused as error:  # what cannot be looked at is unknown (fault e04)
        finish(refused(error, as_json=as_json, exit_code=Exit.BUSY if error.code == "busy" else Exit.BLIND))
        return
    view.show(report, screen(), as_json_=as_json)
    finish(report.exit_code)
