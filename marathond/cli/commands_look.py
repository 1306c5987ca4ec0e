"""Sub-commands that only look: status, show, logs, exec, pool, findings, sql, wait, plan.

Owns their arguments and help.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from marathond.cli.app import Campaign, Json, Trial, app, finish, now_ms, offered, settled
from marathond.cli.output import print_json, say, screen
from marathond.core.errors import ConfigError
from marathond.service.exits import CallFailed, Exit


@app.command(name="status")
def status_command(
    ctx: typer.Context,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every two seconds.")] = False,
    campaign: Campaign = None,
) -> None:
    """Is it running, what is it waiting for, when will it be done.

    Works without the daemon and without write permission.  Exit status: 0 healthy, 1 degraded, 3 daemon down, 4 something is unknown.
    """
    from marathond.cli import status

    finish(status.run(status.Options(settled(ctx).config, campaign, as_json, watch)))


@app.command()
def show(
    ctx: typer.Context,
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="A trial, such as t0871; or a cell or a block.", autocompletion=offered("trials"))
    ],
    as_json: Json = False,
) -> None:
    """Everything about one trial, and where each value came from; of a cell (c0012) or a block (b0174) its trials and what comes next."""
    from marathond.cli import show as view
    from marathond.cli import show_cell
    from marathond.service.picture.reader import number_of, reading

    paths = settled(ctx).located().paths
    with reading(paths.ledger) as connection:
        if show_cell.is_asked(trial):
            cells = show_cell.find(connection, trial)
            if as_json:
                print_json(cells)
                return
            for line in show_cell.lines(cells, screen()):
                say(line)
            return
        found = view.find(connection, number_of(trial, "t", show_cell.EXPECTED))
    if as_json:
        print_json(view.as_json(found, paths.state_dir))
    else:
        view.print_trial(found, paths.state_dir, now_ms())


@app.command()
def logs(
    ctx: typer.Context,
    trial: Trial,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the trial's phase is over.")] = False,
    verifier: Annotated[bool, typer.Option("--verifier", help="The verifier's output instead of the agent's.")] = False,
    as_json: Json = False,
) -> None:
    """What a trial's agent (or verifier) wrote; of codex, what it said and did.  With --json one object a line."""
    from marathond.cli import logs as view
    from marathond.service.picture.reader import trial_number

    paths = settled(ctx).located().paths
    view.run(paths.ledger, paths.state_dir, trial_number(trial), verifier=verifier, follow_it=follow, as_json=as_json)


@app.command(name="exec", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def exec_command(
    ctx: typer.Context,
    trial: Trial,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]...", help="The command and its arguments.")],
    user: Annotated[str | None, typer.Option("--user", "-u", help="Another user than the arm's.")] = None,
) -> None:
    """Run a command in a trial's container, with its arm's variables, user and folder; the ledger keeps who ran what.  Exit status: the
    command's."""
    from marathond.cli import exec as runner
    from marathond.service.picture.reader import check_trial, reading, trial_number

    settings = settled(ctx).settings()
    number = trial_number(trial)
    with reading(settings.daemon.ledger) as connection:
        check_trial(connection, number)
        context, container_id = runner.container_of(connection, number)
    argv = command[1:] if command[0] == "--" else command
    runner.record(settled(ctx).located().paths.control_socket, settings.daemon.ledger, number, argv, user=user)
    finish(runner.run(context, container_id, argv, engine_url=settings.engine.url, user=user))


@app.command()
def pool(
    ctx: typer.Context,
    foreign: Annotated[bool, typer.Option("--foreign", help="List others' networks, with a command that removes each.")] = False,
    as_json: Json = False,
) -> None:
    """Networks: capacity, ours, leaked, others'.  Exit status: 4 when the capacity is unknown."""
    from marathond.cli import pool as view
    from marathond.service.picture.reader import reading

    chosen = settled(ctx)
    try:
        url = chosen.settings().engine.url
    except ConfigError:
        url = None  # the commands then go to whatever the person's docker talks to
    with reading(chosen.located().paths.ledger) as connection:
        report = view.gather(connection, url, now_ms())
    if as_json:
        print_json(report)
    else:
        view.show(report, screen(), now_ms(), foreign=foreign)
    finish(Exit.BLIND if view.blind(report) else Exit.OK)


