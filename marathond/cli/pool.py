"""``marathonctl pool``: how many networks there can be, who has them, and what a person may do about others'.

Owns the layout.  Everything comes from the ledger, so it needs no engine; nothing of anyone else's is ever touched from here: the
commands are for the person to read and run.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marathond.cli.output import Column, Screen, say, table
from marathond.core.names import trial_label
from marathond.core.text import UNKNOWN, clean, plural, span
from marathond.ledger.verbs.networks import LeaseRow, NetworkSeen, leases, networks_seen
from marathond.ledger.verbs.pools import PoolRow, pools
from marathond.ledger.verbs.runs import last_run
from marathond.service.picture.status import FRESH_MS, Pool, foreign_seen, pool_now

BUILT_IN = frozenset({"bridge", "host", "none"})
"""Docker's own: nobody's, and never to be removed."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A network of somebody else.  ``command`` removes it, if nothing uses it any more (Docker refuses otherwise)."""

    engine: str
    network: NetworkSeen
    age_ms: int
    command: str


@dataclass(frozen=True, slots=True)
class PoolReport:
    """Networks: what is set up, what there is now, and who has it.

    :param rows: each engine's pool as it was set up and last seen.
    :param now: each engine's pool as far as it is known now.
    :param leases: of trials, the leaked ones included.
    :param foreign: networks of others.
    :param seen_at_ms: when an engine's networks were last listed; null: never.
    """

    rows: list[PoolRow]
    now: list[Pool]
    leases: list[LeaseRow]
    foreign: list[Foreign]
    seen_at_ms: int | None


def gather(c: sqlite3.Connection, engine_url: str | None, now_ms: int) -> PoolReport:
    """:param engine_url: for the ready-made commands; None: whatever the person's docker talks to."""
    rows = pools(c)
    seen = networks_seen(c)
    foreign = [
        Foreign(engine, network, max(0, now_ms - network.created_ms), _command(network, engine_url))
        for engine, network, _ in seen
        if network.owner != "ours" and network.name not in BUILT_IN
    ]
    life = last_run(c)
    since_ms = life.started_at_ms if life else 0
    held = [lease for row in rows for lease in leases(c, row.engine)]
    now = [pool_now(row, foreign_seen(c), now_ms, since_ms) for row in rows]
    return PoolReport(rows, now, held, foreign, max((at for *_, at in seen), default=None))


def _command(network: NetworkSeen, engine_url: str | None) -> str:
    """By id, so that a second network of the same name is never meant.  Docker itself refuses while a container uses it."""
    host = f"-H {shlex.quote(engine_url)} " if engine_url else ""
    if not set(network.network_id) <= set("0123456789abcdefghijklmnopqrstuvwxyz"):
        return "(its id is not one of Docker's; look at it yourself)"
    return f"docker {host}network rm {network.network_id[:12]}"


def blind(report: PoolReport) -> bool:
    """Some capacity cannot be told."""
    return not report.rows or any(pool.capacity is None or pool.foreign is None for pool in report.now)


def render(report: PoolReport, where: Screen, now_ms: int, *, foreign: bool) -> Iterator[str]:
    if not report.rows:
        yield f"networks {UNKNOWN}: the daemon has not set up a pool in this ledger yet"
        return
    for row, pool in zip(report.rows, report.now, strict=True):
        yield from _engine(row, pool, now_ms)
    leaked = [lease for lease in report.leases if lease.leaked_at_ms is not None]
    if leaked:
        yield ""
        yield from table(
            (Column("leaked network", least=16), Column("trial"), Column("subnet"), Column("for", right=True), Column("tries", right=True)),
            [_leak(lease, now_ms) for lease in leaked],
            where,
        )
    if foreign:
        yield ""
        yield from _foreign(report.foreign, where, report.seen_at_ms, now_ms)
    elif report.foreign:
        yield f"{plural(len(report.foreign), 'network')} of others: marathonctl pool --foreign"


def _engine(row: PoolRow, pool: Pool, now_ms: int) -> Iterator[str]:
    capacity = UNKNOWN if pool.capacity is None else str(pool.capacity)
    free = UNKNOWN if pool.capacity is None else str(max(0, pool.capacity - pool.ours))
    others = UNKNOWN if pool.foreign is None else str(pool.foreign)
    source = f"/{row.prefix} from {clean(row.range)}" if row.mode == "explicit" else "the engine's own pools"
    yield f"{clean(row.engine)}: {row.mode}, {source}; cap {row.cap}" + (f", margin {row.margin}" if row.mode == "auto" else "")
    yield f"  capacity {capacity} · ours {pool.ours} ({pool.leaked} leaked) · free {free} · foreign {others}"
    if row.observed_at_ms is None:
        if pool.foreign is None:
            yield "  the engine's networks were not seen lately"
    elif now_ms - row.observed_at_ms > FRESH_MS or pool.foreign is None:
        yield f"  last seen {span(now_ms - row.observed_at_ms)} ago"


def _leak(lease: LeaseRow, now_ms: int) -> tuple[str, ...]:
    since = now_ms - (lease.leaked_at_ms or now_ms)
    return (clean(lease.network_name), trial_label(lease.trial_id), clean(lease.subnet or "-"), span(since), str(lease.remove_attempts))


def _foreign(rows: Sequence[Foreign], where: Screen, seen_at_ms: int | None, now_ms: int) -> Iterator[str]:
    if not rows:
        yield "no networks of others" if seen_at_ms is not None else f"networks of others: {UNKNOWN}, the daemon has listed none yet"
        return
    columns = (Column("network", least=12), Column("owner"), Column("project", least=8), Column("age", right=True))
    body = [
        (clean(row.network.name), row.network.owner.replace("_", " "), clean(row.network.project) or "-", span(row.age_ms), row.command)
        for row in rows
    ]
    # The command comes last and is never shortened: it is there to be copied.
    yield from table((*columns, Column("to remove it")), body, Screen(None, where.colour))
    if seen_at_ms is not None and now_ms - seen_at_ms > FRESH_MS:
        yield f"as of {span(now_ms - seen_at_ms)} ago"


def show(report: PoolReport, where: Screen, now_ms: int, *, foreign: bool) -> None:
    for line in render(report, where, now_ms, foreign=foreign):
        say(line)
