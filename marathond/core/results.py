"""What a campaign has shown so far, as one value: what the comparison computes with and what a report prints.

Owns the names of those rows.  Pure data, read from the ledger in one transaction (:mod:`marathond.ledger.verbs.results`), so that a report
can be made from it alone and comes out the same, byte for byte.  Must not know statistics, SQL or layout.  Times are integer milliseconds
since 1970 UTC; None always means that it is not known, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marathond.core.columns import NAMES, Column, counted
from marathond.core.score import RefusedValue, example

BUILD_FAILED = "build_failed"


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell, with the trial that stands.  Scores are those of a ``done`` cell only; states are the ledger's (``cell_state``).

    ``trial``: None while none stands.  ``flags``: of its newest score.  ``agent_s``: how long the agent ran; ``limit_s``: its limit, with
    what was credited.  Tokens are the gateway's, of the agent's account; ``tokens`` is in and out together and the only one an imported
    trial may have.  ``cost_usd`` None: some of it has no price, or nothing is known.
    """

    task: str
    arm: str
    replicate: int
    state: str
    block_id: int
    trial: str | None = None
    reward: float | None = None
    partial: float | None = None
    test_rate: float | None = None
    tests_passed: int | None = None
    tests_total: int | None = None
    flags: tuple[str, ...] = ()
    ended_by: str | None = None
    budget_ended: bool | None = None
    agent_s: float | None = None
    limit_s: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    scored_at_ms: int | None = None
    attempts: int = 0
    voids: int = 0
    park_code: str | None = None
    review_code: str | None = None
    by_operator: bool = False
    """Its reward is a person's word (a review that was accepted)."""
    exit_code: int | None = None
    """Of its agent; None: it has none (an app-server that was told to end, an import)."""
    refused: tuple[RefusedValue, ...] = ()
    """Numbers and files of its newest score that were refused."""

    def why_refused(self, column: str) -> str:
        """Why it does not have that column although its verifier wrote one; empty: it has, or nothing was refused for it."""
        return next((each.why for each in self.refused if column in each.columns and not each.absent), "")

    @property
    def build_failed(self) -> bool:
        return BUILD_FAILED in self.flags


@dataclass(frozen=True, slots=True)
class VoidResult:
    """One void that was ever decided.  ``reward``: what the trial had scored when it was withdrawn, None: it had no score.

    ``kept_reward``: of the trial that stands in the same cell now.
    """

    trial: str
    task: str
    arm: str
    replicate: int
    code: str
    side: str
    reason: str
    decided_by: str
    author: str
    at_ms: int
    score_was_known: bool
    standing: bool
    reward: float | None = None
    kept_reward: float | None = None


@dataclass(frozen=True, slots=True)
class FindingResult:
    """A finding; ``closed_at_ms`` None: open.  ``campaign`` None: of the house, not of one campaign."""

    code: str
    severity: str
    subject: str
    detail: str
    opened_at_ms: int
    closed_at_ms: int | None
    acked_by: str | None
    ack_reason: str | None
    campaign: str | None = None

    @property
    def stop_loss(self) -> bool:
        return self.severity == "stop_loss"


@dataclass(frozen=True, slots=True)
class DisclosureResult:
    code: str
    arms: str
    text: str
    compared_with: str


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two arms; every difference is ``a`` minus ``b``.

    ``declared_at_ms`` None: nobody declared it.  ``scores_known``: how many scores the ledger held when it was declared.
    """

    a: str
    b: str
    declared_at_ms: int | None = None
    scores_known: int | None = None


@dataclass(frozen=True, slots=True)
class ArmResult:
    """An arm's row.  ``model``: what it is configured with, None: it asks none, or an import does not say."""

    name: str
    kind: str
    position: int
    treatment_hash: str
    model: str | None = None
    mounted: tuple[str, ...] = ()
    """What its mounts held, a line each."""


@dataclass(frozen=True, slots=True)
class Results:
    """``as_of_ms``: the last event of the campaign, not the clock of whoever asks.  ``spent_usd`` and ``voids_usd``: known money of trials
    that stand and of voided ones, by arm, judges' included; ``unpriced``: trials of an arm some of whose cost nobody knows.
    ``imported``: where an imported campaign was read from, a line each.  ``contrasts``: the newest declaration, version
    ``declaration``, at which ``declared_after`` scores were known; ``dropped``: what earlier ones declared and it does not."""

    ledger_id: str
    campaign: str
    origin: str
    treatment_hash: str
    benchmark: str | None
    as_of_ms: int
    replicates: int
    arms: tuple[ArmResult, ...]
    tasks: tuple[str, ...]
    cells: tuple[CellResult, ...]
    columns: tuple[Column, ...]
    contrasts: tuple[Contrast, ...] = ()
    voids: tuple[VoidResult, ...] = ()
    findings: tuple[FindingResult, ...] = ()
    disclosures: tuple[DisclosureResult, ...] = ()
    disclosure_version: int = 0
    spent_usd: Mapping[str, float] = field(default_factory=dict)
    voids_usd: Mapping[str, float] = field(default_factory=dict)
    unpriced: Mapping[str, int] = field(default_factory=dict)
    imported: tuple[str, ...] = ()
    declaration: int = 0
    declared_after: int | None = None
    dropped: tuple[Contrast, ...] = ()
    task_digests: Mapping[str, str] = field(default_factory=dict)
    """Of tasks whose folder was read."""

    def of_arm(self, arm: str) -> tuple[CellResult, ...]:
        return tuple(cell for cell in self.cells if cell.arm == arm)


def columns(cells: Iterable[CellResult], scores: Mapping[str, Any] | None, benchmark: str | None) -> tuple[Column, ...]:
    """Which columns these cells have; ``scores`` and ``benchmark`` as :func:`marathond.core.columns.counted` takes them."""
    done = [cell for cell in cells if cell.state == "done"]
    return counted({name: sum(getattr(cell, name) is not None for cell in done) for name in NAMES}, len(done), scores, benchmark)


def refused_words(cells: Iterable[CellResult], column: str) -> str:
    """Of how many trials the value was refused, of the tasks that have such ones; empty: of none."""
    done = [cell for cell in cells if cell.state == "done"]
    whys = [(cell.task, why) for cell in done if (why := cell.why_refused(column))]
    if not whys:
        return ""
    tasks = {task for task, _ in whys}
    of = [cell for cell in done if cell.task in tasks]
    left = "the mean is over what was left" if any(getattr(cell, column) is not None for cell in of) else "none of them has one"
    name = column.replace("_", " ")
    where = f"{len(whys)} of {len(of)} trial{'' if len(of) == 1 else 's'} of {len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    return f"{name} refused in {where} ({example(why for _, why in whys)}): {left}"
