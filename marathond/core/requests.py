"""What the gateway's journal tells, as typed values; and how long a trial was held.

Owns the reading of the journal's records: a field that is missing or of another kind is an error by name, never a silent None (fault e03).
Pure; must not know where the journal lies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

BURIED = frozenset({"gateway_died", "not_recorded"})
"""Ends that the gateway could say nothing more about."""
USAGE_LIMIT = frozenset({"usage_limit_reached", "usage_not_included", "insufficient_quota", "billing_hard_limit_reached"})
"""What the provider calls an account that is used up; no waiting mends it."""
OWN_SURPLUS = ("too_many_connections", "too_many_streams", "too_many_bytes")
"""Refusals for what one trial's client has open at one time: its own doing.  What all trials have open together is ``gateway_busy``."""
HOLD_AT_MOST_MS = 300_000
"""No request is held longer by one life of the gateway: a hold whose end nobody told ends here at the latest."""
COUNT_AT_MOST = 10**12
"""Of anything in one request; sums of them stay far below what the ledger's integers hold."""
_TRIAL = re.compile(r"t(\d{4,18})\Z")


@dataclass(frozen=True, slots=True)
class Tokens:
    """By kind.  ``cached`` and ``cache_write`` are parts of ``input``, ``reasoning`` is a part of ``output``."""

    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int


@dataclass(frozen=True, slots=True)
class Who:
    """``number``: the gateway's count of this trial's requests."""

    trial_id: int
    account: str
    number: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A request was let in; ``*_ms`` of its arrival."""

    who: Who
    wall_ms: int
    mono_ms: int


@dataclass(frozen=True, slots=True)
class First:
    """The shape of the first request that a trial's listener saw (core/contract.py)."""

    who: Who
    shape: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """Request ``begin`` has to wait, since ``from_mono_ms``; it does so when this is told."""

    begin: int
    from_mono_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """Request ``begin``, which was held, was sent at ``until_mono_ms`` and answered."""

    begin: int
    until_mono_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of request ``begin``.  ``held_from_mono_ms`` None: it did not have to wait.

    ``retry_after_s``: the wait that the client was told, the provider's or ours.  ``upstream_status``: the provider's last.
    """

    who: Who
    begin: int
    wall_ms: int
    mono_ms: int
    end: str
    usage: str
    status: int | None = None
    upstream_status: int | None = None
    first_byte_ms: int | None = None
    total_ms: int | None = None
    held_ms: int = 0
    held_from_mono_ms: int | None = None
    budget_held_ms: int = 0
    retries: int = 0
    rate_limited: int = 0
    retry_after_s: int | None = None
    model_asked: str | None = None
    model: str | None = None
    tokens: Tokens | None = None
    error_type: str | None = None
    route: str = ""

    @property
    def held_until_mono_ms(self) -> int | None:
        """None: it did not have to wait.  Who was told to come back later is held until then: the next request cannot come earlier."""
        if self.held_from_mono_ms is None:
            return None
        back_ms = 1000 * (self.retry_after_s or 0) if self.end == "gave_up" else 0
        return self.held_from_mono_ms + self.held_ms + back_ms

    @property
    def failed(self) -> bool:
        """Not a whole answer without an error."""
        return self.end != "complete" or self.status is None or self.status >= 400 or self.error_type is not None


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """``count``: how often by now, in this life of the gateway."""

    trial_id: int
    account: str
    code: str
    count: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The first line of a segment; ``journal`` names the journal."""

    journal: str


@dataclass(frozen=True, slots=True)
class Aside:
    """Known, and nothing to keep: a life began, a torn line was seen."""


Event = Begun | First | Held | Released | Ended | TurnedAway | Segment | Aside


def decode(fields: Mapping[str, Any]) -> Event:
    """One record of the journal.

    :raises ValueError: names the field; or an event of a kind that is not known here.
    """
    read = _Fields(fields)
    match read.text("event"):
        case "begin":
            return Begun(_who(read), read.count("wall_ms"), read.count("mono_ms"))
        case "first":
            return First(_who(read), _clean(read.table("shape")))
        case "held":
            return Held(read.count("begin"), read.count("from_mono_ms"))
        case "released":
            return Released(read.count("begin"), read.count("until_mono_ms"))
        case "request":
            return _ended(read)
        case "refused":
            return TurnedAway(_trial(read), read.text("account"), read.text("error_type"), read.count("count"), read.count("wall_ms"))
        case "segment":
            return Segment(read.text("journal"))
        case "life" | "torn" | "recovered":
            return Aside()
        case other:
            raise ValueError(f"event {other!r}: no such kind")


