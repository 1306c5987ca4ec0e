"""Everything about one trial, for ``marathonctl show``.  A few look-ups by key; the size of the ledger does not matter."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from marathond.core.columns import Column
from marathond.core.endtime import TimeSource, told_in
from marathond.core.names import LIVE_STATES, trial_label
from marathond.ledger.verbs.agentlog import ReceiptRow, entries, receipt
from marathond.ledger.verbs.archive import ArchiveRow, PruneRow, kept_of
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.ledger.verbs.columns import expected_of
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ledger.verbs.findings import FindingRow
from marathond.ledger.verbs.imports import ImportedRow, imported_row
from marathond.ledger.verbs.money import TrialUsage, usage_of
from marathond.ledger.verbs.ordering import BlockBasis, basis
from marathond.ledger.verbs.reached import Reached, in_facts
from marathond.ledger.verbs.sql import one
from marathond.ledger.verbs.turns import TurnRow, of_trial
from marathond.ledger.verbs.usage import held_ms
from marathond.ports.agent import LogEntry

AT_REST_MONO_MS = 1 << 62
"""Nothing is held any more, and the monotonic clock may have begun anew since."""


@dataclass(frozen=True, slots=True)
class EventRow:
    seq: int
    event: str
    from_state: str
    to_state: str
    at_ms: int
    run_id: int
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FactRow:
    name: str
    value: str
    origin: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ScoreShown:
    """``parts``: (name, value, source)."""

    score_id: int
    extractor: int
    reward: float
    reward_source: str
    partial: float | None
    tests_passed: int | None
    tests_total: int | None
    flags: list[str]
    at_ms: int
    parts: tuple[tuple[str, str, str], ...]
    test_rate: float | None = None


@dataclass(frozen=True, slots=True)
class VoidRow:
    void_id: int
    code: str
    reason: str
    evidence: dict[str, Any]
    decided_by: str
    author: str
    at_ms: int
    from_state: str
    score_was_known: bool
    counts_pass: bool
    batch: str
    undone_at_ms: int | None
    undone_by: str | None
    undone_reason: str | None


@dataclass(frozen=True, slots=True)
class ReviewRow:
    review_id: int
    code: str
    detail: str
    evidence: dict[str, Any]
    opened_at_ms: int
    decided_at_ms: int | None
    decision: str | None
    author: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """Another trial of the same cell (or the same one)."""

    trial_id: int
    attempt: int
    state: str
    void_code: str | None
    reward: float | None
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class TrialShown:
    """Everything about one trial.  ``cell_state``: of its cell, now."""

    context: TrialContext
    cell_state: str
    events: tuple[EventRow, ...]
    facts: tuple[FactRow, ...]
    scores: tuple[ScoreShown, ...]
    voids: tuple[VoidRow, ...]
    reviews: tuple[ReviewRow, ...]
    attempts: tuple[AttemptRow, ...]
    findings: tuple[FindingRow, ...]
    folder: str | None
    artifacts: tuple[ArtifactRecord, ...]
    usage: tuple[TrialUsage, ...]
    held_ms: int
    receipt: ReceiptRow | None
    log: tuple[LogEntry, ...]
    columns: tuple[Column, ...] = ()
    """Of scores, by the benchmark's profile: which there are, and why not (fault d11)."""
    imported: ImportedRow | None = None
    """Where it was read from; None: it was run here."""
    archives: tuple[ArchiveRow, ...] = ()
    prunes: tuple[PruneRow, ...] = ()
    """What of it was removed to make room."""
    turns: tuple[TurnRow, ...] = ()
    """Of its verifier, where some tasks' verifiers run alone."""
    placed: BlockBasis | None = None
    """Why its block is where it is; None: another replicate has begun since, or none has learned."""

    @property
    def reached(self) -> tuple[Reached, ...]:
        """Commands that a person ran in its container."""
        return in_facts((fact.name, fact.value, fact.origin, fact.at_ms) for fact in self.facts)

    @property
    def time_source(self) -> TimeSource:
        """Whose word the time of the agent's end is."""
        end = next((event.detail for event in self.events if event.event in ("agent_ended", "budget_spent")), {})
        return told_in(end)


