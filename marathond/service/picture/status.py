"""The facts of ``marathonctl status``, from one look at the ledger.

Owns what counts as healthy, degraded, down and unseen.  A number that only the daemon can see is None when
its last word is old, or was an earlier daemon life's: unknown, never 0 (fault e04).  Must stay light, see :mod:`.reader`.

The rule, the worst first; the exit status follows it:

* ``down`` (3): the daemon of this ledger is not running.
* ``degraded`` (1): it stopped admission itself (breaker, stop-loss, broken invariant), its engine does not answer, or a finding of
  severity error or stop-loss is not acknowledged.
* ``unknown`` (4): something that a living daemon says all the time was not said lately.
* ``healthy`` (0): everything else.  Parked cells and open reviews belong here, also when nothing else is left to run: the machinery works
  and a person has to decide.  They stand beside the word, in the first line, with a line per cause below; ``wait`` exits 1 for them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from marathond.core.columns import NAMES, Column
from marathond.ledger.verbs import status as verbs
from marathond.ledger.verbs.columns import columns_of
from marathond.ledger.verbs.findings import FindingRow
from marathond.ledger.verbs.pools import PoolRow
from marathond.ledger.verbs.readings import ReadingRow, readings
from marathond.ledger.verbs.settings import Observation, turned
from marathond.ledger.verbs.stops import StopRow
from marathond.service.exits import Exit
from marathond.service.picture.eta import Eta, Left, Running, estimate
from marathond.service.picture.money import Money, Provider, gather_money, gather_provider
from marathond.service.picture.reader import Life, campaign_id, daemon_life

FRESH_MS = 60_000
"""An observation of the daemon older than this says nothing about now."""

ALARMS = frozenset({"error", "stop_loss"})
"""Severities that degrade until a person acknowledges them."""

OWN_STOPS = frozenset({"breaker", "invariant", "stop_loss"})
"""Stops that the daemon itself decided; a pause or a drain is a person's wish and no illness."""


@dataclass(frozen=True, slots=True)
class Pool:
    """``capacity``, ``foreign`` None: unknown."""

    engine: str
    mode: str
    ours: int
    leaked: int
    capacity: int | None
    foreign: int | None


@dataclass(frozen=True, slots=True)
class Cells:
    total: int
    done: int
    claimed: int
    open: int
    parked: int
    review: int


@dataclass(frozen=True, slots=True)
class Parks:
    """Standing parks of one code; ``task`` and ``detail`` are an example: the task with the most cells."""

    code: str
    cells: int
    tasks: int
    task: str
    detail: str


@dataclass(frozen=True, slots=True)
class SetKnob:
    """A knob that stands as `marathonctl set` left it, whatever the configuration says: for all campaigns of the ledger."""

    key: str
    value: Any
    author: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """Everything on the first screen.  ``disk``, ``waiting``, ``engine`` None: unknown."""

    now_ms: int
    life: Life
    campaign: str | None
    cells: Cells
    eta: Eta
    parks: list[Parks]
    arms: list[verbs.ArmCounts]
    live: list[verbs.LiveTrial]
    pools: list[Pool]
    findings: list[FindingRow]
    stops: list[StopRow]
    disk: list[dict[str, Any]] | None
    engine: dict[str, Any] | None
    waiting: list[dict[str, Any]] | None
    money: Money | None = None
    provider: Provider | None = None
    degraded: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    readings: list[ReadingRow] = field(default_factory=list)
    """Where an imported campaign was read from; empty: it runs here."""
    columns: tuple[Column, ...] = ()
    """Of scores: which there are, and why not (fault d11)."""
    findings_elsewhere: int = 0
    """Open findings of other campaigns of the ledger: counted apart, so that each count is of one campaign (fault e02)."""
    ledger: str = ""
    """The file that was really read (fault e01); empty: one in memory."""
    loop: dict[str, Any] | None = None
    """How late the daemon's event loop is, milliseconds (service/lag.py); None: unknown."""
    oldest_review_ms: int | None = None
    """Since when the longest waiting review is open; None: none is."""
    set_by_hand: list[SetKnob] = field(default_factory=list)
    """By key; they outlive campaigns, so that an evening's `set concurrency=1` may hold another one back."""

    @property
    def health(self) -> Literal["healthy", "degraded", "down", "unknown"]:
        """``down``, ``degraded``, ``unknown`` or ``healthy``, the worst that is known first.  Of an imported campaign always healthy: no
        daemon has anything to do with it."""
        if self.readings:
            return "healthy"
        if self.life.alive is False:
            return "down"
        if self.degraded:
            return "degraded"
        return "unknown" if self.unseen else "healthy"

    @property
    def exit_code(self) -> int:
        return {"down": Exit.DOWN, "degraded": Exit.FAILED, "unknown": Exit.BLIND, "healthy": Exit.OK}[self.health]


