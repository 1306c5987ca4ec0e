"""``python -m tests.bench.report_run``: the whole command ``marathonctl report --html`` over 20 tasks x 5 arms x 5 replicates.  No engine.

Beside it, in turn, the floor that no report can be under: a Python that imports numpy, scipy.stats and jinja2.  Memory is the peak of the
process (ru_maxrss of the child).
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.rows import Row, table
from tests.support.report_ledger import report_ledger

ROUNDS = 5
BIN = Path(sys.executable).parent
FLOOR = [sys.executable, "-c", "import numpy, scipy.stats, jinja2"]


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians; ``ratio``: of one round's seconds to its floor's.  ``cpu_s``: of the processor, which a busy machine changes little.

    ``rss_mb``: the most that any of the processes held.  ``cpu_s`` and ``floor_cpu_s`` are the least of the rounds.
    """

    seconds: float
    cpu_s: float
    floor_s: float
    floor_cpu_s: float
    ratio: float
    size_mb: float
    rss_mb: float


def measure(rounds: int = ROUNDS) -> Measured:
    """:raises RuntimeError: the report was not written."""
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as name:
        folder = Path(name)
        with report_ledger() as scratch:
            shutil.copy2(scratch.path, folder / "ledger.db")
            # What is committed may still lie in the write-ahead log.
            wal = scratch.path.with_name("ledger.db-wal")
            if wal.exists():
                shutil.copy2(wal, folder / "ledger.db-wal")
        html = folder / "report.html"
        argv = [str(BIN / "marathonctl"), "report", "--html", str(html)]
        environ = os.environ | {"MARATHOND_DAEMON__STATE_DIR": str(folder)}
        times, floors, cpu, floors_cpu = [], [], [], []
        for _ in range(rounds):
            before = _cpu_s()
            floors.append(_seconds(FLOOR, environ))
            between = _cpu_s()
            times.append(_seconds(argv, environ))
            cpu.append(_cpu_s() - between)
            floors_cpu.append(between - before)
        if not html.exists():
            raise RuntimeError("the report was not written")
        ratio = statistics.median(mine / floor for mine, floor in zip(times, floors, strict=True))
        peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return Measured(
            statistics.median(times), min(cpu), statistics.median(floors), min(floors_cpu), ratio, html.stat().st_size / 1e6, peak_mb
        )


def _cpu_s() -> float:
    """Of all children that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds(argv: list[str], environ: dict[str, str]) -> float:
    begun = time.perf_counter()
    done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv[-1]}: exit {done.returncode}: {done.stderr[-500:]}")
    return time.perf_counter() - begun


def rows(found: Measured) -> list[Row]:
    """The whole command, its start included."""
    text, floor = "marathonctl report --html, 500 cells", "its imports"
    return [
        Row("whole", f"{text}, whole", found.seconds, "s", found.ratio, floor, bar=3.0),
        Row("processor", f"{text}: of the processor", found.cpu_s, "s", found.cpu_s / found.floor_cpu_s, floor, kept=True),
        Row("size", f"{text}: size", found.size_mb, "MB", bar=3.0),
        Row("memory", f"{text}: memory, peak", found.rss_mb, "MB"),
    ]


if __name__ == "__main__":
    print("\n".join(table(rows(measure()))))
