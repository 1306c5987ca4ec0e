"""``make soak MINUTES=… SEED=…``: kill daemon, gateway and dockerd under a running campaign for so long, then count.

Needs DOCKER_HOST and MARATHOND_BASE_IMAGE, which set-up provides, and root: its dockerd is one of its own.  Exit status 0: every line of
the table is ok; 1: one is not, and the table names the folder with the evidence; 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import anyio

from marathond.demo.host import SetupError, say
from tests.soak import leavings
from tests.soak.cells import Cells
from tests.soak.count import Line, table
from tests.soak.run import Plan, soak
from tests.support.codex_env import codex_tree
from tests.support.loopx_env import loopx_tree
from tests.support.private_engine import PrivateEngine, missing, private_dockerd

KILLS_A_MINUTE = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Kill everything but the agents, then count.")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of kills of daemon and gateway (default: 30); dockerd and the drain on top"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="of the moments; default: random")
    parser.add_argument("--dockerd-kills", type=int, default=5, help="afterwards, under live-restore (default: 5)")
    parser.add_argument("--drain-s", type=float, default=1500.0, help="how long what is left may take without any kill (default: 1500)")
    parser.add_argument("--no-loopx", action="store_true", help="without LoopX's two arms")
    given = parser.parse_args(arguments)
    if given.minutes <= 0:
        parser.error("--minutes must be positive")
    if reason := missing():
        parser.error(reason)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    kills, cells = int(KILLS_A_MINUTE * given.minutes), Cells(loopx=not given.no_loopx)
    plan = Plan(given.minutes, given.seed, kills, given.dockerd_kills, drain_s=given.drain_s, cells=cells)
    began_s = time.monotonic()
    try:
        codex_tree()
        if plan.cells.loopx:
            loopx_tree()
        lines = _on_an_engine(plan)
    except SetupError as err:
        say(str(err))
        return 1
    except KeyboardInterrupt:
        say("soak: interrupted; everything that it made is removed")
        return 130
    print(table(lines))
    failed = sum(line.ok is False for line in lines)
    verdict = f"{failed} lines FAIL" if failed else "all lines ok"
    print(f"soak of {given.minutes:g} min, seed {given.seed}: {verdict}, {time.monotonic() - began_s:.0f} s in all")
    return 1 if failed else 0


def _on_an_engine(plan: Plan) -> list[Line]:
    """The soak and, when its engine is gone as well, a look for what of that one is left."""
    say(f"soak: seed {plan.seed}, a dockerd of its own")
    with private_dockerd(Path("/tmp"), live_restore=True) as engine:
        engine.load(os.environ["DOCKER_HOST"], os.environ["MARATHOND_BASE_IMAGE"])
        try:
            lines = anyio.run(_interruptible, engine, plan)
        finally:
            for number in SIGNALS:  # what follows only removes, and is bounded
                signal.signal(number, signal.SIG_IGN)
    found = leavings.in_kernel(engine.root)
    cases = [f"{kind}: {name}" for kind, names in found.items() for name in sorted(names)]
    netns = Path("/run/netns", engine.netns)
    cases += [f"namespace {netns}"] if netns.exists() else []
    lines.append(Line("nothing left of the engine", not cases, ", ".join(f"{len(names)} {kind}" for kind, names in found.items()), cases))
    return lines


async def _interruptible(engine: PrivateEngine, plan: Plan) -> list[Line]:
    """Raises KeyboardInterrupt once everything is removed; a terminal's Ctrl-C comes twice, by the process group and by the wrapper."""
    work, watching = anyio.CancelScope(), anyio.CancelScope(shield=True)

    async def watch() -> None:
        with watching, anyio.open_signal_receiver(*SIGNALS) as received:
            async for _ in received:
                say("soak: interrupted: ending and removing everything")
                work.cancel()

    lines: list[Line] = []
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            with work:
                lines = await soak(engine, plan, lambda text: say(f"soak: {text}"))
        finally:
            watching.cancel()
    if work.cancelled_caught:
        raise KeyboardInterrupt
    return lines


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
