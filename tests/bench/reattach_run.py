"""A client of codex's app-server, killed again and again in mid-turn and mid-goal: does the next one find everything, is nothing run twice?

``python -m tests.bench.reattach_run --times 50``: needs DOCKER_HOST, the base image and root.  Each job is a container with a server,
plain and goal by turns, whose scripted commands append a line each; a life of the client (a process) works on it until it is killed, at a
random message of its own or at a random moment from outside, and another life takes over.  Exit 0 when every killed life was followed by
one that re-attached, every line is there exactly once, every message was taken exactly once, and a thread's tokens are the provider's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from marathond.practice.script import Practice
from tests.support.app_server import app_server
from tests.support.codex_env import codex_binary
from tests.support.codex_life import Job

COMMANDS, COMMAND_S, SPREAD_MESSAGES, SPREAD_S = 8, 1.0, 24, 0.6
LIFE_S = 240.0
ROOT = Path(__file__).resolve().parents[2]
REQUESTS = ("turn/start", "turn/start", "thread/start", "thread/goal/set", "thread/resume")
"""A life may be ended at one of these; where it sends none of that name, it lives on."""


@dataclass
class Tally:
    """``kills`` of lives, ``reattached`` of them, ``in_flight``: those after which a turn was found in flight; ``moments``: what the killed
    life was about; ``found``: kills by what the next life that came so far was attached to.
    """

    kills: int = 0
    reattached: int = 0
    in_flight: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    wrong: list[str] = field(default_factory=list)

    def text(self, seconds: float) -> str:
        lines = [
            f"{self.reattached} of {self.kills} re-attached, {self.in_flight} of them to a turn in flight; "
            f"{self.jobs} jobs, {COMMANDS} commands each, {seconds:.0f} s"
        ]
        lines += [f"  killed {count:3} times {moment}" for moment, count in sorted(self.moments.items())]
        lines += [f"  attached {count:3} times {what}" for what, count in sorted(self.found.items())]
        lines += [f"  WRONG: {what}" for what in self.wrong]
        return "\n".join(lines)


def script(goal: bool, command_s: float) -> Practice:
    """A goal's steps end a turn after every third command."""
    steps: list[dict[str, Any]] = []
    for command in range(COMMANDS):
        steps.append({"run": f"echo {command} >> ran; sleep {command_s}"})
        if goal and command % 3 == 2:
            steps.append({"say": "There is more to do."})
    return Practice.model_validate({"script": [{"step": steps}]})


class Lives:
    """Where lives come from, one at a time."""

    def __init__(self, nursery: asyncio.subprocess.Process) -> None:
        self.nursery = nursery

    async def one(self, job: Job, delay_s: float | None) -> tuple[bool, list[str]]:
        """Run one; killed from outside ``delay_s`` after it had connected.  Whether it came to its own end, and its lines."""
        assert self.nursery.stdin is not None and self.nursery.stdout is not None
        self.nursery.stdin.write(job.line())
        lines: list[str] = []
        killer: asyncio.TimerHandle | None = None
        async with asyncio.timeout(LIFE_S):
            while not lines or not lines[-1].startswith("ended "):
                line = await self.nursery.stdout.readline()
                if not line:
                    raise RuntimeError("the process that forks lives has ended")
                lines.append(line.decode().strip())
                if lines[-1] == "connected" and delay_s is not None:
                    pid = int(lines[0].removeprefix("life "))  # the nursery's child until the nursery says that it ended
                    killer = asyncio.get_running_loop().call_later(delay_s, _kill, pid)
        if killer is not None:
            killer.cancel()
        status = int(lines.pop().removeprefix("ended "))
        if status not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a client ended with exit {status}: {lines[-5:]}")
        return status == 0, lines


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def lives() -> AsyncIterator[Lives]:
    argv = [sys.executable, "-m", "tests.support.codex_life"]
    pipe = asyncio.subprocess.PIPE
    nursery = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=1 << 22, cwd=ROOT)
    try:
        yield Lives(nursery)
    finally:
        assert nursery.stdin is not None
        nursery.stdin.close()
        await nursery.wait()


