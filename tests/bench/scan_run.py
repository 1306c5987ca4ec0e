"""What a claim and a look cost with so many trials: the ledger, and beside it a folder of result files as shell scripts keep them.

``python -m tests.bench.scan_run --trials 1000 100000``: needs no engine.  The scripts' way is one folder a trial with its ``result.json``
(1.2 KB, in Harbor's layout): whoever wants to know what is done, or which cell is free, lists the folders and reads all files; a claim is
that look and one ``mkdir``.  Files are in the page cache, which favours them.  A claim of ours is what a step of the scheduler does: read
the planner's snapshot, then claim, trial, lease and event in one synchronous transaction through the writer's thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import anyio

from marathond.core.money import Rules
from marathond.ledger.connect import connect
from marathond.ledger.open import create
from marathond.ledger.verbs import admission, runs
from marathond.ledger.writer import SqliteLedger
from tests.bench.rows import Row
from tests.support.big_ledger import fill_big
from tests.support.ledgers import ENGINE, LEDGER_ID, daemon_void, let_go, subnet

SIZES = (1_000, 100_000, 1_000_000)
FILES_MOST = 100_000
"""Result files of more trials than this are not made: their time is that of so many, in proportion, and marked."""
KEPT = 100_000
"""So many trials are compared by ``make bench-check``."""
LOOK_AHEAD = 200
CLAIMS = 25
BIN = Path(sys.executable).parent
START = [sys.executable, "-c", "import sqlite3"]
SCAN = """
import json, os, sys
done = {}
with os.scandir(sys.argv[1]) as folders:
    for folder in folders:
        try:
            with open(f"{folder.path}/result.json") as file:
                result = json.load(file)
        except FileNotFoundError:
            continue
        rewards = (result["verifier_result"] or {}).get("rewards")
        if rewards is not None:
            cells, total = done.get(result["agent_info"]["name"], (0, 0.0))
            done[result["agent_info"]["name"]] = cells + 1, total + rewards["reward"]
for arm, (cells, total) in sorted(done.items()):
    print(arm, cells, round(total / cells, 3))
"""
"""What the scripts ran to see how far they were."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Milliseconds, the best of several; ``…_cpu_ms`` of the processor.  ``scaled``: the files' figures are of fewer, in proportion."""

    trials: int
    status_ms: float
    status_cpu_ms: float
    start_cpu_ms: float
    files_ms: float
    claim_ms: float
    claim_floor_ms: float
    claim_files_ms: float
    scaled: bool
    ledger_mb: float


def result(number: int) -> dict[str, object]:
    """As Harbor 0.26 writes one, with an empty configuration."""
    times = {"started_at": "2026-05-01T10:00:00.000000Z", "finished_at": "2026-05-01T12:00:00.000000Z"}
    return {
        "id": f"00000000-0000-4000-8000-{number:012d}",
        "task_name": f"task-{number % 20:02d}",
        "trial_name": f"task-{number % 20:02d}__{number:07d}",
        "trial_uri": f"file:///jobs/campaign/task-{number % 20:02d}__{number:07d}",
        "task_id": {"path": f"tasks/task-{number % 20:02d}"},
        "source": None,
        "task_checksum": f"{number:064x}",
        "config": {"agent": {"name": "codex", "model_name": "m", "kwargs": {}, "env": {}}, "timeout_multiplier": 1.0, "verifier": {}},
        "agent_info": {"name": ("plain", "goal", "wake", "other", "more")[number % 5], "version": "1", "model_info": {"name": "m"}},
        "agent_result": {"n_input_tokens": 9_000_000 + number, "n_cache_tokens": 8_000_000, "n_output_tokens": 90_000, "cost_usd": 1.5},
        "verifier_result": {"rewards": {"reward": float(number % 11 == 0)}},
        "exception_info": None,
        **times,
        **dict.fromkeys(("environment_setup", "agent_setup", "agent_execution", "verifier"), times),
    }


def make_files(root: Path, count: int) -> None:
    for number in range(count):
        folder = root / f"t{number:07d}"
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps(result(number), indent=4))


def _run(argv: list[str], rounds: int, expected: str) -> tuple[float, float]:
    """(ms, ms of the processor) of a whole command, the best of ``rounds``.  Raises RuntimeError when it does not say ``expected``."""
    times, cpu = [], []
    for _ in range(rounds):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        times.append((time.perf_counter() - began) * 1000)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
        if expected not in done.stdout.replace(",", ""):
            raise RuntimeError(f"{argv[0]} does not say {expected!r}: {done.stdout[:300]} {done.stderr[:300]}")
    return min(times), min(cpu)


