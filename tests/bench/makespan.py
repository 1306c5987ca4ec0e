"""How long a campaign takes by the order of its cells: real durations, the planner's own decisions, simulated time.

``python -m tests.bench.makespan [--all]``: needs nothing but the table of 1,299 public trials (20 tasks, 13 configurations, 5 trials each).
Five configurations are the arms of a campaign of 500 cells, a configuration's trials its replicates; the one trial that is missing is
taken for the mean of its four neighbours.  Cells are admitted by ``core/plan.py`` in the order of ``core/order.py``, a replicate learns
when its first cell would be admitted, and a trial's duration is known once it has ended.  Tasks' limits are those of the shipped profile.

The lower bound is the work divided by the slots, or the longest trial if that is more.  It knows no blocks and no replicates.

Ways: *first-in-first-out* takes replicates, then tasks by name, arms side by side.  *declared* and *learned* are ``admission.expected``,
*learned* on an empty ledger.  *earlier* is *learned* on a ledger into which the other eight configurations' trials of the same tasks were
imported before the campaign began: all of what is public of the tasks, and nothing of the campaign's own arms.
*known* orders each replicate's blocks by the longest trial that each will have, which nobody knows: what the best knowledge of a task
could give while blocks are kept.  *free* starts the longest trials of the whole campaign first: no blocks, no replicates.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import itertools
import random
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from marathond.core.order import CellKey, Lasted, Order, block_order, order_cells, short_half_first
from marathond.core.plan import Holding, Host, Limits, OpenCell, Snapshot, plan
from tests.bench.rows import Row
from tests.support.benchmarks import known

TABLE = Path(__file__).parents[1] / "data" / "swe-marathon-trials.csv"
PICKS, ARMS, REPLICATES = 50, 5, 5
SLOTS = (12, 24)
SEED = 22
"""Of the fifty picks: the first one under which first-in-first-out takes 1.043 and 1.098 times the lower bound, in the median."""
WAYS = ("fifo", "declared", "learned", "earlier", "known", "free")
LEARNS = ("learned", "earlier")
ROOMY = Host(ncpu=10**6, memory_mb=10**9, networks_free=10**6, networks_capacity=10**6)
HELD = Holding(1, 1)
LOOK = tuple(OpenCell(number, 0, 1, 1, False) for number in range(32))
"""Open cells of one look, by their place: more than slots are ever free at once."""

Durations = Mapping[tuple[str, str, int], float]
"""(task, arm, replicate) to seconds."""


@cache
def public() -> Durations:
    """Of every configuration; replicates count from 1 in the table's order."""
    found: dict[tuple[str, str], list[float]] = {}
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["task"], f"{row['agent']} / {row['model']}"), []).append(float(row["duration_s"]))
    filled = {key: [*took, *[statistics.fmean(took)] * (REPLICATES - len(took))] for key, took in found.items()}
    return {(task, arm, number): took for (task, arm), all_took in filled.items() for number, took in enumerate(all_took, start=1)}


@cache
def limits() -> Mapping[str, float]:
    """Task to its declared limit in seconds, by the shipped profile."""
    return {name: float(task.agent_s or 0) for name, task in known().profile.tasks.items()}


def picks(count: int | None = PICKS, *, seed: int = SEED) -> Iterator[Durations]:
    """Campaigns of five configurations; ``count`` None: all 1,287 that there are."""
    names = sorted({arm for _, arm, _ in public()})
    dice = random.Random(seed)
    chosen = itertools.combinations(names, ARMS) if count is None else (dice.sample(names, ARMS) for _ in range(count))
    for arms in chosen:
        yield {key: took for key, took in public().items() if key[1] in arms}


def lower_bound(durations: Durations, slots: int) -> float:
    """Seconds that no order can beat."""
    return max(sum(durations.values()) / slots, *durations.values())


def learn(lasted: dict[str, Lasted], task: str, took_s: float) -> None:
    was, took_ms = lasted.get(task, Lasted(0, 0, 0)), round(took_s * 1000)
    lasted[task] = Lasted(was.trials + 1, was.total_ms + took_ms, max(was.longest_ms, took_ms))


def elsewhere(arms: Collection[str]) -> dict[str, Lasted]:
    """What all other configurations' trials took."""
    found: dict[str, Lasted] = {}
    for (task, arm, _), took_s in public().items():
        if arm not in arms:
            learn(found, task, took_s)
    return found


