"""When an agent ended, as well as can be known, and by whose word.

Owns the rule for ends that nobody saw: a daemon that was stopped, frozen, or cut off from its engine meets them only later, and the time of
that look says nothing of the agent.  Pure; must not know clocks, files or drivers.  All times are milliseconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from marathond.core.names import EndedBy

CLOSE_MS = 2_000
"""Between the last moment at which the agent is known to have run and the look that found it ended: no absence worth a word."""
SHORT_MS = 15_000
"""So short a time in which nobody looked needs no word of somebody else's, where there is none."""
HEARD_MS = 120_000
"""A driver that has been there for so long has heard all there was to hear: what it decides on, it decides now."""
SLACK_MS = 1_500
"""A file's time and codex's seconds are of the wall clock, the latter whole ones: so far they may lie outside of what is possible."""


class TimeSource(StrEnum):
    """Whose word the time of an end is."""

    WATCHED = "watched"
    FILE = "file"
    """The status file's: written by the wrapper as its last act, forgeable by what runs in the container (fault c18)."""
    CODEX = "codex"
    """When its last turn ended."""
    UNKNOWN = "unknown"


_TOLD = frozenset({TimeSource.FILE, TimeSource.CODEX})

WORDS: Mapping[TimeSource, str] = {
    TimeSource.WATCHED: "",
    TimeSource.FILE: "by its status file: nobody looked all the time",
    TimeSource.CODEX: "by codex's word of its last turn: nobody looked all the time",
    TimeSource.UNKNOWN: "nobody looked all the time, and nothing tells when",
}
"""For people, behind the time."""


@dataclass(frozen=True, slots=True)
class Watched:
    """``before_ms``: the agent had not ended before.  ``alive``: since the last gap the engine has said once that it ran, so whatever ended
    it, did so while somebody looked."""

    before_ms: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """``at_ms`` None: nobody knows.  ``mute``: nothing was left that could tell, as the container's timer would have, and a daemon that
    was about to end it had said so before."""

    at_ms: int | None
    source: TimeSource
    mute: bool = False


def of_process(watched: Watched, *, seen_ms: int, written_ms: int | None) -> Ended:
    """The end of a process that ended by itself.

    :param seen_ms: when it was found ended.
    :param written_ms: the time of its status file; None: there is none that could be one.
    """
    if watched.alive or seen_ms - watched.before_ms <= CLOSE_MS:
        return Ended(seen_ms, TimeSource.WATCHED)
    told = _told(written_ms, watched.before_ms, seen_ms, TimeSource.FILE)
    if told.at_ms is None and seen_ms - watched.before_ms <= SHORT_MS:
        return Ended(seen_ms, TimeSource.WATCHED)
    return told


def of_driver(*, since_ms: int, started_ms: int, seen_ms: int, word_ms: int | None) -> Ended:
    """The end that a driver decided on.  The server goes on without one, so it being alive says nothing.

    :param since_ms: from then on a driver was there without a gap; an engine that breaks is none, for it is not asked.
    :param word_ms: when the last turn ended, by the harness's own word; None: it has none.
    """
    heard = since_ms <= started_ms or seen_ms - since_ms > HEARD_MS
    if heard or (word_ms is not None and since_ms <= word_ms + SLACK_MS):
        return Ended(seen_ms, TimeSource.WATCHED)
    return _told(word_ms, started_ms, seen_ms, TimeSource.CODEX)


def _told(word_ms: int | None, least_ms: int, most_ms: int, source: TimeSource) -> Ended:
    if word_ms is None or not least_ms - SLACK_MS <= word_ms <= most_ms + SLACK_MS:
        return Ended(None, TimeSource.UNKNOWN, mute=word_ms is None)
    return Ended(min(max(word_ms, least_ms), most_ms), source)


def judged(by: EndedBy, ended: Ended, *, seen_ms: int, deadline_ms: int | None, timer_ms: int, killed: bool) -> tuple[EndedBy, int | None]:
    """What ended it, and by how much it overran its deadline; None: not known, or without one.

    :param by: what is said to have ended it.
    :param timer_ms: so much after the deadline the container's own timer fires, however late somebody looks.
    :param killed: it ended as the timer's victims do, which leaves a word before it kills.
    """
    if deadline_ms is None:
        return by, None
    over_ms = max(0, (seen_ms if ended.at_ms is None else ended.at_ms) - deadline_ms)
    too_early = ended.at_ms is not None and over_ms < timer_ms - SLACK_MS
    if killed and over_ms and not too_early and not ended.mute:
        return EndedBy.TIMER, min(over_ms, timer_ms)
    if ended.source in _TOLD and over_ms > SLACK_MS:  # with somebody there it would have been ended by it
        return EndedBy.DEADLINE, over_ms
    # One that we ended was there until then, so it may have worked for so long: whether that is too long is asked of a person.  One that
    # ended by itself did so at the latest when the timer would have fired; when exactly, nobody may know.
    return by, None if ended.at_ms is None and over_ms and by is not EndedBy.DEADLINE else over_ms


DETAIL = "time_source"
"""In the detail of the event that ended an agent, where nobody watched."""


def told_in(detail: Mapping[str, Any]) -> TimeSource:
    """What an earlier version wrote says nothing of it, and had no other."""
    try:
        return TimeSource(detail.get(DETAIL, TimeSource.WATCHED.value))
    except ValueError:
        return TimeSource.UNKNOWN
