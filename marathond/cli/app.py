"""The frame of ``marathonctl``'s grammar: the typer application, the global options and the types that commands share.

Owns what every sub-command needs.  The sub-commands register themselves from :mod:`commands_look`, :mod:`commands_decide` and
:mod:`commands_keep`; what they do lies in modules of their own, imported when a command runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marathond import __version__
from marathond.cli import config_cmds
from marathond.cli.client import DaemonDown
from marathond.cli.grouped_help import GroupedHelp
from marathond.cli.output import say
from marathond.cli.settled import Settled
from marathond.service.exits import CallFailed, Exit

if TYPE_CHECKING:
    from marathond.cli.mutate import Mutation

app = typer.Typer(cls=GroupedHelp, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)
ledger_app = typer.Typer(
    help="The ledger file itself: adopt a copy, check, back up.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(config_cmds.app, name="config")


def _reasoned(ctx: typer.Context, value: str) -> str:
    """A forgotten reason is one line: it is the commonest slip, and a usage block would hide what is missing."""
    if not value.strip() and not ctx.resilient_parsing:
        text = f'{ctx.info_name}: --reason "…" is needed: say why, it is kept with the decision and your name'
        raise CallFailed(text, Exit.USAGE)
    return value


def offered(name: str) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    """The values of that name in :mod:`marathond.cli.complete`, which is imported at a tab alone."""

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        from marathond.cli import complete as values

        completer: Callable[[typer.Context, str], list[tuple[str, str]]] = getattr(values, name)
        return completer(ctx, incomplete)

    return complete


Trials = Annotated[
    list[str] | None, typer.Argument(metavar="[TRIAL]...", help="Trials, such as t0871.", autocompletion=offered("standing_trials"))
]
Trial = Annotated[str, typer.Argument(metavar="TRIAL", help="A trial, such as t0871.", autocompletion=offered("trials"))]
Reason = Annotated[
    str, typer.Option("--reason", help="Why (needed); kept with the decision and your name.", callback=_reasoned, show_default=False)
]
"""Its default is an empty text, which is refused."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON; marathonctl schema tells its fields.")]
Campaign = Annotated[
    str | None, typer.Option("--campaign", help="A campaign by name; by default the newest.", autocompletion=offered("campaigns"))
]
Arm = Annotated[str | None, typer.Option("--arm", help="Only of this arm.", autocompletion=offered("arms"))]
TaskName = Annotated[str | None, typer.Option("--task", help="Only of this task.", autocompletion=offered("tasks"))]


def settled(ctx: typer.Context) -> Settled:
    found = ctx.find_object(Settled)
    assert found is not None
    return found


def finish(code: int) -> None:
    """End the command with ``code``; 0 goes on to its ordinary end."""
    if code:
        raise typer.Exit(int(code))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def ask(ctx: typer.Context, mutation: Mutation, *, as_json: bool, **args: Any) -> None:
    """Send one request to the daemon and print its answer; arguments that were not given are left out.

    What concerns imported trials alone is carried out here when no daemon runs.
    """
    # By identity: 0 equals False, and a reward of 0 is given.
    given = {key: value for key, value in args.items() if value is not None and value is not False and value != []}
    paths = settled(ctx).located().paths
    try:
        code = mutation(paths.control_socket, given, as_json=as_json)
    except DaemonDown:
        from marathond.cli import withdraw

        if (done := withdraw.without_daemon(paths.ledger, mutation, given, as_json=as_json)) is None:
            raise
        code = done
    finish(code)


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
    ctx.obj = Settled(config)
