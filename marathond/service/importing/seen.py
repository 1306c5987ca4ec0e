"""What a source showed, as values: the same for folders and for tables.

Owns the names.  Pure.  Times are integer milliseconds since 1970 UTC; None always means that the source does not say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from marathond.core.text import printable
from marathond.ledger.verbs.imports import Details
from marathond.ledger.verbs.trials import Fact, ScoreRow

AGENT_TIMEOUT = "AgentTimeoutError"
GOAL_TIMEOUT = "goal_timeout_before_terminal"
"""The message by which the old adapters ended a goal at their own deadline.  Two classes carried it, so the message decides (fault a04)."""
DEADLINE = "deadline"
NAME_MAX = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """One trial.  ``key``: what a second reading knows it by; ``place``: where it lies, for a person; ``order``: breaks ties of starts.

    ``why``: why it is no result, empty: it is valid, and then there is a score.  ``withdrawn``: a person took it back, in the source.
    """

    key: str
    place: str
    task: str
    arm: str
    order: str
    sha256: str
    score: ScoreRow | None
    why: str
    details: Details
    withdrawn: bool = False
    facts: tuple[Fact, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True)
class Listed:
    """Something that was met and not taken.  ``code``: stable word for the reason."""

    code: str
    place: str
    why: str


class Names:
    """Names as they can be shown, and that no two different ones become one by it (two arms would be added up)."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], str] = {}

    def plain(self, what: str, text: str) -> str:
        """:raises ValueError: nothing of it can be shown, or it looks like another one that was met before."""
        shown = printable(text, NAME_MAX)
        if not shown:
            raise ValueError(f"{what}: no character of {text[:60]!r} can be shown")
        if self._first.setdefault((what, shown), text) != text:
            raise ValueError(f"{what}: {shown[:60]!r} is, in plain characters and cut to {NAME_MAX}, the name of another one, too")
        return shown


@dataclass(frozen=True, slots=True)
class Difference:
    """A trial on which the old rule (``completed >= 1 and errored == 0``, by job) and this one do not agree."""

    place: str
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A whole source.  ``kind``: ``csv``, ``runs`` or ``harbor``; ``replicates``: trials that count per task and arm, None: all of them.

    ``remarks``: taken, and worth a look.  ``told``: lines for a person; ``conditions``: what the source says of how it was run.
    """

    kind: str
    source: str
    trials: tuple[Seen, ...]
    listed: tuple[Listed, ...]
    differences: tuple[Difference, ...] = ()
    replicates: int | None = None
    told: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[Listed, ...] = ()


YEARS = (1970, 2999)
"""A time beyond them is a default or a slip; with what a trial lasted it might be none that a date can be made of."""
END_MS = round(datetime(YEARS[1] + 1, 1, 1, tzinfo=UTC).timestamp() * 1000)
_ZONE_WORD = re.compile(r"\s*(?:UTC|GMT)$", re.IGNORECASE)


def instant_ms(text: object) -> int | None:
    """``2026-05-02 09:19 UTC`` or ISO 8601 in milliseconds; a time without a zone is UTC.

    :raises ValueError: it is no time, or none of :data:`YEARS`.
    """
    if text is None or text == "":
        return None
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no time")
    words = _ZONE_WORD.sub("+00:00", text.strip())
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        raise ValueError(f"{text[:60]!r} is no time such as 2026-05-02T09:19:00Z") from None
    at_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= at_ms < END_MS:
        raise ValueError(f"{text[:60]!r} is not between {YEARS[0]} and {YEARS[1]}")
    return at_ms
