"""What a person is told of, and once only (fault f15: three arms are dead and nobody is told).

Owns the rule: from what the ledger shows now, which events are worth a message.  Each event has a key; a key that was told is never told
again.  Pure; must not know how anybody is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from marathond.core.text import duration, plural, printable

TITLE_MAX, DETAIL_MAX = 200, 1_000

OF_FINDING = {
    "money_80": "money",
    "money_cap": "money",
    "price_missing": "money",
    "gateway_stale": "gateway",
    "gateway_key": "gateway",
    "gateway_journal": "gateway",
    "bad_request_one_arm": "disparity",
    "arm_silent": "quiet",
}
"""Codes of findings that are told whatever their severity, and the kind of message.  Beside them: stop-loss, and every disparity."""

OWN_STOPS = ("breaker", "stop_loss", "invariant")
"""Stops of admission that the daemon decided itself; a pause or a drain is a person's own."""


@dataclass(frozen=True, slots=True)
class Notice:
    """``key`` names the event; ``kind`` sorts messages: breaker, stop_loss, disparity, money, gateway, quiet, done, test."""

    key: str
    kind: str
    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class FindingSeen:
    finding_id: int
    code: str
    severity: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class StopSeen:
    stop_id: int
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Cells of the campaign by state."""

    done: int = 0
    open: int = 0
    claimed: int = 0
    parked: int = 0
    review: int = 0

    @property
    def total(self) -> int:
        return self.done + self.open + self.claimed + self.parked + self.review

    @property
    def at_rest(self) -> bool:
        """There are cells, and none of them is to run or runs."""
        return bool(self.total and not self.open and not self.claimed)


@dataclass(frozen=True, slots=True)
class Quiet:
    """An arm whose trials run without a score.  ``ms``: for how long at least one of them has been running since ``score_id``, the newest
    score of the arm (0: none yet)."""

    arm_id: int
    arm: str
    score_id: int
    ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the ledger shows: findings and stops that stand, or that came and went since the last look."""

    campaign_id: int
    campaign: str
    findings: tuple[FindingSeen, ...] = ()
    stops: tuple[StopSeen, ...] = ()
    progress: Progress = field(default_factory=Progress)
    quiet: tuple[Quiet, ...] = ()


def to_tell(seen: Seen, told: Collection[str], *, no_score_ms: int) -> list[Notice]:
    """Everything that is to be told now, in the order of its weight."""
    stop_loss = [finding for finding in seen.findings if finding.severity == "stop_loss"]
    wanted = [
        *(_of_finding(finding, "stop_loss") for finding in stop_loss),
        # A stop-loss finding closes admission, too: one event, one message.
        *(_of_stop(stop) for stop in seen.stops if stop.kind == "breaker" or (stop.kind in OWN_STOPS and not stop_loss)),
        *(_of_finding(finding, kind) for finding in seen.findings if (kind := _kind(finding))),
        *_of_quiet(seen.quiet, no_score_ms),
        *_of_progress(seen),
    ]
    return [notice for notice in wanted if notice.key not in told]


def _kind(finding: FindingSeen) -> str:
    """Empty for what is not told, or told as stop-loss."""
    if finding.severity == "stop_loss":
        return ""
    return OF_FINDING.get(finding.code) or ("disparity" if "disparity" in finding.code else "")


FIRST = "infrastructure first"
"""How the words of a stop-loss begin that says that an arm's infrastructure, and not the arm, decides its results (faults a06, f15)."""


def _of_finding(finding: FindingSeen, kind: str) -> Notice:
    title = f"{kind.replace('_', '-')}: {finding.code} {finding.subject}"
    if kind == "stop_loss" and finding.detail.startswith(FIRST):
        title = f"{FIRST}: {finding.code} {finding.subject}: admission is closed for all arms"
    return _notice(f"finding:{finding.finding_id}", kind, title, finding.detail)


def _of_stop(stop: StopSeen) -> Notice:
    kind = "breaker" if stop.kind == "breaker" else "stop_loss"
    return _notice(f"stop:{stop.stop_id}", kind, f"admission is closed for all arms: {stop.kind}", stop.detail)


def _of_quiet(quiet: Iterable[Quiet], no_score_ms: int) -> Iterator[Notice]:
    for arm in quiet:
        if arm.ms >= no_score_ms:
            title = f"no score of arm {arm.arm} for {duration(arm.ms / 1000)} while its trials run"
            yield _notice(f"quiet:{arm.arm_id}:{arm.score_id}", "quiet", title, "look at marathonctl status and the agents' logs")


def _of_progress(seen: Seen) -> Iterator[Notice]:
    """A campaign that grows may be done again."""
    cells = seen.progress
    if cells.at_rest:
        yield _notice(f"done:{seen.campaign_id}:{cells.total}", "done", f"campaign {seen.campaign} is done: {rest_words(cells)}", "")


def rest_words(cells: Progress) -> str:
    """``5 of 8 cells scored, 2 parked, 1 in review``."""
    left = "".join(f", {count} {word}" for count, word in ((cells.parked, "parked"), (cells.review, "in review")) if count)
    return f"{cells.done} of {plural(cells.total, 'cell')} scored{left}"


def _notice(key: str, kind: str, title: str, detail: str) -> Notice:
    return Notice(key, kind, printable(title, TITLE_MAX), printable(detail, DETAIL_MAX))


def quiet_after(
    before: Mapping[int, Quiet], *, arms: Mapping[int, str], running: Collection[int], scored: Mapping[int, int], passed_ms: int
) -> dict[int, Quiet]:
    """Each arm's quiet, a look later.

    :param arms: arm id → name.
    :param running: arms with a trial in work.
    :param scored: arm id → newest score since the last look.
    :param passed_ms: monotonic time since the last look of this daemon life.  Time in which nothing of an arm runs does not count, nor does
        time in which no daemon is there: a message too late is better than a false one.
    """
    after = {}
    for arm_id, name in arms.items():
        known = before.get(arm_id, Quiet(arm_id, name, 0, 0))
        if arm_id in scored:
            known = Quiet(arm_id, name, scored[arm_id], 0)
        elif arm_id in running:
            known = Quiet(arm_id, name, known.score_id, known.ms + max(0, passed_ms))
        after[arm_id] = known
    return after
