"""The command ``marathond``: reads the configuration, runs the daemon, turns refusals into an exit code that systemd respects.

Its sub-commands are the other processes of the house, the gateway and the practice provider.  Owns arguments and exit codes.  Must not
know what any of the three does.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from marathond import __version__
from marathond.core.errors import PASSING, ConfigError, LedgerRefused, MarathonError, Refused
from marathond.service.exits import Exit

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, subcommand_metavar="[COMMAND [ARGS]...]")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"marathond {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def run(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file; by default the usual places.")] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="End the daemon that holds the ledger first (SIGTERM, in the end SIGKILL); trials go on.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback for an error that ends the daemon.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Run campaigns from one ledger, in the foreground, until SIGTERM; or one of the processes beside the daemon.

    Exit status: 0 stopped as asked, 1 failed, 2 wrong usage, 78 refused to start, or replaced by another daemon (starting again changes
    nothing).
    """
    if ctx.invoked_subcommand is not None:
        if config is not None or debug or take_over:
            options = "--config, --take-over and --debug are the daemon's"
            raise typer.BadParameter(f"{options}: {ctx.invoked_subcommand} takes none of them", ctx=ctx)
        return
    try:
        from marathond.service.main import main as serve
        from marathond.service.settings import load

        status = serve(load(config), take_over=take_over)
    except MarathonError as error:
        if debug:
            raise
        from marathond.cli.refusals import lines_of
        from marathond.core.text import clean
        from marathond.service.journal import level_mark

        mark = level_mark("error", os.environ, sys.stderr)
        for line in lines_of(error):
            print(f"{mark}marathond: {clean(line, 2000)}", file=sys.stderr)
        status = exit_code(error)
    _end(status)


@app.command()
def gateway(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where gateway.json lies; listeners and the journal are below it.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for gateway.json, which the daemon writes.")] = False,
) -> None:
    """Carry agents' requests to their model provider.

    Runs until SIGTERM; the daemon and its agents may come and go meanwhile.  Exit status as of marathond itself.
    """
    from marathond.gateway.__main__ import main as carry
    from marathond.service.logs import configure
    from marathond.service.notify import Notifier

    notifier = Notifier(os.environ)
    log_to = partial(configure, "info", "auto", "marathond-gateway")
    _end(carry([str(folder)], wait=wait, on_ready=lambda: notifier.ready("carries requests"), on_poll=notifier.watchdog, log_to=log_to))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def practice(ctx: typer.Context) -> None:
    """Stand in for a model provider, from a script."""
    from marathond.practice.__main__ import main as answer

    _end(answer(ctx.args))


def _end(status: int) -> None:
    if status:
        raise typer.Exit(status)


def exit_code(error: MarathonError) -> int:
    """78 for what only a person can mend, 1 for what another start may mend."""
    if isinstance(error, LedgerRefused):
        return Exit.FAILED if error.code in PASSING else Exit.REFUSED_TO_START
    return Exit.REFUSED_TO_START if isinstance(error, ConfigError | Refused) else Exit.FAILED


def main() -> None:
    """Entry point."""
    from marathond.cli.usage import invoke

    sys.exit(invoke(app, sys.argv[1:], "marathond"))


if __name__ == "__main__":
    main()
