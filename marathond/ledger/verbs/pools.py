"""How full the pools of subnets are.

Owns the one question that counts leases, live and leaked.  Must not change a row (:mod:`marathond.ledger.verbs.networks` does).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.ledger.verbs.sql import must, one


@dataclass(frozen=True, slots=True)
class PoolRow:
    """``total``, ``foreign_used``, ``host_used`` None: unknown.  ``live``/``leaked``: our leases."""

    engine: str
    mode: str
    range: str
    prefix: int
    cap: int
    margin: int
    total: int | None
    foreign_used: int | None
    host_used: int | None
    observed_at_ms: int | None
    live: int
    leaked: int


_POOL = """
SELECT engine, mode, range, prefix, cap, margin, total, foreign_used, host_used, observed_at_ms,
    (SELECT count(*) FROM network_lease l WHERE l.engine = p.engine AND released_at_ms IS NULL) AS live,
    (SELECT count(*) FROM network_lease l WHERE l.engine = p.engine AND released_at_ms IS NULL AND leaked_at_ms IS NOT NULL) AS leaked
FROM network_pool p"""


def pool(c: sqlite3.Connection, engine: str) -> PoolRow:
    """:raises LookupError: no pool was set for that engine."""
    return PoolRow(**dict(must(one(c, f"{_POOL} WHERE engine = ?", (engine,)), f"network pool of engine {engine}")))


def pools(c: sqlite3.Connection) -> list[PoolRow]:
    return [PoolRow(**dict(row)) for row in c.execute(f"{_POOL} ORDER BY engine").fetchall()]
