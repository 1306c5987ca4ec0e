"""Sub-commands by which a person decides: void, unvoid, review, regrade, retry, unpark, pause, resume, drain, stop, submit, set, ack.

Owns their arguments and help; the daemon carries them out, all but regrade, which needs the ledger for itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

from marathond.cli.app import Arm, Campaign, Json, Reason, TaskName, Trials, app, ask, finish, now_ms, offered, settled
from marathond.cli.output import print_json, screen
from marathond.service.exits import CallFailed, Exit


@app.command()
def void(
    ctx: typer.Context,
    reason: Reason = "",
    trials: Trials = None,
    code: Annotated[
        str, typer.Option("--code", help="operator, provider, or another void code.", autocompletion=offered("void_codes"))
    ] = "operator",
    pair: Annotated[bool, typer.Option("--pair", help="With every standing trial of the same task and replicate.")] = False,
    arm: Arm = None,
    task: TaskName = None,
    replicate: Annotated[int | None, typer.Option("--replicate", min=1, help="Only of this replicate.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only begun since: 90m, 2h, 1d or an ISO-8601 time.")] = None,
    block: Annotated[
        str | None, typer.Option("--block", help="Every standing trial of a block, such as b0174.", autocompletion=offered("blocks"))
    ] = None,
    campaign: Campaign = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be voided.")] = False,
    as_json: Json = False,
) -> None:
    """Withdraw trials: infrastructure made them meaningless.  Their cells run again; rows, scores and artifacts are kept."""
    from marathond.cli import mutate
    from marathond.service.picture.reader import number_of, trial_number

    ids = [trial_number(text) for text in trials or []]
    filters = (arm, task, replicate, since, block)
    filtered = any(value is not None for value in filters)
    if bool(ids) == filtered:
        both = ", not both" if filtered else ""
        raise CallFailed(f"void: name trials, or give filters (--arm, --task, --replicate, --since, --block){both}", Exit.USAGE)
    since_ms = None if since is None else mutate.since(since, now_ms())
    ask(
        ctx,
        mutate.void,
        as_json=as_json,
        trials=ids,
        reason=reason,
        code=code,
        pair=pair,
        arm=arm,
        task=task,
        replicate=replicate,
        since_ms=since_ms,
        block=None if block is None else number_of(block, "b", "a block such as b0174"),
        campaign=campaign,
        dry_run=dry_run,
    )


@app.command()
def unvoid(
    ctx: typer.Context,
    reason: Reason = "",
    trial: Annotated[
        str | None, typer.Argument(metavar="[TRIAL]", help="A trial, such as t0871.", autocompletion=offered("voided_trials"))
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", help="The newest trials of a block, such as b0174.", autocompletion=offered("blocks"))
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Everything that was voided in one go.", autocompletion=offered("batches"))
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would come back.")] = False,
    as_json: Json = False,
) -> None:
    """Take voids back, where the cell has no later trial."""
    from marathond.cli import mutate
    from marathond.service.picture.reader import number_of, trial_number

    if sum(value is not None for value in (trial, block, batch)) != 1:
        raise CallFailed("unvoid: give one of TRIAL, --block, --batch", Exit.USAGE)
    ask(
        ctx,
        mutate.unvoid,
        as_json=as_json,
        trial=None if trial is None else trial_number(trial),
        block=None if block is None else number_of(block, "b", "a block such as b0174"),
        batch=batch,
        reason=reason,
        dry_run=dry_run,
    )


@app.command()
def review(
    ctx: typer.Context,
    trial: Annotated[
        str | None,
        typer.Argument(metavar="[TRIAL]", help="Without it: the list of open reviews.", autocompletion=offered("doubtful_trials")),
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help="It counts: as it was read, or with --reward.")] = False,
    void: Annotated[bool, typer.Option("--void", help="It does not count; its cell runs again.")] = False,
    reward: Annotated[float | None, typer.Option("--reward", min=0, max=1, help="The reward you read from the evidence.")] = None,
    code: Annotated[
        str | None,
        typer.Option("--code", help="Of a void: operator, provider, or another void code.", autocompletion=offered("void_codes")),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept with the decision and your name.")] = None,
    campaign: Campaign = None,
    as_json: Json = False,
) -> None:
    """Doubtful trials: list them; show one with the evidence of both sides; or decide one."""
    from marathond.cli import mutate, reviews
    from marathond.service.picture.reader import campaign_id, reading, trial_number

    located = settled(ctx).located().paths
    if trial is None or trial == "list":
        if accept or void or any(value is not None for value in (reward, code, reason)):
            raise CallFailed("review: name the trial to decide", Exit.USAGE)
        with reading(located.ledger) as connection:
            chosen = None if campaign is None else campaign_id(connection, campaign)
            rows = reviews.doubts(connection, None if chosen is None else chosen[0])
        reviews.show_doubts(rows, screen(), now_ms(), as_json=as_json)
        return
    if not accept and not void and all(value is None for value in (reward, code, reason)):
        with reading(located.ledger) as connection:
            case = reviews.find(connection, trial_number(trial), located.state_dir)
        if as_json:
            print_json(reviews.as_json(case, now_ms()))
        else:
            reviews.print_case(case, screen(), now_ms())
        return
    if accept == void or reason is None:
        raise CallFailed("review: give --accept [--reward R] or --void, and --reason", Exit.USAGE)
    ask(ctx, mutate.review, as_json=as_json, trial=trial_number(trial), accept=accept, reward=reward, code=code, reason=reason)


@app.command()
def regrade(
    ctx: typer.Context,
    trials: Trials = None,
    campaign: Campaign = None,
    task: TaskName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would differ; also while marathond runs.")] = False,
    as_json: Json = False,
) -> None:
    """Read stored artifacts again with this version's extractor.  Older scores are kept; a person's word is never overwritten.

    Exit status: 1 when something was refused: a file that is missing, or is not what was exported.
    """
    from marathond.cli import regrade as again
    from marathond.service.effective import score_rules
    from marathond.service.picture.reader import trial_number

    if trials and (campaign is not None or task is not None):
        raise CallFailed("regrade: name trials, or give --campaign and --task, not both", Exit.USAGE)
    chosen = settled(ctx)
    located = chosen.located()
    rules = {}
    if located.config is not None:
        settings = chosen.settings()
        rules = {settings.campaign.name: score_rules(settings)}
    finish(
        again.run(
            located.paths.ledger,
            screen(),
            trials=[trial_number(text) for text in trials or []],
            campaign=campaign,
            task=task,
            rules=rules,
            dry_run=dry_run,
            as_json=as_json,
        )
    )


@app.command()
def retry(
    ctx: typer.Context,
    which: Annotated[str, typer.Argument(metavar="TRIAL|CELL", help="t0871 or c0012.", autocompletion=offered("trials_or_cells"))],
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Open a parked cell again.  A done one is refused: void it first."""
    from marathond.cli import mutate
    from marathond.service.picture.reader import number_of, trial_number

    if which[:1].lower() == "c":
        ask(ctx, mutate.retry, as_json=as_json, cell=number_of(which, "c", "a cell such as c0012"), reason=reason)
    else:
        ask(ctx, mutate.retry, as_json=as_json, trial=trial_number(which), reason=reason)


