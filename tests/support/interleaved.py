"""Campaigns whose trials fail by infrastructure at given rates, in the order in which they come to rest.  No test of its own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Rest(NamedTuple):
    """A trial that came to rest: its block and arm by number, its attempt, and whether infrastructure failed it."""

    block: int
    arm: int
    attempt: int
    failed: bool


def campaign(
    rng: random.Random, rates: Sequence[float], *, tasks: int = 20, replicates: int = 5, at_once: int = 12, passes: int = 3
) -> Iterator[Rest]:
    """Blocks of one task and replicate, arms in random order within each; the first open cell of that order is taken whenever a place is
    free, so that a failed cell runs again at once; trials end roughly in their order; a cell that failed ``passes`` times is parked."""
    cells = [(block, arm) for block in range(tasks * replicates) for arm in rng.sample(range(len(rates)), len(rates))]
    waiting, running = list(range(len(cells))), list[int]()
    attempts = [0] * len(cells)
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(heapq.heappop(waiting))
        number = running.pop(min(int(rng.random() * 4), len(running) - 1))
        block, arm = cells[number]
        failed = rng.random() < rates[arm]
        attempts[number] += 1
        yield Rest(block, arm, attempts[number], failed)
        if failed and attempts[number] < passes:
            heapq.heappush(waiting, number)
