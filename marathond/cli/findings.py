"""``marathonctl findings``: what a person must know, what it means and what to do.

Owns the layout of the list and of one finding.  The current campaign's and the house's come first, those of other campaigns after them;
within each, stop-loss comes first and what somebody has acknowledged last.  The words of a code stand once below all
its findings there.  Every count names its campaign and its total (fault e02).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from marathond.cli.output import Screen, flat, print_json, say, wrapped
from marathond.core.audit.catalogue import Meaning, meaning_of
from marathond.core.text import clean, clock, plural, span, text_of, when
from marathond.ledger.verbs import findings as verbs
from marathond.ledger.verbs.findings import FindingRow, Told
from marathond.ledger.verbs.sql import scalar
from marathond.service.exits import CallFailed
from marathond.service.picture.reader import campaign_id
from marathond.service.picture.status import ALARMS

DETAIL_MAX = 2_000
HOUSE = "house"
"""In place of a campaign: what is of the whole ledger."""
NO_WORDS = Meaning("This version knows no such finding.", "It was raised by another version of marathond: read its words, or ask there.")
_SHADES = {"stop_loss": "red", "error": "red", "warning": "yellow", "info": "dim"}
_HISTORY_MAX = 20


@dataclass(frozen=True, slots=True)
class Listed:
    """``counts``: campaign (or ``house``) to (open, ever).  ``rows`` in the order in which they are shown.

    ``here``: the current campaign, and None, the house.
    """

    rows: list[FindingRow]
    campaigns: Mapping[int, str]
    counts: Mapping[str, tuple[int, int]]
    here: frozenset[int | None]

    def campaign(self, row: FindingRow) -> str:
        return HOUSE if row.campaign_id is None else self.campaigns[row.campaign_id]


def listed(c: sqlite3.Connection, *, everything: bool = False) -> Listed:
    """Open ones, of all campaigns of the ledger and of the house; ``everything``: closed ones, too."""
    rows = verbs.open_findings(c)
    closed = verbs.closed_findings(c) if everything else []
    now = campaign_id(c, None)
    here = frozenset({None} if now is None else {None, now[0]})
    # Stable: the worst first within each, and of those that are over the last one.
    rows = sorted(rows, key=lambda row: (row.campaign_id not in here, row.acked_at_ms is not None))
    closed = sorted(closed, key=lambda row: row.campaign_id not in here)
    names = {int(row[0]): str(row[1]) for row in c.execute("SELECT campaign_id, name FROM campaign").fetchall()}
    counts = {HOUSE if key is None else names[key]: value for key, value in verbs.counts(c).items()}
    return Listed([*rows, *closed], names, counts, here)


def unacknowledged_alarm(rows: Sequence[Any]) -> bool:
    """What degrades: an open error or stop-loss that nobody has acknowledged."""
    return any(row.severity in ALARMS and row.acked_at_ms is None and row.closed_at_ms is None for row in rows)


def show(found: Listed, where: Screen, now_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json([flat(row, _beside(row, found.campaign(row))) for row in found.rows])
        return
    for line in lines(found, where, now_ms):
        say(line)


@dataclass(frozen=True, slots=True)
class Beside:
    """What --json has beside a finding's row.

    :param campaign: null: it is of the whole ledger.
    :param means: null: this version knows no such finding.
    :param todo: what a person can do; null: as above.
    :param faults: of the catalogue of faults.
    """

    campaign: str | None
    means: str | None
    todo: str | None
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Of one finding alone.

    :param earlier: findings of the same code and subject, newest first.
    :param told: what went over which channel.
    """

    earlier: list[FindingRow]
    told: list[Told]


def _beside(row: FindingRow, campaign: str) -> Beside:
    meaning, of = meaning_of(row.code), None if campaign == HOUSE else campaign
    return Beside(of, None, None, ()) if meaning is None else Beside(of, meaning.means, meaning.todo, meaning.faults)


def lines(found: Listed, where: Screen, now_ms: int) -> Iterator[str]:
    yield from wrapped(head(found), where)
    for _, group in groupby(found.rows, key=lambda row: (row.code, row.severity, _place(row), row.campaign_id in found.here)):
        rows = list(group)
        yield ""
        for row in rows:
            yield from _one(row, found.campaign(row), where, now_ms)
        yield from _words(rows[0], where)
    if found.rows:
        yield ""
        yield from wrapped("one of them whole: marathonctl findings NO; acknowledge: marathonctl ack NO|CODE --reason …", where)


def head(found: Listed) -> str:
    """``open findings: campaign x 2 of 5 · house 1 of 2 (0 stop-loss, 1 acknowledged)``."""
    rows = [row for row in found.rows if row.closed_at_ms is None]
    of = " · ".join(f"{HOUSE if name == HOUSE else f'campaign {clean(name)}'} {n} of {ever}" for name, (n, ever) in found.counts.items())
    stop_loss = sum(row.severity == "stop_loss" for row in rows)
    acked = sum(row.acked_at_ms is not None for row in rows)
    beside = f" ({stop_loss} stop-loss{f', {acked} acknowledged' if acked else ''})" if rows else ""
    return f"open findings: {of}{beside}" if of else "no findings, and there never was one"


