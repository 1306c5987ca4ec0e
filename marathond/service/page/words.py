"""What the templates ask for besides the picture's own words: signs beside colours, finished rows, clean texts.

Owns no fact.  Every text that a template prints passes through :func:`shown`, whoever wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from marathond.core.audit.catalogue import meaning_of
from marathond.core.text import UNKNOWN, clean, clock, number, of_known, plural, span
from marathond.ledger.verbs.board import LOOKED_AT
from marathond.ledger.verbs.findings import FindingRow
from marathond.service.picture.board import Board
from marathond.service.picture.event_words import event_words, why_words
from marathond.service.picture.money_words import money_parts, provider_parts, short_count
from marathond.service.picture.status import ALARMS, Status
from marathond.service.picture.trial_log import tame
from marathond.service.picture.words import deadline_words, eta_words, fullest, note_words, path_end, pool_words, set_words

SIGNS = {"healthy": "●", "degraded": "▲", "down": "■", "unknown": "◆"}
SEVERITIES = {"stop_loss": ("■", "stop-loss"), "error": ("▲", "error"), "warning": ("△", "warning"), "info": ("○", "info")}
LIVE_MAX = 200
FINDINGS_MAX = 100
LAG_BAD_MS = 1000
"""A loop as late as that holds up what it drives."""


@lru_cache(maxsize=8192)
def _tamed(text: str) -> str:
    return tame(text)


def shown(value: Any) -> Any:
    """The last step before a template's output: no control character, escape sequence or change of direction; blanks stay."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    end = " " * (len(value) - len(value.rstrip(" ")))
    return (_tamed(value) if len(value) <= 200 else tame(value)) + end


def health_words(status: Status) -> str:
    """What stands first, and what a screen reader is told when it changes."""
    if status.readings:
        return "imported: nothing runs in it"
    return {"down": "marathond is not running", "unknown": "cannot see everything"}.get(status.health, status.health)


def life_words(status: Status) -> str:
    """Of the daemon, in one sentence."""
    life, run = status.life, status.life.run
    if life.alive is False:
        seen = f"last seen {clock(run.seen_at_ms, status.now_ms)}, " if run else ""
        tail = f"; ledger as of {clock(run.seen_at_ms, status.now_ms)}" if run else ""
        return f"{seen}{clean(life.why)}{tail}"
    if life.alive is None or run is None:
        return f"marathond {UNKNOWN}: {clean(life.why)}"
    recovering = "" if run.ready_at_ms else ", recovering"
    return f"marathond {clean(run.version)}, pid {run.pid}, run {run.run_id}, up {span(status.now_ms - run.started_at_ms)}{recovering}"


def engine_words(status: Status) -> str:
    """Of an engine that does not answer; it has no finding of its own."""
    if status.life.alive is False or status.engine is None or status.engine.get("ok") is True:
        return ""
    return f"the engine does not answer: {clean(status.engine.get('detail') or 'no reason given')}"


@dataclass(frozen=True, slots=True)
class Tile:
    """One fact of the head: its name, the figure, and what stands behind it.  ``bad``: somebody should look; said by ``sign``, too.

    ``whole``: what ``beside`` shows only the end of, for a pointer that rests on it.
    """

    name: str
    value: str
    beside: str = ""
    bad: bool = False
    sign: str = ""
    whole: str = ""


def tiles(status: Status) -> list[Tile]:
    """In the order in which a person asks."""
    eta = eta_words(status.eta, status).removeprefix("ETA ")
    figure, _, basis = eta.partition(" (") if status.eta.ms or status.eta.ms is None else (eta, "", "")
    found = [Tile("Done in", figure or UNKNOWN, basis.removesuffix(")"))] if status.cells.total and not status.readings else []
    if status.readings:
        return found
    found += [_pool(pool, len(status.pools) > 1) for pool in status.pools] or [Tile("Networks", UNKNOWN)]
    found.append(_disk(status))
    found += [_parted("Provider", part.removeprefix("provider").strip()) for part in provider_parts(status.provider)]
    if status.money is not None:
        first, *rest = money_parts(status.money)
        figure, _, beside = first.removeprefix("spent ").partition(" (")
        beside = f"({beside}" if beside else ""
        found.append(Tile("Spent", figure, " · ".join([*([beside] if beside else []), *rest])))
    found.append(_loop(status))
    for knob in status.set_by_hand:
        key, words = f"{clean(knob.key)} = {clean(knob.value)}", set_words(knob, status.now_ms)
        found.append(Tile("Set by hand", key, f"by {clean(knob.author)} at {clock(knob.at_ms, status.now_ms)}", whole=words))
    return found


