"""What the requests of trials say about provider, gateway and fairness: which findings there are, and which of them stop everything.

Pure.  Rules over single requests see no arm.  Those that compare arms exist to say that a comparison is hurt, and decide nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb

from marathond.core.names import trial_label
from marathond.core.requests import USAGE_LIMIT, Ended

BAD_REQUESTS = 2
"""HTTP 400 that one arm must have met, and requests that every other arm must have made without one, before its transport is suspected."""
AGENTS_OWN = frozenset({"context_length_exceeded", "string_above_max_length", "invalid_prompt"})
"""400 for what an agent said, not for how its client says it."""
HIT_MS = 10_000
"""A trial counts as hit by the provider's limits when it met a 429 or was held for so long."""
UNLIKELY = 0.01
"""Two-sided, over all arms: less likely than this is no chance."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a person must know.  ``stops``: nothing more is admitted, for any arm, until a person says so."""

    code: str
    severity: str
    subject: str
    detail: str
    stops: bool = False
    trials: tuple[int, ...] = ()
    """Of one that stops: the trials on which it rests.  After a person's `resume` it stops again only if one of them has a later event."""


def of_request(ended: Ended) -> Found | None:
    """What one request says of the provider's account; requests of the gates are answered by ourselves."""
    who = f"{trial_label(ended.who.trial_id)}, {ended.who.account}, HTTP {ended.upstream_status}"
    if ended.who.account == "gate":
        return None
    if ended.error_type == "usage_limit" or ended.error_type in USAGE_LIMIT:
        words = f"the provider says that the account of route {ended.route} is used up ({who}): nothing more is admitted, for any arm"
        return Found("usage_limit", "stop_loss", ended.route, words, stops=True)
    if ended.error_type == "upstream_auth":
        words = f"the provider refuses the gateway's own key of route {ended.route} ({who}): nothing more is admitted, for any arm"
        return Found("upstream_auth", "stop_loss", ended.route, words, stops=True)
    return None


@dataclass(frozen=True, slots=True)
class Outcome:
    """``requests`` of one trial's agent that ended alike.  ``configured``: the model of its arm; None: the arm names none."""

    trial_id: int
    arm: str
    configured: str | None
    asked: str
    answered: str
    status: int
    error_type: str
    requests: int


@dataclass(frozen=True, slots=True)
class Waits:
    """One trial whose agent has run: how long its requests were held, and how many retries a 429 cost them."""

    trial_id: int
    arm: str
    held_ms: int
    rate_limited: int

    @property
    def hit(self) -> bool:
        return self.rate_limited > 0 or self.held_ms >= HIT_MS


def of_campaign(outcomes: Iterable[Outcome], waits: Iterable[Waits]) -> list[Found]:
    """Every finding that these give; one that is not among them any more is over."""
    seen = list(outcomes)
    return [*model_changed(seen), *other_model(seen), *bad_request_one_arm(seen), *held_disparity(list(waits))]


def model_changed(outcomes: list[Outcome]) -> list[Found]:
    """One asked model was answered by several (fault a16).  A dated name behind a plain one is one model as long as it stays the same."""
    answers: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in outcomes:
        if row.asked and row.answered:
            first, count = answers[row.asked].get(row.answered, (row.trial_id, 0))
            answers[row.asked][row.answered] = (min(first, row.trial_id), count + row.requests)
    found = []
    for asked, by in sorted(answers.items()):
        if len(by) > 1:
            listed = ", ".join(f"{name} ({count} requests, first in {trial_label(first)})" for name, (first, count) in sorted(by.items()))
            found.append(Found("model_changed", "error", asked, f"{asked} was answered by {len(by)} models: {listed}"))
    return found


def other_model(outcomes: list[Outcome]) -> list[Found]:
    """A trial was answered by a model that is not its arm's, because it asked for one: an agent can ask for what it likes."""
    strange: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in outcomes:
        if row.configured is not None and row.asked and row.asked != row.configured and row.answered:
            strange[row.asked][row.trial_id] += row.requests
    return [
        Found(
            "other_model",
            "warning",
            asked,
            f"{asked} was asked, which is not the arm's model: "
            + ", ".join(f"{trial_label(trial)} ({count} requests)" for trial, count in sorted(trials.items())[:10]),
        )
        for asked, trials in sorted(strange.items())
    ]


def bad_request_one_arm(outcomes: list[Outcome]) -> list[Found]:
    """HTTP 400 hits one arm only: a field that its transport alone sends is a likely reason (fault a02)."""
    requests: dict[str, int] = defaultdict(int)
    bad: dict[str, int] = defaultdict(int)
    why: dict[str, set[str]] = defaultdict(set)
    for row in outcomes:
        requests[row.arm] += row.requests
        if row.status == 400 and row.error_type not in AGENTS_OWN:
            bad[row.arm] += row.requests
            why[row.arm].add(row.error_type)
    hit = [arm for arm in requests if bad[arm]]
    others = [arm for arm in requests if not bad[arm] and requests[arm] >= BAD_REQUESTS]
    if len(hit) != 1 or bad[hit[0]] < BAD_REQUESTS or not others:
        return []
    arm = hit[0]
    spared = ", ".join(f"{other} 0 of {requests[other]}" for other in sorted(others))
    words = f"HTTP 400 hits {arm} only: {bad[arm]} of {requests[arm]} requests ({', '.join(sorted(why[arm]))}); {spared}; see gateway.strip"
    return [Found("bad_request_one_arm", "error", arm, words)]


def held_disparity(waits: list[Waits]) -> list[Found]:
    """The provider's limits hit the trials of one arm more often than chance allows (fault a01)."""
    of: dict[str, int] = defaultdict(int)
    hit: dict[str, int] = defaultdict(int)
    held_ms: dict[str, int] = defaultdict(int)
    for row in waits:
        of[row.arm] += 1
        hit[row.arm] += row.hit
        held_ms[row.arm] += row.held_ms
    found = []
    for arm in sorted(of):
        others, others_hit = sum(of.values()) - of[arm], sum(hit.values()) - hit[arm]
        if not others or at_least(hit[arm], of[arm], others_hit, others) * 2 * len(of) >= UNLIKELY:
            continue
        words = (
            f"held by the provider's limits: {hit[arm]} of {of[arm]} trials of {arm}, {others_hit} of {others} of the other arms; "
            f"{_mean_s(held_ms[arm], of[arm])} s a trial, {_mean_s(sum(held_ms.values()) - held_ms[arm], others)} s"
        )
        found.append(Found("held_disparity", "warning", arm, words))
    return found


def _mean_s(total_ms: int, count: int) -> str:
    return f"{total_ms / 1000 / count:.0f}"


def at_least(hit: int, of: int, others_hit: int, others: int) -> float:
    """Fisher's exact test, one-sided: how likely ``hit`` or more of ``of`` are if it is chance who is hit."""
    total, marked = of + others, hit + others_hit
    ways = sum(comb(marked, k) * comb(total - marked, of - k) for k in range(hit, min(of, marked) + 1))
    return ways / comb(total, of)


def new_or_over(before: Mapping[tuple[str, str], str], found: Iterable[Found]) -> tuple[list[Found], list[tuple[str, str]]]:
    """Findings to be told: new ones and those whose words changed; and (code, subject) of those that are over."""
    now = {(each.code, each.subject): each for each in found}
    return [each for key, each in now.items() if before.get(key) != each.detail], [key for key in before if key not in now]
