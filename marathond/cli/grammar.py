"""The grammar of ``marathonctl``: every sub-command, its arguments and its help.

Owns names and types of arguments.  What a command does lies in the module of its own; it is imported when the command runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marathond import __version__
from marathond.cli import config_cmds
from marathond.cli.client import CallFailed
from marathond.cli.output import print_json, say, screen
from marathond.core.errors import ConfigError
from marathond.core.paths import ENV_CONFIG
from marathond.service.protocol import Exit

if TYPE_CHECKING:
    from marathond.cli.locate import Located
    from marathond.cli.mutate import Mutation
    from marathond.service.settings import Settings

_PLAIN = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "no_args_is_help": True}

app = typer.Typer(add_completion=True, help="Look at, steer and question marathond.", **_PLAIN)  # type: ignore[arg-type]
ledger_app = typer.Typer(help="The ledger file itself: adopt a copy, check, back up.", **_PLAIN)  # type: ignore[arg-type]
app.add_typer(ledger_app, name="ledger")
app.add_typer(config_cmds.app, name="config")

Trials = Annotated[list[str] | None, typer.Argument(metavar="[TRIAL]...", help="Trials, such as t0871.")]
Trial = Annotated[str, typer.Argument(metavar="TRIAL", help="A trial, such as t0871.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the decision and your name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Campaign = Annotated[str | None, typer.Option("--campaign", help="A campaign by name; by default the newest.")]
Arm = Annotated[str | None, typer.Option("--arm", help="Only of this arm.")]
TaskName = Annotated[str | None, typer.Option("--task", help="Only of this task.")]


@dataclass(frozen=True, slots=True)
class _Globals:
    config: Path | None

    def located(self) -> Located:
        from marathond.cli.locate import locate

        return locate(self.config)

    def settings(self) -> Settings:
        from marathond.service.settings import load

        return load(self.config)


def invoke(argv: Sequence[str]) -> int:
    """Run one command line through typer; its exit code."""
    try:
        app(args=list(argv), prog_name="marathonctl")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(Exit.OK)
    return Exit.OK


def _finish(code: int) -> None:
    if code:
        raise typer.Exit(int(code))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _globals(ctx: typer.Context) -> _Globals:
    found = ctx.find_object(_Globals)
    assert found is not None
    return found


def _ask(ctx: typer.Context, mutation: Mutation, **args: Any) -> None:
    """Send one request to the daemon; arguments that were not given are left out."""
    given = {key: value for key, value in args.items() if value not in (None, False, [])}
    _finish(mutation(_globals(ctx).located().paths.control_socket, given))


def _version(wanted: bool) -> None:
    if wanted:
        say(f"marathonctl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file; by default the usual places.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback for an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Look at, steer and question marathond.

    Exit status: 0 healthy, 1 degraded or failed, 2 usage, 3 daemon down, 4 cannot see, 75 busy.
    """
    ctx.obj = _Globals(config)
    if config is not None and ctx.invoked_subcommand == "config":
        os.environ[ENV_CONFIG] = str(config)  # these commands find the file by themselves


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


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

    _finish(status.run(status.Options(_globals(ctx).config, campaign, as_json, watch)))


@app.command()
def show(ctx: typer.Context, trial: Trial, as_json: Json = False) -> None:
    """Everything about one trial, and where each value came from."""
    from marathond.cli import show as view
    from marathond.cli.reader import reading, trial_number

    paths = _globals(ctx).located().paths
    with reading(paths.ledger) as connection:
        found = view.find(connection, trial_number(trial))
    if as_json:
        print_json(view.as_json(found))
    else:
        view.print_trial(found, paths.state_dir, _now_ms())


@app.command()
def logs(
    ctx: typer.Context,
    trial: Trial,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the trial's phase is over.")] = False,
    verifier: Annotated[bool, typer.Option("--verifier", help="The verifier's output instead of the agent's.")] = False,
) -> None:
    """What a trial's agent (or verifier) wrote."""
    from marathond.cli import logs as view
    from marathond.cli.reader import check_trial, reading, trial_number
    from marathond.core.model import LIVE_STATES

    paths, number = _globals(ctx).located().paths, trial_number(trial)
    with reading(paths.ledger) as connection:
        check_trial(connection, number)
        row = connection.execute(
            """SELECT out_dir, folder FROM trial JOIN cell USING (cell_id) JOIN campaign USING (campaign_id)
               LEFT JOIN artifact_export USING (trial_id) WHERE trial_id = ?""",
            (number,),
        ).fetchone()
    export = None if row["folder"] is None else Path(row["out_dir"]) / row["folder"]
    path = view.log_file(paths.state_dir, export, number, verifier=verifier)
    writing = LIVE_STATES if verifier else LIVE_STATES - {"verifying"}

    def goes_on() -> bool:
        with reading(paths.ledger) as connection:
            state = connection.execute("SELECT state FROM trial WHERE trial_id = ?", (number,)).fetchone()
        return state[0] in writing

    view.show(path, goes_on if follow else None)


