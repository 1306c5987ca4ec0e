"""The provider's side of the soak: every answer that it gave, written down with its conversation, its step and its tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.practice.record import Outcome, Recorder
from marathond.practice.script import Practice
from marathond.practice.server import PracticeServer, practising

Tokens = tuple[int, int, int, int]
"""Input, cached, output, reasoning."""


@dataclass(frozen=True)
class Answered:
    """``conversation``: the client's thread; ``step``: of the script, None where it was not played; ``poll``: how often its command
    had been asked for before, which a slow one is; ``untold``: nothing was answered, for a goal asked that had not heard its task yet."""

    outcome: Outcome
    conversation: str
    turn: str
    step: int | None
    tokens: Tokens | None
    poll: int = 0
    untold: bool = False


class Answers(Recorder):
    """Keeps answers alone: the requests of hours are gigabytes."""

    def __init__(self, path: Path) -> None:
        super().__init__(None)
        self.path = path
        self.all: list[Answered] = []

    def request(self, *_: Any, **__: Any) -> None:
        return

    def answer(self, trial: str, number: int, at_s: float, outcome: Outcome, key: str, fields: Mapping[str, Any]) -> None:
        usage = fields.get("usage")
        tokens = None if usage is None else (usage["input"], usage["cached"], usage["output"], usage["reasoning"])
        told = (str(fields.get("conversation") or ""), str(fields.get("turn") or ""))
        self.all.append(Answered(outcome, *told, fields.get("step"), tokens, fields.get("poll") or 0, bool(fields.get("untold"))))
        with self.path.open("a") as file:
            file.write(json.dumps({"n": number, "at_s": round(at_s, 3), "outcome": outcome, **fields}) + "\n")


@asynccontextmanager
async def recording(practice: Practice, path: Path) -> AsyncIterator[tuple[PracticeServer, Answers]]:
    """A practice provider whose answers are kept in memory and in the file ``path``."""
    async with practising(practice) as server:
        answers = Answers(path)
        server.recorder = answers
        yield server, answers
