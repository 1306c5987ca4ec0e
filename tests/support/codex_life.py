"""Lives of a client that may be killed at any moment: a small driver that keeps to the rule of ``agents/codex/attach``.

``python -m tests.support.codex_life`` takes jobs, one JSON object a line, and forks a process for each: a life, which works on the job
until it is done, then prints what it knows of it and exits 0.  What a later life needs is appended to the job's log, on disk before it is
acted upon.  ``die_at`` makes a life end itself by SIGKILL at its n-th message or at a request, right before (``before``) or right after it
is on its way; whoever started it may kill it as well, by the pid in its first line.  A line ``ended`` with the exit status closes each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marathond.agents.codex.attach import accepted, reattach, retell
from marathond.agents.codex.client import CodexClient, connect
from marathond.agents.codex.messages import GoalSet, TextInput, ThreadResume, ThreadStart, TurnStart
from marathond.agents.codex.reach import Reach
from marathond.agents.codex.story import Story

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Job:
    """``text``: the one message; ``log``: the job's memory; ``goal``: pursue a goal, else one plain turn."""

    reach: Reach
    text: str
    log: str
    goal: bool
    die_at: int | str | None = None
    before: bool = False

    @property
    def mark(self) -> str:
        return f"mark of {self.text}"

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def parse(cls, text: str) -> Job:
        raw = json.loads(text)
        return cls(**{**raw, "reach": Reach(**raw["reach"])})


class Memory:
    """The job's log: one JSON object a line; a line that a kill cut short never happened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, **fact: str) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(fact).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def get(self, key: str) -> str | None:
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        found = [fact[key] for fact in map(json.loads, lines) if key in fact]
        return found[-1] if found else None


def say(*words: object) -> None:
    """One line in one write: a kill leaves the whole of it or nothing."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


class Watch:
    """The sink: counts messages, tells the starter which were under way, and ends the process at the one that was chosen."""

    def __init__(self, job: Job) -> None:
        self.job, self.seen = job, 0

    def __call__(self, traffic: Mapping[str, Any]) -> None:
        self.seen += 1
        if traffic["way"] == "out":  # told before it is sent
            say("sends", traffic["message"]["method"])
        elif "id" in traffic["message"]:
            say("answered")
        request = traffic["message"].get("method") if traffic["way"] == "out" else ""
        if self.job.die_at in (self.seen, request):
            if self.job.before:
                os.kill(os.getpid(), signal.SIGKILL)
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGKILL)


async def live(job: Job) -> dict[str, Any]:
    """What is known of the job at its end."""
    memory = Memory(Path(job.log))
    client = await connect(job.reach, sink=Watch(job), timeout_s=TIMEOUT_S)
    say("connected")
    try:
        story = await take_over(client, job, memory)
        while not over(job, story):
            story.hear(await client.next_event())
        # The totals may have been told while nobody listened; with the whole history they come once more.
        story.tokens = None
        await client.request(ThreadResume(thread_id=story.thread_id, exclude_turns=False), TIMEOUT_S)
        while story.tokens is None:
            story.hear(await client.next_event())
        return {
            "turns": dict(story.ended()),
            "items": dict(story.done()),
            "goal": story.goal.status if story.goal is not None else None,
            "tokens": story.tokens.total.total_tokens,
        }
    finally:
        await client.aclose()


async def take_over(client: CodexClient, job: Job, memory: Memory) -> Story:
    """A thread with its work begun exactly once, whatever an earlier life had done of it, and what is known of it."""
    attached = await reattach(client, memory.get("thread"), goals=job.goal, timeout_s=TIMEOUT_S)
    if attached is None or attached.ready is None:
        say("attached", "to nothing" if attached is None else "to a thread without a beginning")
        ready = await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)
        memory.note(thread=ready.thread.id)
        story, goal, turn = Story(ready.thread.id), None, None
    else:
        say("attached", "to a turn" if attached.running else "to an idle thread")
        memory.note(thread=attached.thread_id)
        story, goal = Story(attached.thread_id), attached.goal
        await retell(client, attached, story, timeout_s=TIMEOUT_S)
        mark = memory.get("mark")
        turn = await accepted(client, attached, mark, TIMEOUT_S) if mark is not None else None
    say("begun" if turn else "to begin")
    if job.goal and goal is None:
        active = GoalSet(thread_id=story.thread_id, objective="Finish the task.", status="active", origin="user")
        await client.request(active, TIMEOUT_S)
    if turn is None:
        memory.note(mark=job.mark)
        begin = TurnStart(thread_id=story.thread_id, input=[TextInput(text=job.text)], client_user_message_id=job.mark)
        await client.request(begin, TIMEOUT_S)
    return story


def over(job: Job, story: Story) -> bool:
    if story.running is not None or not story.turns:
        return False
    return not job.goal or (story.goal is not None and story.goal.status != "active")


def nursery() -> None:
    """Imported once, forked for each life: a life begins within milliseconds, and is a process of its own to be killed."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                say("life", os.getpid())
                say("done", json.dumps(asyncio.run(live(Job.parse(line)))))
                status = 0
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(status)
        say("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    nursery()
