"""The command ``marathond``: reads the configuration, runs the daemon, turns refusals into an exit code that systemd respects.

Owns arguments and exit codes.  Must not know what the daemon does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from marathond import __version__
from marathond.core.errors import ConfigError, LedgerRefused, MarathonError, Refused
from marathond.service.protocol import Exit

PASSING_TROUBLE = frozenset({"disk_full", "busy"})
"""Refusals of a ledger that may be gone at the next start; all others stay until a person acts."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"marathond {__version__}")
        raise typer.Exit


@app.command()
def run(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file; by default the usual places.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback for an error that ends the daemon.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Run campaigns from one ledger, in the foreground, until SIGTERM.

    Exit status: 0 stopped as asked, 1 failed, 2 wrong usage, 78 refused to start (starting again changes nothing).
    """
    try:
        from marathond.service.main import main as serve
        from marathond.service.settings import load

        status = serve(load(config))
    except MarathonError as error:
        if debug:
            raise
        for line in str(error).splitlines():
            print(f"marathond: {line}", file=sys.stderr)
        status = exit_code(error)
    if status:
        raise typer.Exit(status)


def exit_code(error: MarathonError) -> int:
    """78 for what only a person can mend, 1 for what another start may mend."""
    if isinstance(error, LedgerRefused):
        return Exit.FAILED if error.code in PASSING_TROUBLE else Exit.REFUSED_TO_START
    return Exit.REFUSED_TO_START if isinstance(error, ConfigError | Refused) else Exit.FAILED


def main() -> None:
    """Entry point."""
    app(prog_name="marathond")


if __name__ == "__main__":
    main()
