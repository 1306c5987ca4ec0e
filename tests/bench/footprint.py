"""What the daemon costs while it only waits, on real Docker: twelve live trials with ``sleep`` as agent.

The daemon is a process of its own; its memory is VmRSS, its share of a core is user + system time over a window, both read from /proc.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from marathond.ledger.open import create
from marathond.ledger.readonly import open_readonly
from tests.bench.rows import Row
from tests.support.rig import make_task

SLEEPERS = 12
WINDOW_S = 30.0
PATIENCE_S = 180.0
BIN = Path(sys.executable).parent

CONFIG = """
[daemon]
state_dir = "state"
log_level = "error"
[engine]
url = "{host}"
[campaign]
name = "sleepers"
tasks = ["tasks/sleep"]
replicates = {count}
[admission]
concurrency = {count}
cpu_overcommit = 60
memory_overcommit = 16
[arms.sleep]
kind = "command"
argv = ["sleep", "600"]
"""


def _folder(root: Path, host: str) -> Path:
    (root / "state").mkdir()
    make_task(root / "tasks", "sleep", agent_s=600, solve=None)
    config = root / "marathond.toml"
    config.write_text(CONFIG.format(host=host, count=SLEEPERS))
    return config


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    line = next(row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def live_trials(host: str) -> tuple[float, float]:
    """(MB of RSS, per cent of one core) with all agents running.  Raises RuntimeError when they do not all start."""
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as name:
        root = Path(name)
        config = _folder(root, host)
        ledger = root / "state" / "ledger.db"
        create(ledger, host=socket.gethostname(), now_ms=time.time_ns() // 1_000_000)
        process = subprocess.Popen([BIN / "marathond", "--config", config], stdin=subprocess.DEVNULL)
        try:
            _wait_running(ledger)
            began_s, began = _cpu_s(process.pid), time.monotonic()
            time.sleep(WINDOW_S)
            share = 100 * (_cpu_s(process.pid) - began_s) / (time.monotonic() - began)
            return _rss_mb(process.pid), share
        finally:
            subprocess.run(
                [BIN / "marathonctl", "--config", config, "stop", "--now", "--reason", "bench"], check=False, capture_output=True
            )
            try:
                process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()


def _wait_running(ledger: Path) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        reader = open_readonly(ledger)
        try:
            if reader.execute("SELECT count(*) FROM trial WHERE state = 'running'").fetchone()[0] == SLEEPERS:
                return
        finally:
            reader.close()
        time.sleep(0.5)
    raise RuntimeError(f"not all {SLEEPERS} sleepers were running within {PATIENCE_S:.0f} s")


def rows(found: tuple[float, float]) -> list[Row]:
    """Of what :func:`live_trials` found."""
    rss, share = found
    return [
        Row("docker-memory", f"daemon with {SLEEPERS} sleeping agents on Docker: memory", rss, "MB", bar=120.0),
        Row("docker-processor", f"daemon with {SLEEPERS} sleeping agents on Docker: processor", share, "%", bar=10.0, note="of a core"),
    ]
