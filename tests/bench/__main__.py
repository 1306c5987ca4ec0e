"""``make bench``: every figure of README from one run, as ratios or against a stated bar.

Needs DOCKER_HOST and MARATHOND_BASE_IMAGE, which set-up provides.  Bare calls and marathond take turns, so that a noisy machine hits both
alike.  ``python -m tests.bench --no-harbor`` leaves out Harbor, whose environment takes minutes to make the first time.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

import anyio

from marathond.demo.host import SetupError, say
from tests.bench import bare_calls, footprint, harbor_run, ledger_run, marathond_run, report_run

ROUNDS = 5


def overhead(host: str, image: str, *, with_harbor: bool) -> list[str]:
    """Rows of the first table: seconds for eight no-op trials, four at a time, and the ratio to the bare calls of the same run."""
    bare, ours = [], []
    for number in range(1, ROUNDS + 1):
        say(f"bench: bare calls and marathond, round {number} of {ROUNDS}")
        bare.append(bare_calls.measure(host, image, rounds=1))
        ours.append(marathond_run.measure(host, rounds=1))
    floor = statistics.median(bare)
    ratio = statistics.median(mine / floor_now for mine, floor_now in zip(ours, bare, strict=True))
    rows = [("bare Docker calls", floor, 1.0), ("marathond", statistics.median(ours), ratio)]
    if with_harbor:
        say("bench: Harbor 0.26")
        harbor = harbor_run.measure(image)
        rows.append(("Harbor 0.26", harbor, harbor / floor))
    lines = [f"{'8 no-op trials, 4 at a time, with a network':<46}{'seconds':>9}{'x bare':>8}"]
    lines += [f"{name:<46}{seconds:>9.2f}{times:>8.2f}" for name, seconds, times in rows]
    if with_harbor:
        lines.append(f"marathond is {rows[2][1] / rows[1][1]:.1f} times faster than Harbor (bar: 6)")
    lines.append(f"marathond / bare: {ratio:.2f} (bar: 1.40)")
    return lines


def costs(host: str) -> list[str]:
    """The second table: what the ledger and the daemon cost."""
    say("bench: an admission, and status at 100,000 trials")
    with tempfile.TemporaryDirectory(prefix="marathond-bench-") as folder:
        admission, commit = anyio.run(ledger_run.admission_ms, Path(folder))
    status = footprint.status_ms()
    say(f"bench: {footprint.SLEEPERS} live trials")
    rss, share = footprint.live_trials(host)
    return [
        f"admission (claim, trial, lease; FULL), median     {admission:8.2f} ms  (bar: 3; a bare one-row commit here: {commit:.2f})",
        f"marathonctl status at 100,000 trials, whole        {status:8.0f} ms  (bar: 300)",
        f"daemon with {footprint.SLEEPERS} sleeping agents, memory            {rss:8.0f} MB  (bar: 120)",
        f"daemon with {footprint.SLEEPERS} sleeping agents, processor         {share:8.1f} %   of a core (bar: 10)",
    ]


def reports() -> list[str]:
    """The third table: the whole command ``report --html``.  First, before the other parts' children set the peak of memory."""
    say("bench: a report of 500 cells")
    return report_run.lines(report_run.measure())


def main(arguments: list[str]) -> int:
    """Exit status 0 with the tables, 1 with one line when something could not be measured."""
    host, image = os.environ.get("DOCKER_HOST"), os.environ.get("MARATHOND_BASE_IMAGE")
    if not host or not image:
        print("bench: DOCKER_HOST and MARATHOND_BASE_IMAGE are not set; run `make bench`", file=sys.stderr)
        return 2
    try:
        written = reports()
        lines = [*overhead(host, image, with_harbor="--no-harbor" not in arguments), "", *costs(host), "", *written]
    except (SetupError, RuntimeError) as err:
        print(f"bench: {err}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
