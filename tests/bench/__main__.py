"""``make bench``: every figure in one run, side by side with what it is compared with; ``make bench-check``: the quick ones.

Needs DOCKER_HOST and MARATHOND_BASE_IMAGE, which set-up provides.  A part that is compared with a floor measures both in turn, so that a
noisy machine hits both alike.  ``--check`` compares the kept ratios of :data:`QUICK` with tests/bench/expected.json: more than 20 % worse,
missing or new is a failure, and a part that fails is measured once more before it counts.  Exit status: 0; 1 worse, or something could not
be measured; 2 usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from marathond.demo.host import SetupError, say
from tests.bench import bytes_run, footprint, gateway_run, ledger_run, live_run, makespan, overhead_run, report_run, rows, scan_run
from tests.bench.rows import Row

FAILED, USAGE = 1, 2
REPEATS = 2
"""Measurements of a part that is worse than expected, the first one included."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where it runs; ``host`` and ``image`` empty: without an engine.  ``quick``: for the check."""

    host: str
    image: str
    quick: bool
    with_harbor: bool


def overhead(bench: Bench) -> list[Row]:
    rounds = 3 if bench.quick else 5
    return overhead_run.rows(overhead_run.measure(bench.host, bench.image, rounds=rounds, with_harbor=bench.with_harbor))


def copied(bench: Bench) -> list[Row]:
    return bytes_run.rows(bytes_run.measure(bench.host, bench.image, with_harbor=bench.with_harbor))


def admission(_: Bench) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="marathond-bench-") as folder:
        return ledger_run.rows(anyio.run(ledger_run.admission_ms, Path(folder)))


def scan(bench: Bench) -> list[Row]:
    found = []
    for trials in (100_000,) if bench.quick else scan_run.SIZES:
        say(f"bench: status and claims at {trials:,} trials")
        found += scan_run.rows(scan_run.measure(trials, files=not bench.quick, rounds=10 if bench.quick else 5))
    return found


def live(bench: Bench) -> list[Row]:
    found = []
    if bench.host and not bench.quick:
        say("bench: 12 live trials on Docker")
        found += footprint.rows(footprint.live_trials(bench.host))
    for trials in (100,) if bench.quick else (100, 400):
        say(f"bench: {trials} live trials on the simulated engine")
        window_s = 30.0 if bench.quick else live_run.WINDOW_S
        found += live_run.rows(live_run.measure(trials, window_s=window_s))
    return found


def gateway(bench: Bench) -> list[Row]:
    return gateway_run.rows(gateway_run.run(3))


def report(bench: Bench) -> list[Row]:
    return report_run.rows(report_run.measure(3 if bench.quick else 5))


def orders(_: Bench) -> list[Row]:
    """What is above the bound is compared: a fifth of the whole would be far more than any order loses."""
    found = makespan.rows(makespan.measure())
    return [replace(row, ratio=row.value - 1, floor="of the lower bound above it") for row in found]


PARTS: Mapping[str, Callable[[Bench], list[Row]]] = {
    # First, before the other parts' children set the peak of memory.
    "report": report,
    "overhead": overhead,
    "bytes": copied,
    "admission": admission,
    "scan": scan,
    "live": live,
    "gateway": gateway,
    "makespan": orders,
}
QUICK = ("report", "overhead", "bytes", "admission", "scan", "live", "makespan")
"""Their kept ratios do not follow the machine's load: of the processor's time, of bytes, or to a floor that takes turns with them."""
NEED_ENGINE = ("overhead", "bytes")


def measured(name: str, bench: Bench) -> list[Row]:
    """Keys get the part's name in front.  Raises RuntimeError when there is nothing, which is no figure either."""
    say(f"bench: {name}")
    found = [rows.named(row, name) for row in PARTS[name](bench)]
    if not found:
        raise RuntimeError(f"{name}: no figure")
    return found


def check(names: list[str], bench: Bench) -> tuple[list[Row], list[str], list[str]]:
    """(what was measured, what is wrong, what is so much better that it should be checked in)."""
    expected = {key: value for key, value in rows.read().items() if key.partition("/")[0] in names}
    everything: list[Row] = []
    wrong: list[str] = []
    gained: list[str] = []
    for name in names:
        mine = {key: value for key, value in expected.items() if key.partition("/")[0] == name}
        best: dict[str, float] = {}
        for _ in range(REPEATS):
            found = measured(name, bench)
            now = rows.kept(found)
            best = {key: min(value, best.get(key, value)) for key, value in now.items()}
            if not (told := rows.compare(mine, best)):
                break
        everything += found
        wrong += told
        gained += rows.better(mine, best)
    return everything, wrong, gained


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--check", action="store_true", help="the quick ones, compared with tests/bench/expected.json")
    parser.add_argument("--update", action="store_true", help="the quick ones; write their ratios to tests/bench/expected.json")
    parser.add_argument("--no-harbor", action="store_true", help="leave out Harbor, whose environment takes minutes to make")
    options = parser.parse_args(arguments)
    quick = options.check or options.update
    if options.check and options.update:
        parser.error("--check and --update exclude each other")
    names = [name for name in (QUICK if quick else PARTS) if not options.only or name in options.only]
    if options.only and set(options.only) - set(names):
        parser.error(f"--check compares {', '.join(QUICK)} alone")
    host, image = os.environ.get("DOCKER_HOST", ""), os.environ.get("MARATHOND_BASE_IMAGE", "")
    if not (host and image) and set(names) & set(NEED_ENGINE):
        print("bench: DOCKER_HOST and MARATHOND_BASE_IMAGE are not set; run `make bench`", file=sys.stderr)
        return USAGE
    bench = Bench(host, image, quick=quick, with_harbor=not options.no_harbor and not quick)
    wrong: list[str] = []
    gained: list[str] = []
    try:
        if options.check:
            found, wrong, gained = check(names, bench)
        else:
            found = [row for name in names for row in measured(name, bench)]
        if options.update:
            # Of parts that were not measured what is known stays.
            known = rows.read() if rows.EXPECTED.exists() else {}
            kept = {key: value for key, value in known.items() if key.partition("/")[0] not in names}
            rows.write({**kept, **rows.kept(found)})
    except (SetupError, RuntimeError, ValueError) as err:
        print(f"bench: {err}", file=sys.stderr)
        return FAILED
    print("\n".join(rows.table(found)))
    print(f"load average {' '.join(f'{each:.1f}' for each in os.getloadavg())}, {os.cpu_count()} CPUs")
    for line in gained:
        print(f"bench-check: {line}")
    for line in wrong:
        print(f"bench-check: {line}", file=sys.stderr)
    return FAILED if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
