"""One trial, as its page shows it: identity, timeline, limits, scores, receipt, decisions, attempts, the ends of its logs.

Owns the order and the bounds; reads one trial's rows and the ends of two files.
"""

from __future__ import annotations

import heapq
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marathond.core.endtime import WORDS
from marathond.core.errors import MarathonError
from marathond.core.money import dollars
from marathond.core.names import LIVE_STATES, REACHED_INTO, Origin, block_label, cell_label, trial_label
from marathond.core.text import UNKNOWN, clean, fields, number, span, text_of, when
from marathond.ledger.verbs.show import EventRow, TrialShown, show
from marathond.service.exits import CallFailed
from marathond.service.page.place import Place, now_ms
from marathond.service.page.words import LETTERS, Alert, alert
from marathond.service.picture.event_words import event_words
from marathond.service.picture.money_words import short_count
from marathond.service.picture.reader import check_trial, reading
from marathond.service.picture.trial_log import log_of, tail

TAIL_BYTES, TAIL_LINES, TAIL_LINE_MAX = 48 << 10, 120, 1_000
EVENTS_MAX, FACTS_MAX, RECEIPT_MAX, ARTIFACTS_MAX, LOG_MAX, PARTS_MAX = 300, 80, 60, 60, 20, 60
VALUE_MAX = 400


@dataclass(frozen=True, slots=True)
class Step:
    """An event of its life, and how long the state lasted that it led to; empty: it lasts, or is at rest."""

    at: str
    event: str
    state: str
    lasted: str
    detail: str
    run: int | None
    """The daemon life in which it was; None: a person's own act."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stay in one state, per mille of the whole life."""

    state: str
    letter: str
    start: float
    width: float
    lasted: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """``why``: there is nothing to show, and why."""

    name: str
    lines: list[str] = field(default_factory=list)
    before: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class TrialView:
    shown: TrialShown
    label: str
    state: str
    letter: str
    live: bool
    now_ms: int
    identity: list[tuple[str, str]]
    steps: list[Step]
    stretches: list[Stretch]
    limits: list[tuple[str, str]]
    facts: list[tuple[str, str, str]]
    scores: list[list[tuple[str, str, str]]]
    usage: list[tuple[str, ...]]
    spent: str
    receipt: list[tuple[str, str]]
    driver: list[tuple[str, str, str]]
    alerts: list[Alert]
    decisions: list[tuple[str, str]]
    attempts: list[tuple[int, int, str, str, str, str]]
    files: list[tuple[str, str, str]]
    files_left: int
    folder: str
    logs: list[LogEnd]


def look(place: Place, trial_id: int) -> TrialView:
    """:raises CallFailed: there is no such trial.  :raises LedgerRefused: the ledger cannot be read."""
    with reading(place.ledger) as c:
        found = _find(c, trial_id)
    logs = [_log(place, trial_id, verifier=False), _log(place, trial_id, verifier=True)]
    return view(found, place.state_dir, logs, now_ms())


def _find(c: sqlite3.Connection, trial_id: int) -> TrialShown:
    check_trial(c, trial_id)
    return show(c, trial_id, now_mono_ms=time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000)


def _log(place: Place, trial_id: int, *, verifier: bool) -> LogEnd:
    name = "verifier" if verifier else "agent"
    try:
        path, talks = log_of(place.ledger, place.state_dir, trial_id, verifier=verifier)
        end = tail(path, talks, bytes_max=TAIL_BYTES, lines_max=TAIL_LINES, line_max=TAIL_LINE_MAX)
    except CallFailed as error:
        return LogEnd(name, why=str(error).partition("; looked at")[0])
    except MarathonError as error:
        return LogEnd(name, why=str(error))
    return LogEnd(name, end.lines, end.before, "" if end.lines else f"the {name} wrote nothing yet")