def gather(c: sqlite3.Connection, campaign: str | None, control_socket: Path, now_ms: int, gateway: Path | None = None) -> Status:
    """:param gateway: the gateway's folder; None: nothing is said of the way to the provider.
    :raises CallFailed: exit 2, no such campaign.
    """
    found = campaign_id(c, campaign)
    life = daemon_life(verbs.last_run(c), control_socket, now_ms)
    observed = verbs.observations(c)
    seen = _fresh(observed, life, now_ms)
    arms = [] if found is None else verbs.counts_by_arm(c, found[0])
    cells = _sum(arms)
    stops = verbs.stops(c)
    live = [] if found is None else verbs.live_trials(c, found[0])
    standing = verbs.open_findings(c)
    findings = [row for row in standing if row.campaign_id in (None, None if found is None else found[0])]
    engine = seen.get("engine") if isinstance(seen.get("engine"), dict) else None
    since_ms = life.run.started_at_ms if life.run else 0
    pools = [pool_now(row, foreign_seen(c), now_ms, since_ms) for row in verbs.pools(c)]
    other = "" if found is None else runs_instead(observed, life, found[1])
    blocked = _no_progress(life, engine) or (other if cells.open else "")
    there = [] if found is None else readings(c, found[0])
    disk, waiting = _list(seen.get("disk")), _list(seen.get("waiting"))
    waiting = [] if other and waiting is not None else waiting  # the daemon's word is of the campaign that it runs (fault e02)
    slots, bound = slots_now(_concurrency(observed.get("limits"), life), waiting, cells.claimed)
    left = Left() if found is None or there else work_left(c, found[0], cells, live, now_ms)
    closed = stops[0].kind if stops else ""
    return Status(
        now_ms=now_ms,
        life=life,
        campaign=None if found is None else found[1],
        cells=cells,
        eta=Eta(None, "imported: nothing runs in it") if there else estimate(left, slots, closed=closed, blocked=blocked, bound=bound),
        parks=_parks(verbs.parked_by_code(c, found[0])) if found is not None and cells.parked else [],
        arms=arms,
        live=live,
        pools=pools,
        findings=findings,
        stops=stops,
        disk=disk,
        engine=engine,
        waiting=waiting,
        money=None if found is None else gather_money(c, found[0], arms, live, observed.get("money")),
        provider=gather_provider(gateway) if gateway is not None and any(arm.asks_model for arm in arms) else None,
        degraded=_illnesses(findings, stops, engine),
        unseen=_unseen(life, pools, disk, engine, waiting),
        readings=there,
        findings_elsewhere=len(standing) - len(findings),
        loop=seen["loop"] if isinstance(seen.get("loop"), dict) else None,
        ledger=str(c.execute("PRAGMA database_list").fetchone()[2]),
        oldest_review_ms=verbs.oldest_review_ms(c, found[0]) if found is not None and cells.review else None,
        set_by_hand=[] if there else [SetKnob(key, *each) for key, each in turned(c).items()],
        columns=() if found is None else columns_of(c, found[0], done=cells.done, held=_held(arms)),
    )


