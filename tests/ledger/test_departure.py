"""A process whose main thread hangs leaves all the same, with its last words in the ledger (fault f08)."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from marathond.ledger.connect import connect
from marathond.ledger.verbs import runs
from marathond.service.departure import CUT_S
from tests.support.ledgers import T0, begin, file_ledger

HANGS = """
import sys, time
from pathlib import Path
from marathond.ports.clock import SystemClock
from marathond.service import departure as module
from marathond.service.departure import Departure

module.WORDS_S = 60.0  # a bound for words that hang; these do not, and a disk may take longer for a commit

def words():
    if sys.argv[3] == "fails":
        raise RuntimeError("no words")
    return ("" if sys.argv[3] == "broken" else "SIGTERM", ["reading the disk"])

departure = Departure(Path(sys.argv[1]), int(sys.argv[2]), SystemClock(), words)
print("begins", flush=True)
for _ in range(3):
    departure.begin()
if sys.argv[3] == "orderly":
    departure.ended()
time.sleep(600)
"""


CUT = f"cut short: reading the disk, waiting for it after {CUT_S:g} s"
CASES = {
    "asked": (0, f"SIGTERM: nothing left running; {CUT}"),
    "broken": (1, f"ended by an error: nothing left running; {CUT}"),
    "old epoch": (0, None),
    "orderly": (0, None),
    "fails": (0, None),
}
"""Exit status, and what the run's row says; side by side, for each takes its seconds."""


def test_f08_a_process_that_hangs_leaves_with_its_last_words(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes: dict[str, tuple[subprocess.Popen[bytes], sqlite3.Connection]] = {}
        for case in CASES:
            path = tmp_path / f"{case}.db"
            file_ledger(path, host=socket.gethostname(), now_ms=T0)
            conn = stack.enter_context(closing(connect(path, mode="rw")))
            run_id = begin(conn)
            if case == "old epoch":
                begin(conn)
            argv = [sys.executable, "-c", HANGS, str(path), str(run_id), case]
            process = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            processes[case] = (process, conn)
        for process, _ in processes.values():
            assert process.stdout is not None and process.stdout.readline() == b"begins\n"
        ended = {case: process.wait(120) for case, (process, _) in processes.items()}
        said = {case: runs.last_run(conn) for case, (_, conn) in processes.items()}
        assert {case: (ended[case], row and row.stop_reason) for case, row in said.items()} == CASES
