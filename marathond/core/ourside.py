"""What our own side saw of a verification: the gateway of its judge, the engine, the host's disks, the other trials of the task.

Owns whose failure a judge's request was, and which failures count as alike.  Pure and arm-blind: of other trials there are counts, and
whether they are the reference solution's (the oracle's); never which arm they are of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from marathond.core.model_rules import AGENTS_OWN
from marathond.core.requests import BURIED

LOG = "log:"
"""Begins the flag of a score whose verifier's log spoke of what may be the infrastructure's (core/logwords.py)."""
_HOUSE = ("gateway_busy", "restarting", "no_route", "journal_")
"""Refusals of the gateway that are its own doing: it is full, ends, is not configured or cannot write."""
_UNTOLD = BURIED | {"lost"}
_FLAGS = frozenset({"build_failed", "setup_error", "malformed_early_exit", "initialized"})
_REVIEWS = frozenset({"score_unreadable", "verifier_deadline", "verifier_lost"})
REASONS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One request of a verifier to its judge, as the gateway saw it end.  ``held``: it had been waiting for the provider or the budget."""

    end: str
    status: int | None
    error_type: str | None
    held: bool = False
    answered: bool = False
    """Its first byte came."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Requests of one run of the verifier.  ``ours``: failed for the provider's or our own reasons; ``own``: for the verifier's.

    ``last_failed``: none that came after the last of ``ours`` was answered.  ``why``: of ``ours``, most frequent first.
    """

    asked: int = 0
    ours: int = 0
    own: int = 0
    untold: int = 0
    last_failed: bool = False
    why: tuple[str, ...] = ()


def whose(request: JudgeRequest) -> str:
    """``fine``, ``ours``, ``own`` (of the verifier: a request that nobody would answer, a client that hung up) or ``untold``."""
    if request.end == "refused":
        return "ours" if (request.error_type or "").startswith(_HOUSE) else "own"
    if request.end in _UNTOLD:
        return "untold"
    if request.end == "cut_by_client":
        # A client that lost its patience while we made it wait for the provider did not fail by itself.
        return "ours" if request.held and not request.answered else "own"
    if request.end != "complete":
        return "ours"  # gave_up, cut_by_provider, cut_by_gateway
    status = request.status or 0
    if status < 400:
        return "fine" if request.error_type is None else "own" if request.error_type in AGENTS_OWN else "ours"
    if request.error_type in ("upstream_auth", "usage_limit") or status in (408, 429) or status >= 500:
        return "ours"
    return "own"


def judge(requests: Iterable[JudgeRequest], turned_away: Mapping[str, int]) -> Judge:
    """:param requests: in their order.  :param turned_away: refusals at the listener's door that have no request, by code."""
    sides, why = Counter[str](), Counter[str]()
    last_failed = False
    for request in requests:
        side = whose(request)
        sides[side] += 1
        if side == "ours":
            last_failed = True
            why[_reason(request)] += 1
        elif side == "fine":
            last_failed = False
    for code, count in turned_away.items():
        if code.startswith(_HOUSE):
            sides["ours"] += count
            why[code] += count
        else:
            sides["own"] += count
    words = tuple(f"{count} x {reason}" for reason, count in why.most_common(REASONS_SHOWN))
    return Judge(sides.total(), sides["ours"], sides["own"], sides["untold"], last_failed, words)


def _reason(request: JudgeRequest) -> str:
    said = [f"HTTP {request.status}"] if request.status else []
    said += [request.error_type] if request.error_type else []
    return " ".join(said if request.end == "complete" else [request.end, *said])


@dataclass(frozen=True, slots=True)
class OtherTrial:
    """Another trial of the same task that has come to rest and is not voided.  ``reward`` None: in review."""

    oracle: bool
    reward: float | None
    flags: tuple[str, ...] = ()
    review: str | None = None


@dataclass(frozen=True, slots=True)
class Alike:
    """How other trials of the same task ended: how many, and how many with each failure.  ``oracles`` are counted apart."""

    others: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    oracles: int = 0
    oracle_failures: Mapping[str, int] = field(default_factory=dict)

    def everywhere(self, failure: str) -> bool:
        """Every other trial, and at least two, ended so: whatever was at work was at work for all."""
        return self.others >= 2 and self.failures.get(failure, 0) == self.others


def failures(reward: float | None, flags: Iterable[str], review: str | None = None) -> frozenset[str]:
    """By what one can tell that two verifications failed alike; none for a trial that passed."""
    if reward is not None and reward >= 1:
        return frozenset()
    told = {flag for flag in flags if flag in _FLAGS or flag.startswith((LOG, "early_exit:"))}
    return frozenset(told | ({review} if review in _REVIEWS else set()))


def alike(others: Iterable[OtherTrial]) -> Alike:
    plain, oracle = Counter[str](), Counter[str]()
    counts = Counter[bool]()
    for other in others:
        counts[other.oracle] += 1
        (oracle if other.oracle else plain).update(failures(other.reward, other.flags, other.review))
    return Alike(counts[False], dict(plain), counts[True], dict(oracle))


@dataclass(frozen=True, slots=True)
class OurSide:
    """Everything that our side saw while the verifier ran.

    ``engine_breaks``: how often the engine was away; ``interrupted``: runs of the verifier that ended with it.  ``disks``: file systems
    below their floor meanwhile, in words.
    """

    judge: Judge = field(default_factory=Judge)
    engine_breaks: int = 0
    interrupted: int = 0
    disks: tuple[str, ...] = ()
    alike: Alike = field(default_factory=Alike)