@app.command(name="exec", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def exec_command(
    ctx: typer.Context,
    trial: Trial,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]...", help="The command and its arguments.")],
    user: Annotated[str | None, typer.Option("--user", "-u", help="Another user than the arm's.")] = None,
) -> None:
    """Run a command in a trial's container, with its arm's variables, user and folder.  Exit status: the command's."""
    from marathond.cli import exec as runner
    from marathond.cli.reader import check_trial, reading, trial_number

    settings = _globals(ctx).settings()
    number = trial_number(trial)
    with reading(settings.daemon.ledger) as connection:
        check_trial(connection, number)
        context, container_id = runner.container_of(connection, number)
    argv = command[1:] if command[0] == "--" else command
    _finish(runner.run(context, container_id, argv, engine_url=settings.engine.url, user=user))


@app.command()
def pool(
    ctx: typer.Context,
    foreign: Annotated[bool, typer.Option("--foreign", help="List others' networks, with a command that removes each.")] = False,
    as_json: Json = False,
) -> None:
    """Networks: capacity, ours, leaked, others'.  Exit status: 4 when the capacity is unknown."""
    from marathond.cli import pool as view
    from marathond.cli.reader import reading

    chosen = _globals(ctx)
    try:
        url = chosen.settings().engine.url
    except ConfigError:
        url = None  # the commands then go to whatever the person's docker talks to
    with reading(chosen.located().paths.ledger) as connection:
        report = view.gather(connection, url, _now_ms())
    if as_json:
        print_json(view.as_json(report))
    else:
        view.show(report, screen(), _now_ms(), foreign=foreign)
    _finish(Exit.BLIND if view.blind(report) else Exit.OK)


@app.command()
def findings(ctx: typer.Context, as_json: Json = False) -> None:
    """What a person must know, worst first.  Exit status: 1 when an error is not acknowledged."""
    from marathond.cli import lists
    from marathond.cli.reader import reading

    with reading(_globals(ctx).located().paths.ledger) as connection:
        rows = lists.findings(connection)
    lists.show_findings(rows, screen(), _now_ms(), as_json=as_json)
    _finish(Exit.FAILED if lists.unacknowledged_alarm(rows) else Exit.OK)


@app.command()
def sql(
    ctx: typer.Context,
    statement: Annotated[str, typer.Argument(help="One reading statement; - reads it from stdin.")],
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds.")] = 60.0,
) -> None:
    """Question the ledger; views: v_cell v_trial v_event v_arm v_pair v_pool v_void v_finding."""
    import sys
    from contextlib import closing

    from marathond.cli import sql as view
    from marathond.ledger.open import house_errors, open_readonly

    if as_json and as_csv:
        raise CallFailed("sql: --json or --csv, not both", Exit.USAGE)
    text = sys.stdin.read(1 << 20) if statement == "-" else statement
    ledger = _globals(ctx).located().paths.ledger
    with closing(open_readonly(ledger)) as connection, house_errors(ledger):
        names, rows = view.query(connection, text, timeout_s=timeout)
        view.print_rows(names, rows, "json" if as_json else "csv" if as_csv else "table", screen())


@app.command(name="wait")
def wait_command(
    ctx: typer.Context,
    trial: Annotated[str | None, typer.Argument(metavar="[TRIAL]", help="A trial; without it, the whole campaign.")] = None,
    campaign: Campaign = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="Seconds; by default for ever.")] = None,
) -> None:
    """Until the campaign is done, or the trial is at rest.

    Exit status: 0 all scored, 1 something is parked, voided or in review, 3 the daemon is down, 75 the time is up.
    """
    from marathond.cli import wait
    from marathond.cli.reader import trial_number

    paths = _globals(ctx).located().paths
    number = None if trial is None else trial_number(trial)
    look = (lambda c: wait.campaign_outcome(c, campaign)) if number is None else (lambda c: wait.trial_outcome(c, number))
    _finish(wait.wait(paths.ledger, paths.control_socket, look, timeout))


@app.command()
def plan(
    ctx: typer.Context,
    cells: Annotated[bool, typer.Option("--cells", help="List every cell.")] = False,
    as_json: Json = False,
) -> None:
    """What the configuration would run: cells, order, hours, networks, what parks and why.  Records nothing.

    Exit status: 1 when something parks, 4 when the engine's host cannot be asked.
    """
    from marathond.cli import plan as view

    settings = _globals(ctx).settings()
    engine = view.ask_engine(settings)
    made = view.make_plan(settings, os.environ, engine)
    if as_json:
        print_json(view.as_json(made))
    else:
        view.show(made, screen(), all_cells=cells)
    _finish(Exit.FAILED if made.parked_cells else Exit.BLIND if isinstance(engine, str) else Exit.OK)