def view(trial: TrialShown, state_dir: Path, logs: list[LogEnd], now: int) -> TrialView:
    """Pure."""
    x = trial.context
    live = x.state in LIVE_STATES
    return TrialView(
        shown=trial,
        label=trial_label(x.trial_id),
        state=x.state,
        letter=LETTERS.get(x.state, "R"),
        live=live,
        now_ms=now,
        identity=list(_identity(trial)),
        steps=_with_reached(trial, list(_steps(trial, now))),
        stretches=_stretches(trial, now),
        limits=list(_limits(trial, now)),
        facts=[(fact.name, clean(fact.value, VALUE_MAX), fact.origin) for fact in trial.facts[:FACTS_MAX]],
        scores=[_score(score) for score in trial.scores],
        usage=[_usage(row) for row in trial.usage],
        spent=_spent(trial),
        receipt=_receipt(trial),
        driver=[(when(entry.at_ms), entry.kind, fields(entry.detail)) for entry in trial.log[-LOG_MAX:]],
        alerts=[alert(row, now) for row in trial.findings],
        decisions=list(_decisions(trial)),
        attempts=[
            (
                one.trial_id,
                one.attempt,
                one.state,
                text_of(one.void_code),
                "–" if one.reward is None else f"{one.reward:g}",
                when(one.created_at_ms),
            )
            for one in trial.attempts
        ],
        files=[
            (one.path, f"{one.size_bytes:,}", (one.sha256 or "")[:16] if one.sha256 else f"left out: {clean(one.why)}")
            for one in trial.artifacts[:ARTIFACTS_MAX]
        ],
        files_left=max(0, len(trial.artifacts) - ARTIFACTS_MAX),
        folder="" if trial.folder is None else str(Path(x.out_dir) / trial.folder),
        logs=logs,
    )


def _identity(trial: TrialShown) -> Iterator[tuple[str, str]]:
    x = trial.context
    yield "campaign", x.campaign
    yield "task", x.task
    yield "arm", x.arm
    yield "replicate", str(x.replicate)
    yield "cell", f"{cell_label(x.cell_id)} ({trial.cell_state})"
    yield "block", block_label(x.block_id)
    yield "attempt", f"{x.attempt} of {len(trial.attempts)}"
    if trial.imported is not None:
        yield "imported", "its files stay where they were read from"
        return
    yield "task digest", text_of(x.task_digest)
    if x.container is not None:
        gone = f", gone {when(x.container.gone_at_ms)}" if x.container.gone_at_ms else ""
        yield "image", x.container.image_id
        yield "container", f"{x.container.name} on {x.container.engine}{gone}"
    if x.lease is not None:
        yield "network", f"{x.lease.network_name} {text_of(x.lease.subnet)}"


def _steps(trial: TrialShown, now: int) -> Iterator[Step]:
    events = trial.events[-EVENTS_MAX:]
    for event, after in zip(events, [*events[1:], None], strict=True):
        at_rest = event.to_state not in LIVE_STATES
        end = after.at_ms if after is not None else None if at_rest else now
        lasted = "" if end is None else span(end - event.at_ms)
        yield Step(when(event.at_ms), event.event, event.to_state, lasted, _said(trial, event), event.run_id)


def _with_reached(trial: TrialShown, steps: list[Step]) -> list[Step]:
    """What a person ran in its container, between the events."""
    own = [Step(when(one.at_ms), REACHED_INTO, "", "", f"by {clean(one.author)}, {clean(one.said)}", None) for one in trial.reached]
    return list(heapq.merge(steps, own[-EVENTS_MAX:], key=lambda step: step.at))


def _said(trial: TrialShown, event: EventRow) -> str:
    """Of a score its numbers, as everywhere; what else an event points to stands in a section of its own."""
    score = next((score for score in trial.scores if score.score_id == event.detail.get("score_id")), None)
    if score is None or event.event not in ("scored", "accepted"):
        return fields(event.detail)
    return event_words(event.event, "", "", {"reward": score.reward, "partial": score.partial})


def _stretches(trial: TrialShown, now: int) -> list[Stretch]:
    """Stays in one state; events that change none (a re-attachment) begin no new one."""
    events = trial.events
    if len(events) < 2 and not (events and events[-1].to_state in LIVE_STATES):
        return []
    stays: list[tuple[str, int, int]] = []
    for event, after in zip(events, [*events[1:], None], strict=True):
        if event.to_state not in LIVE_STATES:
            continue
        end = after.at_ms if after is not None else now
        if stays and stays[-1][0] == event.to_state:
            stays[-1] = (event.to_state, stays[-1][1], end)
        else:
            stays.append((event.to_state, event.at_ms, end))
    if not stays:
        return []
    begin, whole = stays[0][1], max(1, stays[-1][2] - stays[0][1])
    return [
        Stretch(
            state, LETTERS.get(state, "R"), round(1000 * (at - begin) / whole, 1), round(1000 * max(0, end - at) / whole, 1), span(end - at)
        )
        for state, at, end in stays
    ]


