"""The product on the same work: eight no-op trials of one task with a public network, four at a time, all checks and teardown included.

The clock runs from the first claim to the last release, as the ledger's own rows tell; artifacts are exported meanwhile.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import anyio
import structlog

from marathond.service.logs import configure
from tests.support.rig import Rig, make_task

TRIALS = 8
AT_ONCE = 4
ROUNDS = 3


async def one_round(host: str) -> float:
    """Seconds for the eight trials.  Raises RuntimeError when one of them is not scored 1."""
    with tempfile.TemporaryDirectory(prefix="marathond-bench-") as folder:
        task = make_task(Path(folder), "no-op", network="public", solve=None)
        overrides = {"admission.concurrency": AT_ONCE, "daemon.log_level": "error"}
        async with Rig(host, tasks=[task], arms={"nop": {"kind": "nop"}}, replicates=TRIALS, overrides=overrides) as rig:
            await rig.until("SELECT count(*) = ? FROM claim WHERE released_at_ms IS NOT NULL", TRIALS)
            await rig.until("SELECT count(*) = 0 FROM network_lease WHERE released_at_ms IS NULL")
            scored = rig.one("SELECT count(*) FROM v_cell WHERE state = 'done' AND reward = 1")
            if scored != TRIALS:
                raise RuntimeError(f"marathond scored {scored} of {TRIALS}\n{rig.story()}")
            began, ended = rig.one("SELECT min(claimed_at_ms), max(released_at_ms) FROM claim")
            last_lease = rig.one("SELECT max(released_at_ms) FROM network_lease")
            return float(max(ended, last_lease) - began) / 1000


def measure(host: str, rounds: int = ROUNDS) -> float:
    """Median seconds of several rounds."""
    configure("error", "json")
    try:
        return statistics.median(anyio.run(one_round, host) for _ in range(rounds))
    finally:
        structlog.reset_defaults()
