"""What a finished attempt is: scored, void or for review.

Pure and arm-blind: no arm in its input, so it cannot be unfair.  Words in a log never decide; only what our own side saw does, and even
that beside such words is a doubt that a person settles, never a free second try (fault d06).  An agent's failure is never a void: it ends
in a score (often 0) like any other ending, a build that failed among them (fault d05).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marathond.core.logwords import Kind, Said
from marathond.core.ourside import LOG, OurSide, failures
from marathond.core.score import ScoreReading

BUILD_FAILED, SETUP_ERROR = "build_failed", "setup_error"
_OF_VERIFICATION = frozenset(
    {
        "verified_again",
        "verifier_oom",
        "verification_interrupted",
        "container_outlived_score",
        "changed_after_exit",
        "accepted_as_read",
        "overran",
        "reached_into",
        *(BESIDE := ("engine_away", "disk_low")),
    }
)


@dataclass(frozen=True, slots=True)
class VerifierEnd:
    """How the last run of the verifier ended: ``outcome`` ``exited``, ``deadline`` or ``lost``."""

    outcome: str
    exit_code: int | None
    round: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the decision may see.  ``container_alive`` after the verifier's end; ``oom_killed`` is the engine's word (fault b09).

    ``log``: what the verifier's log speaks of; ``ours``: what our own side saw meanwhile.
    """

    verifier: VerifierEnd
    reading: ScoreReading
    container_alive: bool
    engine_restarted: bool
    oom_killed: bool
    log: tuple[Said, ...] = ()
    ours: OurSide = field(default_factory=OurSide)


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
    """Readable by nobody, or evidence that points both ways: a person decides.  ``flags``: of the score, should it be accepted as read."""

    code: str
    detail: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


Decision = Scored | Again | Void | Review

MAX_ROUNDS = 2


def of_verification(flag: str) -> bool:
    """Whether a score's flag tells of how it was verified; the others are the reading's, and a new reading replaces them."""
    return flag in _OF_VERIFICATION or flag.startswith(LOG)


def classify(evidence: Evidence) -> Decision:
    """Decide over one finished run of the verifier."""
    end, reading = evidence.verifier, evidence.reading
    if end.outcome == "lost" and evidence.container_alive:  # interrupted once too often (flow/grading.py): nothing is gone
        return Review("verifier_lost", "its engine was restarted under the verifier time and again; the container runs", shown(evidence))
    if end.outcome == "lost" or not evidence.container_alive:
        if evidence.engine_restarted:
            return Void("container_lost", "the container ended with its engine while the verifier ran")
        return Review("verifier_lost", "the container ended while the verifier ran, and the engine did not", shown(evidence))
    if end.outcome == "deadline":
        if end.round < MAX_ROUNDS:
            return Again("deadline")
        return Review("verifier_deadline", "the verifier reached its deadline twice", shown(evidence))
    if reading.reward is None:
        if end.round < MAX_ROUNDS:
            return Again("unreadable")
        why = "; ".join(_words(r.source, r.why) for r in reading.refusals) or "no reward file"
        return Review("score_unreadable", f"no readable reward after {end.round} rounds: {why}", shown(evidence))
    flags: tuple[str, ...] = ("verified_again",) if end.round > 1 else ()
    flags += ("verifier_oom",) if evidence.oom_killed else ()
    if reading.reward.value >= 1:
        return Scored(flags)
    flags += tuple(f"{LOG}{word.code}" for word in evidence.log)
    # Nothing in the log complains of it, and so it doubts nothing; but nobody should have to guess what went on beside a failure.
    troubled = (evidence.ours.engine_breaks, evidence.ours.disks)
    flags += tuple(flag for flag, seen in zip(BESIDE, troubled, strict=True) if seen)
    if BUILD_FAILED not in reading.flags and (doubt := _doubt(evidence, reading.reward.value, flags)) is not None:
        return doubt
    return Scored(flags)


