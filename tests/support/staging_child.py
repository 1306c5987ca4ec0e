"""A staging in a process of its own, which stops at a given step so that a test may kill it there.

Arguments: state_dir, integrity or "", folder or "", step, bytes.  At that step, with that many bytes done, it prints ``there`` and waits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from marathond.staging import store

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    state_dir, integrity, folder, step, count = sys.argv[1:]
    there = False

    def say(progress: store.Progress) -> None:
        nonlocal there
        if not there and progress.step == step and progress.done >= int(count):
            there = True
            print("there", flush=True)
            sys.stdin.read()

    wanted = store.Wanted("codex", "0.171.0", integrity or None, Path(folder) if folder else None)
    try:
        print(store.stage(Path(state_dir), wanted, say).package_id, flush=True)
    except store.StageError as error:
        print(f"{error.code}: {error}", flush=True)


class Child:
    """``reached`` waits until it is at the step, ``kill`` is SIGKILL."""

    def __init__(self, state_dir: Path, *, integrity: str = "", folder: Path | None = None, step: str, count: int = 0) -> None:
        argv = [sys.executable, "-m", "tests.support.staging_child", str(state_dir), integrity, str(folder or ""), step, str(count)]
        self.process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def reached(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "there\n", line

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def go_on(self) -> str:
        """What it prints at its end."""
        return self.process.communicate()[0].strip()


if __name__ == "__main__":
    main()
