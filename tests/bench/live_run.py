"""``python -m tests.bench.live_run --trials 400``: what the daemon costs with so many live trials, more than this machine could hold.

The daemon's process, event loop, adapter, ledger (a file, synchronous FULL) and time are real; the engine is the simulation's behind
Docker's API (tests/bench/fake_dockerd.py), with the latencies and sizes of real answers.  Each trial has a network and a container and
runs an agent of kind ``command`` that outlasts the measurement.  Then the daemon is killed with -9, and the next one takes all over.

CPU time is user + system of the daemon's process from /proc, all threads; its share is of one core.  The event loop's lag is the daemon's
own observation (service/lag.py).  On a busy machine lag is mostly other people's load: ``queued`` is how much of the window the daemon's
main thread was ready to run and had no CPU (the kernel's schedstat).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.ledger.open import create
from marathond.ledger.readonly import open_readonly
from marathond.service import lag
from tests.bench.rows import Row
from tests.support.rig import make_task

PATIENCE_S = 600.0
SETTLE_S, WINDOW_S = 12.0, 70.0
"""Before the window: what starts together comes to its own rhythm.  The window is longer than that of the lag (60 s)."""
ARMS = ("plain", "goal", "wake", "other")
TICK_S = os.sysconf("SC_CLK_TCK")

CONFIG = """
[daemon]
state_dir = "state"
out_dir = "out"
log_level = "warning"
[engine]
url = "unix://{socket}"
[campaign]
name = "live"
tasks = {tasks}
replicates = {replicates}
[network]
cap = {count}
[admission]
concurrency = {count}
"""
ARM = '[arms.{name}]\nkind = "command"\nargv = ["work", "--for", "hours"]\n'


ROUTE = '[gateway.routes.main]\nbase_url = "https://provider.example/v1"\nkey_file = "key"\n'


@dataclass(frozen=True, slots=True)
class Live:
    """``share``: per cent of one core; ``queued``: per cent of the window.

    ``start_s``: until all run; ``recovery_s``: until all are driven again.
    """

    trials: int
    share: float
    rss_mb: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    queued: float
    start_s: float
    start_cpu_s: float
    recovery_s: float
    recovery_cpu_s: float
    load: float
    start_cpu_ms: float

    @property
    def per_trial(self) -> float:
        """Per cent of one core for each live trial."""
        return self.share / self.trials


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK_S


def rss_mb(pid: int) -> float:
    line = next(row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def queued_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


class Scene:
    """A folder with tasks, configuration and ledger, an engine, and one daemon after the other."""

    def __init__(self, root: Path, count: int, *, model: bool = False) -> None:
        self.root, self.count, self.model = root, count, model
        self.config, self.ledger, self.socket = root / "marathond.toml", root / "state" / "ledger.db", root / "d.sock"
        replicates = 5 if count % (5 * len(ARMS)) == 0 else 1
        tasks = count // (len(ARMS) * replicates)
        if tasks * len(ARMS) * replicates != count:
            raise ValueError(f"{count} trials: must be a multiple of {len(ARMS)}")
        (root / "state").mkdir()
        made = [make_task(root / "tasks", f"task-{n:02d}", network="public", agent_s=7200, solve=None) for n in range(tasks)]
        text = CONFIG.format(socket=self.socket, tasks=json.dumps([str(each) for each in made]), replicates=replicates, count=count)
        self.config.write_text(text + "".join(ARM.format(name=name) for name in ARMS) + (ROUTE if model else ""))
        create(self.ledger, host=socket.gethostname(), now_ms=time.time_ns() // 1_000_000)

    @contextlib.contextmanager
    def engine(self, agent_s: float) -> Iterator[subprocess.Popen[str]]:
        argv = [sys.executable, "-m", "tests.bench.fake_dockerd", str(self.socket), "--agent-s", str(agent_s)]
        with (self.root / "engine.log").open("wb") as errors:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "up\n":
                raise RuntimeError(f"the simulated engine did not start: {(self.root / 'engine.log').read_text()[-1000:]}")
            yield process
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def gateway(self) -> Iterator[None]:
        """Nothing where no model is asked."""
        if not self.model:
            yield
            return
        argv = [sys.executable, "-m", "tests.bench.fake_gateway", str(self.root / "state" / "gateway")]
        with (self.root / "gateway.log").open("wb") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the gateway ended: {(self.root / 'gateway.log').read_text()[-1000:]}")
        finally:
            process.kill()
            process.communicate()

    def daemon(self, *more: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "tests.bench.live_daemon", "--config", str(self.config), *more]
        with (self.root / "daemon.log").open("ab") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def one(self, sql: str) -> Any:
        reader = open_readonly(self.ledger)
        try:
            row = reader.execute(sql).fetchone()
        finally:
            reader.close()
        return None if row is None else row[0]

    def wait(self, process: subprocess.Popen[bytes], sql: str, wanted: object) -> float:
        """Seconds until ``sql`` gives ``wanted``.  Raises RuntimeError when the daemon ends or it takes too long."""
        began = time.monotonic()
        while self.one(sql) != wanted:
            if process.poll() is not None or time.monotonic() - began > PATIENCE_S:
                log = (self.root / "daemon.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{sql}: {self.one(sql)}, expected {wanted}\n{log}")
            time.sleep(0.1)
        return time.monotonic() - began

    def lag(self) -> dict[str, Any]:
        text = self.one(f"SELECT value_json FROM observation WHERE key = '{lag.KEY}'")
        if text is None:
            raise RuntimeError("the daemon has not told the lag of its event loop")
        found: dict[str, Any] = json.loads(text)
        return found


def measure(count: int, *, window_s: float = WINDOW_S, model: bool = False, watch: tuple[str, ...] = ()) -> Live:
    """``model``: each agent asks a model every 20 s.  ``watch``: options of the daemon's for who looks closer.
    :raises RuntimeError: not all trials came to run, or to run on."""
    floor_ms = start_cpu_ms()
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as name:
        scene = Scene(Path(name), count, model=model)
        options = (*watch, *(("--model",) if model else ()))
        with scene.engine(36_000), scene.gateway():
            process = scene.daemon(*options)
            try:
                start_s = scene.wait(process, "SELECT count(*) FROM trial WHERE state = 'running'", count)
                start_cpu_s = cpu_s(process.pid)
                time.sleep(SETTLE_S)
                if watch:
                    process.send_signal(signal.SIGUSR1)
                share, rss, queued = _steady(process.pid, window_s)
                told = scene.lag()
                if watch:
                    process.send_signal(signal.SIGUSR1)
                    time.sleep(2)
                process.kill()
                process.wait()
                began = scene.one("SELECT count(*) FROM trial_event WHERE event = 'reattached'")
                process = scene.daemon(*options)
                recovery_s = scene.wait(process, "SELECT count(*) FROM trial_event WHERE event = 'reattached'", began + count)
                recovery_cpu_s = cpu_s(process.pid)
                if scene.one("SELECT count(*) FROM trial WHERE state = 'running'") != count:
                    raise RuntimeError("not all trials ran on")
            finally:
                process.kill()
                process.wait()
    return Live(
        count,
        share,
        rss,
        told["p50_ms"],
        told["p99_ms"],
        told["max_ms"],
        queued,
        start_s,
        start_cpu_s,
        recovery_s,
        recovery_cpu_s,
        os.getloadavg()[0],
        floor_ms,
    )


def _steady(pid: int, window_s: float) -> tuple[float, float, float]:
    """(per cent of a core, most MB of RSS, per cent of the window in the queue for a CPU)."""
    began, began_s, waited_s, most = time.monotonic(), cpu_s(pid), queued_s(pid), 0.0
    while time.monotonic() - began < window_s:
        time.sleep(1.0)
        most = max(most, rss_mb(pid))
    passed = time.monotonic() - began
    return 100 * (cpu_s(pid) - began_s) / passed, most, 100 * (queued_s(pid) - waited_s) / passed


def rows(found: Live) -> list[Row]:
    """CPU time is compared with what the start of an interpreter took just before: machines differ, and so does one with its load."""
    text, n = f"daemon with {found.trials} live trials", found.trials
    bars = (25.0, 250.0, 50.0) if n == 400 else (None, None, None)
    starts = f"load {found.load:.1f}, main thread queued for a CPU {found.queued:.0f} % of the time"
    return [
        Row(
            f"processor-{n}",
            f"{text}: processor, of a core",
            found.share,
            "%",
            found.per_trial * 600 / found.start_cpu_ms,  # per cent of a second are 10 ms
            "a Python's start, a minute",
            kept=n == 100,
            bar=bars[0],
            note=f"{found.per_trial:.4f} % for each",
        ),
        Row(f"memory-{n}", f"{text}: memory", found.rss_mb, "MB", bar=bars[1]),
        Row(
            f"lag-{n}",
            f"{text}: event loop late, p99",
            found.p99_ms,
            "ms",
            bar=bars[2],
            note=f"p50 {found.p50_ms}, max {found.max_ms}; {starts}",
        ),
        Row(f"start-{n}", f"{text}: from nothing until all run", found.start_s, "s", note=f"{found.start_cpu_s:.1f} s of the processor"),
        Row(f"recovery-{n}", f"{text}: after kill -9 until all are taken over", found.recovery_s, "s"),
        Row(
            f"recovery-processor-{n}",
            f"{text}: the same, of the processor",
            found.recovery_cpu_s,
            "s",
            found.recovery_cpu_s * 1000 / n / found.start_cpu_ms,
            "a Python's start, each",
            kept=n == 100,
        ),
    ]


def start_cpu_ms() -> float:
    """Of ``python -c 'import sqlite3'``, the best of ten."""
    best = float("inf")
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import sqlite3"], check=True, stdin=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best * 1000


def line(found: Live) -> str:
    """One row for people."""
    return (
        f"{found.trials:>4} live trials: {found.share:5.1f} % of a core ({found.per_trial:.3f} each), {found.rss_mb:4.0f} MB, loop lag "
        f"p50 {found.p50_ms:.1f} p99 {found.p99_ms:.1f} max {found.max_ms:.0f} ms; all running after {found.start_s:.1f} s "
        f"({found.start_cpu_s:.1f} CPU-s), taken over after kill -9 in {found.recovery_s:.1f} s ({found.recovery_cpu_s:.1f} CPU-s); "
        f"load {found.load:.1f}, queued {found.queued:.0f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live_run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[12, 100, 400])
    parser.add_argument("--window-s", type=float, default=WINDOW_S)
    parser.add_argument("--model", action="store_true", help="each agent asks a model every 20 s")
    parser.add_argument("--profile", help="cProfile's statistics of the event loop's thread: NAME-1 of the start, NAME-2 of the window")
    parser.add_argument("--steps", help="the long steps of the event loop, likewise")
    options = parser.parse_args()
    watch = [word for name in ("profile", "steps") if (path := getattr(options, name)) for word in (f"--{name}", path)]
    for count in options.trials:
        print(line(measure(count, window_s=options.window_s, model=options.model, watch=tuple(watch))), flush=True)


if __name__ == "__main__":
    main()
