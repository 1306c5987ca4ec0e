"""A ledger on disk with trials in every state and their artifacts in out_dir, for archive and prune.  No test of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from support import ledgers

from marathond.cli import archive, ctl, prune
from marathond.cli.locate import locate
from marathond.core.keeping import DAY_MS
from marathond.core.paths import DaemonPaths
from marathond.ledger.connect import connect
from marathond.ledger.verbs import artifacts
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.service.keeping import Wanted
from marathond.tasks.layout import trial_folder
from marathond.tasks.layout.names import trial_uuid

STATES = {"zstd": "scored", "rust": "voided", "wal": "review", "vim": "running", "sed": "scored"}
"""Task to the state of its trial; ``sed``'s is not exported."""
FILES = {"agent/agent.txt": b"said\n" * 40, "verifier/reward.txt": b"1\n", "verifier/sub/ctrf.json": b"{}", "artifacts/empty": b""}


@dataclass
class Said:
    code: int
    out: str
    err: str


@dataclass
class Kept:
    """``trials``: task to trial id; ``ids``: the ledger's."""

    root: Path
    trials: dict[str, int] = field(default_factory=dict)
    ledger_id: str = ""

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def ledger(self) -> Path:
        return self.state / "ledger.db"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def to(self) -> Path:
        return self.root / "kept"

    def folder(self, task: str) -> Path:
        return self.out / "x" / trial_folder(self.trials[task], task, "plain", 1)

    def file(self, task: str) -> Path:
        return self.to / "x" / f"{self.folder(task).name}.tar.gz"

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)) as c:
            c.row_factory = sqlite3.Row
            return [dict(row) for row in c.execute(sql)]

    def ctl(self, *argv: str) -> Said:
        config = self.root / "config.toml"
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = ctl.run(["--config", str(config), *argv])
        return Said(code, out.getvalue(), err.getvalue())

    def archive(self, *argv: str) -> Said:
        return self.ctl("archive", "--to", str(self.to), *argv)

    def archive_now(self, trial: int) -> int:
        """As the command does it, without its grammar, which costs more than all the rest."""
        options: dict[str, Any] = {"campaign": None, "task": None, "arm": None, "remove": "", "dry_run": False, "as_json": False}
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            return archive.run(self.paths, self.to, trials=[trial], now_ms=time.time_ns() // 1_000_000, **options)

    def prune_now(self, trial: int, days: int = 30) -> tuple[int, str]:
        out = StringIO()
        wanted = Wanted(days * DAY_MS, time.time_ns() // 1_000_000, "room")
        with redirect_stdout(out), redirect_stderr(StringIO()):
            return prune.run(self.paths, wanted, trials=[trial], campaign=None, task=None, arm=None, as_json=False), out.getvalue()

    @property
    def paths(self) -> DaemonPaths:
        return locate(self.root / "config.toml").paths

    def prune(self, *argv: str, age: str = "30d") -> Said:
        return self.ctl("prune", "--older-than", age, "--reason", "room", *argv)


def make_kept(root: Path) -> Kept:
    """Everything happened at ``T0``, weeks ago."""
    kept = Kept(root)
    for folder in (kept.state, kept.out, kept.to):
        folder.mkdir(parents=True)
    (root / "config.toml").write_text(f'[daemon]\nstate_dir = "{kept.state}"\nledger = "{kept.ledger}"\nout_dir = "{kept.out}"\n')
    kept.ledger_id = ledgers.file_ledger(kept.ledger, host=socket.gethostname(), now_ms=ledgers.T0)
    with closing(connect(kept.ledger, mode="rw")) as c:
        c.execute("BEGIN IMMEDIATE")
        tasks = [ledgers.task(name) for name in STATES]
        ledgers.fill(c, ledgers.submission(arms=[ledgers.arm("plain")], tasks=tasks, out_dir=str(kept.out)))
        for name, state in STATES.items():
            admitted = ledgers.bring_to(c, ledgers.cell(c, name), state)
            kept.trials[name] = admitted.trial_id
            if state != "running":
                ledgers.let_go(c, admitted)
            if state != "running" and name != "sed":
                _export(c, kept, name)
        c.execute("COMMIT")
    return kept


def _export(c: sqlite3.Connection, kept: Kept, task: str) -> None:
    folder, records = kept.folder(task), []
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        records.append(ArtifactRecord(path, hashlib.sha256(data).hexdigest(), len(data)))
    records.append(ArtifactRecord("agent/link", "", 0, "symbolic link"))
    (folder / "config.json").write_text("{}")
    (folder / "result.json").write_text(json.dumps({"id": trial_uuid(kept.ledger_id, kept.trials[task])}))
    artifacts.exported(c, kept.trials[task], folder=f"x/{folder.name}", records=records, now_ms=ledgers.T0 + 1)


EVENTS = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"})
"""What an audit hook is told of before it changes something; beside these, opening for writing.  A kill between two of them is one before
the second: what is only read leaves no trace."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Snapshot:
    """A ledger and its folders as they were, put back as often as one likes: into the same inodes, for a ledger knows its own."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self._ledger = kept.ledger.read_bytes()
        self._saved = kept.root.with_name(f"{kept.root.name}-saved")
        for folder in (kept.out, kept.to):
            shutil.copytree(folder, self._saved / folder.name)

    def back(self) -> None:
        for extra in ("-wal", "-shm"):
            self.kept.ledger.with_name(f"{self.kept.ledger.name}{extra}").unlink(missing_ok=True)
        with self.kept.ledger.open("r+b") as file:
            file.truncate(0)
            file.write(self._ledger)
        for folder in (self.kept.out, self.kept.to):
            shutil.rmtree(folder)
            shutil.copytree(self._saved / folder.name, folder)


def killed_at(step: int, work: Callable[[], object], below: Path) -> bool:
    """Fork, and let the child do ``work`` until its ``step``-th act below the folder; before that it is killed.  False: it came to its end.

    Acts are those of :data:`EVENTS`, and each transaction of the ledger, before and after.
    """
    pid = os.fork()
    if pid == 0:
        _child(step, work, str(below))
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def _child(step: int, work: Callable[[], object], below: str) -> None:
    left = step

    def act() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in EVENTS or (event == "open" and isinstance(args[2], int) and args[2] & WRITES and str(args[0]).startswith(below)):
            act()

    from marathond.service import offline

    whole = offline.in_transaction

    def transaction(*args: Any) -> Any:
        act()
        done = whole(*args)
        act()
        return done

    offline.in_transaction = transaction  # type: ignore[assignment]
    sys.addaudithook(hook)
    try:
        work()
    except BaseException:  # noqa: BLE001 - nothing of the child may reach the parent's test run
        os._exit(3)
    os._exit(0)