@app.command()
def findings(
    ctx: typer.Context,
    number: Annotated[
        int | None,
        typer.Argument(metavar="[NO]", min=1, help="One finding, whole and with its history.", autocompletion=offered("findings")),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Closed ones, too, and how long they lasted.")] = False,
    as_json: Json = False,
) -> None:
    """What a person must know, and what to do: the current campaign first, the worst first.  Exit status: 1 if an error is not acked."""
    from marathond.cli import findings as view
    from marathond.service.picture.reader import reading

    with reading(settled(ctx).located().paths.ledger) as connection:
        if number is not None:
            view.show_one(view.find(connection, number), screen(), now_ms(), as_json=as_json)
            return
        found = view.listed(connection, everything=everything)
    view.show(found, screen(), now_ms(), as_json=as_json)
    finish(Exit.FAILED if view.unacknowledged_alarm(found.rows) else Exit.OK)


@app.command()
def sql(
    ctx: typer.Context,
    statement: Annotated[str, typer.Argument(help="One reading statement; - reads it from stdin.")],
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header; texts without control characters or formulas.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds.")] = 60.0,
) -> None:
    """Question the ledger; views: v_cell v_trial v_event v_arm v_pair v_pool v_void v_finding v_usage v_disclosure v_treatment
    v_contrast."""
    import sys
    from contextlib import closing

    from marathond.cli import sql as view
    from marathond.ledger.readonly import house_errors, open_readonly

    if as_json and as_csv:
        raise CallFailed("sql: --json or --csv, not both", Exit.USAGE)
    text = sys.stdin.read(1 << 20) if statement == "-" else statement
    ledger = settled(ctx).located().paths.ledger
    with closing(open_readonly(ledger)) as connection, house_errors(ledger):
        names, rows = view.query(connection, text, timeout_s=timeout)
        view.print_rows(names, rows, "json" if as_json else "csv" if as_csv else "table", screen())


@app.command(name="wait")
def wait_command(
    ctx: typer.Context,
    trial: Annotated[
        str | None,
        typer.Argument(metavar="[TRIAL]", help="A trial; without it, the whole campaign.", autocompletion=offered("live_trials")),
    ] = None,
    campaign: Campaign = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="Seconds; by default for ever.")] = None,
    as_json: Json = False,
) -> None:
    """Until the campaign is done, or the trial is at rest.  A daemon that is not there may come within five seconds.

    Exit status: 0 all scored, 1 something is parked, voided or in review, 3 the daemon is down, 75 the time is up.
    """
    from marathond.cli import wait
    from marathond.service.picture.reader import trial_number

    paths = settled(ctx).located().paths
    number = None if trial is None else trial_number(trial)
    look = (lambda c: wait.campaign_outcome(c, campaign)) if number is None else (lambda c: wait.trial_outcome(c, number))
    finish(wait.wait(paths.ledger, paths.control_socket, look, timeout, as_json=as_json))


@app.command()
def plan(
    ctx: typer.Context,
    cells: Annotated[bool, typer.Option("--cells", help="List every cell.")] = False,
    as_json: Json = False,
    write_digests: Annotated[
        Path | None, typer.Option("--write-digests", metavar="FILE", help="Write the tasks' digests as they are now, for campaign.digests.")
    ] = None,
) -> None:
    """What the configuration would run: cells, order, hours, networks, what parks and why.  Records nothing in the ledger.

    Exit status: 1 when something parks, a submission would be refused, or an arm mounts other files than when it was submitted; 4 when the
    engine's host cannot be asked.
    """
    from marathond.cli import plan as view
    from marathond.cli import plan_benchmark
    from marathond.cli.changed import changed_now
    from marathond.cli.differing import as_submitted, known_now, remounted_now
    from marathond.cli.turned import turned_now
    from marathond.service.taskread import read_tasks

    settings = settled(ctx).settings()
    read = read_tasks(settings, os.environ, pins=write_digests is None, known=known_now(settings))
    if write_digests is not None:
        plan_benchmark.write_digests(write_digests, read)
    engine = view.ask_engine(settings, read.tasks)
    made = replace(
        view.make_plan(settings, read, engine, as_submitted(settings, read.tasks), turned_now(settings), changed_now(settings)),
        remounted=remounted_now(settings),
    )
    if as_json:
        print_json(made)
    else:
        view.show(made, screen(), all_cells=cells)
    finish(Exit.FAILED if made.parked_cells or made.refused or made.remounted else Exit.BLIND if isinstance(engine, str) else Exit.OK)
