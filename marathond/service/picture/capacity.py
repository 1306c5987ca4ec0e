"""What limits a campaign now, from one look at the ledger: what :mod:`marathond.core.capacity` is asked about.

Owns where each number comes from: knobs and host as the newest daemon life said them, the rest from the ledger's rows.  What a living
daemon has not said lately is unknown, and nothing that needs it is concluded.  Must stay light, see :mod:`.reader`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from marathond.core.capacity import OneMore, Outlook, Used, outlook
from marathond.core.money import Rules
from marathond.core.plan import Host, Limits, Waiting
from marathond.ledger.verbs import admission
from marathond.ledger.verbs import status as verbs
from marathond.ledger.verbs.pools import PoolRow
from marathond.service.picture.eta import Eta, estimate
from marathond.service.picture.money import Money, Provider
from marathond.service.picture.status import Status, gather, limits_said, runs_instead, slots_now, work_left

LOOK_AHEAD = 200
"""Open cells that are looked at: as many as the scheduler does."""


@dataclass(frozen=True, slots=True)
class More:
    """One more of ``what``: as :class:`~marathond.core.capacity.OneMore`, and when the campaign would be done with that many more running
    all the time.  ``eta_ms`` None: as it is now, or not to be told."""

    what: str
    starts: int | None
    then: str
    eta_ms: int | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """``starts``: cells that begin at the scheduler's next look.  ``waiting``, ``used`` None and ``more`` empty: unknown, ``unknown`` says
    what of.  ``cells``: open ones.  ``disk``: file systems as the daemon watches them."""

    campaign: str | None
    alive: bool | None
    why_down: str
    cells: int
    starts: int | None
    waiting: list[Waiting] | None
    used: Used | None
    more: list[More]
    eta: Eta
    disk: list[dict[str, Any]] | None
    money: Money | None
    provider: Provider | None
    unknown: list[str]


def gather_capacity(c: sqlite3.Connection, campaign: str | None, control_socket: Path, now_ms: int, gateway: Path) -> Capacity:
    """:raises CallFailed: exit 2, no such campaign."""
    status = gather(c, campaign, control_socket, now_ms, gateway)
    knobs = limits_said(c, status.life)
    unknown = list(status.unseen)
    found: Outlook | None = None
    more: list[More] = []
    if status.campaign is not None and not status.readings and status.life.alive is not False:
        if other := runs_instead(verbs.observations(c), status.life, status.campaign):
            unknown.append(other)
        elif knobs is None:
            unknown.append("knobs")
        else:
            found = _outlook(c, status, knobs, unknown, now_ms)
            more = _with_eta(c, status, knobs, found.more)
    return Capacity(
        campaign=status.campaign,
        alive=status.life.alive,
        why_down=status.life.why,
        cells=status.cells.open,
        starts=None if found is None else len(found.now.admissions),
        waiting=None if found is None else list(found.now.waiting),
        used=None if found is None else found.used,
        more=more,
        eta=status.eta,
        disk=status.disk,
        money=status.money,
        provider=status.provider,
        unknown=unknown,
    )


def _outlook(c: sqlite3.Connection, status: Status, knobs: dict[str, Any], unknown: list[str], now_ms: int) -> Outlook:
    row = next(iter(verbs.pools(c)), None)
    campaign_id = c.execute("SELECT campaign_id FROM campaign WHERE name = ?", (status.campaign,)).fetchone()[0]
    engine = status.engine or {}
    seen = admission.snapshot(
        c, campaign_id, engine="" if row is None else row.engine, limit=LOOK_AHEAD, money=_rules(verbs.observations(c).get("money"))
    )
    free, capacity = _networks(row, status, knobs)
    host = Host(
        ncpu=_number(engine.get("ncpu")),
        memory_mb=None if (memory := _number(engine.get("memory_mb"))) is None else int(memory),
        networks_free=free,
        networks_capacity=capacity,
        disk_low=_disk_low(status.disk, knobs) or _disk_unseen(status),
        engine_down=_engine_down(status, engine),
        gateway_away=_said(status, "GATEWAY") or _gateway_away(status.provider),
        verifying_alone=_said(status, "VERIFIER"),
    )
    limits, ready = limits_from(knobs), _ready(c, campaign_id, engine)
    if ready is not None:
        found = outlook(seen, limits, host, ready_tasks=ready, now_ms=now_ms)
        if not _being_built(found.now.waiting) or _still_built(c, status, found.now.waiting):
            return found
    if engine.get("ok") is True:
        unknown.append("which images are built (taken for built)")
    return outlook(seen, limits, host, ready_tasks=[cell.task_id for cell in seen.open_cells], now_ms=now_ms)


def _ready(c: sqlite3.Connection, campaign_id: int, engine: dict[str, Any]) -> set[int] | None:
    """Tasks whose images are there: as the daemon said with what it last saw of the engine, and those that it admitted since; None: it has
    not said."""
    said, word = engine.get("ready_tasks"), verbs.observations(c).get("engine")
    if not isinstance(said, list) or word is None:
        return None
    rows = c.execute(
        """SELECT DISTINCT cell.task_id FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id)
           WHERE task.campaign_id = ? AND trial.created_at_ms >= ? AND trial.state <> 'voided'""",
        (campaign_id, word.at_ms),
    )
    return {*said, *(int(row[0]) for row in rows)}


def _being_built(waiting: Iterable[Waiting]) -> int:
    return sum(each.count for each in waiting if each.code == "IMAGE")


def _still_built(c: sqlite3.Connection, status: Status, waiting: Iterable[Waiting]) -> bool:
    """Whether the daemon's newest look bears out that so many cells wait for images.

    It says which images are there when it asks the engine, seldom, and why cells wait whenever it looks: for seconds after an image was
    made or found only the second knows.
    """
    observed = verbs.observations(c)
    looked, listed = observed.get("waiting"), observed.get("engine")
    if looked is None or listed is None or looked.at_ms < listed.at_ms:
        return True  # the list is the newer word
    said = sum(count for row in status.waiting or [] if row.get("code") == "IMAGE" and isinstance(count := row.get("count"), int))
    return said >= _being_built(waiting)


def limits_from(knobs: dict[str, Any]) -> Limits:
    """The scheduler's limits: every field is a knob of that name."""
    return Limits(**{each.name: knobs[f"admission.{each.name}"] for each in fields(Limits) if f"admission.{each.name}" in knobs})


