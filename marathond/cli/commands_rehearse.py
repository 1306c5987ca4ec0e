"""The sub-commands that try a campaign before it is paid for: verify-envs, canary.

Owns their arguments and help.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from marathond.cli.app import Json, app, finish, settled

Keep = Annotated[bool, typer.Option("--keep", help="Leave the rehearsal's folder (ledger, logs, run directories) and name it.")]


class Provider(StrEnum):
    """Who answers."""

    PRACTICE = "practice"
    REAL = "real"


@app.command(name="verify-envs")
def verify_envs_command(
    ctx: typer.Context,
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this task; may be given again.")] = None,
    arm: Annotated[list[str] | None, typer.Option("--arm", help="Only this arm; may be given again.")] = None,
    keep: Keep = False,
    as_json: Json = False,
) -> None:
    """Bring every task up with every arm, pass all gates, take it down: not a token is spent.

    Works without the daemon and beside it, in a ledger of its own.  Exit status: 1 when an environment is not ok.
    """
    from marathond.cli import verify_envs

    finish(verify_envs.run(settled(ctx).settings(), tasks=task or [], arms=arm or [], keep=keep, as_json=as_json))


@app.command(name="canary")
def canary_command(
    ctx: typer.Context,
    task: Annotated[str | None, typer.Option("--task", help="The task to try them on; by default the first.")] = None,
    provider: Annotated[Provider, typer.Option("--provider", help="practice: a script that works for ever; real: the configured one.")] = (
        Provider.PRACTICE
    ),
    max_usd: Annotated[float | None, typer.Option("--max-usd", min=0.01, help="With --provider real: most that all arms may cost.")] = None,
    deadline_s: Annotated[
        float | None, typer.Option("--deadline", min=5, max=7200, help="Seconds of each agent; by default 25, with the real provider 300.")
    ] = None,
    keep: Keep = False,
    as_json: Json = False,
) -> None:
    """Run all arms into a spent budget on one task, and see that the same deadline fired and all were graded alike.

    Works without the daemon and beside it, in a ledger of its own.  Exit status: 1 something is wrong, 4 it cannot be told.
    """
    from marathond.cli import canary

    code = canary.run(
        settled(ctx).settings(), task=task, provider=provider.value, max_usd=max_usd, deadline_s=deadline_s, keep=keep, as_json=as_json
    )
    finish(code)
