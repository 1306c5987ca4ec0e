"""A pool's settings, leases, quarantine: the subnet budget.

Owns the rows that say "this network may exist".  A lease lives on alone after its trial until the network was seen gone, and it counts
while it lives, leaked or not (faults b03, b04).  Must not compute subnets (core/subnets.py does) or count what is left of a pool
(:mod:`marathond.ledger.verbs.pools`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from marathond.ledger.verbs.sql import LIVE, changed, must, one, scalar


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A live lease.  ``trial_state`` is the state of its trial, ``subnet`` None in auto mode."""

    lease_id: int
    engine: str
    trial_id: int
    trial_state: str
    subnet: str | None
    network_name: str
    network_id: str | None
    leased_at_ms: int
    leaked_at_ms: int | None
    remove_attempts: int
    removal_failed_at_ms: int | None


@dataclass(frozen=True, slots=True)
class NetworkSeen:
    """One network of the engine's complete listing.  ``owner``: ours, other_ledger, foreign; ``subnets``: CIDRs, comma-separated."""

    network_id: str
    name: str
    owner: str
    project: str
    subnets: str
    created_ms: int


def set_pool(c: sqlite3.Connection, engine: str, *, mode: str, range: str, prefix: int, cap: int, margin: int, url: str = "") -> None:
    """Operational knobs of one engine's pool.  A cap below what is leased ends nothing, it only admits nothing more.

    :param url: where the engine answers; "" is not known.
    """
    c.execute(
        """INSERT INTO network_pool (engine, url, mode, range, prefix, cap, margin) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (engine) DO UPDATE SET url = excluded.url, mode = excluded.mode, range = excluded.range, prefix = excluded.prefix,
               cap = excluded.cap, margin = excluded.margin""",
        (engine, url, mode, range, prefix, cap, margin),
    )


def engine_url(c: sqlite3.Connection, engine: str) -> str:
    """Where the engine of that name answered until now; "" when no one ever said."""
    return str(scalar(c, "SELECT url FROM network_pool WHERE engine = ?", (engine,)) or "")


@dataclass(frozen=True, slots=True)
class Held:
    """What may still be there of ours on an engine."""

    containers: int
    networks: int

    @property
    def anything(self) -> bool:
        return bool(self.containers or self.networks)


def held(c: sqlite3.Connection, engine: str) -> Held:
    """Containers that were not seen gone, and live leases."""
    containers = scalar(c, "SELECT count(*) FROM container WHERE engine = ? AND gone_at_ms IS NULL", (engine,))
    return Held(containers, scalar(c, "SELECT count(*) FROM network_lease WHERE engine = ? AND released_at_ms IS NULL", (engine,)))


@dataclass(frozen=True, slots=True)
class Elsewhere:
    engine: str
    url: str
    trials: int


def live_elsewhere(c: sqlite3.Connection, engine: str) -> list[Elsewhere]:
    """Engines of other names on which containers of live trials may be."""
    rows = c.execute(
        f"""SELECT container.engine, coalesce(url, '') AS url, count(*) AS trials FROM container JOIN trial USING (trial_id)
                LEFT JOIN network_pool p ON p.engine = container.engine
            WHERE container.engine <> ? AND gone_at_ms IS NULL AND state IN {LIVE} GROUP BY container.engine ORDER BY container.engine""",
        (engine,),
    )
    return [Elsewhere(**dict(row)) for row in rows.fetchall()]


def observe_pool(
    c: sqlite3.Connection, engine: str, *, total: int | None, foreign_used: int | None, host_used: int | None, now_ms: int
) -> None:
    """What the engine and the host showed just now; None: could not be seen."""
    cursor = c.execute(
        "UPDATE network_pool SET total = ?, foreign_used = ?, host_used = ?, observed_at_ms = ? WHERE engine = ?",
        (total, foreign_used, host_used, now_ms, engine),
    )
    changed(cursor, f"network pool of engine {engine}")


_LEASE = """
SELECT lease_id, engine, l.trial_id, state AS trial_state, subnet, network_name, network_id, leased_at_ms, leaked_at_ms, remove_attempts,
    removal_failed_at_ms
FROM network_lease l JOIN trial USING (trial_id)"""


def leases(c: sqlite3.Connection, engine: str) -> list[LeaseRow]:
    """Live leases, oldest first."""
    rows = c.execute(f"{_LEASE} WHERE engine = ? AND released_at_ms IS NULL ORDER BY lease_id", (engine,))
    return [LeaseRow(**dict(row)) for row in rows.fetchall()]


