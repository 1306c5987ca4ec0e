"""The real codex's app-server over its standard streams, as far as the practice provider's tests need it.

Owns one server process with a CODEX_HOME of its own, and what is said to a server whatever carries it (:class:`Thread`; in a container:
:mod:`tests.support.codex_box`).  Not the product's client: it neither re-attaches nor judges what it hears.
"""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CONFIG = """\
model = "{model}"
model_provider = "practice"
approval_policy = "never"
sandbox_mode = "danger-full-access"
{extra}
[model_providers.practice]
name = "practice"
base_url = "{url}"
wire_api = "responses"
env_key = "PRACTICE_KEY"
{provider}
[features]
goals = {goals}
[skills.bundled]
enabled = false
[analytics]
enabled = false
"""
KEY = "practice-key-of-a-test"


def config(model: str, url: str, *, goals: bool = False, extra: str = "", provider: str = "") -> str:
    """The whole config.toml; ``extra``: top-level keys, ``provider``: keys of the provider."""
    return CONFIG.format(model=model, url=url, goals=str(goals).lower(), extra=extra, provider=provider)


class Thread(ABC):
    """One thread of one server, ready for turns in the folder ``cwd``."""

    def __init__(self, cwd: str) -> None:
        self.cwd, self.thread = cwd, ""
        self.heard: list[dict[str, Any]] = []
        """Every notification so far."""
        self._last = self._taken = 0

    @abstractmethod
    async def _send(self, message: dict[str, Any]) -> None: ...

    @abstractmethod
    async def _receive(self) -> str | bytes:
        """The next message; fails when the server has ended."""

    async def begin(self) -> None:
        await self.call("initialize", clientInfo={"name": "test", "version": "1"}, capabilities={"experimentalApi": True})
        await self._send({"method": "initialized"})
        started = await self.call("thread/start", cwd=self.cwd, approvalPolicy="never", sandbox="danger-full-access")
        self.thread = started["thread"]["id"]

    async def ask(self, method: str, **params: Any) -> int:
        """Send one request and go on; its number."""
        self._last += 1
        await self._send({"id": self._last, "method": method, "params": params})
        return self._last

    async def call(self, method: str, **params: Any) -> Any:
        """The result of one request; what is heard meanwhile is kept."""
        number = await self.ask(method, **params)
        while True:
            message = await self._hear()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message}"
                return message["result"]

    async def turn(self, text: str) -> dict[str, Any]:
        """One turn from its start to ``turn/completed``."""
        await self.call("turn/start", threadId=self.thread, input=[{"type": "text", "text": text}])
        return await self.turn_end()

    async def turn_end(self) -> dict[str, Any]:
        """The next ``turn/completed`` that nobody took yet, though it may have been heard while something else was waited for."""
        while len(ended := self._turns("turn/completed")) <= self._taken:
            await self._hear()
        self._taken += 1
        return ended[self._taken - 1]

    async def pursue(self, text: str, objective: str = "Finish the task.") -> tuple[list[dict[str, Any]], str]:
        """A goal from its start to its end: its turns, and its last status.

        Both requests leave before the first is answered: 50 ms between them, and codex asks the model before it has the text.  It is over
        when its status is no longer active and no turn is in flight: the status changes within the last turn.
        """
        await self.ask("thread/goal/set", threadId=self.thread, objective=objective, status="active", origin="user")
        turns = [await self.turn(text)]
        while True:
            status: str = (await self.call("thread/goal/get", threadId=self.thread))["goal"]["status"]
            if status != "active" and len(self._turns("turn/started")) == self._taken:
                return turns, status
            turns.append(await self.turn_end())

    def _turns(self, method: str) -> list[dict[str, Any]]:
        return [note["params"]["turn"] for note in self.heard if note["method"] == method]

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Items of one type that were completed so far."""
        done = (note["params"]["item"] for note in self.heard if note["method"] == "item/completed")
        return [item for item in done if item["type"] == kind]

    def errors(self) -> list[dict[str, Any]]:
        return [note["params"] for note in self.heard if note["method"] == "error"]

    def tokens(self) -> dict[str, int]:
        """The last word on the thread's tokens."""
        totals = [note["params"]["tokenUsage"]["total"] for note in self.heard if note["method"] == "thread/tokenUsage/updated"]
        last: dict[str, int] = totals[-1]
        return last

    async def _hear(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._receive())
        if "id" not in message:
            self.heard.append(message)
        return message


class Codex(Thread):
    """``async with Codex(binary, folder, url, model)``: a thread that is ready for turns, in ``folder/app``."""

    def __init__(
        self, binary: Path, folder: Path, url: str, model: str, *, goals: bool = False, extra: str = "", provider: str = ""
    ) -> None:
        self.binary, self.home, self.app = binary, folder / "home", folder / "app"
        self.home.mkdir()
        self.app.mkdir()
        super().__init__(str(self.app))
        (self.home / "config.toml").write_text(config(model, url, goals=goals, extra=extra, provider=provider))

    async def __aenter__(self) -> Self:
        self._stderr = (self.home / "stderr.txt").open("wb")
        self.process = await asyncio.create_subprocess_exec(
            str(self.binary),
            "app-server",
            "--strict-config",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._stderr,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "CODEX_HOME": str(self.home), "PRACTICE_KEY": KEY},
            cwd=self.app,
            limit=1 << 24,
        )
        await self.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 10)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self._stderr.close()

    async def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _receive(self) -> bytes:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, f"codex ended: {(self.home / 'stderr.txt').read_text()[-2000:]}"
        return line
