"""Does ``network.range`` meet something of this host?  A finding, never a refusal: subnets that overlap are passed over anyhow.

Owns the finding ``network_range_conflict``.  Must not hand out subnets.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
import structlog

from marathond.core.errors import EngineError
from marathond.core.subnets import Occupied, range_conflicts
from marathond.ledger.verbs import findings
from marathond.ports.host import HostUnknown

if TYPE_CHECKING:
    from marathond.flow.world import World

CODE = "network_range_conflict"
PERIOD_S = 3600.0
NAMED_MAX = 10
"""So many routes and interfaces are named; the others are counted."""
DETAIL_MAX = 1000

log = structlog.get_logger("marathond")


async def watch(world: World) -> None:
    """Now and then hourly, for ever."""
    while True:
        try:
            await look(world)
        except (HostUnknown, EngineError) as error:
            log.warning("network_range_not_checked", range=world.fixed.network_range, error=str(error))
        await anyio.sleep(PERIOD_S)


async def look(world: World) -> None:
    """Once.

    :raises HostUnknown, EngineError: it cannot be told; what was found before stands.
    """
    fixed, found = world.fixed, []
    if fixed.network_mode == "explicit":
        # Listed before and after the look at the host: a bridge that comes or goes meanwhile is in one of the two, and is no conflict.
        own = await _subnets(world)
        host = await world.host.occupied()
        found = range_conflicts(fixed.network_range, host, own=own + await _subnets(world))
    await world.ledger.write(record, fixed.network_range, found, now_ms=world.clock.wall_ms())


async def _subnets(world: World) -> list[str]:
    return [cidr for network in await world.engine.list_networks() for cidr in network.subnets if ":" not in cidr]


def record(c: sqlite3.Connection, range_: str, found: Sequence[Occupied], *, now_ms: int) -> None:
    """Open the range's finding or close it; one of a range that is configured no more is closed, too."""
    for row in findings.open_findings(c):
        if row.code == CODE and (row.subject != range_ or not found):
            findings.close_finding(c, code=CODE, subject=row.subject, now_ms=now_ms)
    if found:
        detail = words(found)
        findings.raise_finding(c, code=CODE, severity="warning", subject=range_, detail=detail, campaign_id=None, now_ms=now_ms)


def words(found: Sequence[Occupied]) -> str:
    """Each route, interface and resolver once, bounded."""
    names = list(dict.fromkeys(item.what for item in found))
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"meets {'; '.join(names[:NAMED_MAX])}"[:DETAIL_MAX] + more + "; subnets that overlap are passed over"
