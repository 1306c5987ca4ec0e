"""What the practice provider's tests share: a clock moved by hand, a client of one conversation, requests as codex writes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from marathond.practice.play import Identity
from marathond.practice.script import Practice
from marathond.practice.server import Bounds, PracticeServer, practising

KEY = "key-of-a-test"
"""The key that :func:`playing` enrolls for trial ``t1``."""

DIRECT: list[dict[str, Any]] = [
    {"type": "function", "name": "exec_command"},
    {"type": "function", "name": "write_stdin"},
    {"type": "custom", "name": "apply_patch"},
    {"type": "function", "name": "update_goal"},
]
CODE: dict[str, Any] = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [
        {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}, {"type": "function", "name": "wait"}]}
    ],
}
GOAL: dict[str, Any] = {"type": "function_call_output", "name": "goal_objective", "namespace": "agent", "output": "Finish the task."}


class HandClock:
    """Stands still until :meth:`advance`."""

    def __init__(self) -> None:
        self.at = 0.0
        self.asleep = asyncio.Event()
        """Set while somebody sleeps."""
        self.awake = asyncio.Event()
        """Set once somebody slept and does no longer, cancelled or not."""
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def now_s(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        due = (self.at + seconds, asyncio.Event())
        self._sleepers.append(due)
        self.asleep.set()
        try:
            await due[1].wait()
        finally:
            self._sleepers.remove(due)
            self.awake.set()
            if not self._sleepers:
                self.asleep.clear()

    def advance(self, seconds: float) -> None:
        self.at += seconds
        for until, event in self._sleepers:
            if until <= self.at:
                event.set()


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


@dataclass
class Got:
    """One answer as a client saw it; ``broken`` when the body ended inside."""

    status: int
    headers: dict[str, str]
    events: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] = field(default_factory=dict)
    broken: bool = False
    rest: bytes = b""
    """Bytes of an event that never ended."""

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def items(self) -> list[dict[str, Any]]:
        return [event["item"] for event in self.events if event["type"] == "response.output_item.done"]

    @property
    def completed(self) -> dict[str, Any] | None:
        return next((event["response"] for event in self.events if event["type"] == "response.completed"), None)

    @property
    def said(self) -> str:
        return "".join(item["content"][0]["text"] for item in self.items if item["type"] == "message")


class Client:
    """A client that keeps a history as codex does: items that were done, each call with an output, a new turn id per turn."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str = "key-of-a-test", **body: Any) -> None:
        self.session, self.url, self.key = session, url, key
        self.body: dict[str, Any] = {"model": "gpt-5.5", "stream": True, "tools": DIRECT, **body}
        self.input: list[dict[str, Any]] = []
        self.thread, self.turn = f"thread-{id(self)}", 0
        self.loses_message_ids = False

    def say(self, text: str) -> None:
        """The user speaks: a new turn."""
        self.turn += 1
        self.input.append(user(text))

    def request(self, **kind: str) -> dict[str, Any]:
        metadata = {"thread_id": self.thread, "turn_id": f"turn-{self.turn}", "request_kind": "turn", **kind}
        return {
            "url": self.url + "/responses",
            "headers": {"Authorization": f"Bearer {self.key}", "x-codex-turn-metadata": json.dumps(metadata)},
            "json": {**self.body, "input": self.input},
        }

    async def ask(self, keep: bool = True, **kind: str) -> Got:
        """One request; what came is kept in the history when it was whole and ``keep``."""
        try:
            async with self.session.post(**self.request(**kind)) as response:
                got = Got(response.status, dict(response.headers))
                if response.status != 200:
                    got.error = (await response.json())["error"]
                    return got
                buffer = b""
                try:
                    async for chunk in response.content.iter_any():
                        buffer += chunk
                except aiohttp.ClientPayloadError:
                    got.broken = True
                *whole, got.rest = buffer.split(b"\n\n")
                got.events = [json.loads(event.split(b"\ndata: ")[1]) for event in whole]
        except aiohttp.ClientConnectionError:  # closed or reset, as the kernel saw it first
            return Got(0, {}, broken=True)
        if keep and got.completed is not None:
            self.keep(got)
        return got

    def keep(self, got: Got, output: str = "Process exited with code 0\nOutput:\nok\n") -> None:
        for item in got.items:
            if item["type"] == "message":
                kept = {key: item[key] for key in ("type", "role", "content")}
                self.input.append(kept if self.loses_message_ids else {"id": item["id"], **kept})
            else:
                self.input.append({key: value for key, value in item.items() if key not in ("id", "status")})
                self.input.append({"type": item["type"] + "_output", "call_id": item["call_id"], "output": output})


def practice(*steps: dict[str, Any], **script: Any) -> Practice:
    return Practice.model_validate({"script": [{"step": list(steps), **script}]})


@asynccontextmanager
async def playing(
    script: Practice, clock: HandClock | None = None, record: Path | None = None, bounds: Bounds | None = None
) -> AsyncIterator[tuple[PracticeServer, Client]]:
    async with (
        practising(script, clock=clock or HandClock(), record_dir=record, bounds=bounds) as server,
        aiohttp.ClientSession() as session,
    ):
        server.enroll(KEY, Identity("t1"))
        client = Client(session, server.url + "/v1", KEY)
        client.say("do it")
        yield server, client


def lines(folder: Path, trial: str = "t1") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{trial}.jsonl").read_text().splitlines()]