def _held(arms: Sequence[verbs.ArmCounts]) -> dict[str, bool]:
    """Column of a score → whether any done cell holds it."""
    return {name: any(getattr(arm, name) is not None for arm in arms) for name in NAMES}


def _fresh(observations: dict[str, Observation], life: Life, now_ms: int) -> dict[str, Any]:
    """What the newest daemon life has said lately: an earlier one's word says nothing about now, however young it is."""
    newest = None if life.run is None else life.run.run_id
    return {key: seen.value for key, seen in observations.items() if seen.run_id == newest and now_ms - seen.at_ms <= FRESH_MS}


def _no_progress(life: Life, engine: dict[str, Any] | None) -> str:
    """Why no end can be told whatever the durations say; empty when one can."""
    if life.alive is False:
        return "marathond is not running"
    if engine is None:
        return "the engine was not seen lately"
    return "" if engine.get("ok") is True else "the engine does not answer"


def runs_instead(observed: dict[str, Observation], life: Life, campaign: str) -> str:
    """That the daemon runs another campaign than this one, in words: then no open cell of this one begins.  Empty: it runs this one, or
    has not said.  It says so once, at its start."""
    said = observed.get("campaign")
    if said is None or life.run is None or said.run_id != life.run.run_id or said.value == campaign:
        return ""
    return f"marathond runs campaign {said.value}"


def _parks(rows: list[tuple[str, str, int, str]]) -> list[Parks]:
    """By code, most cells first.  ``rows``: as ``parked_by_code`` gives them, most cells first within each code."""
    found: dict[str, Parks] = {}
    for code, task, cells, detail in rows:
        known = found.get(code, Parks(code, 0, 0, task, detail))
        found[code] = replace(known, cells=known.cells + cells, tasks=known.tasks + 1)
    return sorted(found.values(), key=lambda parks: (-parks.cells, parks.code))


def _list(value: Any) -> list[dict[str, Any]] | None:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else None


def _sum(arms: list[verbs.ArmCounts]) -> Cells:
    done, claimed, open_, parked, review = (
        sum(getattr(arm, key) for arm in arms) for key in ("done", "claimed", "open", "parked", "review")
    )
    return Cells(done + claimed + open_ + parked + review, done, claimed, open_, parked, review)