# ── deciding ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def void(
    ctx: typer.Context,
    reason: Reason,
    trials: Trials = None,
    code: Annotated[str, typer.Option("--code", help="operator, provider, or another void code.")] = "operator",
    pair: Annotated[bool, typer.Option("--pair", help="With every standing trial of the same task and replicate.")] = False,
    arm: Arm = None,
    task: TaskName = None,
    replicate: Annotated[int | None, typer.Option("--replicate", min=1, help="Only of this replicate.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only begun since: 90m, 2h, 1d or an ISO-8601 time.")] = None,
    campaign: Campaign = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be voided.")] = False,
) -> None:
    """Withdraw trials: infrastructure made them meaningless.  Their cells run again; rows, scores and artifacts are kept."""
    from marathond.cli import mutate
    from marathond.cli.reader import trial_number

    ids = [trial_number(text) for text in trials or []]
    filters = (arm, task, replicate, since)
    if bool(ids) == any(value is not None for value in filters):
        raise CallFailed("void: name trials, or give filters (--arm, --task, --replicate, --since); not both", Exit.USAGE)
    since_ms = None if since is None else mutate.since(since, _now_ms())
    _ask(
        ctx,
        mutate.void,
        trials=ids,
        reason=reason,
        code=code,
        pair=pair,
        arm=arm,
        task=task,
        replicate=replicate,
        since_ms=since_ms,
        campaign=campaign,
        dry_run=dry_run,
    )


@app.command()
def unvoid(
    ctx: typer.Context,
    reason: Reason,
    trial: Annotated[str | None, typer.Argument(metavar="[TRIAL]")] = None,
    block: Annotated[str | None, typer.Option("--block", help="The newest trials of a block, such as b0174.")] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="Everything that was voided in one go.")] = None,
) -> None:
    """Take voids back, where the cell has no later trial."""
    from marathond.cli import mutate
    from marathond.cli.reader import number_of, trial_number

    if sum(value is not None for value in (trial, block, batch)) != 1:
        raise CallFailed("unvoid: give one of TRIAL, --block, --batch", Exit.USAGE)
    _ask(
        ctx,
        mutate.unvoid,
        trial=None if trial is None else trial_number(trial),
        block=None if block is None else number_of(block, "b", "a block such as b0174"),
        batch=batch,
        reason=reason,
    )


@app.command()
def review(
    ctx: typer.Context,
    trial: Annotated[str | None, typer.Argument(metavar="[TRIAL]", help="Without it: the list of open reviews.")] = None,
    accept: Annotated[bool, typer.Option("--accept", help="It counts, with --reward.")] = False,
    void: Annotated[bool, typer.Option("--void", help="It does not count; its cell runs again.")] = False,
    reward: Annotated[float | None, typer.Option("--reward", min=0, max=1, help="The reward you read from the evidence.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept with the decision and your name.")] = None,
    campaign: Campaign = None,
    as_json: Json = False,
) -> None:
    """Doubtful trials: list them, or decide one."""
    from marathond.cli import lists, mutate
    from marathond.cli.reader import campaign_id, reading, trial_number

    if trial is None or trial == "list":
        if accept or void:
            raise CallFailed("review: name the trial to decide", Exit.USAGE)
        with reading(_globals(ctx).located().paths.ledger) as connection:
            chosen = None if campaign is None else campaign_id(connection, campaign)
            rows = lists.doubts(connection, None if chosen is None else chosen[0])
        lists.show_doubts(rows, screen(), _now_ms(), as_json=as_json)
        return
    if accept == void or reason is None:
        raise CallFailed("review: give --accept --reward R or --void, and --reason", Exit.USAGE)
    _ask(ctx, mutate.review, trial=trial_number(trial), accept=accept, reward=reward, reason=reason)


@app.command()
def retry(ctx: typer.Context, which: Annotated[str, typer.Argument(metavar="TRIAL|CELL", help="t0871 or c0012.")], reason: Reason) -> None:
    """Open a parked cell again.  A done one is refused: void it first."""
    from marathond.cli import mutate
    from marathond.cli.reader import number_of, trial_number

    if which[:1].lower() == "c":
        _ask(ctx, mutate.retry, cell=number_of(which, "c", "a cell such as c0012"), reason=reason)
    else:
        _ask(ctx, mutate.retry, trial=trial_number(which), reason=reason)


