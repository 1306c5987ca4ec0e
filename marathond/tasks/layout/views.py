"""What a campaign's folder on disk is written from: plain values out of the ledger's rows.

Owns the shapes that :mod:`marathond.tasks.layout` turns into documents.  Must not know SQL, files or Harbor.
Times are integer milliseconds since 1970 UTC, as in the ledger.  ``data`` and ``evidence`` are parsed JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.disclosure import Disclosure
from marathond.core.names import LIVE_STATES, TrialState

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArmView:
    """Table ``arm``.  ``data`` is the treatment (its ``env`` values never reach a document); ``model`` as ``provider/name``, None: none."""

    name: str
    kind: str
    treatment_hash: str
    data: Json
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """Table ``task``.  ``path`` is absolute; ``digest`` None: the directory could not be read."""

    name: str
    path: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """One row of ``trial_event``: what happened, which state it led to (values of TrialState), when."""

    event: str
    to_state: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class FactView:
    """One row of ``trial_fact``: what really applied, and where that came from."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class AgentView:
    """Table ``trial_agent``.

    ``limit_ms`` None: unlimited; ``limit_loser`` is the limit that did not apply.  ``ended_by`` is a value of EndedBy, None while the end
    is unknown.  ``exit_source`` is ``exec`` or ``file``.  ``overrun_ms``: how long past the deadline it ran unsupervised.
    ``processes``: what lived at its end, and what became of each.
    """

    started_at_ms: int
    limit_ms: int | None
    limit_origin: str
    limit_loser: str = ""
    ended_at_ms: int | None = None
    ended_by: str | None = None
    exit_code: int | None = None
    exit_source: str | None = None
    oom_killed: bool | None = None
    overrun_ms: int | None = None
    processes: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class VerifierView:
    """One row of ``verification``.  ``outcome`` is ``exited``, ``deadline`` or ``lost``; None: not ended."""

    round: int
    started_at_ms: int
    limit_ms: int
    limit_origin: str
    ended_at_ms: int | None = None
    outcome: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class ScoreView:
    """The newest row of ``score`` with its ``score_part`` rows as (name, value, source).  ``reward`` and ``partial`` lie in [0, 1]."""

    reward: float
    reward_source: str
    extractor: int
    at_ms: int
    partial: float | None = None
    tests_passed: int | None = None
    tests_total: int | None = None
    flags: Sequence[str] = ()
    parts: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True, slots=True)
class VoidView:
    """The standing row of ``void`` with its code's ``side``; ``batch`` joins voids that were decided together."""

    code: str
    side: str
    reason: str
    decided_by: str
    author: str
    at_ms: int
    from_state: str
    score_was_known: bool
    counts_pass: bool
    batch: str
    evidence: Json


@dataclass(frozen=True, slots=True)
class ReviewView:
    """The newest row of ``review``; the last four are None until a person decides."""

    code: str
    detail: str
    opened_at_ms: int
    evidence: Json
    decided_at_ms: int | None = None
    decision: str | None = None
    author: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class UsageView:
    """Table ``model_usage``: what the trial's agent asked of one model.  ``cached_tokens`` is a part of ``input_tokens``.

    ``cost_usd`` None: some of it has no price.
    """

    model: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class TrialView:
    """One trial at rest (scored, review or voided).

    ``ledger_id`` (12 hex) and ``trial_id`` make its identity; ``out_dir`` is the campaign's, absolute; ``version`` is the marathond that
    began it.  ``attempt`` counts the trials of its cell from 1.  ``timeline``: all its events in order, at least one.
    ``agent`` None: it never started.  ``verifications`` by round.  ``score`` stays beside a void that came after it.
    ``void`` is the standing one only; ``review`` the newest, decided or not.  ``usage`` by model, None: the arm asks no model.
    ``disclosures``: those of the campaign that concern its arm.
    """

    ledger_id: str
    campaign_id: int
    campaign: str
    out_dir: str
    version: str
    trial_id: int
    attempt: int
    cell_id: int
    block_id: int
    replicate: int
    task: TaskView
    arm: ArmView
    timeline: Sequence[Moment]
    agent: AgentView | None = None
    verifications: Sequence[VerifierView] = ()
    facts: Sequence[FactView] = ()
    score: ScoreView | None = None
    void: VoidView | None = None
    review: ReviewView | None = None
    usage: Sequence[UsageView] | None = None
    disclosures: Sequence[Disclosure] = ()

    @property
    def state(self) -> TrialState:
        """What the last event led to."""
        return TrialState(self.timeline[-1].to_state)

    @property
    def rested_at_ms(self) -> int | None:
        """When the trial first came to rest: a later decision of a person does not make it longer.  None: it still lives."""
        return next((moment.at_ms for moment in self.timeline if TrialState(moment.to_state) not in LIVE_STATES), None)

    @property
    def at_ms(self) -> Mapping[str, int]:
        """Event to the first time it happened."""
        return {moment.event: moment.at_ms for moment in reversed(self.timeline)}


@dataclass(frozen=True, slots=True)
class TrialLine:
    """What the campaign's own documents say of one trial at rest; :func:`marathond.tasks.layout.line_of` makes one.

    Exactly one of ``reward`` (it counts), ``void_code`` and ``review_code`` (open) is set.  ``changed_at_ms``: its last event.
    """

    trial_id: int
    task: TaskView
    arm: ArmView
    replicate: int
    attempt: int
    changed_at_ms: int
    reward: float | None = None
    void_code: str | None = None
    review_code: str | None = None
    usage: Sequence[UsageView] | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One campaign, which Harbor calls a job.

    ``treatment_hash`` and ``order``/``seed`` as in table ``campaign``; ``replicates`` >= 1; ``concurrency`` is the limit in force.
    ``trials``: every trial at rest, voided ones included.  ``running``: trials that live.  ``pending``: cells with neither, parked
    ones included.  ``finished_at_ms`` None: the campaign still has something to do.  ``disclosures``: all of them, in order, as told since
    ``told_at_ms`` in ``told_version``; 0: nothing is told.
    """

    ledger_id: str
    campaign_id: int
    campaign: str
    out_dir: str
    created_at_ms: int
    created_by: str
    treatment_hash: str
    order: str
    seed: int
    replicates: int
    concurrency: int
    arms: Sequence[ArmView]
    tasks: Sequence[TaskView]
    trials: Sequence[TrialLine]
    running: int = 0
    pending: int = 0
    finished_at_ms: int | None = None
    disclosures: Sequence[Disclosure] = ()
    told_version: int = 0
    told_at_ms: int | None = None
