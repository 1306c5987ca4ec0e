"""``python -m tests.bench.ledger_run``: the ledger's bars on a real file, synchronous FULL.  Needs no engine.

Prints the median of an admission (claim, trial, lease, event in one transaction, through the writer's thread), what ``status`` reads
from a ledger of 100,000 trials that have used their models, and what the planner reads of it.  A disk shared with others shows in the
first number; a bare one-row commit is printed beside it.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio

from marathond.core.money import Rules, nusd
from marathond.ledger.connect import connect
from marathond.ledger.open import create
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs import admission, campaigns, networks, runs, status
from marathond.ledger.verbs.unpriced import unpriced
from marathond.ledger.writer import SqliteLedger
from tests.bench.rows import Row, table
from tests.support.big_ledger import fill_big
from tests.support.ledgers import ENGINE, LEDGER_ID, T0, daemon_void, let_go, submission, subnet, task

ADMISSIONS = 400
TRIALS = 100_000


def _ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


@dataclass(frozen=True, slots=True)
class Admitted:
    """Medians, of an admission and of a one-row commit that took turns; ``…_cpu_ms``: of the processor, which no disk makes longer."""

    admission_ms: float
    commit_ms: float
    admission_cpu_ms: float
    commit_cpu_ms: float


class Stopwatch:
    """Milliseconds, and those of the processor, of this process with all its threads."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []
        self.cpu_ms: list[float] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        begun, cpu = time.perf_counter(), time.process_time()
        yield
        self.took_ms.append((time.perf_counter() - begun) * 1000)
        self.cpu_ms.append((time.process_time() - cpu) * 1000)


async def admission_ms(folder: Path) -> Admitted:
    create(folder / "small.db", host="bench", now_ms=T0)
    admissions, commits = Stopwatch(), Stopwatch()
    async with await SqliteLedger.open(folder / "small.db") as ledger:
        await ledger.begin_life(pid=1, pid_start_ticks=1, host="bench", boot_id="b", version="0", now_ms=T0)
        await ledger.write(networks.set_pool, ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=64, margin=0)
        await ledger.write(campaigns.submit, submission(tasks=[task(f"k{n}") for n in range(ADMISSIONS // 2)]), now_ms=T0)
        for n in range(1, ADMISSIONS + 1):
            with admissions.running():
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
            with commits.running():
                await ledger.write(runs.mark_seen, now_ms=T0 + n)
            await ledger.write(daemon_void, admitted.trial_id)
            await ledger.write(let_go, admitted)
    return Admitted(*(statistics.median(each) for each in (admissions.took_ms, commits.took_ms, admissions.cpu_ms, commits.cpu_ms)))


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


def rows(found: Admitted) -> list[Row]:
    """Of what :func:`admission_ms` found."""
    text, floor = "admission (claim, trial, lease; FULL), median", "a bare commit"
    ratio = found.admission_ms / found.commit_ms
    cpu = found.admission_cpu_ms / found.commit_cpu_ms
    return [
        Row("commit", "a bare one-row commit on this disk (FULL), median", found.commit_ms, "ms"),
        Row("admission", text, found.admission_ms, "ms", ratio, floor, bar=3.0),
        Row("admission-processor", f"{text}: of the processor", found.admission_cpu_ms, "ms", cpu, floor, kept=True),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="marathond-bench-", dir=Path.cwd()) as name:
        print("\n".join(table(rows(anyio.run(admission_ms, Path(name))))))
        print(f"status reads {status_ms(Path(name)):.0f} ms of SQL at {TRIALS:,} trials, each with usage of its model")
        plain, capped = snapshot_ms(Path(name))
        print(f"the planner reads {plain:.0f} ms, with a cap of money {capped:.0f} ms")


if __name__ == "__main__":
    main()