def _ended(read: _Fields) -> Ended:
    end, usage = read.text("end"), read.text("usage")
    if usage not in ("known", "unknown", "none"):
        raise ValueError(f"usage {usage!r}: must be known, unknown or none")
    base = Ended(_who(read), read.count("begin"), read.count("wall_ms"), read.count("mono_ms"), end, usage)
    if end in BURIED:
        # All that the gateway's next life knows of it.
        return Ended(base.who, base.begin, base.wall_ms, base.mono_ms, end, "unknown", error_type=read.text("error_type"))
    if usage == "known" and read.maybe("tokens", read.table) is None:
        raise ValueError("tokens None: must be an object, for the usage is known")
    retried = read.table("retried")
    tokens = read.maybe("tokens", read.table)
    return Ended(
        who=base.who,
        begin=base.begin,
        wall_ms=base.wall_ms,
        mono_ms=base.mono_ms,
        end=end,
        usage=usage,
        status=read.maybe("status", read.count),
        upstream_status=read.maybe("upstream_status", read.count),
        first_byte_ms=read.maybe("first_byte_ms", read.count),
        total_ms=read.count("total_ms"),
        held_ms=read.count("held_ms"),
        held_from_mono_ms=read.maybe("held_from_mono_ms", read.count),
        budget_held_ms=read.count("budget_held_ms"),
        retries=read.count("retries"),
        rate_limited=_Fields(retried).count("429") if "429" in retried else 0,
        retry_after_s=read.maybe("retry_after_s", read.count),
        model_asked=read.maybe("model_asked", read.text),
        model=read.maybe("model", read.text),
        tokens=None if tokens is None else _tokens(_Fields(tokens)),
        error_type=read.maybe("error_type", read.text),
        route=read.text("route"),
    )


def _clean(table: dict[str, Any]) -> dict[str, Any]:
    """JSON may hold half a surrogate pair, the ledger may not."""
    cleaned: dict[str, Any] = json.loads(json.dumps(table, ensure_ascii=False).encode("utf-8", "replace"))
    return cleaned


def _tokens(read: _Fields) -> Tokens:
    counts = [read.count(kind) for kind in ("input", "cached", "cache_write", "output", "reasoning")]
    if max(counts) > COUNT_AT_MOST:
        raise ValueError(f"tokens {max(counts)}: must be at most {COUNT_AT_MOST}")
    return Tokens(*counts)


def _who(read: _Fields) -> Who:
    return Who(_trial(read), read.text("account"), read.count("number"))


def _trial(read: _Fields) -> int:
    label = read.text("trial")
    match = _TRIAL.match(label)
    if match is None:
        raise ValueError(f"trial {label[:80]!r}: must look like t0871")
    return int(match[1])


class _Fields:
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} {value!r}"[:200] + ": must be a text")
        return value.encode("utf-8", "replace").decode()  # JSON may hold half a surrogate pair, the ledger may not

    def count(self, name: str) -> int:
        value = self._fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
            raise ValueError(f"{name} {value!r}"[:200] + ": must be a whole number, 0 or more")
        return value

    def table(self, name: str) -> dict[str, Any]:
        value = self._fields.get(name)
        if not isinstance(value, dict):
            raise ValueError(f"{name} {value!r}"[:200] + ": must be an object")
        return value

    def maybe(self, name: str, read: Callable[[str], T]) -> T | None:
        """None where the journal says null; a field that is not there at all is an error."""
        if name not in self._fields:
            raise ValueError(f"{name}: is missing")
        return None if self._fields[name] is None else read(name)


def union_ms(intervals: Iterable[tuple[int, int | None]], now_ms: int) -> int:
    """Milliseconds up to ``now_ms`` that lie in at least one of the intervals; (from, None) goes on until now, but for no longer than
    :data:`HOLD_AT_MOST_MS`.  Requests that are held side by side are one wait, not two."""
    total, reached = 0, -1
    for start, end in sorted((start, start + HOLD_AT_MOST_MS if end is None else end) for start, end in intervals):
        end = min(end, now_ms)
        if end > max(start, reached):
            total += end - max(start, reached)
            reached = end
    return total
