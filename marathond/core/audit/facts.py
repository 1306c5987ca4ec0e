"""What the audit looks at: rows of one campaign and of the house, read in one transaction (:mod:`marathond.ledger.verbs.audit`).

Owns the names.  None always means that it is not known, never 0.  Arms stand here because saying that one of them is out of line is what
most rules are for; nothing that decides over a single trial may import this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marathond.core.mounts import Reading
from marathond.core.score import RefusedValue

FIRST_REQUESTS = 16
"""Of a trial's agent, whose time to the first byte is compared: there arms' contexts are still alike, and so is what the provider reads."""


@dataclass(frozen=True, slots=True)
class TrialFact:
    """One trial, at rest or not.  ``void_code`` and ``void_side`` of the standing void; ``infra`` is True when the daemon voided it by a
    code of the infrastructure (gates_only's ``accepted`` is none), None while the trial is live.

    Of the agent: ``ended_by``, ``exit_code`` (None: it has none), how long it ran, its limit with credit. Of the gateway, agent's
    account: requests, tokens, ``bad_requests`` (HTTP 400 to 499 but 429, and but what an agent's own words earned), median time to the
    first byte of the first FIRST_REQUESTS, time held. Of the receipt (None: the trial has none): ``turns`` (also one that its end cut
    off), ``commands``, ``silent_turns``, LoopX ``delivered`` and ``used``.
    ``outputs``: a hash over the verifier's own output of the newest export, None: nothing exported. ``models``: names by which the
    provider answered.
    """

    trial_id: int
    task: str
    arm: str
    block_id: int
    replicate: int
    attempt: int
    state: str
    created_at_ms: int
    rested_at_ms: int | None = None
    infra: bool | None = None
    void_code: str | None = None
    void_side: str | None = None
    asks_model: bool = False
    loopx: bool = False
    ended_by: str | None = None
    exit_code: int | None = None
    budget_ended: bool | None = None
    agent_ms: int | None = None
    limit_ms: int | None = None
    overrun_ms: int | None = None
    reward: float | None = None
    partial: float | None = None
    test_rate: float | None = None
    flags: tuple[str, ...] = ()
    image_id: str | None = None
    context_digest: str | None = None
    requests: int | None = None
    failed: int | None = None
    bad_requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    first_byte_ms: float | None = None
    held_ms: int | None = None
    models: tuple[str, ...] = ()
    turns: int | None = None
    commands: int | None = None
    silent_turns: int | None = None
    delivered: bool | None = None
    used: bool | None = None
    outputs: str | None = None
    verifier_rounds: int = 0
    review_code: str | None = None
    running_ms: int | None = None
    """Of a running trial: since its agent started."""
    last_request_ms: int | None = None
    """Of a running trial: since its last request to the model ended; None: it made none."""
    void_by: str | None = None
    """Who decided the standing void: daemon or operator."""
    score_known: bool | None = None
    """Of the standing void: had the trial a score when it was withdrawn (fault a08)?"""
    by_person: bool = False
    """Its reward is a person's word: a review that was accepted."""
    extractor: int | None = None
    """Version of the rules that read its newest score."""
    verify_agains: tuple[str, ...] = ()
    """Causes of its further rounds of verification, in their order: deadline, unreadable, interrupted."""
    parts: str | None = None
    """A hash over names and values of the parts of its newest score; None: it has none."""
    outputs_bytes: int | None = None
    left: str | None = None
    """A hash over the files that its agent left as artifacts, by path and content; None: it left none, or nothing is exported."""
    left_bytes: int | None = None
    exported: bool = False
    reattached: int = 0
    """How often a later life of the daemon took it over."""
    open_requests: int = 0
    """Of a running trial: requests of its agent that have not ended."""
    score_rules: str = ""
    """The configuration's rules that its newest score was read by, ``column = file:path`` sorted by column; empty: none."""
    refused: tuple[RefusedValue, ...] = ()
    """Numbers and files of its newest score that were refused."""


@dataclass(frozen=True, slots=True)
class ReviewFact:
    trial_id: int
    task: str
    arm: str
    code: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class LeaseFact:
    engine: str
    network: str
    trial_id: int
    leaked_ms: int | None
    """For how long its removal has failed; None: it is in use."""


@dataclass(frozen=True, slots=True)
class FindingFact:
    """An open finding, by whomever it was raised.  ``age_ms``: since it was opened."""

    code: str
    severity: str
    subject: str
    age_ms: int
    acked: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """``now_ms`` by the wall.  ``observations``: the daemon's latest words, key to (value, age in ms); ``daemon_alive`` None: nobody can
    tell.  ``wal_bytes`` of the ledger's log."""

    campaign_id: int
    campaign: str
    now_ms: int
    arms: tuple[str, ...]
    tasks: tuple[str, ...]
    cells: int
    trials: tuple[TrialFact, ...] = ()
    reviews: tuple[ReviewFact, ...] = ()
    leases: tuple[LeaseFact, ...] = ()
    observations: Mapping[str, tuple[object, int]] = field(default_factory=dict)
    wal_bytes: int | None = None
    open_codes: Mapping[str, int] = field(default_factory=dict)
    """Codes of open findings that others raise (gateway, engine, disk), and how many there are."""
    treatment: Mapping[str, object] = field(default_factory=dict)
    """What defines the campaign's treatment, as the ledger keeps it."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Arm to its kind: oracle, nop, command, codex."""
    origin: str = "run"
    """'import': measured elsewhere; what only our own runs have cannot be asked of it."""
    context_digests: Mapping[str, str] = field(default_factory=dict)
    """Task to the digest of the build context that the campaign was planned with."""
    pool_caps: Mapping[str, int] = field(default_factory=dict)
    """Engine to the most networks that we may lease there."""
    hour_requests: int | None = None
    """Requests of all agents that ended within the last hour; None: not read."""
    hour_failed: int | None = None
    """Those among them that got no whole answer, or one with an error, but what the agents cut off themselves."""
    findings: tuple[FindingFact, ...] = ()
    """Open findings of this campaign and of the house."""
    daemon_alive: bool | None = None
    daemon_up_ms: int | None = None
    """For how long the newest daemon life has been running; None: no life, or it ended."""
    wal_readers: tuple[str, ...] = ()
    """Who reads the ledger while its log is large, as far as it is to be seen."""
    leases_released: int = 0
    """Networks of the house that were leased and are seen gone; :attr:`leases` are those that are held."""
    reviews_decided: int = 0
    """Of the trials that were read."""
    findings_closed: int = 0
    """Of this campaign and of the house."""
    mounted: tuple[Reading, ...] = ()
    """What arms' mounts held, at the submission and in trials that stand."""
    left_out: int = 0
    """Older trials of the campaign that were not read: of a very large one the newest are looked at."""
