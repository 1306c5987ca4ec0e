"""``marathonctl exec TRIAL -- CMD``: a command in a trial's container, as its agent would run it.

Owns which container, and whose environment, user and folder.  HOME comes from the container's own user database through Docker, as for
the agent, unless the arm sets it.  Nothing runs before the ledger has it: by the daemon, or, while none lives, by this command itself.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio

from marathond.cli.client import DaemonDown, call
from marathond.cli.output import note
from marathond.cli.terminal import run_in_container
from marathond.core.model import Unrunnable
from marathond.core.names import LIVE_STATES, TrialState, trial_label
from marathond.core.text import clean, printable
from marathond.engine.client import EngineClient
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ledger.verbs.reached import COMMAND_MAX, reached_into
from marathond.ports.clock import SystemClock
from marathond.ports.engine import ExecSpec
from marathond.service.exits import CallFailed
from marathond.service.offline import offline_writer
from marathond.service.peers import user_name
from marathond.tasks.harbor import read_task

CALL_TIMEOUT_S = 30.0


def container_of(connection: sqlite3.Connection, trial_id: int) -> tuple[TrialContext, str]:
    """The trial and the id of its container.

    :raises CallFailed: it has none (yet, or any more).
    """
    context = cell_context(connection, trial_id)
    container = context.container
    if container is None or container.docker_id is None:
        yet = "yet" if context.state in LIVE_STATES else "and never had one"
        raise CallFailed(f"{trial_label(trial_id)} is {context.state}: no container {yet}")
    if container.gone_at_ms is not None:
        raise CallFailed(
            f"{trial_label(trial_id)} is {context.state}: its container is gone; its files: marathonctl show {trial_label(trial_id)}"
        )
    return context, container.docker_id


def exec_spec(context: TrialContext, argv: Sequence[str], *, user: str | None, terminal: str | None) -> ExecSpec:
    """As the arm runs its agent: its variables (PATH and HOME included) over the container's, its user, its folder.

    :param user: instead of the arm's; None: the arm's, else the task's, else the image's.
    """
    arm = context.arm_data
    env = {**(arm.get("env") or {})}
    if terminal:
        env.setdefault("TERM", terminal)
    return ExecSpec(tuple(argv), env=env, user=user or arm.get("user") or _task_user(context), cwd=arm.get("cwd"))


def _task_user(context: TrialContext) -> str | None:
    """The ledger keeps no user of a task, so the task is read again, as the daemon does at each start."""
    task = read_task(Path(context.task_path))
    if isinstance(task, Unrunnable):
        note(f"the task's user is unknown ({clean(task.detail)}); taking the image's, or name one with --user")
        return None
    return task.agent_user


def record(socket: Path, ledger: Path, trial_id: int, argv: Sequence[str], *, user: str | None) -> None:
    """Who runs what in which trial, before it runs.

    :raises CallFailed, LedgerRefused: it cannot be written down, and so must not run.
    """
    command = printable(shlex.join(argv), COMMAND_MAX) or "''"
    asked = {"trial": trial_id, "command": command, **({"user": user} if user else {})}
    try:
        call(socket, "exec", asked)
    except DaemonDown:
        written = partial(reached_into, command=command, user=user or "", author=user_name(os.getuid()), now_ms=SystemClock().wall_ms())
        with offline_writer(ledger, "marathonctl exec") as writer:
            writer.write(written, trial_id)


def run(context: TrialContext, container_id: str, argv: Sequence[str], *, engine_url: str, user: str | None) -> int:
    """Returns the command's exit code.  A terminal is allocated when stdin and stdout are one."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    spec = exec_spec(context, argv, user=user, terminal=os.environ.get("TERM") if interactive else None)
    if context.state in (TrialState.RUNNING, TrialState.VERIFYING):
        note(f"{trial_label(context.trial_id)} is {context.state}: what this command changes becomes part of the trial; it is written down")

    async def attached() -> int:
        client = EngineClient(engine_url, CALL_TIMEOUT_S)
        try:
            return await run_in_container(client, container_id, spec, interactive=interactive)
        finally:
            await client.aclose()

    return anyio.run(attached)
