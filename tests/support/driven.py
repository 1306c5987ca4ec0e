"""A trial whose server runs, as tests drive it and look into it: another daemon life is a wait that is cancelled, and called again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import anyio

from marathond.agents.codex.transcript import NAME
from marathond.core.names import EndedBy
from marathond.ports.agent import AgentEnd
from marathond.ports.engine import ExecSpec
from tests.support.codex_trial import Trial

PATIENCE_S = 300.0


@dataclass
class Driven:
    trial: Trial
    exec_id: str

    async def wait(self, patience_s: float = PATIENCE_S) -> AgentEnd:
        """Without the moment of the last turn's end, which is the clock's."""
        with anyio.fail_after(patience_s):
            return replace(await self.trial.agent.wait(self.trial.env, self.exec_id), at_ms=None)

    async def log(self, kind: str) -> list[dict[str, Any]]:
        return [dict(entry.detail) for entry in await self.trial.env.log.entries() if entry.kind == kind]

    def messages(self) -> list[str]:
        """What was sent to codex for the model, in order, by all lives so far."""
        lines = (self.trial.env.run_dir.root / NAME).read_text().splitlines()
        sent = [line["message"] for line in map(json.loads, lines) if line["way"] == "out"]
        return [message["params"]["input"][0]["text"] for message in sent if message.get("method") == "turn/start"]

    async def until(self, kind: str, count: int = 1) -> None:
        with anyio.fail_after(PATIENCE_S):
            while len(await self.log(kind)) < count:  # noqa: ASYNC110 - the log is what a next life would read: no event tells
                await anyio.sleep(0.02)

    async def shell(self, script: str) -> str:
        env = self.trial.env
        return (await env.engine.run_exec(env.container_id, ExecSpec(("sh", "-c", script), user="0"), timeout_s=PATIENCE_S)).output

    async def holds(self, script: str) -> None:
        """Until the script exits 0 in the container."""
        with anyio.fail_after(PATIENCE_S):
            while (await self.shell(f"({script}) >/dev/null 2>&1 && echo yes")).strip() != "yes":  # noqa: ASYNC110 - another machine's files
                await anyio.sleep(0.1)

    async def stands_still(self, path: str) -> None:
        """Nobody writes to the file any more.  Who was killed a moment ago may be about to end."""
        await self.holds(f"touch {path}; a=$(wc -c <{path}); sleep 0.5; [ $a = $(wc -c <{path}) ]")

    async def asks_no_more(self) -> None:
        """The model is left alone for a second, in which a goal that spins would ask 25 times."""
        with anyio.fail_after(PATIENCE_S):
            while (asked := self.trial.asked()) is not None:
                await anyio.sleep(1.0)
                if self.trial.asked() == asked:
                    return

    async def lines(self, path: str) -> list[str]:
        return (await self.shell(f"cat {path}")).split()


def by(ended_by: EndedBy = EndedBy.AGENT) -> AgentEnd:
    return AgentEnd(None, "driver", ended_by)


def count(word: str) -> dict[str, Any]:
    return {"run": f"echo {word} >>/ran"}
