"""The daemon is killed with -9 under running codex trials: how long until the next one has taken over all of them?

``python -m tests.bench.takeover_run --trials 12 --times 3``: needs DOCKER_HOST, the base image and root.  Each agent is in the middle of a
command of a turn; after each kill the time is taken from the start of the next process until every trial has ``reattached`` in its history
and every app-server is connected again with its turn found.  Then the commands are let go: exit 0 when every trial was scored at its
first attempt, every command ran exactly once, and no kill took longer than ``--within``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from marathond.practice.script import Practice
from tests.support.model_rig import ModelProcessRig, model_rig
from tests.support.rig import make_task

PATIENCE_S = 900.0
STEPS = ("echo one >>ran", 'echo "begun" >>ran; while [ ! -e go ]; do sleep 0.2; done; echo "gone" >>ran', "echo two >>ran")
RAN = ["one", "begun", "gone", "two"]
HISTORY = "SELECT count(DISTINCT trial_id) FROM trial_event WHERE event = 'reattached' AND run_id > {}"
CONNECTED = "SELECT count(*) FROM agent_event WHERE kind = 'reattached'"


def script() -> Practice:
    return Practice.model_validate({"script": [{"text": "TASK-held:", "step": [{"run": f"cd /logs/artifacts; {step}"} for step in STEPS]}]})


async def wait(rig: ModelProcessRig, sql: str, count: int) -> float:
    """When ``sql`` gave at least ``count``, on the monotonic clock."""
    with anyio.fail_after(PATIENCE_S):
        while rig.one(sql) < count:
            if rig.process is None or rig.process.poll() is not None:
                raise RuntimeError(f"marathond ended:\n{rig.log()}")
            await anyio.sleep(0.05)
    return time.monotonic()


async def measure(docker_host: str, trials: int, times: int, ahead: bool) -> tuple[list[float], list[float], list[float], list[str]]:
    """Seconds until all histories, and until all connections, seconds of these in the queue for a CPU; and what was wrong in the end."""
    histories, connections, queued, wrong = [], [], [], []
    arms: dict[str, dict[str, Any]] = {"plain": {"kind": "codex", "drive": "turn"}}
    overrides = {"admission.concurrency": trials, "admission.breaker_after": 100, "network.cap": max(trials, 16)}
    with tempfile.TemporaryDirectory(prefix="mdb") as folder:
        task = make_task(Path(folder), "task", instruction="TASK-held: do it.\n", agent_s=36_000.0)
        made = model_rig(docker_host, [task], arms, script(), overrides=overrides, in_process=False, replicates=trials)
        async with made as rig:

            def folders() -> list[Path]:
                return sorted((rig.root / "state" / "r").glob("t*/logs/artifacts"))

            with anyio.fail_after(PATIENCE_S):
                while sum("begun" in _text(each / "ran") for each in folders()) < trials:  # noqa: ASYNC110 - the containers write it
                    await anyio.sleep(0.5)
            if ahead:
                rig.prefix = ("chrt", "--rr", "1")
            for _ in range(times):
                await rig.kill()
                known, last, began = rig.one(CONNECTED), rig.one("SELECT max(run_id) FROM run"), time.monotonic()
                with (rig.root / "log").open("ab") as log:
                    rig.process = rig.popen(stdout=log, stderr=log)
                histories.append(await wait(rig, HISTORY.format(last), trials) - began)
                connections.append(await wait(rig, CONNECTED, known + trials) - began)
                queued.append(_queued_s(rig.process.pid))
            for each in folders():
                (each / "go").touch()
            await rig.until_done(PATIENCE_S)
            if rig.sql("SELECT DISTINCT state, attempt FROM trial") != [("scored", 1)]:
                wrong.append(rig.story())
            ran = [_text(rig.root / "out" / row[0] / "artifacts" / "ran").split() for row in rig.sql("SELECT folder FROM artifact_export")]
            wrong += [f"commands ran: {' '.join(lines)}" for lines in ran if lines != RAN]
    return histories, connections, queued, wrong


def _queued_s(pid: int) -> float:
    """How long the daemon's main thread was ready to run and had no CPU: other people's load (kernel's sched-stats)."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.takeover_run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=12, help="codex trials that run at once (default: 12)")
    parser.add_argument("--times", type=int, default=3, help="kills (default: 3)")
    parser.add_argument("--ahead", action="store_true", help="the next daemon goes before other people's load (SCHED_RR)")
    parser.add_argument("--within", type=float, default=5.0, help="seconds (default: 5)")
    options = parser.parse_args()
    histories, connections, queued, wrong = anyio.run(measure, os.environ["DOCKER_HOST"], options.trials, options.times, options.ahead)
    took, history, queue = (statistics.median(each) for each in (connections, histories, queued))
    shown = " ".join(f"{seconds:.2f}" for seconds in connections)
    print(
        f"{options.trials} codex trials taken over after kill -9: median {took:.2f} s until all are connected ({shown}; all in the history "
        f"after {history:.2f} s; {queue:.2f} s in the queue for a CPU), {options.times} kills, load {os.getloadavg()[0]:.1f}, "
        f"{os.cpu_count()} CPUs"
    )
    for each in wrong:
        print(f"  WRONG: {each}")
    sys.exit(0 if not wrong and max(connections) <= options.within else 1)


if __name__ == "__main__":
    main()
