"""A ledger on disk, a control server with the real handlers over it, and marathonctl to be run against both.  No test of its own."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from structlog.testing import capture_logs

from marathond.cli import client, ctl
from marathond.gateway.netns import start_ticks
from marathond.ledger.connect import connect
from marathond.ledger.verbs import networks, settings
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.ledger.verbs.runs import begin_run, mark_ready
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service.commands import Commands
from marathond.service.control import ControlServer
from marathond.service.knobs import KNOBS, KnobValue
from tests.support import ledgers as have


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class RecordingControl:
    """Stands where the daemon stands: the ledger is real, the daemon's own acts are written down."""

    acts: list[tuple[Any, ...]] = field(default_factory=list)
    values: dict[str, KnobValue] = field(default_factory=lambda: {key: knob.default for key, knob in KNOBS.items()})
    result: SubmitResult = field(default_factory=lambda: SubmitResult(1, False, 1, 0, 4, 2, 0))

    def wake(self) -> None:
        self.acts.append(("wake",))

    def trial_voided(self, trial_id: int) -> None:
        self.acts.append(("trial_voided", trial_id))

    def request_stop(self, mode: str, author: str, reason: str) -> None:
        self.acts.append(("request_stop", mode, author, reason))

    def apply_settings(self) -> None:
        self.acts.append(("apply_settings",))

    def effective(self, key: str) -> KnobValue:
        return self.values[key]

    def configured(self, key: str) -> KnobValue:
        return KNOBS[key].default

    async def submit(self, author: str) -> SubmitResult:
        self.acts.append(("submit", author))
        return self.result

    def health(self) -> dict[str, Any]:
        return {"degraded": ""}

    def said(self, act: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.acts if entry[0] == act]


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@dataclass
class Rig:
    state_dir: Path
    capture: pytest.CaptureFixture[str]
    control: RecordingControl = field(default_factory=RecordingControl)
    config: Path | None = None
    """The daemon's configuration; None: it does not say."""

    @property
    def ledger(self) -> Path:
        return self.state_dir / "ledger.db"

    @property
    def socket(self) -> Path:
        return self.state_dir / "control.sock"

    @contextmanager
    def sql(self) -> Iterator[sqlite3.Connection]:
        """A writing connection, to bring the ledger into a state."""
        connection = connect(self.ledger, mode="rw")
        try:
            yield connection
        finally:
            connection.close()

    def begin_life(self, c: sqlite3.Connection, **over: Any) -> int:
        """A daemon life whose process is this one, begun a minute ago."""
        at_ms = now_ms() - 60_000
        own: dict[str, Any] = {
            "pid": os.getpid(),
            "pid_start_ticks": start_ticks(os.getpid()),
            "host": socket.gethostname(),
            "boot_id": SystemClock().boot_id,
            "version": "0.1.0",
            "now_ms": at_ms,
        }
        run_id = begin_run(c, **{**own, **over})
        mark_ready(c, now_ms=at_ms)
        return run_id

    def observe_all(self, c: sqlite3.Connection, **over: Any) -> None:
        """What a healthy daemon says all the time."""
        values: dict[str, Any] = {
            "engine": {"ok": True, "detail": "", "server_version": "20.10.24", "ncpu": 2, "memory_mb": 4096},
            "disk": [{"path": "/var/lib/marathond", "free_bytes": 71, "total_bytes": 100}],
            "limits": dict(self.control.values),
            "waiting": [],
        }
        for key, value in {**values, **over}.items():
            settings.observe(c, key, value, now_ms=now_ms())

    def run(self, *argv: str) -> Answer:
        """marathonctl in this process."""
        self.capture.readouterr()
        code = ctl.run(list(argv))
        said = self.capture.readouterr()
        return Answer(code, said.out, said.err)

    def ask(self, *argv: str) -> str:
        """A command that succeeds without a word on stderr; its output."""
        answer = self.run(*argv)
        assert (answer.code, answer.err) == (0, ""), answer
        return answer.out

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The control server in a thread of its own, over the newest life of the ledger."""
        with self.sql() as c:
            run_id = c.execute("SELECT max(run_id) FROM run").fetchone()[0]
        with pytest.MonkeyPatch.context() as patch, capture_logs(), anyio.from_thread.start_blocking_portal("asyncio") as portal:
            # A server on a loaded machine may answer later than a person is kept waiting without a word; no test here is about that word.
            patch.setattr(client, "TELL_AFTER_S", 120.0)
            ended, started = portal.start_task(self._serve, run_id)
            assert started is None
            try:
                yield
            finally:
                portal.call(self._stop.set)
                ended.result(timeout=120)

    async def _serve(self, run_id: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        self._stop = anyio.Event()
        async with await SqliteLedger.open(self.ledger, run_id=run_id) as ledger:
            commands = Commands(ledger, self.control, SystemClock(), config=lambda: self.config)
            server = ControlServer(self.socket, commands.handle, deadline_s=commands.deadline_s)
            async with anyio.create_task_group() as tasks:
                await tasks.start(server.serve)
                task_status.started()
                await self._stop.wait()
                while server.callers:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()


def make_ledger(path: Path) -> None:
    have.file_ledger(path, host=socket.gethostname(), now_ms=now_ms())


def subprocess_run(argv: list[str], environ: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """marathonctl as a program of its own, without a terminal."""
    command = [sys.executable, "-m", "marathond.cli.ctl", *argv]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL, **options
    )


NASTY = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J\u202eevil\r\nsecond"
"""What an agent or another program may have written."""


@contextmanager
def living_rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """A ledger with a campaign of four cells and a living, talkative daemon (this process)."""
    folder = Path(tempfile.mkdtemp(prefix="mc"))
    for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
    monkeypatch.chdir(folder)
    rig = Rig(folder, capsys, RecordingControl())
    make_ledger(rig.ledger)
    with rig.sql() as c:
        have.fill(c)
        networks.observe_pool(c, have.ENGINE, total=4096, foreign_used=15, host_used=0, now_ms=now_ms())
        rig.begin_life(c)
        rig.observe_all(c)
    yield rig
    shutil.rmtree(folder, ignore_errors=True)  # the child of a shell that was killed may still write there


def mixed(rig: Rig) -> None:
    """One cell done, one in review, one running, one open."""
    with rig.sql() as c:
        have.let_go(c, have.bring_to(c, have.cell(c, "zstd", "plain"), "scored"))
        have.bring_to(c, have.cell(c, "zstd", "goal"), "review")
        have.bring_to(c, have.cell(c, "rust", "plain"), "running", now_ms=now_ms() - 125_000)