def _rules(said: Any) -> Rules:
    """The caps alone: prices decide nothing about admission."""
    value = said.value if said is not None and isinstance(said.value, dict) else {}
    caps = (value.get(f"{key}_nusd") for key in ("campaign_cap", "trial_cap", "expected_trial"))
    return Rules({}, *(cap if isinstance(cap, int) else None for cap in caps))


def _networks(row: PoolRow | None, status: Status, knobs: dict[str, Any]) -> tuple[int | None, int | None]:
    """(free, capacity) as the scheduler counts them: in explicit mode against the knob, in auto mode against what was seen lately.

    What it met beyond that only it can say."""
    if row is None:
        return None, None
    capacity: int | None = int(knobs.get("network.cap", row.cap))
    if row.mode == "auto":
        capacity = next((pool.capacity for pool in status.pools if pool.engine == row.engine), None)
    match _said(status, "NETPOOL"):
        case "unknown":  # routes or interfaces that it could not read
            return None, None
        case "no subnet free":
            capacity = row.live
    return (None if capacity is None else max(0, capacity - row.live)), capacity


def _disk_low(disk: list[dict[str, Any]] | None, knobs: dict[str, Any]) -> str:
    """The first file system below the floor, in the scheduler's words."""
    for row in disk or []:
        free, total = row.get("free_bytes"), row.get("total_bytes")
        if not isinstance(free, int) or not isinstance(total, int):
            continue
        share = 100 * free / max(total, 1)
        if free < knobs.get("admission.disk_floor_gb", 0) * (1 << 30) or share < knobs.get("admission.disk_floor_percent", 0):
            return f"{row.get('path', '')}: {free >> 20} MB free ({share:.1f} %)"
    return ""


def _disk_unseen(status: Status) -> str:
    """A file system that the daemon watches and cannot see: it stands in no row, and nothing is admitted for it."""
    said = next((str(row.get("text", "")) for row in status.waiting or [] if row.get("code") == "DISK"), "").removeprefix("DISK ")
    rows = (f"{row.get('path', '')}: " for row in status.disk or [])
    return "" if any(said.startswith(known) for known in rows) else said


def _engine_down(status: Status, engine: dict[str, Any]) -> str:
    if status.engine is None:
        return "not seen lately"
    if engine.get("ok") is not True:
        return str(engine.get("detail") or "not answering")
    return _said(status, "ENGINE")


def _gateway_away(provider: Provider | None) -> str:
    return "" if provider is None or provider.routes is not None else provider.why


def _said(status: Status, code: str) -> str:
    """What the daemon itself said last about a reason that only it can see; empty: it did not."""
    text = next((str(row.get("text", "")) for row in status.waiting or [] if row.get("code") == code), "")
    return text.removeprefix(code).strip(" ()")


def _with_eta(c: sqlite3.Connection, status: Status, knobs: dict[str, Any], found: tuple[OneMore, ...]) -> list[More]:
    campaign_id = c.execute("SELECT campaign_id FROM campaign WHERE name = ?", (status.campaign,)).fetchone()[0]
    left = work_left(c, campaign_id, status.cells, status.live, status.now_ms)
    slots, _ = slots_now(limits_from(knobs).concurrency, status.waiting, status.cells.claimed)
    made = []
    for one in found:
        eta_ms = estimate(left, (slots or 0) + one.starts).ms if one.starts and status.eta.ms is not None else None
        made.append(More(one.what, one.starts, one.then, eta_ms))
    return made


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