def foreign_seen(c: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Engine → (networks of others in its last listing, when that was); Docker's own three are nobody's."""
    rows = c.execute(
        """SELECT engine, count(*) FILTER (WHERE owner <> 'ours' AND name NOT IN ('bridge', 'host', 'none')), max(seen_at_ms)
           FROM network_seen GROUP BY engine"""
    )
    return {str(row[0]): (int(row[1]), int(row[2])) for row in rows.fetchall()}


def pool_now(row: PoolRow, seen: dict[str, tuple[int, int]], now_ms: int, since_ms: int) -> Pool:
    """Capacity by the same rule as the view v_pool, from numbers that are still fresh.

    :param since_ms: start of the newest daemon life; what an earlier one saw says nothing about now.
    In explicit mode nothing of others is counted against us, so that others are just those of the engine's last listing.
    """
    oldest_ms = max(since_ms, now_ms - FRESH_MS)
    fresh = row.observed_at_ms is not None and row.observed_at_ms >= oldest_ms
    total, foreign, host = (row.total, row.foreign_used, row.host_used) if fresh else (None, None, None)
    count, seen_at_ms = seen.get(row.engine, (0, 0))
    if foreign is None and row.mode == "explicit" and seen_at_ms >= oldest_ms:
        foreign = count
    left = None if total is None or foreign is None or host is None else total - foreign - host
    if row.mode == "auto":
        capacity = None if left is None else max(min(row.cap, left - row.margin), 0)
    else:
        capacity = max(min(row.cap, row.cap if left is None else left), 0)
    return Pool(row.engine, row.mode, row.live, row.leaked, capacity, foreign)


def _concurrency(limits: Observation | None, life: Life) -> int | None:
    """The knob as this daemon life has said it last; it says so at its start and at each change, so age does not matter."""
    value = _knobs(limits, life).get("admission.concurrency")
    return value if isinstance(value, int) and value > 0 else None


def _knobs(limits: Observation | None, life: Life) -> dict[str, Any]:
    if limits is None or life.run is None or limits.run_id != life.run.run_id or not isinstance(limits.value, dict):
        return {}
    return limits.value


def limits_said(c: sqlite3.Connection, life: Life) -> dict[str, Any] | None:
    """Every knob as this daemon life has said it last; None: it has not, or not all that the scheduler goes by."""
    found = _knobs(verbs.observations(c).get("limits"), life)
    return found if "admission.concurrency" in found else None


def work_left(
    c: sqlite3.Connection, campaign_id: int, cells: Cells, live: list[verbs.LiveTrial], now_ms: int, *, look: int = verbs.OPEN_MAX
) -> Left:
    """What :func:`~marathond.service.picture.eta.estimate` goes by; ``look``: cells of the plan's end that are looked at one by one."""
    if not cells.open and not cells.claimed:
        return Left()
    tasks = verbs.task_limits(c, campaign_id)
    ids = {name: task_id for task_id, name, _ in tasks}
    open_tasks = verbs.open_tasks(c, campaign_id, limit=look) if cells.open else []
    running = [Running(ids[trial.task], max(0, now_ms - trial.created_at_ms), _limit_left(trial, now_ms)) for trial in live]
    return Left(
        open_tasks=open_tasks,
        more=max(0, cells.open - len(open_tasks)),
        claimed=cells.claimed,
        running=running,
        limits_ms={task_id: limit_ms for task_id, _, limit_ms in tasks},
        lengths=[(task_id, length) for task_id, _, length in verbs.durations(c, campaign_id)],
    )


def _limit_left(trial: verbs.LiveTrial, now_ms: int) -> int | None:
    if trial.phase != "running" or trial.limit_ms is None or trial.limit_from_ms is None:
        return None
    return trial.limit_from_ms + trial.limit_ms - now_ms


RESOURCES = frozenset({"CPU", "MEM", "NETPOOL"})
"""What keeps trials from starting while there are slots: reasons of core/plan.py."""


def slots_now(concurrency: int | None, waiting: list[dict[str, Any]] | None, claimed: int) -> tuple[int | None, str]:
    """(trials at one time, what keeps it below the knob): a host that is full runs as many as it runs now."""
    bound = next((str(row["code"]) for row in waiting or [] if row.get("code") in RESOURCES), "")
    if not bound or concurrency is None or not 0 < claimed < concurrency:
        return concurrency, ""
    return claimed, bound


def _illnesses(findings: list[FindingRow], stops: list[StopRow], engine: dict[str, Any] | None) -> list[str]:
    """What makes it degraded, in words."""
    ill = [f"admission closed by {stop.kind}: {stop.detail}" for stop in stops if stop.kind in OWN_STOPS]
    if engine is not None and engine.get("ok") is not True:
        ill.append(f"engine: {engine.get('detail') or 'not answering'}")
    ill += [f"{row.code} {row.subject}: {row.detail}" for row in findings if row.severity in ALARMS and row.acked_at_ms is None]
    return ill


def _unseen(life: Life, pools: list[Pool], disk: Any, engine: Any, waiting: Any) -> list[str]:
    """What a living daemon should have said lately and has not."""
    blind = [] if life.alive is not None else ["daemon"]
    blind += [name for name, value in (("engine", engine), ("disk", disk), ("waiting", waiting)) if value is None]
    blind += [f"networks of {pool.engine}" for pool in pools if pool.capacity is None or pool.foreign is None]
    return blind if pools else [*blind, "networks"]
