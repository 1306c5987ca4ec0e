"""``make bench``: prints one table from one run.  Needs DOCKER_HOST and MARATHOND_BASE_IMAGE, which set-up provides."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from marathond.demo.host import SetupError, say
from tests.bench import bare_calls, harbor_run

Measure = Callable[[str, str], float]
"""(DOCKER_HOST, image) → seconds for eight no-op trials, four at a time."""

ROWS: tuple[tuple[str, Measure], ...] = (
    ("bare Docker calls (median of 3)", bare_calls.measure),
    ("Harbor 0.26", lambda _host, image: harbor_run.measure(image)),
)


def table(rows: Sequence[tuple[str, float]]) -> str:
    """The rows with their ratio to the first one."""
    width = max(len(name) for name, _ in rows)
    floor = rows[0][1]
    lines = [f"{'8 no-op trials, 4 at a time':<{width}}  seconds  x bare"]
    return "\n".join([*lines, *(f"{name:<{width}}  {seconds:7.2f}  {seconds / floor:6.2f}" for name, seconds in rows)])


def main() -> int:
    """Exit status 0 with the table, 1 with one line when a row could not be measured."""
    host, image = os.environ.get("DOCKER_HOST"), os.environ.get("MARATHOND_BASE_IMAGE")
    if not host or not image:
        print("bench: DOCKER_HOST and MARATHOND_BASE_IMAGE are not set; run `make bench`", file=sys.stderr)
        return 2
    rows: list[tuple[str, float]] = []
    for name, measure in ROWS:
        say(f"bench: {name}")
        try:
            rows.append((name, measure(host, image)))
        except (SetupError, RuntimeError) as err:
            print(f"bench: {name}: {err}", file=sys.stderr)
            return 1
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