def quarantined(c: sqlite3.Connection, engine: str, *, now_ms: int) -> list[str]:
    """Subnets that the engine refused lately."""
    rows = c.execute("SELECT subnet FROM subnet_quarantine WHERE engine = ? AND until_ms > ? ORDER BY subnet", (engine, now_ms))
    return [row[0] for row in rows.fetchall()]


def network_created(c: sqlite3.Connection, lease_id: int, *, network_id: str) -> None:
    """The engine's answer, or what a look showed."""
    changed(c.execute("UPDATE network_lease SET network_id = ? WHERE lease_id = ?", (network_id, lease_id)), f"lease {lease_id}")


def swap_lease(
    c: sqlite3.Connection, lease_id: int, *, new_subnet: str | None, quarantine_until_ms: int, detail: str, now_ms: int
) -> LeaseRow:
    """The engine refused the subnet (somebody else has it): quarantine it and lease another for the same trial, in one transaction.

    :param detail: the engine's words.
    """
    old = must(
        one(c, "SELECT engine, trial_id, subnet, network_name FROM network_lease WHERE lease_id = ?", (lease_id,)), f"lease {lease_id}"
    )
    release_lease(c, lease_id, because="never_created", now_ms=now_ms)
    if old["subnet"] is not None:
        c.execute(
            """INSERT INTO subnet_quarantine (engine, subnet, at_ms, until_ms, detail) VALUES (?, ?, ?, ?, ?)
               ON CONFLICT (engine, subnet) DO UPDATE SET at_ms = excluded.at_ms, until_ms = excluded.until_ms, detail = excluded.detail""",
            (old["engine"], old["subnet"], now_ms, quarantine_until_ms, detail),
        )
    earlier = scalar(c, "SELECT count(*) FROM network_lease WHERE trial_id = ?", (old["trial_id"],))
    first = scalar(c, "SELECT network_name FROM network_lease WHERE trial_id = ? ORDER BY lease_id LIMIT 1", (old["trial_id"],))
    new_id = c.execute(
        "INSERT INTO network_lease (engine, trial_id, subnet, network_name, leased_at_ms) VALUES (?, ?, ?, ?, ?)",
        (old["engine"], old["trial_id"], new_subnet, f"{first}-{earlier + 1}", now_ms),
    ).lastrowid
    return LeaseRow(**dict(must(one(c, f"{_LEASE} WHERE lease_id = ?", (new_id,)), f"lease {new_id}")))


def release_lease(c: sqlite3.Connection, lease_id: int, *, because: str, now_ms: int) -> bool:
    """``seen_gone`` or ``never_created``; False: released before."""
    sql = "UPDATE network_lease SET released_at_ms = ?, released_because = ? WHERE lease_id = ? AND released_at_ms IS NULL"
    return c.execute(sql, (now_ms, because, lease_id)).rowcount == 1


def removal_failed(c: sqlite3.Connection, lease_id: int, *, now_ms: int) -> int:
    """The network is still there: held, counted as leaked.  Returns the attempts so far, for the backoff."""
    rows = c.execute(
        """UPDATE network_lease SET leaked_at_ms = coalesce(leaked_at_ms, ?1), removal_failed_at_ms = ?1,
               remove_attempts = remove_attempts + 1
           WHERE lease_id = ?2 AND released_at_ms IS NULL RETURNING remove_attempts""",
        (now_ms, lease_id),
    ).fetchall()
    return int(must(rows[0] if rows else None, f"live lease {lease_id}")[0])


def replace_networks_seen(c: sqlite3.Connection, engine: str, rows: Sequence[NetworkSeen], *, now_ms: int) -> None:
    """The engine's last complete listing, so that ``pool --foreign`` needs no engine."""
    c.execute("DELETE FROM network_seen WHERE engine = ?", (engine,))
    c.executemany(
        """INSERT INTO network_seen (engine, network_id, name, owner, project, subnets, created_ms, seen_at_ms)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        [(engine, n.network_id, n.name, n.owner, n.project, n.subnets, n.created_ms, now_ms) for n in rows],
    )


def networks_seen(c: sqlite3.Connection, engine: str | None = None) -> list[tuple[str, NetworkSeen, int]]:
    """(engine, network, seen_at_ms) of the last listings."""
    rows = c.execute(
        """SELECT engine, network_id, name, owner, project, subnets, created_ms, seen_at_ms FROM network_seen
           WHERE ?1 IS NULL OR engine = ?1 ORDER BY engine, owner, created_ms""",
        (engine,),
    )
    return [(row[0], NetworkSeen(*tuple(row)[1:7]), row[7]) for row in rows.fetchall()]
