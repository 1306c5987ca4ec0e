"""The daemon of ``tests.bench.live_run``: the product's own main, on an engine whose processes are not this host's.

Owns the two looks at ``/proc`` that such an engine cannot stand: whether a pid is the container's, and which processes ``top`` listed.
Everything else is what ``marathond --config FILE`` runs, watched where it is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import itertools
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from marathond.agents.command import CommandAgent
from marathond.agents.registry import AGENTS
from marathond.core.names import AgentKind
from marathond.engine import processes as procs
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import Process
from marathond.service.main import main as serve
from marathond.service.settings import load

NOTED_S = 0.005
"""A step of the event loop that takes longer is noted by name."""


async def processes(engine: DockerEngine, container_id: str) -> list[Process]:
    """Of ``top``'s own words, for ``/proc`` knows none of these pids."""
    path = f"containers/{container_id}/top"
    raw = await engine._client.request("container.top", "GET", path, params={"ps_args": procs.PS_ARGS})
    return [Process(int(pid), int(ppid), int(session), 1, argv) for pid, ppid, session, argv in raw["Processes"]]


class ModelCommand(CommandAgent):
    """A command that asks a model: listeners, deadlines that move, spending that is looked at."""

    needs_model = True


class Steps:
    """CPU time of each step of the event loop, which other people's load does not lengthen; :meth:`write` begins anew."""

    def __init__(self) -> None:
        self._took: list[tuple[float, str]] = []
        self._count = 0
        self._run = asyncio.Handle._run

    def timed(self, handle: asyncio.Handle) -> None:
        """In the place of :meth:`asyncio.Handle._run`."""
        began = time.thread_time()
        self._run(handle)
        took = time.thread_time() - began
        self._count += 1
        if took > NOTED_S:
            task = getattr(handle._callback, "__self__", None)
            self._took.append((took, task.get_name() if isinstance(task, asyncio.Task) else repr(handle._callback)[:80]))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"steps": self._count, "long": sorted(self._took, reverse=True)[:200]}))
        self._took.clear()
        self._count = 0


def _timing(steps: Steps) -> Callable[[asyncio.Handle], None]:
    """A function, for as a method it is called with its handle."""

    def run(handle: asyncio.Handle) -> None:
        steps.timed(handle)

    return run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live_daemon", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--profile", type=Path, help="at each SIGUSR1 cProfile's statistics since the last one, to this name with -1, -2 …")
    parser.add_argument("--steps", type=Path, help="at each SIGUSR1 the long steps of the event loop since the last one, likewise")
    parser.add_argument("--model", action="store_true", help="commands need a model, as codex does")
    options = parser.parse_args()
    profile, steps, written = cProfile.Profile(time.thread_time), Steps(), itertools.count(1)

    def write(_number: int, _frame: object) -> None:
        number = next(written)
        if options.steps is not None:
            steps.write(options.steps.with_name(f"{options.steps.name}-{number}"))
        if options.profile is not None:
            profile.disable()
            profile.dump_stats(options.profile.with_name(f"{options.profile.name}-{number}"))
            profile.clear()
            profile.enable()

    signal.signal(signal.SIGUSR1, write)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("marathond.engine.proof.belongs", lambda pid, container_id: True))
        stack.enter_context(mock.patch.object(DockerEngine, "processes", processes))
        if options.model:
            stack.enter_context(mock.patch.dict(AGENTS, {AgentKind.COMMAND: ModelCommand()}))
        if options.steps is not None:
            stack.enter_context(mock.patch.object(asyncio.Handle, "_run", _timing(steps)))
        if options.profile is not None:
            profile.enable()
        return serve(load(options.config))


if __name__ == "__main__":
    sys.exit(main())
