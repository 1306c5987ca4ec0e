"""One budget of requests and tokens per minute for all trials of a route, given out in a fair order.

Pure: the time is an argument.  Owns the order (within a trial first come first served; between trials the one served longest ago comes
first, which is round robin) and the two token buckets.  Must not know arms, HTTP or how anybody waits.

The first in order that does not fit holds up all others: letting small requests overtake would starve the trial with the longest context,
whatever its arm (faults a01, a17).  An estimate above a whole minute's tokens waits for a full bucket, so nothing waits for ever.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass

MINUTE_MS = 60_000
OWED_AT_MOST_MIN = 10
"""Minutes' worth that a settlement may overdraw: one answer that the provider miscounts must not hold up every trial for a day."""
WAITING_AT_MOST = 4096
TRIALS_REMEMBERED = 4096


class QueueFull(Exception):
    """More than :data:`WAITING_AT_MOST` requests wait already."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One attempt to send one request.  ``held_ms`` is known once it was admitted."""

    trial: str
    tokens: int
    asked_ms: int
    admitted_ms: int | None = None
    served_before: int = 0

    @property
    def held_ms(self) -> int:
        return 0 if self.admitted_ms is None else self.admitted_ms - self.asked_ms


class _Bucket:
    """Refills steadily, holds one minute's worth, may be overdrawn by a settlement, by a few minutes' worth."""

    def __init__(self, per_min: int | None) -> None:
        self.per_min = per_min
        self.level = float(per_min or 0)
        self.seen_ms: int | None = None

    def refill(self, now_ms: int) -> None:
        if self.per_min is not None and self.seen_ms is not None:
            self.level = min(float(self.per_min), self.level + max(0, now_ms - self.seen_ms) * self.per_min / MINUTE_MS)
        self.seen_ms = now_ms

    def short_ms(self, want: int) -> int:
        """Milliseconds until ``want`` is there; 0 when it is."""
        if self.per_min is None:
            return 0
        missing = min(want, self.per_min) - self.level
        return 0 if missing <= 1e-6 else max(1, math.ceil(missing * MINUTE_MS / self.per_min))

    def take(self, amount: int) -> None:
        if self.per_min is not None:
            self.level = max(-float(self.per_min * OWED_AT_MOST_MIN), min(float(self.per_min), self.level - amount))


class Budget:
    """The shared budget of one route.  ``None`` means no limit of that kind."""

    def __init__(self, requests_per_min: int | None, tokens_per_min: int | None) -> None:
        self._requests, self._tokens = _Bucket(requests_per_min), _Bucket(tokens_per_min)
        self._waiting: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._served: OrderedDict[str, int] = OrderedDict()
        self._turn = 0
        self._paused_until_ms = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def tokens_used(self, now_ms: int) -> tuple[int, int] | None:
        """(of the running minute, per minute), reservations included and overdrawn beyond the limit; None: no limit of tokens."""
        self._tokens.refill(now_ms)
        limit = self._tokens.per_min
        return None if limit is None else (round(limit - self._tokens.level), limit)

    def reconfigure(self, requests_per_min: int | None, tokens_per_min: int | None, now_ms: int) -> None:
        """New limits at once; what was already used of the running minute stays used in proportion."""
        for bucket, per_min in ((self._requests, requests_per_min), (self._tokens, tokens_per_min)):
            bucket.refill(now_ms)
            if per_min is not None:
                bucket.level = bucket.level * per_min / bucket.per_min if bucket.per_min else float(per_min)
            bucket.per_min = per_min

    def ask(self, trial: str, tokens: int, now_ms: int) -> Ticket:
        """Stand in line with an estimate of the tokens that the request will use.

        :raises QueueFull: nobody else may wait.
        """
        if self.waiting >= WAITING_AT_MOST:
            raise QueueFull
        ticket = Ticket(trial, max(0, tokens), now_ms)
        self._waiting.setdefault(trial, deque()).append(ticket)
        return ticket

    def admit(self, now_ms: int) -> list[Ticket]:
        """Everybody whose turn it is now, in order; each has its reservation."""
        admitted: list[Ticket] = []
        while (ticket := self._next()) is not None and self._short_ms(ticket, now_ms) == 0:
            self._requests.take(1)
            self._tokens.take(ticket.tokens)
            self._leave(ticket)
            self._turn += 1
            ticket.admitted_ms, ticket.served_before = now_ms, self._served.get(ticket.trial, 0)
            self._remember(ticket.trial, self._turn)
            admitted.append(ticket)
        return admitted

    def next_ms(self, now_ms: int) -> int | None:
        """Milliseconds until the first in line may fit; None when nobody waits."""
        ticket = self._next()
        return None if ticket is None else self._short_ms(ticket, now_ms)

    def settle(self, ticket: Ticket, tokens: int | None, now_ms: int) -> None:
        """Replace the reservation by what was really used; ``None`` (unknown: the stream was cut) keeps the estimate."""
        if tokens is not None:
            self._tokens.refill(now_ms)
            self._tokens.take(tokens - ticket.tokens)

    def refund(self, ticket: Ticket, now_ms: int) -> None:
        """The provider turned the attempt away: its tokens come back (the request itself was counted), and the trial its place in order."""
        self.settle(ticket, 0, now_ms)
        self._remember(ticket.trial, ticket.served_before)

    def cancel(self, ticket: Ticket) -> None:
        """Leave the line.  The trial keeps its seniority: coming back after a refusal is not punished."""
        if ticket.admitted_ms is None:
            self._leave(ticket)

    def pause(self, until_ms: int) -> None:
        """The provider asked everybody to wait: nobody is admitted before ``until_ms``."""
        self._paused_until_ms = max(self._paused_until_ms, until_ms)

    def _next(self) -> Ticket | None:
        first = min(self._waiting, key=lambda trial: self._served.get(trial, 0), default=None)
        return None if first is None else self._waiting[first][0]

    def _short_ms(self, ticket: Ticket, now_ms: int) -> int:
        self._requests.refill(now_ms)
        self._tokens.refill(now_ms)
        return max(self._paused_until_ms - now_ms, self._requests.short_ms(1), self._tokens.short_ms(ticket.tokens), 0)

    def _leave(self, ticket: Ticket) -> None:
        line = self._waiting.get(ticket.trial)
        if line is not None and ticket in line:
            line.remove(ticket)
            if not line:
                del self._waiting[ticket.trial]

    def _remember(self, trial: str, turn: int) -> None:
        self._served[trial] = turn
        self._served.move_to_end(trial)
        while len(self._served) > TRIALS_REMEMBERED:
            self._served.popitem(last=False)
