"""Writes down an agent's end together with what its log says that people should know (faults c01, c07, c13).

Owns that both are one transaction: a daemon that is killed in between would otherwise lose the findings.  Rules: core/agent_rules.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from marathond.core.agent_rules import of_agent
from marathond.core.model_rules import Found
from marathond.core.names import EndedBy
from marathond.flow.world import World
from marathond.ledger.verbs import agentlog, trials, usage


async def write_end(world: World, trial_id: int, ended_by: EndedBy, *, pids_refused: int, **end: Any) -> None:
    """``end``: what :func:`marathond.ledger.verbs.trials.agent_ended` is given besides."""
    entries = await world.ledger.read(agentlog.entries, trial_id)
    found = of_agent(trial_id, (entry.kind for entry in entries), ended_by, pids_refused)
    campaign_id, now_ms = world.fixed.campaign_id, world.clock.wall_ms()
    await world.ledger.write(_write, trial_id, found, campaign_id=campaign_id, ended_by=ended_by.value, now_ms=now_ms, **end)


def _write(c: sqlite3.Connection, /, trial_id: int, found: Sequence[Found], *, campaign_id: int, now_ms: int, **end: Any) -> None:
    trials.agent_ended(c, trial_id, now_ms=now_ms, **end)
    usage.tell(c, found, campaign_id=campaign_id, now_ms=now_ms)