class Campaign:
    """One campaign on ``slots`` slots, in simulated time.  What is learned is learned from trials that have ended."""

    def __init__(self, durations: Durations, slots: int, way: str, seed: int) -> None:
        self.durations, self.slots, self.way, self.seed = durations, slots, way, seed
        self.limits = Limits(concurrency=slots)
        self.settled: dict[int, list[str]] = {}
        self.lasted = elsewhere({arm for _, arm, _ in durations}) if way == "earlier" else {}
        self.left = self._ordered()

    def _ordered(self) -> list[CellKey]:
        cells = [CellKey(task, arm, replicate, limits()[task]) for task, arm, replicate in self.durations]
        if self.way == "fifo":
            return sorted(cells, key=lambda cell: (cell.replicate, cell.task, cell.arm))
        if self.way == "free":
            return sorted(cells, key=self._took, reverse=True)
        if self.way == "known":
            longest: dict[tuple[int, str], float] = {}
            for cell in cells:
                longest[cell.replicate, cell.task] = max(self._took(cell), longest.get((cell.replicate, cell.task), 0))
            self.settled = {
                number: [task for each, task in sorted(longest, key=longest.__getitem__, reverse=True) if each == number]
                for number in range(1, REPLICATES + 1)
            }
        return order_cells(cells, order=Order.REPLICATE_MAJOR, seed=self.seed, settled=self.settled)

    def _took(self, cell: CellKey) -> float:
        return self.durations[cell.task, cell.arm, cell.replicate]

    def _begin(self, replicate: int) -> None:
        """As ``ledger/verbs/ordering.py`` does it."""
        mine = [cell for cell in self.left if cell.replicate == replicate]
        tasks = {cell.task: cell.declared_limit_s for cell in mine}
        short = replicate == REPLICATES - 1 and short_half_first(self.lasted, cells=len(mine), slots=self.slots)
        self.settled[replicate] = block_order(tasks, self.lasted, replicate=replicate, seed=self.seed, short_first=short)
        ordered = order_cells(mine, order=Order.REPLICATE_MAJOR, seed=self.seed, settled=self.settled)
        at = self.left.index(next(cell for cell in self.left if cell.replicate == replicate))
        self.left[at : at + len(mine)] = ordered

    def _admissions(self, held: int) -> list[CellKey]:
        """What is to start now, by the planner."""
        snapshot = Snapshot(LOOK[: len(self.left)], len(self.left), (HELD,) * held, 0)
        decided = plan(snapshot, self.limits, ROOMY, ready_tasks=(0,), now_ms=0)
        while self.way in LEARNS:
            begins = [self.left[cell.cell_id].replicate for cell in decided.admissions]
            new = [replicate for replicate in begins if replicate not in self.settled]
            if not new:
                break
            self._begin(min(new))
        return [self.left[cell.cell_id] for cell in decided.admissions]

    def run(self) -> float:
        """Seconds from the first start to the last end."""
        running: list[tuple[float, int, CellKey]] = []
        now, started = 0.0, 0
        while self.left or running:
            cells = self._admissions(len(running)) if self.left else []
            for cell in cells:
                heapq.heappush(running, (now + self._took(cell), started, cell))
                started += 1
            self.left = self.left[len(cells) :]
            now, _, ended = heapq.heappop(running)
            learn(self.lasted, ended.task, self._took(ended))
        return now


@dataclass(frozen=True, slots=True)
class Found:
    """Ratios to the lower bound, one a campaign."""

    way: str
    slots: int
    ratios: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def p90(self) -> float:
        return statistics.quantiles(self.ratios, n=10, method="inclusive")[8]


def measure(ways: Sequence[str] = WAYS, count: int | None = PICKS, *, seed: int = SEED) -> list[Found]:
    campaigns = list(picks(count, seed=seed))
    found = []
    for slots in SLOTS:
        for way in ways:
            ratios = [Campaign(each, slots, way, number).run() / lower_bound(each, slots) for number, each in enumerate(campaigns)]
            found.append(Found(way, slots, ratios))
    return found


NAMES = {
    "fifo": "first-in-first-out",
    "declared": "longest declared limit first",
    "learned": "marathond: limit, then learned",
    "earlier": "the same, others' trials imported",
    "known": "longest trials known, blocks kept",
    "free": "all known, no blocks",
}
BARS = {(12, "median"): 1.012, (12, "p90"): 1.02, (24, "median"): 1.026, (24, "p90"): 1.05}


def rows(found: Sequence[Found]) -> list[Row]:
    made = []
    for each in found:
        for what in ("median", "p90"):
            value, ours = getattr(each, what), each.way in LEARNS
            bar = BARS[each.slots, what] if ours else None
            text = f"makespan, {each.slots} slots, {NAMES[each.way]}: {what}"
            made.append(Row(f"{each.way}-{each.slots}-{what}", text, value, "", value, "lower bound", ours, bar))
    return made


def lines(found: Sequence[Found]) -> list[str]:
    """The table: a line a way, for each number of slots the median and the 90th percentile of the ratio to the lower bound."""
    by = {(each.way, each.slots): each for each in found}
    made = [f"{'makespan / lower bound':<36}" + "".join(f"{slots:>4} slots: median    p90" for slots in SLOTS)]
    for way in dict.fromkeys(each.way for each in found):
        made.append(f"{NAMES[way]:<36}" + "".join(f"{by[way, n].median:>18.3f}{by[way, n].p90:>7.3f}" for n in SLOTS))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.makespan", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all 1,287 choices of five configurations, not fifty")
    parser.add_argument("--seed", type=int, default=SEED, help="of the fifty picks")
    asked = parser.parse_args()
    print("\n".join(lines(measure(count=None if asked.all else PICKS, seed=asked.seed))))


if __name__ == "__main__":
    main()