@app.command()
def unpark(
    ctx: typer.Context,
    reason: Reason = "",
    cell: Annotated[
        str | None, typer.Argument(metavar="[CELL]", help="A cell, such as c0012.", autocompletion=offered("parked_cells"))
    ] = None,
    task: TaskName = None,
    arm: Arm = None,
    everything: Annotated[bool, typer.Option("--all", help="Every parked cell of the campaign.")] = False,
    campaign: Campaign = None,
    as_json: Json = False,
) -> None:
    """Open parked cells again; their passes start anew."""
    from marathond.cli import mutate
    from marathond.service.picture.reader import number_of

    if sum((cell is not None, task is not None, arm is not None, everything)) != 1:
        raise CallFailed("unpark: give one of CELL, --task, --arm, --all", Exit.USAGE)
    number = None if cell is None else number_of(cell, "c", "a cell such as c0012")
    ask(ctx, mutate.unpark, as_json=as_json, cell=number, task=task, arm=arm, all=everything, campaign=campaign, reason=reason)


@app.command()
def pause(ctx: typer.Context, reason: Reason = "", as_json: Json = False) -> None:
    """Start nothing new; what runs goes on."""
    from marathond.cli import mutate

    ask(ctx, mutate.pause, as_json=as_json, reason=reason)


@app.command()
def resume(ctx: typer.Context, reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None, as_json: Json = False) -> None:
    """Open admission again, whatever closed it."""
    from marathond.cli import mutate

    ask(ctx, mutate.resume, as_json=as_json, reason=reason)


@app.command()
def drain(ctx: typer.Context, reason: Reason = "", as_json: Json = False) -> None:
    """Start nothing new; marathond ends with the last running trial."""
    from marathond.cli import mutate

    ask(ctx, mutate.drain, as_json=as_json, reason=reason)


@app.command()
def stop(
    ctx: typer.Context,
    now: Annotated[bool, typer.Option("--now", help="Void what runs (stop_now) and tear it down; needs --reason.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept in the ledger.")] = None,
    as_json: Json = False,
) -> None:
    """End marathond within seconds; running agents go on until the next start takes them over."""
    from marathond.cli import mutate

    if now and reason is None:
        raise CallFailed("stop: --now needs --reason: it voids what runs", Exit.USAGE)
    ask(ctx, mutate.stop, as_json=as_json, now=now, reason=reason or "marathonctl stop")


@app.command()
def submit(ctx: typer.Context, as_json: Json = False) -> None:
    """Let the daemon read its configuration again and add what is new: arms, tasks, replicates.

    Refused where --config, or what is found without it, is another file than the daemon's.
    """
    from marathond.cli import mutate

    config = settled(ctx).located().config
    ask(ctx, mutate.submit, as_json=as_json, config=None if config is None else str(config.absolute()))


@app.command(name="set")
def set_command(
    ctx: typer.Context,
    setting: Annotated[
        str,
        typer.Argument(
            metavar="KEY=VALUE", help="Such as concurrency=8; VALUE default: back to the configuration.", autocompletion=offered("knobs")
        ),
    ],
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Turn an operational knob while trials run.  Lowering never ends a running trial."""
    from marathond.cli import mutate
    from marathond.service.knobs import find_knob, parse_setting

    key, sign, value = setting.partition("=")
    if not sign or not key or not value:
        raise CallFailed(f"set {setting}: must be KEY=VALUE, such as concurrency=8", Exit.USAGE)
    # Checked here, too, for a clear word without a daemon.
    name = find_knob(key.strip()).key
    if value.strip() != "default":
        parse_setting(name, value)
    ask(ctx, mutate.set_knob, as_json=as_json, key=name, value=value.strip(), reason=reason)


@app.command()
def ack(
    ctx: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="NO|CODE", help="As in marathonctl findings.", autocompletion=offered("numbers_or_codes"))
    ],
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Acknowledge a finding: it is still true, and you know it."""
    from marathond.cli import mutate

    if which.isdigit():
        ask(ctx, mutate.ack, as_json=as_json, finding=int(which), reason=reason)
    else:
        ask(ctx, mutate.ack, as_json=as_json, code=which, reason=reason)
