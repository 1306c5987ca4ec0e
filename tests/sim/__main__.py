"""``python -m tests.sim --seeds A..B --jobs 2``: run seeds, say what was found.  ``--seed N -v`` replays one and prints its trace.

Exit status 1 when an invariant was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.sim import world
from tests.sim.run import Outcome, simulate

CHUNK = 10


def _many(seeds: range) -> list[Outcome]:
    return [simulate(seed) for seed in seeds]


def outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    """As they come."""
    if jobs <= 1:
        for seed in seeds:
            yield simulate(seed)
        return
    world.tasks()  # before the fork: one folder for all, removed by this process
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(_many, chunks):
            yield from found


def summary(found: list[Outcome], took_s: float) -> str:
    """One line."""
    bad = sum(bool(outcome.violations) for outcome in found)
    return (
        f"{len(found)} seeds, {bad} violations, {sum(o.cells for o in found)} cells, {sum(o.trials for o in found)} trials, "
        f"{sum(o.kills for o in found)} kills, {sum(o.faults.total() for o in found)} faults fired, "
        f"{sum(o.lives for o in found)} lives, {len(found) / max(took_s, 0.001):.1f} seeds/s"
    )


def report(outcome: Outcome) -> str:
    lines = [f"seed {outcome.seed}: {violation}" for violation in outcome.violations]
    return "\n".join([*lines, f"  replay: python -m tests.sim --seed {outcome.seed} -v"])


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(1, 1001), metavar="A..B")
    parser.add_argument("--seed", type=int, metavar="N", help="one seed alone")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the trace of the one seed")
    parser.add_argument("--counts", action="store_true", help="what occurred how often")
    args = parser.parse_args()
    began = time.monotonic()
    if args.seed is not None:
        found = [simulate(args.seed, say=print if args.verbose else None)]
    else:
        found = []
        for outcome in outcomes(args.seeds, args.jobs):
            found.append(outcome)
            if outcome.violations:
                print(report(outcome), flush=True)
    print(summary(found, time.monotonic() - began))
    if args.seed is not None:
        print(f"digest {found[0].digest}", *map(report, [o for o in found if o.violations]), sep="\n")
    if args.counts:
        for name in ("counts", "faults", "transitions", "voids", "findings"):
            total: Counter[object] = sum((getattr(outcome, name) for outcome in found), Counter())
            print(name, *(f"  {key}: {count}" for key, count in sorted(total.items(), key=str)), sep="\n")
    return int(any(outcome.violations for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
