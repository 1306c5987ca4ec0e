"""Eight no-op trials, four at a time, with a network: bare Docker calls, marathond and Harbor on the same engine.

``python -m tests.bench --only overhead``.  Bare calls and marathond take turns; Harbor runs once, for only a factor of several is read.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from marathond.demo.host import say
from tests.bench import bare_calls, harbor_run, marathond_run
from tests.bench.rows import Row


@dataclass(frozen=True, slots=True)
class Overhead:
    """Medians in seconds; ``ratio``: median of the rounds' own ratios.  ``harbor_s`` None: left out."""

    bare_s: float
    marathond_s: float
    ratio: float
    harbor_s: float | None


def measure(host: str, image: str, *, rounds: int, with_harbor: bool) -> Overhead:
    """:raises RuntimeError, SetupError: one of them did not do its work."""
    bare, ours = [], []
    for number in range(1, rounds + 1):
        say(f"bench: bare calls and marathond, round {number} of {rounds}")
        bare.append(bare_calls.measure(host, image, rounds=1))
        ours.append(marathond_run.measure(host, rounds=1))
    ratio = statistics.median(mine / floor for mine, floor in zip(ours, bare, strict=True))
    if with_harbor:
        say("bench: Harbor 0.26")
    harbor_s = harbor_run.measure(image) if with_harbor else None
    return Overhead(statistics.median(bare), statistics.median(ours), ratio, harbor_s)


def rows(found: Overhead) -> list[Row]:
    text, floor = "8 no-op trials, 4 at a time, with a network", "bare calls"
    made = [
        Row("bare", f"{text}: bare Docker calls", found.bare_s, "s"),
        Row("marathond", f"{text}: marathond", found.marathond_s, "s", found.ratio, floor, kept=True, note="bar for the ratio: 1.40"),
    ]
    if found.harbor_s is not None:
        times = f"marathond is {found.harbor_s / found.marathond_s:.1f} times faster (bar: 6)"
        made.append(Row("harbor", f"{text}: Harbor 0.26", found.harbor_s, "s", found.harbor_s / found.bare_s, floor, note=times))
    return made