async def claim_ms(path: Path) -> tuple[float, float]:
    """(a look of the planner's and an admission; a bare one-row commit), medians, in turn."""
    took, commits = [], []
    async with await SqliteLedger.open(path) as ledger:
        await ledger.begin_life(pid=1, pid_start_ticks=1, host="bench", boot_id="b", version="0", now_ms=time.time_ns() // 1_000_000)
        for number in range(CLAIMS):
            begun = time.perf_counter()
            seen = await ledger.read(admission.snapshot, 1, engine=ENGINE, limit=LOOK_AHEAD, money=Rules())
            admitted = await ledger.write(
                admission.admit,
                cell_id=seen.open_cells[0].cell_id,
                token=f"bench-{number}",
                engine=ENGINE,
                subnet=subnet(40 + number % 20),
                needs_network=True,
                ledger_id=LEDGER_ID,
                now_ms=time.time_ns() // 1_000_000,
            )
            took.append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
            await ledger.write(runs.mark_seen, now_ms=time.time_ns() // 1_000_000)
            commits.append((time.perf_counter() - begun) * 1000)
            await ledger.write(daemon_void, admitted.trial_id)
            await ledger.write(let_go, admitted)
    return statistics.median(took), statistics.median(commits)


def measure(trials: int, *, rounds: int = 5, files: bool = True) -> Looked:
    """:raises RuntimeError: one of them does not show what it should."""
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as name:
        root = Path(name)
        ledger = root / "state" / "ledger.db"
        ledger.parent.mkdir()
        (root / "marathond.toml").write_text('[daemon]\nstate_dir = "state"\n[campaign]\nname = "big"\ntasks = []\n')
        create(ledger, host=socket.gethostname(), now_ms=time.time_ns() // 1_000_000)
        conn = connect(ledger, mode="rw")
        for pragma in ("synchronous = OFF", "cache_size = -400000"):  # of this connection alone, while it is filled
            conn.execute(f"PRAGMA {pragma}").fetchall()
        fill_big(conn, trials)
        conn.close()
        argv = [str(BIN / "marathonctl"), "--config", str(root / "marathond.toml"), "status"]
        status_ms, status_cpu_ms = _run(argv, rounds, f"cells {trials}")
        _, start_cpu_ms = _run(START, 2 * rounds, "")
        claim, floor = anyio.run(claim_ms, ledger)
        files_ms = claim_files_ms = 0.0
        made = min(trials, FILES_MOST)
        if files:
            jobs = root / "jobs"
            jobs.mkdir()
            make_files(jobs, made)
            files_ms = _run([sys.executable, "-c", SCAN, str(jobs)], max(2, rounds // 2), f"goal {made // 5}")[0] * trials / made
            began = time.perf_counter()
            (jobs / "claimed").mkdir()
            claim_files_ms = files_ms + (time.perf_counter() - began) * 1000
        size_mb = ledger.stat().st_size / 1e6
        return Looked(
            trials, status_ms, status_cpu_ms, start_cpu_ms, files_ms, claim, floor, claim_files_ms, files and made < trials, size_mb
        )


def rows(found: Looked) -> list[Row]:
    n = f"{found.trials:,} trials"
    scaled = f"files: of {FILES_MOST:,}, in proportion" if found.scaled else ""
    bar = 300.0 if found.trials == KEPT else None
    made = [
        Row(f"status-{found.trials}", f"marathonctl status, whole, {n}", found.status_ms, "ms", bar=bar),
        Row(
            f"status-cpu-{found.trials}",
            f"  of the processor, {n}",
            found.status_cpu_ms,
            "ms",
            found.status_cpu_ms / found.start_cpu_ms,
            "a Python with sqlite3",
            kept=found.trials == KEPT,
            note=f"ledger {found.ledger_mb:,.0f} MB",
        ),
        Row(f"claim-{found.trials}", f"claim (look of the planner, claim, trial, lease; FULL), {n}", found.claim_ms, "ms"),
    ]
    if found.files_ms:
        times, other = found.files_ms / found.status_ms, found.claim_files_ms / found.claim_ms
        made.insert(
            2, Row(f"files-{found.trials}", f"  the same from result files, {n}", found.files_ms, "ms", times, "status", note=scaled)
        )
        made.append(Row(f"claim-files-{found.trials}", f"  the same from result files, {n}", found.claim_files_ms, "ms", other, "claim"))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scan_run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=list(SIZES), help="multiples of 1,000")
    parser.add_argument("--no-files", action="store_true", help="the ledger alone")
    options = parser.parse_args()
    from tests.bench.rows import table

    for trials in options.trials:
        print("\n".join(table(rows(measure(trials, files=not options.no_files)))), flush=True)


if __name__ == "__main__":
    main()