def _limits(trial: TrialShown, now: int) -> Iterator[tuple[str, str]]:
    agent = trial.context.agent
    if agent is not None:
        yield "agent's deadline", _deadline(agent.limit_ms, agent.limit_origin, agent.limit_loser)
        if agent.credit_ms:
            yield "credited to it", f"{span(agent.credit_ms)}: held by the gateway"
        if agent.ended_by is None and agent.limit_ms is not None and trial.context.state == "running":
            left = agent.started_at_ms + agent.limit_ms + agent.credit_ms - now
            yield "left of it", span(left) if left >= 0 else f"{span(-left)} over"
        if agent.ended_by is not None:
            took = span(agent.ended_mono_ms - agent.started_mono_ms) if agent.ended_mono_ms is not None else UNKNOWN
            if words := WORDS[trial.time_source]:
                took = f"{took} ({words})"
            code = "" if agent.exit_code is None else f", exit code {agent.exit_code}"
            oom = ", out of memory" if agent.oom_killed else ""
            yield "agent ended", f"by {agent.ended_by} after {took}{code}{oom}"
            if agent.overrun_ms:
                yield "overran by", span(agent.overrun_ms)
    for run in trial.context.verifications:
        outcome = "running" if run.ended_at_ms is None else f"{text_of(run.outcome)}, exit code {text_of(run.exit_code)}"
        took = f" after {span(run.ended_at_ms - run.started_at_ms)}" if run.ended_at_ms is not None else ""
        yield f"verifier, round {run.round}", f"{outcome}{took}; deadline {run.limit_ms / 1000:g} s: {run.limit_origin}"


def _deadline(limit_ms: int | None, origin: str, loser: str) -> str:
    if limit_ms is None:
        return "none"
    own = " (our own)" if origin == Origin.OWN else f": {origin}"
    return f"{limit_ms / 1000:g} s{own}" + (f"; {loser} did not apply" if loser else "")


def _score(score: Any) -> list[tuple[str, str, str]]:
    """(name, value, where it was read)."""
    rows = [("reward", f"{score.reward:g}", score.reward_source)]
    rows += [("partial", number(score.partial), "")] if score.partial is not None else []
    rows += [("tests", f"{score.tests_passed} of {score.tests_total}", "")] if score.tests_passed is not None else []
    rows += [("test rate", number(score.test_rate, 3), "")] if score.test_rate is not None else []
    rows += [("flags", ", ".join(score.flags), "")] if score.flags else []
    rows += [(name, clean(value, VALUE_MAX), source) for name, value, source in score.parts[:PARTS_MAX]]
    return rows


def _usage(row: Any) -> tuple[str, ...]:
    counts = (row.requests, row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens)
    cost = UNKNOWN if row.cost_nusd is None else dollars(row.cost_nusd)
    return (row.account, row.model or "–", *map(short_count, counts), cost)


def _spent(trial: TrialShown) -> str:
    if not trial.usage and not trial.held_ms:
        return ""
    known = sum(row.cost_nusd or 0 for row in trial.usage)
    unpriced = sum(row.unpriced for row in trial.usage)
    words = f"cost {'at least ' if unpriced else ''}{dollars(known)}"
    return f"{words} · held by the gateway {span(trial.held_ms)}"


def _receipt(trial: TrialShown) -> list[tuple[str, str]]:
    if trial.receipt is None:
        return []
    flat = [(name, text_of(value, VALUE_MAX)) for name, value in _flat(trial.receipt.data) if value or value is False]
    return flat[:RECEIPT_MAX]


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Tables by dotted name; a list of tables by its length."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            simple = not any(isinstance(item, Mapping | list) for item in value)
            yield f"{prefix}{name}", ", ".join(map(str, value)) if simple else f"({len(value)})"
        else:
            yield f"{prefix}{name}", value


def _decisions(trial: TrialShown) -> Iterator[tuple[str, str]]:
    for review in trial.reviews:
        yield f"review {review.code}", f"{clean(review.detail, VALUE_MAX)} (since {when(review.opened_at_ms)})"
        if review.decision:
            yield review.decision, f"by {text_of(review.author)} at {when(review.decided_at_ms)}: {text_of(review.reason)}"
        else:
            yield "to decide", f"marathonctl review {trial_label(trial.context.trial_id)}"
    for void in trial.voids:
        known = "score was known" if void.score_was_known else "score unknown"
        yield (
            f"void {void.code}",
            f"by {void.author} at {when(void.at_ms)}, was {void.from_state}, {known}: {clean(void.reason, VALUE_MAX)}",
        )
        if void.undone_by:
            yield "undone", f"by {void.undone_by} at {when(void.undone_at_ms)}: {text_of(void.undone_reason)}"
