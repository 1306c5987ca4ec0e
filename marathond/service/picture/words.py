"""What ``status``, ``top`` and the page say alike, in words.

Owns the wording of one fact at a time; where it stands is its caller's.  What is unknown says so; it is never shown as 0.
"""

from __future__ import annotations

from typing import Any

from marathond.core.text import UNKNOWN, clean, clock, plural, span
from marathond.ledger.verbs.status import LiveTrial
from marathond.service.picture.eta import Eta
from marathond.service.picture.status import Parks, SetKnob, Status

DETAIL_MAX = 200
PATH_MAX = 32


def reviews_words(status: Status) -> str:
    """They block no other cell; how long the first has waited says whether somebody looks."""
    oldest = status.oldest_review_ms
    age = "" if oldest is None else f", the oldest for {span(status.now_ms - oldest)}"
    return f"{status.cells.review} in review{age}: marathonctl review"


def park_words(parks: Parks) -> str:
    example = f"{clean(parks.task)}: {clean(parks.detail, DETAIL_MAX)}"
    return f"{parks.cells} parked: {clean(parks.code)}: " + (example if parks.tasks == 1 else f"{parks.tasks} tasks, such as {example}")


def set_words(knob: SetKnob, now_ms: int) -> str:
    why = f" ({clean(knob.reason, DETAIL_MAX)})" if knob.reason else ""
    return (
        f"{clean(knob.key)} = {clean(knob.value)}: set by {clean(knob.author)} at {clock(knob.at_ms, now_ms)}{why}, "
        f"until marathonctl set {clean(knob.key.rpartition('.')[2])}=default"
    )


def findings_words(status: Status) -> str:
    stop_loss = sum(row.severity == "stop_loss" for row in status.findings)
    acked = sum(row.acked_at_ms is not None for row in status.findings)
    return f"{plural(len(status.findings), 'finding')} ({stop_loss} stop-loss{f', {acked} acknowledged' if acked else ''})"


def eta_words(eta: Eta, status: Status) -> str:
    if not status.cells.total:
        return ""
    if eta.ms is None:
        return f"ETA {UNKNOWN} ({eta.basis})"
    if eta.ms == 0 and not status.cells.claimed:
        return eta.basis
    between = "" if eta.low_ms is None or eta.high_ms is None else f"{span(eta.low_ms)} to {span(eta.high_ms)}, "
    return f"ETA {span(eta.ms)} ({between}{eta.basis})"


def pool_words(engine: str, pool: Any) -> str:
    capacity = UNKNOWN if pool.capacity is None else pool.capacity
    foreign = UNKNOWN if pool.foreign is None else pool.foreign
    return f"{f'{clean(engine)} ' if engine else ''}{pool.ours}/{capacity} ours ({pool.leaked} leaked) · foreign {foreign}"


def fullest(disk: list[dict[str, Any]] | None) -> tuple[int, str] | None:
    """(whole per cent that are free, path) of the fullest file system that the daemon watches; no path where it watches one alone."""
    shares = []
    for row in disk or []:
        free, total = row.get("free_bytes"), row.get("total_bytes")
        if isinstance(free, int) and isinstance(total, int) and total > 0:
            shares.append((100 * free // total, clean(row.get("path", ""))))
    if not shares:
        return None
    share, path = min(shares)
    return share, path if len(shares) > 1 else ""


def disk_words(disk: list[dict[str, Any]] | None) -> str:
    seen = fullest(disk)
    if seen is None:
        return UNKNOWN
    share, path = seen
    return f"{share} % free" + (f" at {path_end(path)}" if path else "")


def path_end(path: str) -> str:
    """Its last two parts where it is long: they tell it from the others."""
    if len(path) <= PATH_MAX:
        return path
    end = "/".join(path.split("/")[-2:])
    return f"…/{end}" if len(end) <= PATH_MAX - 2 else f"…{end[1 - PATH_MAX :]}"


def deadline_words(trial: LiveTrial, now_ms: int) -> str:
    if trial.limit_ms is None or trial.limit_from_ms is None:
        return "none" if trial.phase in ("running", "verifying") else "-"
    left = trial.limit_from_ms + trial.limit_ms - now_ms
    return f"in {span(left)}" if left >= 0 else f"{span(-left)} over"


def note_words(trial: LiveTrial) -> str:
    notes = [f"attempt {trial.attempt}"] if trial.attempt > 1 else []
    notes += [f"reattached {trial.reattached}x"] if trial.reattached else []
    notes += [{"waits": "waits for the verifier slot", "alone": "verifies alone"}[trial.turn]] if trial.turn else []
    return ", ".join(notes)


def waiting_words(status: Status) -> list[str]:
    if not status.cells.open:
        return []
    if status.life.alive is False:
        return [f"waiting: {plural(status.cells.open, 'cell')} — marathond is not running"]
    if status.waiting is None:
        return [f"waiting: {plural(status.cells.open, 'cell')} — {UNKNOWN}"]
    reasons = [f"{row.get('count', UNKNOWN)} {clean(row.get('text', row.get('code', UNKNOWN)))}" for row in status.waiting]
    return [f"waiting: {plural(status.cells.open, 'cell')} — {' · '.join(reasons)}"] if reasons else []
