"""The proof that ``status`` shows what it must: each illness planted in a scratch ledger, and looked for by the very look of ``status``.

Owns the illnesses.  Must not know how they are printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from marathond.ledger.verbs import admission, networks, parks, runs, sql
from marathond.service.doctor.ground import ENGINE
from marathond.service.doctor.run import Proof
from marathond.service.doctor.scratch import Scratch
from marathond.service.picture.status import Status, gather

NO_PID = 1 << 22
"""Beyond the largest pid that Linux gives (proc(5), pid_max)."""
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Illness:
    """``seen``: whether a status shows it; of a clean campaign it must not."""

    name: str
    plant: Callable[[Scratch], object]
    seen: Callable[[Status], bool]


def _gone(scratch: Scratch) -> None:
    scratch.begin_run(now_ms=scratch.now_ms - HOUR_MS, pid=NO_PID)


def _stopped(scratch: Scratch) -> None:
    runs.end_run(scratch.c, reason="planted", now_ms=scratch.now_ms)


def _another_life(scratch: Scratch) -> None:
    """What is fresh was said by the life before."""
    scratch.begin_run(now_ms=scratch.now_ms)


def _blind_pool(scratch: Scratch) -> None:
    networks.set_pool(scratch.c, ENGINE, mode="auto", range="", prefix=28, cap=64, margin=0)
    networks.observe_pool(scratch.c, ENGINE, total=None, foreign_used=None, host_used=None, now_ms=scratch.now_ms)


def _parked(scratch: Scratch) -> None:
    task_id = int(sql.scalar(scratch.c, "SELECT min(task_id) FROM task"))
    parks.park_task(scratch.c, task_id, code="task_broken", detail="planted", author="doctor", now_ms=scratch.now_ms)


def _closed(scratch: Scratch) -> None:
    admission.open_stop(scratch.c, "breaker", detail="planted", author="doctor", until_ms=None, now_ms=scratch.now_ms)


ILLNESSES = (
    Illness("daemon killed", _gone, lambda s: s.life.alive is False and s.health == "down"),
    Illness("daemon stopped", _stopped, lambda s: s.life.alive is False and s.health == "down"),
    Illness(
        "stale observations",
        lambda scratch: scratch.all_is_well(ago_ms=10 * 60_000),
        lambda s: s.health == "unknown" and {"engine", "disk", "waiting"} <= set(s.unseen) and s.disk is None and s.waiting is None,
    ),
    Illness("observations of an earlier life", _another_life, lambda s: s.health == "unknown" and {"engine", "disk"} <= set(s.unseen)),
    Illness(
        "engine without an answer",
        lambda scratch: scratch.observe("engine", {"ok": False, "detail": "planted"}),
        lambda s: s.health == "degraded" and any("engine" in words for words in s.degraded),
    ),
    Illness(
        "unacknowledged error",
        lambda scratch: scratch.finding("lease_leaked", "error"),
        lambda s: s.health == "degraded" and any("lease_leaked" in words for words in s.degraded),
    ),
    Illness("breaker", _closed, lambda s: s.health == "degraded" and any("breaker" in words for words in s.degraded)),
    Illness("unknown pool", _blind_pool, lambda s: s.health == "unknown" and f"networks of {ENGINE}" in s.unseen),
    Illness("leaked lease", lambda scratch: scratch.trial(leaked=True), lambda s: [pool.leaked for pool in s.pools] == [1]),
    Illness("parked cells", _parked, lambda s: s.cells.parked > 0 and [park.code for park in s.parks] == ["task_broken"]),
    Illness("review", lambda scratch: scratch.trial(state="review"), lambda s: s.cells.review == 1),
    Illness("void", lambda scratch: scratch.trial(arm="plain", state="voided"), lambda s: _of(s, "plain") == (1, 0)),
    Illness("trial in work", lambda scratch: scratch.trial(arm="goal", state="running"), lambda s: _of(s, "goal") == (0, 1)),
)


def _of(status: Status, arm: str) -> tuple[int, int]:
    """(voids, cells in work) of the arm, when all the others have none; else something that no plant brings about."""
    others = [row for row in status.arms if row.arm != arm]
    mine = next(row for row in status.arms if row.arm == arm)
    return (mine.voids, mine.claimed) if not any(row.voids or row.claimed for row in others) else (-1, -1)


def prove_status() -> list[Proof]:
    """Each illness: not shown of a clean campaign, shown of a planted one."""
    with Scratch() as scratch:
        scratch.clean(voids=False)
        clean = status_of(scratch)
    ill = [] if clean.health == "healthy" else [f"a clean campaign is {clean.health}: {', '.join([*clean.degraded, *clean.unseen])}"]
    total = clean.cells.total
    if clean.cells.done != total:
        ill.append(f"a clean campaign shows {clean.cells.done} of {total} cells as done")
    return [Proof("status", "clean campaign", "; ".join(ill)), *(_proof(illness, clean) for illness in ILLNESSES)]


def status_of(scratch: Scratch) -> Status:
    connection = scratch.reader()
    try:
        return gather(connection, scratch.campaign, scratch.control_socket, scratch.now_ms, scratch.gateway)
    finally:
        connection.close()


def _proof(illness: Illness, clean: Status) -> Proof:
    try:
        if illness.seen(clean):
            return Proof("status", illness.name, "shown of a clean campaign")
        with Scratch() as scratch:
            illness.plant(scratch)
            shown = status_of(scratch)
        return Proof("status", illness.name, "" if illness.seen(shown) else f"planted, and status says {shown.health} and does not show it")
    except Exception as error:  # noqa: BLE001 - a look that breaks shows nothing, and that is told by its name
        return Proof("status", illness.name, f"breaks: {type(error).__name__}: {error}")
