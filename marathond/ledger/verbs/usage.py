"""What trials spent on their model: the gateway's journal taken in, and the sums.

Owns gateway_journal, model_request, model_refusal, model_usage and model_outcome.  Must not know where the journal lies.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marathond.core.model_rules import Found, Outcome, Waits
from marathond.core.money import Price, request_cost_nusd
from marathond.core.names import trial_label
from marathond.core.requests import (
    BURIED,
    HOLD_AT_MOST_MS,
    OWN_SURPLUS,
    Begun,
    Ended,
    Event,
    First,
    Held,
    Released,
    Segment,
    Tokens,
    TurnedAway,
    Who,
    union_ms,
)
from marathond.ledger.verbs import findings, shapes
from marathond.ledger.verbs.admission import open_stop
from marathond.ledger.verbs.sql import LIVE, must, one, scalar

COST_AT_MOST = 10**15
"""A million dollars for one request is a mistake in a price or a count, and sums must fit the ledger's integers."""
MODELS_AT_MOST, OTHERS = 32, "(others)"
"""Of one trial's account: an agent may ask for any name, and some providers answer with it."""
JOURNAL = "gateway journal"
"""Subject of the findings about it."""
LOST = "lost"
"""End of a request whose end the journal does not hold: a line was torn, or is missing."""
SUMS = (
    *("requests", "failed", "unknown", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"),
    *("held_ms", "retries", "rate_limited", "cost_nusd", "unpriced"),
)
"""Columns of model_usage that only grow."""
_ADD = f"""INSERT INTO model_usage (trial_id, account, model, {", ".join(SUMS)})
    VALUES (:trial_id, :account, :model, {", ".join(f":{name}" for name in SUMS)})
    ON CONFLICT (trial_id, account, model) DO UPDATE SET {", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)}"""


@dataclass(frozen=True, slots=True)
class JournalRow:
    """How far the journal ``identity`` was taken in."""

    journal_id: int
    identity: str
    segment: int
    byte: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch.  ``foreign``: trials that this ledger does not know; ``refused``: records that the schema refuses."""

    trials: frozenset[int]
    foreign: frozenset[str]
    refused: tuple[str, ...] = ()


def journal(c: sqlite3.Connection) -> JournalRow | None:
    """The present journal; None: this ledger has never met one."""
    row = one(c, "SELECT journal_id, identity, segment, byte, last_seq FROM gateway_journal ORDER BY journal_id DESC LIMIT 1")
    return None if row is None else JournalRow(**dict(row))


def meet_journal(c: sqlite3.Connection, *, identity: str, segment: int, byte: int, last_seq: int, now_ms: int) -> None:
    """The first meeting, before any trial of ours had a way to a model: what the journal holds by then is an older ledger's."""
    if journal(c) is None:
        sql = "INSERT INTO gateway_journal (identity, segment, byte, last_seq, at_ms) VALUES (?, ?, ?, ?, ?)"
        c.execute(sql, (identity, segment, byte, last_seq, now_ms))


def ingest(
    c: sqlite3.Connection,
    events: Sequence[tuple[int, Event]],
    *,
    segment: int,
    byte: int,
    last_seq: int,
    prices: Mapping[str, Price],
    found: Sequence[Found] = (),
    campaign_id: int | None = None,
    now_ms: int,
) -> Taken:
    """Take in what the journal says next, the position after it and what was found in it: all or nothing, so that nothing is counted
    twice, lost or passed over in silence.

    :param events: (sequence number, event), in the journal's order.
    :param last_seq: of the last record before the new position, read or not.
    """
    work = _Intake(c, must(_row(c), "gateway journal"), prices, now_ms)
    for seq, event in events:
        work.take(seq, event)
    strange = [*work.refused, *(f"{trial}: no such trial in this ledger" for trial in sorted(work.foreign))]
    if strange:
        words = f"{len(strange)} records could not be taken in: {'; '.join(strange[:5])}"
        found = [*found, Found("journal_strange", "error", JOURNAL, words)]
    c.execute(
        "UPDATE gateway_journal SET segment = ?, byte = ?, last_seq = ?, at_ms = ? WHERE journal_id = ?",
        (segment, byte, last_seq, now_ms, work.journal_id),
    )
    tell(c, found, campaign_id=campaign_id, now_ms=now_ms)
    return Taken(frozenset(work.trials), frozenset(work.foreign), tuple(work.refused))


def tell(c: sqlite3.Connection, found: Sequence[Found], *, campaign_id: int | None, now_ms: int) -> None:
    """Open the findings, and close admission where one of them says so."""
    for each in found:
        findings.raise_finding(
            c, code=each.code, severity=each.severity, subject=each.subject, detail=each.detail, campaign_id=campaign_id, now_ms=now_ms
        )
        if each.stops:
            open_stop(c, "stop_loss", detail=f"{each.code}: {each.detail}", author="marathond", until_ms=None, now_ms=now_ms)


def _row(c: sqlite3.Connection) -> sqlite3.Row | None:
    return one(c, "SELECT * FROM gateway_journal ORDER BY journal_id DESC LIMIT 1")


class _Intake:
    """One batch."""

    def __init__(self, c: sqlite3.Connection, row: sqlite3.Row, prices: Mapping[str, Price], now_ms: int) -> None:
        self.c, self.prices, self.now_ms = c, prices, now_ms
        self.journal_id, self.identity = int(row["journal_id"]), str(row["identity"])
        self.trials: set[int] = set()
        self.foreign: set[str] = set()
        self.refused: list[str] = []
        self._known: dict[int, bool] = {}

    def take(self, seq: int, event: Event) -> None:
        """One record; what the schema refuses is passed over and named, for it must not hold up all that come after it."""
        self.c.execute("SAVEPOINT record")
        try:
            self._take(seq, event)
        except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as error:
            self.c.execute("ROLLBACK TO record")
            self.refused.append(f"number {seq}: {error}"[:200])
        self.c.execute("RELEASE record")

    def _take(self, seq: int, event: Event) -> None:
        match event:
            case Segment(identity):
                self._segment(identity)
            case Begun():
                if self._ours(event.who.trial_id):
                    self._begun(seq, event)
            case First(who, shape):
                if who.account == "agent" and self._ours(who.trial_id):
                    shapes.keep(self.c, who.trial_id, shape, now_ms=self.now_ms)
            case Held(begin, from_mono_ms):
                self._change(begin, "held_from_mono_ms = ?, held_until_mono_ms = NULL", from_mono_ms)
            case Released(begin, until_mono_ms):
                self._change(begin, "held_until_mono_ms = ?", until_mono_ms)
            case Ended():
                if self._ours(event.who.trial_id):
                    self._ended(event)
            case TurnedAway():
                if self._ours(event.trial_id):
                    self._turned_away(event)
            case _:
                pass

    def _ours(self, trial_id: int) -> bool:
        if trial_id not in self._known:
            self._known[trial_id] = scalar(self.c, "SELECT 1 FROM trial WHERE trial_id = ?", (trial_id,)) is not None
        if not self._known[trial_id]:
            self.foreign.add(trial_label(trial_id))
            return False
        self.trials.add(trial_id)
        return True

    def _segment(self, identity: str) -> None:
        """Its first line names the journal: another name means that its folder was made anew, and that it counts from 1 again."""
        if identity == self.identity:
            return
        if not self.identity:
            self.c.execute("UPDATE gateway_journal SET identity = ? WHERE journal_id = ?", (identity, self.journal_id))
        else:
            lost_requests(self.c, now_ms=self.now_ms, before_journal=self.journal_id + 1)
            sql = "INSERT INTO gateway_journal (identity, segment, byte, last_seq, at_ms) VALUES (?, 0, 0, 0, ?) RETURNING journal_id"
            self.journal_id = int(self.c.execute(sql, (identity, self.now_ms)).fetchall()[0][0])
        self.identity = identity

    def _begun(self, seq: int, event: Begun) -> None:
        who = event.who
        self.c.execute(
            """INSERT INTO model_request (journal_id, begin_seq, trial_id, account, number, begun_at_ms, begun_mono_ms)
               VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
            (self.journal_id, seq, who.trial_id, who.account, who.number, event.wall_ms, event.mono_ms),
        )

    def _change(self, begin: int, what: str, value: int) -> None:
        sql = f"UPDATE model_request SET {what} WHERE journal_id = ? AND begin_seq = ? AND ended_at_ms IS NULL RETURNING trial_id"
        self.trials |= {row[0] for row in self.c.execute(sql, (value, self.journal_id, begin)).fetchall()}

    def _ended(self, event: Ended) -> None:
        who, tokens = event.who, event.tokens if event.usage == "known" else None
        # The line that began it may be torn: then its end is all there is of it.
        arrived = Begun(who, event.wall_ms - (event.total_ms or 0), event.mono_ms - (event.total_ms or 0))
        self._begun(event.begin, arrived)
        cost = None if tokens is None else self._cost(event, tokens)
        ended = self.c.execute(
            f"""UPDATE model_request SET ended_at_ms = :wall_ms, end = :end, usage = :usage, status = :status,
                upstream_status = :upstream_status, first_byte_ms = :first_byte_ms, total_ms = :total_ms, held_ms = :held_ms,
                budget_held_ms = :budget_held_ms, retries = :retries, rate_limited = :rate_limited, model_asked = :model_asked,
                model = :model, input_tokens = :input, cached_tokens = :cached, cache_write_tokens = :cache_write, output_tokens = :output,
                reasoning_tokens = :reasoning, cost_nusd = :cost_nusd, error_type = :error_type,
                held_from_mono_ms = iif(:buried, held_from_mono_ms, :held_from),
                held_until_mono_ms = iif(:buried, min(:mono_ms, held_from_mono_ms + {HOLD_AT_MOST_MS}), :held_until)
                WHERE journal_id = :journal_id AND begin_seq = :begin AND ended_at_ms IS NULL""",
            {
                **{name: getattr(event, name) for name in _COPIED},
                **{kind: None if tokens is None else getattr(tokens, kind) for kind in Tokens.__slots__},
                "buried": event.end in BURIED,
                "held_from": event.held_from_mono_ms,
                "held_until": event.held_until_mono_ms,
                "cost_nusd": cost,
                "journal_id": self.journal_id,
            },
        )
        if ended.rowcount == 1:  # else it was taken in before
            self._add(event, tokens, cost)

    def _cost(self, event: Ended, tokens: Tokens) -> int | None:
        cost = request_cost_nusd(
            self.prices,
            event.who.account,
            event.model,
            event.model_asked,
            input_tokens=tokens.input,
            cached_tokens=tokens.cached,
            cache_write_tokens=tokens.cache_write,
            output_tokens=tokens.output,
        )
        return None if cost is None or cost > COST_AT_MOST else cost

    def _add(self, event: Ended, tokens: Tokens | None, cost: int | None) -> None:
        who, counted = event.who, tokens or Tokens(0, 0, 0, 0, 0)
        asked, model = (self._bounded(who, column, getattr(event, column) or "") for column in ("model_asked", "model"))
        self.c.execute(
            """INSERT INTO model_outcome (trial_id, account, model_asked, model, status, error_type, requests) VALUES (?, ?, ?, ?, ?, ?, 1)
               ON CONFLICT DO UPDATE SET requests = requests + 1""",
            (who.trial_id, who.account, asked, model, event.status or 0, (event.error_type or "")[:64]),
        )
        self.c.execute(
            _ADD,
            {
                "trial_id": who.trial_id,
                "account": who.account,
                "model": model,
                "requests": 1,
                "failed": int(event.failed),
                "unknown": int(event.usage == "unknown"),
                "input_tokens": counted.input,
                "cached_tokens": counted.cached,
                "cache_write_tokens": counted.cache_write,
                "output_tokens": counted.output,
                "reasoning_tokens": counted.reasoning,
                "held_ms": event.held_ms,
                "retries": event.retries,
                "rate_limited": event.rate_limited,
                "cost_nusd": cost or 0,
                "unpriced": int(tokens is not None and cost is None),
            },
        )

    def _bounded(self, who: Who, column: str, name: str) -> str:
        rows = self.c.execute(
            f"SELECT DISTINCT {column} FROM model_outcome WHERE trial_id = ? AND account = ?", (who.trial_id, who.account)
        )
        known = {row[0] for row in rows.fetchall()}
        return name if name in known or len(known) < MODELS_AT_MOST else OTHERS

    def _turned_away(self, event: TurnedAway) -> None:
        # A number that is no larger than the last one is another life's: the gateway counts anew after its start.
        self.c.execute(
            """INSERT INTO model_refusal (trial_id, account, code, count, told, first_at_ms, last_at_ms) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?5)
               ON CONFLICT (trial_id, account, code) DO UPDATE SET last_at_ms = excluded.last_at_ms, told = excluded.told,
                   count = count + excluded.told - iif(excluded.told > told, told, 0)""",
            (event.trial_id, event.account, event.code, event.count, event.wall_ms),
        )


_COPIED = (
    *("wall_ms", "mono_ms", "begin", "end", "usage", "status", "upstream_status", "first_byte_ms", "total_ms", "held_ms", "budget_held_ms"),
    *("retries", "rate_limited", "model_asked", "model", "error_type"),
)


_OPEN_FOR_EVER = f"""
SELECT request.journal_id, begin_seq, trial_id, account FROM model_request AS request JOIN trial USING (trial_id)
WHERE ended_at_ms IS NULL AND (request.journal_id < :before OR (state NOT IN {LIVE} AND
    (SELECT max(at_ms) FROM trial_event WHERE trial_event.trial_id = trial.trial_id) <= :rested))"""


def lost_in_rest(c: sqlite3.Connection, *, now_ms: int, rest_ms: int) -> int:
    """How many :func:`lost_requests` would end."""
    return len(c.execute(_OPEN_FOR_EVER, {"before": 0, "rested": now_ms - rest_ms}).fetchall())


def lost_requests(c: sqlite3.Connection, *, now_ms: int, rest_ms: int = 0, before_journal: int | None = None) -> int:
    """End, as unknown, requests whose end will not come; how many.

    Those of trials that have been at rest for ``rest_ms`` (their listeners are closed, so all that was open has ended), and those of
    journals before ``before_journal``.
    """
    rows = c.execute(_OPEN_FOR_EVER, {"before": before_journal or 0, "rested": now_ms - rest_ms if rest_ms else -1}).fetchall()
    for journal_id, begin, trial_id, account in rows:
        c.execute(
            f"""UPDATE model_request SET ended_at_ms = ?, end = '{LOST}', usage = 'unknown', error_type = '{LOST}',
                held_until_mono_ms = coalesce(held_until_mono_ms, held_from_mono_ms + {HOLD_AT_MOST_MS})
                WHERE journal_id = ? AND begin_seq = ?""",
            (now_ms, journal_id, begin),
        )
        zeros = dict.fromkeys(SUMS, 0)
        c.execute(_ADD, {**zeros, "trial_id": trial_id, "account": account, "model": "", "requests": 1, "failed": 1, "unknown": 1})
    return len(rows)


def held_ms(c: sqlite3.Connection, trial_id: int, *, now_mono_ms: int) -> int:
    """Milliseconds for which the gateway held requests of the trial's agent, side by side or not, ended or not."""
    rows = c.execute(
        """SELECT held_from_mono_ms, held_until_mono_ms FROM model_request
           WHERE trial_id = ? AND account = 'agent' AND held_from_mono_ms IS NOT NULL""",
        (trial_id,),
    )
    return union_ms(((row[0], row[1]) for row in rows.fetchall()), now_mono_ms)


def answers(c: sqlite3.Connection, trial_id: int) -> tuple[int, int]:
    """Requests of the trial's agent that the provider answered, whole or cut, and requests whose end is not known yet."""
    row = one(
        c,
        """SELECT count(*) FILTER (WHERE status = 200), count(*) FILTER (WHERE ended_at_ms IS NULL) FROM model_request
           WHERE trial_id = ? AND account = 'agent'""",
        (trial_id,),
    )
    answered, unended = must(row, "counts")
    return int(answered), int(unended)


def own_surplus(c: sqlite3.Connection, trial_id: int, *, since_ms: int) -> int:
    """How often the gateway has turned the trial's agent away for what it had open at one time, if the last time was since then (wall
    clock); else 0.  A count of the whole trial: the gateway tells of many refusals by numbers alone."""
    marks = ", ".join("?" * len(OWN_SURPLUS))
    row = one(
        c,
        f"""SELECT coalesce(sum(count), 0) FROM model_refusal
            WHERE trial_id = ? AND account = 'agent' AND last_at_ms >= ? AND code IN ({marks})""",
        (trial_id, since_ms, *OWN_SURPLUS),
    )
    return int(must(row, "count")[0])


def outcomes(c: sqlite3.Connection, campaign_id: int) -> list[Outcome]:
    """Of the campaign's agents, by trial; few rows for each."""
    rows = c.execute(
        """SELECT o.trial_id, arm.name, json_extract(arm.data_json, '$.codex.model'), model_asked, model, status, error_type, requests
           FROM model_outcome AS o JOIN trial USING (trial_id) JOIN arm USING (arm_id)
           WHERE arm.campaign_id = ? AND o.account = 'agent' ORDER BY o.trial_id""",
        (campaign_id,),
    )
    return [Outcome(*row) for row in rows.fetchall()]


def waits(c: sqlite3.Connection, campaign_id: int) -> list[Waits]:
    """Of the campaign's trials whose agent has asked, voided ones included."""
    rows = c.execute(
        """SELECT u.trial_id, arm.name, sum(held_ms), sum(rate_limited) FROM model_usage AS u JOIN trial USING (trial_id)
           JOIN arm USING (arm_id) WHERE arm.campaign_id = ? AND u.account = 'agent' GROUP BY u.trial_id ORDER BY u.trial_id""",
        (campaign_id,),
    )
    return [Waits(*row) for row in rows.fetchall()]


def cost_nusd(c: sqlite3.Connection, trial_id: int) -> int:
    """Nano-dollars that the trial's agent has cost so far.  Requests of unknown usage or price are taken to be like its others."""
    row = one(
        c,
        """SELECT sum(cost_nusd), sum(max(requests - max(failed, unknown) - unpriced, 0)), sum(unknown + unpriced) FROM model_usage
           WHERE trial_id = ? AND account = 'agent'""",
        (trial_id,),
    )
    known, priced, unknown = (int(value or 0) for value in must(row, "sum"))
    return known + unknown * known // max(priced, 1)
