"""/livez and /readyz: one line of words, and whether it is good.

Live: the daemon's event loop goes round.  Ready: it has said READY, and its engine answers.  Nobody should restart a daemon because Docker
is away, so that liveness does not ask for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from marathond.core.errors import MarathonError
from marathond.core.text import clean, duration, when
from marathond.ledger.verbs import status as verbs
from marathond.service.page.place import Place, now_ms
from marathond.service.picture.reader import Life, daemon_life, reading
from marathond.service.picture.status import FRESH_MS

BEAT_S = 20.0
"""A loop that has not gone round for so long is not called live; systemd's watchdog ends it after a minute."""


@dataclass(frozen=True, slots=True)
class Health:
    good: bool
    words: str


def live(place: Place) -> Health:
    if place.beat_s is None:
        return _by_the_ledger(place)
    beat_s = place.beat_s()
    if beat_s is None:
        return Health(False, "the daemon's event loop has not gone round yet")
    age_s = max(0.0, time.monotonic() - beat_s)
    if age_s > BEAT_S:
        return Health(False, f"the daemon's event loop has not gone round for {duration(age_s)}")
    return Health(True, "live: the daemon's event loop goes round")


def _by_the_ledger(place: Place) -> Health:
    """From another process: it wrote its sign of life lately."""
    try:
        life, _, now = _look(place)
    except MarathonError as error:
        return Health(False, f"unknown: {clean(error)}")
    if life.run is None or life.alive is False:
        return Health(False, f"no daemon runs: {clean(life.why)}")
    age_ms = now - life.run.seen_at_ms
    if age_ms > FRESH_MS:
        return Health(False, f"run {life.run.run_id} has given no sign of life for {duration(age_ms / 1000)}")
    if life.alive is None:
        return Health(False, f"unknown: {clean(life.why)}")
    return Health(True, f"live: run {life.run.run_id} gives signs of life")


def ready(place: Place) -> Health:
    """By the ledger, whoever asks: what the daemon has written there is what it is."""
    try:
        life, engine, _ = _look(place)
    except MarathonError as error:
        return Health(False, f"unknown: {clean(error)}")
    if life.run is None or life.alive is not True:
        return Health(False, f"{'unknown' if life.run is not None and life.alive is None else 'no daemon runs'}: {clean(life.why)}")
    if life.run.ready_at_ms is None:
        return Health(False, f"run {life.run.run_id} has not said READY yet: it recovers what an earlier one left")
    if engine is None:
        return Health(False, "unknown: the engine was not seen lately")
    if engine.get("ok") is not True:
        return Health(False, f"the engine does not answer: {clean(engine.get('detail') or 'no reason given')}")
    return Health(True, f"ready: run {life.run.run_id} since {when(life.run.ready_at_ms)}")


def _look(place: Place) -> tuple[Life, dict[str, object] | None, int]:
    """The newest life, what it said of its engine lately (None: nothing), and now."""
    with reading(place.ledger) as c:
        now = now_ms()
        life = daemon_life(verbs.last_run(c), place.control_socket, now)
        seen = verbs.observations(c).get("engine")
    fresh = seen is not None and life.run is not None and seen.run_id == life.run.run_id and now - seen.at_ms <= FRESH_MS
    return life, seen.value if fresh and seen is not None and isinstance(seen.value, dict) else None, now