def _disk(status: Status) -> Tile:
    seen = fullest(status.disk)
    if seen is None:
        return Tile("Disk", UNKNOWN)
    share, path = seen
    end = path_end(path)
    return Tile("Disk", f"{share} % free", f"at {end}" if path else "", whole="" if end == path else path)


def _pool(pool: Any, several: bool) -> Tile:
    words = pool_words(pool.engine if several else "", pool)
    figure, _, beside = words.partition(" (")
    return Tile("Networks", figure, f"({beside}" if beside else "", bad=pool.leaked > 0, sign="▲" if pool.leaked else "")


def _parted(name: str, words: str) -> Tile:
    figure, _, beside = words.partition(", ")
    if figure.startswith(UNKNOWN):
        return Tile(name, UNKNOWN, figure.removeprefix(UNKNOWN).strip(" ()"), bad=True, sign="◆")
    return Tile(name, figure, beside)


def _loop(status: Status) -> Tile:
    """Of interest when it is high: then everything else here is late."""
    seen = status.loop or {}
    p99, worst = seen.get("p99_ms"), seen.get("max_ms")
    if not isinstance(p99, int | float) or not isinstance(worst, int | float):
        return Tile("Daemon's lag", UNKNOWN)
    slow = p99 > LAG_BAD_MS
    beside = f"99 of 100 looks of the last minute; the worst {worst:.0f} ms"
    return Tile("Daemon's lag", f"{p99:.0f} ms", beside, bad=slow, sign="▲" if slow else "")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the bar of cells, per mille of its length."""

    name: str
    count: int
    start: float
    width: float


def shares(status: Status) -> list[Share]:
    """Of the cells, by state; what is nothing is left out."""
    cells, found, at = status.cells, list[Share](), 0.0
    open_name = "missing" if status.readings else "open"
    for name, count in (
        *(("done", cells.done), ("running", cells.claimed), ("review", cells.review)),
        *(("parked", cells.parked), (open_name, cells.open)),
    ):
        if count:
            width = 1000 * count / cells.total
            found.append(Share(name, count, round(at, 2), round(width, 2)))
            at += width
    return found


@dataclass(frozen=True, slots=True)
class Alert:
    """A standing finding with its words."""

    number: int
    sign: str
    severity: str
    code: str
    subject: str
    detail: str
    means: str
    todo: str
    since: str
    acked: str
    alarm: bool


def alerts(status: Status) -> list[Alert]:
    return [alert(row, status.now_ms) for row in sorted(status.findings, key=lambda row: row.acked_at_ms is not None)[:FINDINGS_MAX]]


def alert(row: FindingRow, now_ms: int) -> Alert:
    sign, severity = SEVERITIES.get(row.severity, ("△", row.severity))
    meaning = meaning_of(row.code)
    times = f", seen {row.times} times" if row.times > 1 else ""
    closed = f", over since {clock(row.closed_at_ms, now_ms)}" if row.closed_at_ms is not None else ""
    lasted = span((now_ms if row.closed_at_ms is None else row.closed_at_ms) - row.opened_at_ms)
    return Alert(
        number=row.finding_id,
        sign=sign,
        severity=severity,
        code=row.code,
        subject=row.subject,
        detail=clean(row.detail, 1000),
        means="" if meaning is None else meaning.means,
        todo="" if meaning is None else meaning.todo,
        since=f"for {lasted}{times}{closed}",
        acked="" if row.acked_by is None else f"known by {clean(row.acked_by)}: {clean(row.ack_reason or '')}",
        alarm=row.severity in ALARMS and row.acked_at_ms is None and row.closed_at_ms is None,
    )


@dataclass(frozen=True, slots=True)
class Column:
    """Of the table of arms."""

    name: str
    cells: tuple[str, ...]


def arm_columns(status: Status) -> list[Column]:
    """A column that the campaign does not have is left out; the reason stands below the table (fault d11)."""
    arms, absent = status.arms, {column.name for column in status.columns if not column.exists}
    imported = bool(status.readings)
    found = [
        ("done", [str(arm.done) for arm in arms], True),
        ("reward", ["–" if arm.reward is None else f"{arm.reward:.2f} ({arm.passed}/{arm.done})" for arm in arms], True),
        ("partial", [of_known(_dash(number(arm.partial)), arm.partial_cells, arm.done) for arm in arms], "partial" not in absent),
        ("tests", [of_known(_dash(number(arm.test_rate)), arm.test_rate_cells, arm.done) for arm in arms], "test_rate" not in absent),
        ("budget-ended", ["–" if arm.budget_ended is None else f"{arm.budget_ended * 100:.0f} %" for arm in arms], not imported),
        ("voids", [str(arm.voids) for arm in arms], True),
        ("running", [str(arm.claimed) for arm in arms], not imported),
        ("missing" if imported else "open", [str(arm.open) for arm in arms], True),
        ("parked", [str(arm.parked) for arm in arms], any(arm.parked for arm in arms)),
        ("review", [str(arm.review) for arm in arms], any(arm.review for arm in arms)),
    ]
    return [Column(name, tuple(cells)) for name, cells, keep in found if keep]


def absent_columns(status: Status) -> list[str]:
    titles = {"partial": "partial", "test_rate": "tests"}
    return [f"no {titles.get(column.name, column.name)}: {clean(column.why)}" for column in status.columns if not column.exists]


def _dash(text: str) -> str:
    return "–" if text == "-" else text


@dataclass(frozen=True, slots=True)
class Live:
    trial_id: int
    task: str
    arm: str
    letter: str
    phase: str
    elapsed: str
    deadline: str
    over: bool
    tokens: str
    note: str


LETTERS = {"new": "P", "reserved": "P", "preparing": "P", "running": "R", "verifying": "V", "scored": "S", "voided": "X", "review": "?"}


def live_rows(status: Status) -> list[Live]:
    rows = []
    for trial in status.live[:LIVE_MAX]:
        deadline = deadline_words(trial, status.now_ms)
        elapsed, tokens = span(status.now_ms - trial.phase_at_ms), _dash(short_count(trial.tokens))
        rows.append(
            Live(
                *(trial.trial_id, trial.task, trial.arm, LETTERS.get(trial.phase, "R"), trial.phase, elapsed, _dash(deadline)),
                *(deadline.endswith("over"), tokens, note_words(trial)),
            )
        )
    return rows


def no_events(board: Board) -> str:
    """Why none is shown: nothing happened, or nothing lately enough to be among those that are looked at (fault e02)."""
    cells = board.status.cells
    if not (cells.done or cells.claimed or cells.review):
        return "Nothing has happened yet."
    return f"Nothing lately: none of the ledger's newest {LOOKED_AT:,} events is of this campaign. marathonctl history tells older ones."


def event_rows(board: Board) -> list[tuple[int, str, int, str, str, str, str]]:
    """(number, when, trial, event, task, arm, detail), newest first; event and detail as ``marathonctl tail`` has them."""
    now = board.status.now_ms
    return [
        (
            *(e.event_id, clock(e.at_ms, now), e.trial_id, e.event, e.task, e.arm),
            event_words(e.event, e.name, why_words(e.author, e.text), e.detail).strip(),
        )
        for e in board.events
    ]


def counted(count: int, word: str) -> str:
    return plural(count, word)
