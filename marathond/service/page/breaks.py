"""What breaks on the page, as lines from its process to the daemon: the page itself may write nothing, and so no finding.

Owns the lines' form and how many there are: a page that breaks at every look is told once a minute, and said to be whole again once each
address that broke was answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from marathond.core.text import clean

PLACES = ("/", "/trial", "/static", "/metrics", "/livez", "/readyz")
"""What a finding is about: a trial's page is one of many, and breaks for a reason that others are likely to share."""
AGAIN_S = 60.0
PATHS_MAX = 64
"""Addresses of one place that are remembered as broken; of further ones nobody is waited for."""
WHY_MAX = 500

_BROKE, _WHOLE = "broke", "whole"


@dataclass(frozen=True, slots=True)
class Break:
    """``why`` empty: it is whole again."""

    place: str
    why: str


def parsed(line: str) -> Break | None:
    """Of a line that :class:`Breaks` made; None: it is none."""
    word, _, rest = line.partition(" ")
    place, _, why = rest.partition(" ")
    if place not in PLACES or (word, bool(why)) not in ((_BROKE, True), (_WHOLE, False)):
        return None
    return Break(place, clean(why, WHY_MAX))


def place_of(path: str) -> str:
    """Of a request's path that a route has."""
    first = path.removeprefix("/").partition("/")[0]
    return "/" if first == "parts" else f"/{first}"


class Breaks:
    """``tell``: given each line; at most two a minute for each place, however often it breaks and does not."""

    def __init__(self, tell: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._paths: dict[str, set[str]] = {}
        self._told_s: dict[str, float] = {}
        self._standing: set[str] = set()

    def broke(self, path: str, why: str) -> None:
        place, now_s = place_of(path), self._clock()
        paths = self._paths.setdefault(place, set())
        if len(paths) < PATHS_MAX:
            paths.add(path)
        if place not in self._told_s or now_s - self._told_s[place] >= AGAIN_S:
            self._told_s[place] = now_s
            self._standing.add(place)
            self._tell(f"{_BROKE} {place} {clean(f'{path}: {why}', WHY_MAX)}")

    def answered(self, path: str) -> None:
        """As it should be."""
        place = place_of(path)
        paths = self._paths.get(place, set())
        paths.discard(path)
        if not paths and place in self._standing:
            self._standing.remove(place)
            self._tell(f"{_WHOLE} {place}")
