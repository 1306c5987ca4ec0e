"""``python -m tests.bench.ledger_run``: the ledger's bars on a real file, synchronous FULL.  Needs no engine.

Prints the median of an admission (claim, trial, lease, event in one transaction, through the writer's thread), what ``status`` reads
from a ledger of 100,000 trials that have used their models, and what the planner reads of it.  A disk shared with others shows in the
first number; a bare one-row commit is printed beside it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from marathond.core.money import Rules, nusd
from marathond.ledger.connect import connect
from marathond.ledger.open import create, open_readonly
from marathond.ledger.verbs import admission, campaigns, networks, runs, status
from marathond.ledger.verbs.unpriced import unpriced
from marathond.ledger.writer import SqliteLedger
from tests.bench.rows import Row
from tests.support.big_ledger import fill_big
from tests.support.ledgers import ENGINE, LEDGER_ID, T0, daemon_void, let_go, submission, subnet, task

ADMISSIONS = 400
TRIALS = 100_000


def _ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


async def admission_ms(folder: Path) -> tuple[float, float]:
    """(median of an admission, median of a one-row commit), taken in turn."""
    create(folder / "small.db", host="bench", now_ms=T0)
    admitted_ms, commit_ms = [], []
    async with await SqliteLedger.open(folder / "small.db") as ledger:
        await ledger.begin_life(pid=1, pid_start_ticks=1, host="bench", boot_id="b", version="0", now_ms=T0)
        await ledger.write(networks.set_pool, ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=64, margin=0)
        await ledger.write(campaigns.submit, submission(tasks=[task(f"k{n}") for n in range(ADMISSIONS // 2)]), now_ms=T0)
        for n in range(1, ADMISSIONS + 1):
            begun = time.perf_counter()
            admitted = await ledger.write(
                admission.admit,
                cell_id=n,
                token=f"token-{n}",
                engine=ENGINE,
                subnet=subnet(n),
                needs_network=True,
                ledger_id=LEDGER_ID,
                now_ms=T0,
            )
            admitted_ms.append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
            await ledger.write(runs.mark_seen, now_ms=T0 + n)
            commit_ms.append((time.perf_counter() - begun) * 1000)
            await ledger.write(daemon_void, admitted.trial_id)
            await ledger.write(let_go, admitted)
    return statistics.median(admitted_ms), statistics.median(commit_ms)


def status_ms(folder: Path) -> float:
    """Median of three: open the ledger and read everything that the first screen shows."""
    path = folder / "big.db"
    create(path, host="bench", now_ms=T0)
    conn = connect(path, mode="rw")
    campaign_id = fill_big(conn, TRIALS)
    conn.close()

    def look() -> None:
        reader = open_readonly(path)
        reader.execute("BEGIN")
        for read in (status.counts_by_arm, status.live_trials, status.durations, status.parked_by_code, unpriced):
            read(reader, campaign_id)
        for whole in (status.pools, status.open_findings, status.last_run, status.stops, status.observations):
            whole(reader)
        reader.close()

    return statistics.median(_ms(look) for _ in range(3))


def snapshot_ms(folder: Path) -> tuple[float, float]:
    """(without, with a campaign's cap) of what the planner reads from the ledger that :func:`status_ms` made; medians of three."""
    reader = open_readonly(folder / "big.db")

    def median(rules: Rules) -> float:
        return statistics.median(_ms(lambda: admission.snapshot(reader, 1, engine=ENGINE, limit=200, money=rules)) for _ in range(3))

    plain, capped = median(Rules()), median(Rules({}, nusd(10**6), nusd(40)))
    reader.close()
    return plain, capped


def rows(admitted_ms: float, commit_ms: float) -> list[Row]:
    """Of what :func:`admission_ms` found."""
    return [
        Row("commit", "a bare one-row commit on this disk (FULL), median", commit_ms, "ms"),
        Row(
            "admission",
            "admission (claim, trial, lease; FULL), median",
            admitted_ms,
            "ms",
            admitted_ms / commit_ms,
            "a bare commit",
            kept=True,
            bar=3.0,
        ),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="marathond-bench-", dir=Path.cwd()) as name:
        admitted, commit = anyio.run(admission_ms, Path(name))
        print(f"admission {admitted:.2f} ms (bar 3), a bare one-row commit on this disk {commit:.2f} ms; medians of {ADMISSIONS}")
        print(f"status reads {status_ms(Path(name)):.0f} ms of SQL at {TRIALS:,} trials, each with usage of its model")
        plain, capped = snapshot_ms(Path(name))
        print(f"the planner reads {plain:.0f} ms, with a cap of money {capped:.0f} ms")


if __name__ == "__main__":
    main()
