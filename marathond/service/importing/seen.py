"""What a source showed, as values: the same for folders and for tables.

Owns the names.  Pure.  Times are integer milliseconds since 1970 UTC; None always means that the source does not say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from marathond.ledger.verbs.imports import Details
from marathond.ledger.verbs.trials import Fact, ScoreRow

AGENT_TIMEOUT = "AgentTimeoutError"
GOAL_TIMEOUT = "goal_timeout_before_terminal"
"""The message by which the old adapters ended a goal at their own deadline.  Two classes carried it, so the message decides (fault a04)."""
DEADLINE = "deadline"


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


_ZONE_WORD = re.compile(r"\s*(?:UTC|GMT)$", re.IGNORECASE)


def instant_ms(text: object) -> int | None:
    """``2026-05-02 09:19 UTC`` or ISO 8601 in milliseconds; a time without a zone is UTC.

    :raises ValueError: it is no time.
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
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
