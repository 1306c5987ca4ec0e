"""One request's story as the journal tells it.

Owns the two records of a request, ``begin`` and ``request``: the first is written before anything goes out, so that a killed gateway
leaves no request untold.  One that has to wait tells so when the wait begins (``held``) and when it is over (``released``): whoever keeps
the trial's clock must know of it before the deadline, not afterwards (fault a17).  Usage is ``known``, ``none`` (nothing was answered, or
the provider refused) or ``unknown`` (cut in mid-stream: never 0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from marathond.gateway.files import Listener
from marathond.gateway.journal import Journal
from marathond.gateway.usage import Tokens
from marathond.ports.clock import Clock

End = Literal["complete", "refused", "gave_up", "cut_by_provider", "cut_by_client", "cut_by_gateway", "gateway_died", "not_recorded"]
REFUSALS_TOLD, REFUSALS_EVERY_MS = 16, 5_000


@dataclass(slots=True)
class Exchange:
    """Filled in as the request goes on.  All ``_ms`` are durations but ``arrived_ms``, ``ready_ms`` and ``sent_ms`` (monotonic)."""

    listener: Listener
    method: str
    path: str
    arrived_ms: int
    number: int = 0
    begin: int = 0
    ready_ms: int | None = None
    sent_ms: int | None = None
    waited: bool = False
    held_told: bool = False
    status: int | None = None
    upstream_status: int | None = None
    first_byte_ms: int | None = None
    budget_held_ms: int = 0
    retried: Counter[str] = field(default_factory=Counter)
    attempts_unknown: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    stripped: int = 0
    retry_after_s: int | None = None
    model_asked: str | None = None
    model: str | None = None
    usage: Literal["known", "unknown", "none"] = "none"
    tokens: Tokens | None = None
    error_type: str | None = None
    end: End | None = None

    def begins(self, journal: Journal, clock: Clock) -> None:
        """:raises ArtifactError: it could not be written down, so it must not go out."""
        self.number = journal.next_number(self.listener.trial)
        self.begin = journal.append("begin", **self._who(), wall_ms=clock.wall_ms(), mono_ms=self.arrived_ms)

    def first(self, journal: Journal, shape: Mapping[str, Any]) -> None:
        """What it asked for, as hashes and names; told of the first one that its listener saw.

        :raises ArtifactError: it could not be written down.
        """
        journal.append("first", **self._who(), begin=self.begin, shape=shape)

    def waits(self, journal: Journal, clock: Clock) -> None:
        """It has to wait, for the provider or the budget; told once.

        :raises ArtifactError: it could not be written down; it is tried again at the next wait.
        """
        self.waited = True
        if not self.held_told:
            journal.append("held", begin=self.begin, from_mono_ms=self._ready(clock.mono_ms()))
            self.held_told = True

    def answered(self, journal: Journal) -> None:
        """The first byte of an answer is here.

        :raises ArtifactError: it could not be written down; the request's end will tell as much.
        """
        if self.held_told and self.sent_ms is not None:
            journal.append("released", begin=self.begin, until_mono_ms=self.sent_ms)

    def ends(self, journal: Journal, clock: Clock) -> None:
        now_ms = clock.mono_ms()
        ready_ms = self._ready(now_ms)
        held_until_ms = now_ms if self.sent_ms is None else self.sent_ms
        journal.append(
            "request",
            **self._who(),
            begin=self.begin,
            wall_ms=clock.wall_ms(),
            mono_ms=now_ms,
            path=f"{self.method} {self.path}"[:256],
            end=self.end,
            status=self.status,
            upstream_status=self.upstream_status,
            first_byte_ms=self.first_byte_ms,
            total_ms=now_ms - self.arrived_ms,
            held_ms=max(0, held_until_ms - ready_ms),
            held_from_mono_ms=ready_ms if self.waited else None,
            budget_held_ms=self.budget_held_ms,
            retries=self.retried.total(),
            retried=dict(self.retried),
            attempts_unknown=self.attempts_unknown,
            retry_after_s=self.retry_after_s,
            request_bytes=self.request_bytes,
            response_bytes=self.response_bytes,
            stripped=self.stripped,
            model_asked=self.model_asked,
            model=self.model,
            usage=self.usage,
            tokens=asdict(self.tokens) if self.tokens else None,
            error_type=self.error_type,
        )

    def _ready(self, otherwise_ms: int) -> int:
        return otherwise_ms if self.ready_ms is None else self.ready_ms

    def _who(self) -> dict[str, object]:
        seat = self.listener
        return {"trial": seat.trial, "account": seat.account, "listener": seat.name, "route": seat.route, "number": self.number}


class Refusals:
    """Counts what was refused at the door.  Told one by one at first, then at every doubling and every few seconds: an agent that knocks
    a thousand times a second must not fill the disk, but the ledger must know of what goes on that it does."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._told_ms: dict[tuple[str, str], int] = {}

    def count(self, journal: Journal, clock: Clock, listener: Listener, status: int, code: str) -> None:
        key = (listener.name, code)
        self._counts[key] += 1
        count, now_ms = self._counts[key], clock.mono_ms()
        if count <= REFUSALS_TOLD or count & (count - 1) == 0 or now_ms - self._told_ms[key] >= REFUSALS_EVERY_MS:
            self._told_ms[key] = now_ms
            journal.append(
                "refused",
                trial=listener.trial,
                account=listener.account,
                listener=listener.name,
                status=status,
                error_type=code,
                count=count,
                wall_ms=clock.wall_ms(),
                mono_ms=now_ms,
            )

    def forget(self, name: str) -> None:
        for key in [key for key in self._counts if key[0] == name]:
            del self._counts[key]
            self._told_ms.pop(key, None)


def bury(journal: Journal, clock: Clock, why: Literal["gateway_died", "not_recorded"], begins: Iterable[int]) -> int:
    """End the open requests ``begins`` as unknown; how many there were.

    :raises ArtifactError: the journal takes no lines now; what was not told stays open.
    """
    dead = {begin: journal.open_requests[begin] for begin in begins if begin in journal.open_requests}
    for begin, who in dead.items():
        journal.append(
            "request",
            **who,
            begin=begin,
            wall_ms=clock.wall_ms(),
            mono_ms=clock.mono_ms(),
            end=why,
            status=None,
            usage="unknown",
            tokens=None,
            error_type=why,
        )
    return len(dead)