def _place(row: FindingRow) -> int:
    """Open, acknowledged, closed."""
    return 2 if row.closed_at_ms is not None else 1 if row.acked_at_ms is not None else 0


def _words(row: FindingRow, where: Screen) -> Iterator[str]:
    meaning = meaning_of(row.code) or NO_WORDS
    yield from wrapped(f"     means: {meaning.means}", where)
    yield from wrapped(f"     do: {meaning.todo}", where)


def _one(row: FindingRow, campaign: str, where: Screen, now_ms: int) -> Iterator[str]:
    """Number, severity, code and subject in one line, for who greps."""
    lasted = span((row.closed_at_ms if row.closed_at_ms is not None else now_ms) - row.opened_at_ms)
    facts = [f"for {lasted}" + (f", over since {clock(row.closed_at_ms, now_ms)}" if row.closed_at_ms is not None else "")]
    facts += [f"seen {row.times} times"] if row.times > 1 else []
    facts += [] if campaign == HOUSE else [f"campaign {clean(campaign)}"]
    mark = "STOP-LOSS" if row.severity == "stop_loss" else row.severity
    style = "dim" if _place(row) else _SHADES[row.severity]
    yield where.paint(where.fit(f"{row.finding_id:>4} {mark} {clean(row.code)} {clean(row.subject)} ({', '.join(facts)})"), style)
    yield from wrapped(f"     {clean(row.detail, DETAIL_MAX)}", where)
    if row.acked_by is not None:
        yield from wrapped(f"     known by {clean(row.acked_by)}: {clean(row.ack_reason or '')}", where)


# ── one of them ──


@dataclass(frozen=True, slots=True)
class Whole:
    """``earlier``: findings of the same code and subject, newest first.  ``told``: what went over which channel."""

    row: FindingRow
    campaign: str
    earlier: list[FindingRow]
    told: list[Told]


def find(c: sqlite3.Connection, number: int) -> Whole:
    """:raises CallFailed: there is none of that number; with the last one there is."""
    row = verbs.finding(c, number)
    if row is None:
        last = c.execute("SELECT max(finding_id) FROM finding").fetchone()[0]
        raise CallFailed(f"no finding {number} in this ledger ({f'last is {last}' if last else 'it has none yet'})")
    name = scalar(c, "SELECT name FROM campaign WHERE campaign_id = ?", (row.campaign_id,))
    earlier = [each for each in verbs.same(c, row.code, row.subject) if each.finding_id != number]
    return Whole(row, HOUSE if name is None else str(name), earlier, verbs.told_of(c, number))


def show_one(whole: Whole, where: Screen, now_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json(flat(whole.row, _beside(whole.row, whole.campaign), History(whole.earlier, whole.told)))
        return
    for line in _whole_lines(whole, where, now_ms):
        say(line)


def _whole_lines(whole: Whole, where: Screen, now_ms: int) -> Iterator[str]:
    row, meaning = whole.row, meaning_of(whole.row.code) or NO_WORDS
    yield where.paint(f"finding {row.finding_id}: {row.severity.replace('_', '-')} {clean(row.code)} {clean(row.subject)}", "bold")
    of = "the house: all campaigns of this ledger" if whole.campaign == HOUSE else f"campaign {clean(whole.campaign)}"
    closed = "open" if row.closed_at_ms is None else f"closed {when(row.closed_at_ms)}"
    lasted = span((now_ms if row.closed_at_ms is None else row.closed_at_ms) - row.opened_at_ms)
    seen = f"seen {plural(row.times, 'time')}, last {when(row.seen_at_ms)}"
    facts = {
        "of": of,
        "says": clean(row.detail, DETAIL_MAX),
        "means": meaning.means,
        "do": meaning.todo,
        "since": f"{when(row.opened_at_ms)}, {closed}, for {lasted}, {seen}",
        "known by": _known(row),
        "told": "; ".join(map(_told, whole.told)) or "no message was sent of it",
    }
    for name, text in facts.items():
        yield from wrapped(f"  {name + ':':<10} {text}", where)
    if whole.earlier:
        yield f"  before: {plural(len(whole.earlier), 'time')} for {clean(row.subject)}"
        for each in whole.earlier[:_HISTORY_MAX]:
            ended = span((each.closed_at_ms or now_ms) - each.opened_at_ms)
            yield from wrapped(f"    {each.finding_id:>4} {when(each.opened_at_ms)} for {ended}: {clean(each.detail, DETAIL_MAX)}", where)
        if len(whole.earlier) > _HISTORY_MAX:
            yield f"    and {len(whole.earlier) - _HISTORY_MAX} before these: marathonctl findings --all --json"


def _known(row: FindingRow) -> str:
    return "nobody yet" if row.acked_by is None else f"{clean(row.acked_by)} since {when(row.acked_at_ms)}: {text_of(row.ack_reason)}"


def _told(each: Told) -> str:
    if each.told_at_ms is not None:
        return f"{clean(each.channel)} at {when(each.told_at_ms)}"
    state = "given up" if each.gave_up_at_ms is not None else "not yet"
    return f"{clean(each.channel)}: {state} after {each.tries} tries: {text_of(each.answer)}"