def show(c: sqlite3.Connection, trial_id: int, *, now_mono_ms: int = 0) -> TrialShown:
    """:param now_mono_ms: for requests that are held right now.
    :raises LookupError: no such trial.
    """
    context = cell_context(c, trial_id)
    state = one(c, "SELECT state FROM cell_state WHERE cell_id = ?", (context.cell_id,))
    assert state is not None
    folder = one(c, "SELECT folder FROM artifact_export WHERE trial_id = ?", (trial_id,))
    label = trial_label(trial_id)
    archives, prunes = kept_of(c, trial_id)
    return TrialShown(
        context=context,
        cell_state=state["state"],
        events=_events(c, trial_id),
        facts=tuple(FactRow(**dict(r)) for r in _all(c, "SELECT name, value, origin, at_ms FROM trial_fact WHERE trial_id = ?", trial_id)),
        scores=_scores(c, trial_id),
        voids=_voids(c, trial_id),
        reviews=_reviews(c, trial_id),
        attempts=tuple(AttemptRow(**dict(r)) for r in _all(c, _ATTEMPTS, context.cell_id)),
        findings=tuple(FindingRow(**dict(r)) for r in _all(c, "SELECT * FROM finding WHERE subject = ? ORDER BY finding_id", label)),
        folder=None if folder is None else folder["folder"],
        artifacts=tuple(ArtifactRecord(**dict(r)) for r in _all(c, _ARTIFACTS, trial_id)),
        usage=usage_of(c, trial_id),
        held_ms=held_ms(c, trial_id, now_mono_ms=now_mono_ms if context.state in LIVE_STATES else AT_REST_MONO_MS),
        receipt=receipt(c, trial_id),
        log=tuple(entries(c, trial_id)),
        columns=expected_of(c, context.campaign_id),
        imported=imported_row(c, trial_id),
        archives=archives,
        prunes=prunes,
        turns=of_trial(c, trial_id),
        placed=basis(c, context.campaign_id, context.replicate, context.task),
    )


_ARTIFACTS = "SELECT path, sha256, size_bytes, why FROM artifact WHERE trial_id = ? ORDER BY path"

_ATTEMPTS = """
SELECT trial_id, attempt, state, (SELECT code FROM void WHERE void.trial_id = trial.trial_id AND undone_at_ms IS NULL) AS void_code,
    (SELECT reward FROM score WHERE score.trial_id = trial.trial_id ORDER BY score_id DESC LIMIT 1) AS reward, created_at_ms
FROM trial WHERE cell_id = ? ORDER BY attempt"""


def _all(c: sqlite3.Connection, sql: str, key: int | str) -> list[sqlite3.Row]:
    return c.execute(sql, (key,)).fetchall()


def _decoded(row: sqlite3.Row, name: str) -> dict[str, Any]:
    """The row with its ``<name>_json`` column read as ``<name>``."""
    fields: dict[str, Any] = dict(row)
    fields[name] = json.loads(fields.pop(f"{name}_json"))
    return fields


def _events(c: sqlite3.Connection, trial_id: int) -> tuple[EventRow, ...]:
    sql = "SELECT seq, event, from_state, to_state, at_ms, run_id, detail_json FROM trial_event WHERE trial_id = ? ORDER BY seq"
    return tuple(EventRow(**_decoded(row, "detail")) for row in _all(c, sql, trial_id))


def _scores(c: sqlite3.Connection, trial_id: int) -> tuple[ScoreShown, ...]:
    sql = """SELECT score_id, extractor, reward, reward_source, partial, tests_passed, tests_total, flags_json, at_ms, test_rate
             FROM score
             WHERE trial_id = ? ORDER BY score_id"""
    shown = []
    for row in _all(c, sql, trial_id):
        parts = _all(c, "SELECT name, value, source FROM score_part WHERE score_id = ? ORDER BY name", row["score_id"])
        shown.append(ScoreShown(**_decoded(row, "flags"), parts=tuple((p["name"], p["value"], p["source"]) for p in parts)))
    return tuple(shown)


def _voids(c: sqlite3.Connection, trial_id: int) -> tuple[VoidRow, ...]:
    sql = """SELECT void_id, code, reason, evidence_json, decided_by, author, at_ms, from_state, score_was_known, counts_pass, batch,
             undone_at_ms,
             undone_by, undone_reason FROM void WHERE trial_id = ? ORDER BY void_id"""
    rows = []
    for row in _all(c, sql, trial_id):
        fields = _decoded(row, "evidence")
        for name in ("score_was_known", "counts_pass"):
            fields[name] = bool(fields[name])
        rows.append(VoidRow(**fields))
    return tuple(rows)


def _reviews(c: sqlite3.Connection, trial_id: int) -> tuple[ReviewRow, ...]:
    sql = """SELECT review_id, code, detail, evidence_json, opened_at_ms, decided_at_ms, decision, author, reason FROM review
             WHERE trial_id = ? ORDER BY review_id"""
    return tuple(ReviewRow(**_decoded(row, "evidence")) for row in _all(c, sql, trial_id))
