"""What a finished attempt is: scored, void or for review.

Pure and arm-blind: no arm in its input, so it cannot be unfair.  Words in a log never decide; only what our own side saw does.
An agent's failure is never a void: it ends in a score (often 0) like any other ending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marathond.core.score import ScoreReading


@dataclass(frozen=True, slots=True)
class VerifierEnd:
    """How the last run of the verifier ended: ``outcome`` ``exited``, ``deadline`` or ``lost``."""

    outcome: str
    exit_code: int | None
    round: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the decision may see.  ``container_alive`` after the verifier's end; ``oom_killed`` is the engine's word (fault b09)."""

    verifier: VerifierEnd
    reading: ScoreReading
    container_alive: bool
    engine_restarted: bool
    oom_killed: bool


@dataclass(frozen=True, slots=True)
class Scored:
    """The payload is final and holds a reward."""

    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """Run the verifier once more in place, and say so (faults d02, d10)."""

    cause: str


@dataclass(frozen=True, slots=True)
class Void:
    """Infrastructure made the attempt meaningless."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Review:
    """Readable by nobody, or evidence that points both ways: a person decides."""

    code: str
    detail: str
    evidence: Mapping[str, object] = field(default_factory=dict)


Decision = Scored | Again | Void | Review

MAX_ROUNDS = 2


def classify(evidence: Evidence) -> Decision:
    """Decide over one finished run of the verifier."""
    end, reading = evidence.verifier, evidence.reading
    facts: dict[str, object] = {
        "verifier": end.outcome,
        "exit_code": end.exit_code,
        "round": end.round,
        "oom_killed": evidence.oom_killed,
        "refusals": [_words(r.source, r.key, r.why) for r in reading.refusals],
        "flags": list(reading.flags),
    }
    if end.outcome == "lost" or not evidence.container_alive:
        if evidence.engine_restarted:
            return Void("container_lost", "the container ended with its engine while the verifier ran")
        return Review("verifier_lost", "the container ended while the verifier ran, and the engine did not", facts)
    if end.outcome == "deadline":
        if end.round < MAX_ROUNDS:
            return Again("deadline")
        return Review("verifier_deadline", "the verifier reached its deadline twice", facts)
    if reading.reward is None:
        if end.round < MAX_ROUNDS:
            return Again("unreadable")
        why = "; ".join(_words(r.source, r.why) for r in reading.refusals) or "no reward file"
        return Review("score_unreadable", f"no readable reward after {end.round} rounds: {why}", facts)
    flags = ("verified_again",) if end.round > 1 else ()
    return Scored(flags + (("verifier_oom",) if evidence.oom_killed else ()))


def _words(*parts: str) -> str:
    """A refusal has no source when no file was there, and no key when the whole file is meant."""
    return ": ".join(filter(None, parts))