def _doubt(evidence: Evidence, reward: float, flags: tuple[str, ...]) -> Review | None:
    """A reward below 1 of which our own side may be the reason."""
    judge, complaints = evidence.ours.judge, _complaints(evidence)
    backing = [words for words, kinds in _backing(evidence) if kinds & set(complaints.values())] if complaints else []
    backing += _failed_alike(evidence, list(complaints))
    if backing:
        said = "; ".join(f"{word.code} ({word.line})" for word in evidence.log[:2]) or SETUP_ERROR
        detail = f"the verifier read {reward:g} and speaks of {said}; our side saw: {'; '.join(backing)}"
        return Review("infrastructure_suspected", detail, shown(evidence), flags)
    if judge.ours and judge.last_failed:
        detail = f"the verifier read {reward:g}, and the last word that its judge had for it was a failure: {', '.join(judge.why)}"
        return Review("judge_failed", detail, shown(evidence), flags)
    return None


def _complaints(evidence: Evidence) -> dict[str, Kind | None]:
    """What the verifier complains of, by the code under which other trials' failures are counted."""
    told: dict[str, Kind | None] = {f"{LOG}{word.code}": word.kind for word in evidence.log}
    return told | ({SETUP_ERROR: None} if SETUP_ERROR in evidence.reading.flags else {})


def _backing(evidence: Evidence) -> list[tuple[str, set[Kind | None]]]:
    """What our side saw, and which kinds of complaint it may be the reason of."""
    ours, network = evidence.ours, {Kind.NETWORK, Kind.PROVIDER}
    seen: list[tuple[str, set[Kind | None]]] = []
    if ours.judge.ours:
        words = f"{ours.judge.ours} of {ours.judge.asked} judge requests failed for the provider's or our own reasons"
        seen.append((f"{words} ({', '.join(ours.judge.why)})", {*network, None}))
    if ours.engine_breaks:
        seen.append((f"the engine was away {times(ours.engine_breaks)} while the verifier ran", {*Kind, None}))
    if ours.interrupted:
        seen.append((f"the verifier was ended by its engine {times(ours.interrupted)} before", {*Kind, None}))
    if evidence.oom_killed:
        seen.append(("the engine killed a process of the container for want of memory", {Kind.MEMORY, *network, None}))
    if ours.disks:
        seen.append((f"below the floor: {', '.join(ours.disks)}", {Kind.DISK}))
    return seen


def _failed_alike(evidence: Evidence, codes: list[str]) -> list[str]:
    """The reference solution, or every other trial of the task, met the same."""
    other = evidence.ours.alike
    found = []
    for code in codes:
        if count := other.oracle_failures.get(code, 0):
            found.append(f"the task's own solution ended alike ({code}, {count} of {other.oracles} trials)")
        if other.everywhere(code):
            found.append(f"every other trial of the task ended alike ({code}, {other.others} of {other.others})")
    return found


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def shown(evidence: Evidence) -> dict[str, object]:
    """The evidence as it is kept with a review: plain values for a person, and for a later look."""
    end, reading, ours = evidence.verifier, evidence.reading, evidence.ours
    codes = [f"{LOG}{word.code}" for word in evidence.log]
    own = failures(None if reading.reward is None else reading.reward.value, [*reading.flags, *codes], _review_of(end, reading))
    judge = ours.judge
    return {
        "verifier": end.outcome,
        "exit_code": end.exit_code,
        "round": end.round,
        "oom_killed": evidence.oom_killed,
        "container_alive": evidence.container_alive,
        "engine_restarted": evidence.engine_restarted,
        "refusals": [_words(r.source, r.key, r.why) for r in reading.refusals],
        "flags": list(reading.flags),
        "log": [{"code": word.code, "kind": word.kind.value, "line": word.line} for word in evidence.log],
        "judge": {"asked": judge.asked, "ours": judge.ours, "own": judge.own, "untold": judge.untold, "why": list(judge.why)},
        "engine_breaks": ours.engine_breaks,
        "interrupted": ours.interrupted,
        "disks": list(ours.disks),
        "others": ours.alike.others,
        "others_alike": {code: ours.alike.failures.get(code, 0) for code in sorted(own)},
        "oracles": ours.alike.oracles,
        "oracles_alike": {code: ours.alike.oracle_failures.get(code, 0) for code in sorted(own)},
    }


def _review_of(end: VerifierEnd, reading: ScoreReading) -> str | None:
    if end.outcome != "exited":
        return f"verifier_{end.outcome}"
    return "score_unreadable" if reading.reward is None else None


def _words(*parts: str) -> str:
    """A refusal has no source when no file was there, and no key when the whole file is meant."""
    return ": ".join(filter(None, parts))