def moment(lines: list[str]) -> str:
    """What a killed life was about, by its last words."""
    if "connected" not in lines:
        return "before it was connected"
    last = lines[-1]
    if last.startswith("sends "):
        return f"with {last.removeprefix('sends ')} unanswered"
    begun = any(line.startswith("sends turn/start") or line == "begun" for line in lines)
    return "while it listened" if begun and last == "answered" else "between two requests"


async def run_job(source: Lives, job: Job, chance: random.Random, tally: Tally, times: int) -> dict[str, Any]:
    """One job from its beginning to its end, with kills while there are any left; what its last life knows."""
    unanswered = 0
    while True:
        die_at: int | str | None = None
        delay_s: float | None = None
        if tally.in_flight + unanswered < times:
            match chance.randrange(3):
                case 0:
                    die_at = chance.choice(REQUESTS)
                case 1:
                    die_at = chance.randint(1, SPREAD_MESSAGES)
                case _:
                    delay_s = chance.uniform(0, SPREAD_S)
        ended, lines = await source.one(replace(job, die_at=die_at, before=chance.random() < 0.3), delay_s)
        attached = next((line.removeprefix("attached ") for line in lines if line.startswith("attached ")), None)
        if unanswered and attached is not None:
            tally.found[attached] += unanswered
            tally.reattached += unanswered
            tally.in_flight += unanswered if attached == "to a turn" else 0
            unanswered = 0
        if ended:
            known: dict[str, Any] = json.loads(lines[-1].removeprefix("done "))
            return known
        tally.kills += 1
        tally.moments[moment(lines)] += 1
        unanswered += 1


def check(goal: bool, known: dict[str, Any], ran: list[str], billed: int) -> list[str]:
    wrong = []
    if ran != [str(command) for command in range(COMMANDS)]:
        wrong.append(f"its commands wrote {' '.join(ran)}")
    if known["items"].get("commandExecution") != COMMANDS:
        wrong.append(f"{known['items'].get('commandExecution')} commands are told, expected {COMMANDS}")
    if known["items"].get("userMessage") != 1:
        wrong.append(f"{known['items'].get('userMessage')} messages were taken, expected one")
    if set(known["turns"]) != {"completed"} or (not goal and known["turns"] != {"completed": 1}):
        wrong.append(f"turns ended {known['turns']}")
    if known["goal"] != ("complete" if goal else None):
        wrong.append(f"the goal is {known['goal']}")
    # A message that meets a request to the model (one that joins a goal's own turn may) makes codex drop that answer and count it nowhere.
    if known["tokens"] > billed or (not goal and known["tokens"] != billed):
        wrong.append(f"the thread tells {known['tokens']} tokens, the provider {billed}")
    return wrong


async def measure(docker_host: str, binary: Path, times: int, seed: int, command_s: float = COMMAND_S) -> Tally:
    """Kill lives until ``times`` of them left a turn in flight, in jobs that are all brought to their end.

    A job has a container and a server of its own, as a trial has.  ``command_s``: how long each of its commands takes.
    """
    tally, chance = Tally(), random.Random(seed)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="marathond-reattach-"))
        source = await stack.enter_async_context(lives())
        while tally.in_flight < times or tally.jobs < 2:
            goal = tally.jobs % 2 == 1
            async with app_server(docker_host, binary, script(goal, command_s), goals=goal) as (box, provider):
                job = Job(box.reach, "Do it.", f"{folder}/job-{tally.jobs}", goal)
                known = await run_job(source, job, chance, tally, times)
                usage = provider.tally("t1").usage
                wrong = check(goal, known, await box.ran(), usage.input + usage.output)
            tally.wrong += [f"job {tally.jobs}: {what}" for what in wrong]
            tally.jobs += 1
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reattach_run", description="Kill a codex client and look what is lost.")
    parser.add_argument("--times", type=int, default=50, help="kills with a turn in flight (default: 50); others come on top")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="of the moments; default: random")
    options = parser.parse_args()
    began = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    tally = asyncio.run(measure(os.environ["DOCKER_HOST"], codex_binary(), options.times, options.seed))
    print(tally.text(time.monotonic() - began))
    sys.exit(0 if tally.reattached == tally.kills and not tally.wrong else 1)


if __name__ == "__main__":
    main()
