"""The agent's log in the ledger, as the driver of an agent sees it (ports/agent.AgentLog).  Owns nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.flow.world import World
from marathond.ledger.verbs import agentlog
from marathond.ports.agent import LogEntry


@dataclass(frozen=True, slots=True)
class LedgerLog:
    world: World
    trial_id: int

    async def append(self, kind: str, detail: Mapping[str, Any]) -> None:
        clock = self.world.clock
        await self.world.ledger.write(
            agentlog.append, self.trial_id, kind=kind, detail=detail, mono_ms=clock.mono_ms(), now_ms=clock.wall_ms()
        )

    async def entries(self) -> Sequence[LogEntry]:
        return await self.world.ledger.read(agentlog.entries, self.trial_id)