@app.command()
def unpark(
    ctx: typer.Context,
    reason: Reason,
    cell: Annotated[str | None, typer.Argument(metavar="[CELL]", help="A cell, such as c0012.")] = None,
    task: TaskName = None,
    arm: Arm = None,
    everything: Annotated[bool, typer.Option("--all", help="Every parked cell of the campaign.")] = False,
    campaign: Campaign = None,
) -> None:
    """Open parked cells again; their passes start anew."""
    from marathond.cli import mutate
    from marathond.cli.reader import number_of

    number = None if cell is None else number_of(cell, "c", "a cell such as c0012")
    _ask(ctx, mutate.unpark, cell=number, task=task, arm=arm, all=everything, campaign=campaign, reason=reason)


@app.command()
def pause(ctx: typer.Context, reason: Reason) -> None:
    """Start nothing new; what runs goes on."""
    from marathond.cli import mutate

    _ask(ctx, mutate.pause, reason=reason)


@app.command()
def resume(ctx: typer.Context, reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None) -> None:
    """Open admission again, whatever closed it."""
    from marathond.cli import mutate

    _ask(ctx, mutate.resume, reason=reason)


@app.command()
def drain(ctx: typer.Context, reason: Reason) -> None:
    """Start nothing new; marathond ends with the last running trial."""
    from marathond.cli import mutate

    _ask(ctx, mutate.drain, reason=reason)


@app.command()
def stop(
    ctx: typer.Context,
    now: Annotated[bool, typer.Option("--now", help="Void what runs (stop_now) and tear it down; needs --reason.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept in the ledger.")] = None,
) -> None:
    """End marathond within seconds; running agents go on until the next start takes them over."""
    from marathond.cli import mutate

    if now and reason is None:
        raise CallFailed("stop: --now needs --reason: it voids what runs", Exit.USAGE)
    _ask(ctx, mutate.stop, now=now, reason=reason or "marathonctl stop")


@app.command()
def submit(ctx: typer.Context) -> None:
    """Let the daemon read its configuration again and add what is new: arms, tasks, replicates."""
    from marathond.cli import mutate

    _ask(ctx, mutate.submit)


@app.command(name="set")
def set_command(
    ctx: typer.Context,
    setting: Annotated[str, typer.Argument(metavar="KEY=VALUE", help="Such as concurrency=8; VALUE default: back to the configuration.")],
    reason: Reason,
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
    _ask(ctx, mutate.set_knob, key=name, value=value.strip(), reason=reason)


@app.command()
def ack(
    ctx: typer.Context, which: Annotated[str, typer.Argument(metavar="NO|CODE", help="As in marathonctl findings.")], reason: Reason
) -> None:
    """Acknowledge a finding: it is still true, and you know it."""
    from marathond.cli import mutate

    if which.isdigit():
        _ask(ctx, mutate.ack, finding=int(which), reason=reason)
    else:
        _ask(ctx, mutate.ack, code=which, reason=reason)


# ── keeping house ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command(name="clean")
def clean_command(
    ctx: typer.Context,
    ledger: Annotated[str | None, typer.Option("--ledger", help="Id of the lost ledger; without it: which ids there are.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really remove; without it, only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what a lost ledger left on the engine: containers, then networks, by its label and nothing else."""
    from marathond.cli import clean

    settings = _globals(ctx).settings()
    _finish(clean.run(settings, ledger, really=yes, as_json=as_json))


@app.command()
def init(ctx: typer.Context) -> None:
    """Make the ledger and its folders.  What exists is left as it is."""
    from marathond.cli import house

    paths = _globals(ctx).located().paths
    _finish(house.init(paths.ledger, [paths.state_dir, paths.out_dir]))


@ledger_app.command(name="adopt")
def adopt_command(
    ctx: typer.Context,
    moved: Annotated[bool, typer.Option("--moved", help="It is the ledger itself, at a new place.")] = False,
    copy: Annotated[bool, typer.Option("--copy", help="It is a copy; trials in work belong to the original and are void here.")] = False,
) -> None:
    """Tell a ledger that was moved or copied where it is now.  No daemon may use it meanwhile."""
    from marathond.cli import house
    from marathond.ledger.adopt import How

    if moved == copy:
        raise CallFailed("ledger adopt: say --moved or --copy", Exit.USAGE)
    _finish(house.adopt_ledger(_globals(ctx).located().paths.ledger, How.MOVED if moved else How.COPY))


@ledger_app.command(name="check")
def check_command(ctx: typer.Context) -> None:
    """Check the whole file.  Exit status: 1 when something is wrong."""
    from marathond.cli import house

    _finish(house.check(_globals(ctx).located().paths.ledger))


@ledger_app.command(name="backup")
def backup_command(
    ctx: typer.Context, target: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make; it must not exist.")]
) -> None:
    """Make a consistent copy, also while the daemon runs."""
    from marathond.cli import house

    _finish(house.backup(_globals(ctx).located().paths.ledger, target))
