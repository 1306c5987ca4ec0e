"""A whole daemon in the test's own process: real ledger, real engine, real tasks, in a folder of its own.

    async with Rig(tmp_path, docker_host, tasks=[...], arms={"nop": {"kind": "nop"}}) as rig:
        await rig.until_done()

The daemon is the product's own (service/daemon.Daemon); the rig only starts it, waits on the ledger and cleans up what a failed test left,
by the ledger's label.  Folders are short: the state directory's path is bounded.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from marathond import __version__
from marathond.engine.docker import DockerEngine
from marathond.ledger.open import open_for_daemon
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.ports.engine import LABEL_LEDGER
from marathond.service.daemon import Daemon
from marathond.service.main import serve_control
from marathond.service.settings import load
from marathond.tasks.removal import remove_tree
from tests.support import worker
from tests.support.ledgers import file_ledger

BASE_IMAGE = os.environ.get("MARATHOND_BASE_IMAGE", "marathond-sample:bookworm")
PATIENCE_S = 300.0
"""A loaded machine needs many times what an idle one does; only a test that fails waits so long."""
CALL_TIMEOUT_S = 90.0
"""Of every call to the engine, where a test does not mean a silent one."""
LIMIT_S = 200.0
"""Of an agent and of a verifier, where a test means neither to be ended: within it they do their work, are given the word that they wait
for, and outlast a restart of the daemon, also where each of these takes ten times what it should.  Less than the patience."""


def make_task(
    root: Path,
    name: str,
    *,
    test: str = "echo 1 >/logs/verifier/reward.txt\n",
    solve: str | None = "true\n",
    toml: str = "",
    environment: str = "",
    instruction: str = "Do it.\n",
    network: str = "no-network",
    agent_s: float = LIMIT_S,
    verifier_s: float = LIMIT_S,
) -> Path:
    """A small Harbor task.  ``toml`` is appended to task.toml, ``environment`` to its ``[environment]`` section."""
    folder = root / name
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text(
        f'schema_version = "1.4"\n[agent]\ntimeout_sec = {agent_s}\n[verifier]\ntimeout_sec = {verifier_s}\n'
        f'[environment]\ndocker_image = "{BASE_IMAGE}"\nnetwork_mode = "{network}"\n{environment}\n{toml}\n'
    )
    (folder / "instruction.md").write_text(instruction)
    (folder / "tests" / "test.sh").write_text(f"#!/bin/sh\n{test}")
    if solve is not None:
        (folder / "solution").mkdir()
        (folder / "solution" / "solve.sh").write_text(f"#!/bin/sh\n{solve}")
        (folder / "solution" / "solve.sh").chmod(0o755)
    return folder


class Rig:
    """``tasks``: task folders; ``arms``: as in the configuration; ``overrides``: dotted keys of the configuration.

    ``engine``: the caller's own, which it closes itself; ``clock``: one that steps, say.
    """

    def __init__(
        self,
        docker_host: str,
        *,
        tasks: Sequence[Path],
        arms: Mapping[str, Mapping[str, Any]],
        overrides: Mapping[str, object] | None = None,
        replicates: int = 1,
        engine: DockerEngine | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        # Not pytest's tmp_path: its names are long, and a state directory must leave room for socket paths.
        self.root = Path(tempfile.mkdtemp(prefix="mt-", dir="/tmp"))
        self.docker_host, self.engine_given, self.clock = docker_host, engine, clock or SystemClock()
        self.config = self.root / "marathond.toml"
        (self.root / "state").mkdir()
        self.config.write_text(self._toml(tasks, arms, replicates))
        plain = {"engine.url": docker_host, "engine.call_timeout_s": CALL_TIMEOUT_S, "admission.reserve_memory_mb": 0}
        plain["network.range"] = worker.network_range()
        self.overrides = {**plain, **(overrides or {})}
        self.ledger_path = self.root / "state" / "ledger.db"
        self.ledger_id = file_ledger(self.ledger_path, host=socket.gethostname(), now_ms=time.time_ns() // 1_000_000)
        self.daemon: Daemon | None = None
        self._stack: AsyncExitStack | None = None

    @staticmethod
    def _toml(tasks: Sequence[Path], arms: Mapping[str, Mapping[str, Any]], replicates: int) -> str:
        lines = ['[daemon]\nstate_dir = "state"\nout_dir = "out"\n[campaign]\nname = "test"']
        lines.append(f"replicates = {replicates}\ntasks = {json.dumps([str(task) for task in tasks])}")
        for name, arm in arms.items():
            lines.append(f"[arms.{name}]")
            lines += [f"{key} = {_toml_value(value)}" for key, value in arm.items()]
        return "\n".join(lines) + "\n"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Begin a daemon life; after :meth:`kill` this is the next daemon."""
        settings, clock = load(self.config, self.overrides), self.clock
        stack = AsyncExitStack()
        opened = open_for_daemon(self.ledger_path, host=socket.gethostname(), filesystem_type="ext4", now_ms=clock.wall_ms())
        stack.callback(opened.close)
        ledger = await stack.enter_async_context(await SqliteLedger.open(opened.path))
        await ledger.begin_life(
            pid=os.getpid(), pid_start_ticks=0, host="test", boot_id=clock.boot_id, version=__version__, now_ms=clock.wall_ms()
        )
        url, call_timeout_s = str(self.overrides["engine.url"]), settings.engine.call_timeout_s
        engine = self.engine_given or DockerEngine("local", url, call_timeout_s=call_timeout_s)
        if self.engine_given is None:
            stack.push_async_callback(engine.aclose)
        self.daemon = Daemon(settings, opened, ledger, engine, clock)
        group = await stack.enter_async_context(anyio.create_task_group())
        group.start_soon(self.daemon.run, serve_control)
        stack.callback(group.cancel_scope.cancel)
        self._stack = stack

    async def kill(self) -> None:
        """End the daemon's coroutines without any orderly stop: as near to kill -9 as one process gets (flow must not clean up)."""
        assert self._stack is not None
        stack, self._stack, self.daemon = self._stack, None, None
        await stack.aclose()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._stack is not None:
                await self.kill()
        finally:
            with anyio.CancelScope(shield=True):
                await self._sweep_leftovers()
            try:
                remove_tree(self.root)
            except OSError:
                shutil.rmtree(self.root, ignore_errors=True)  # a test mounted something below; it unmounts by itself

    async def _sweep_leftovers(self) -> None:
        engine = DockerEngine("local", self.docker_host, call_timeout_s=CALL_TIMEOUT_S)
        try:
            for container in await engine.list_containers({LABEL_LEDGER: self.ledger_id}):
                for _ in range(100):
                    if await engine.remove_container(container.id):
                        break
                    await anyio.sleep(0.2)
            for network in await engine.list_networks():
                if network.labels.get(LABEL_LEDGER) == self.ledger_id:
                    await engine.remove_network(network.id)
        finally:
            await engine.aclose()

    def sql(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a read-only query on the ledger, as a person would ask."""
        conn = sqlite3.connect(f"file:{self.ledger_path}?mode=ro", uri=True, timeout=60)
        try:
            return [tuple(row) for row in conn.execute(query, values).fetchall()]
        finally:
            conn.close()

    def one(self, query: str, *values: object) -> Any:
        rows = self.sql(query, *values)
        assert len(rows) == 1, f"{query}: {len(rows)} rows"
        return rows[0][0] if len(rows[0]) == 1 else rows[0]

    async def until(self, query: str, *values: object, patience_s: float = PATIENCE_S) -> Any:
        """Wait until the query's first value is true; that value.  Fails with the campaign's state when patience runs out."""
        with anyio.move_on_after(patience_s):
            while True:
                rows = self.sql(query, *values)
                if rows and rows[0][0]:
                    return rows[0][0]
                await anyio.sleep(0.05)
        raise AssertionError(f"not within {patience_s} s: {query}\n{self.story()}")

    async def agent_runs(self, trial_id: int = 1) -> None:
        """The agent was started and the daemon knows it.  The state is written before: an end between the two costs the attempt.

        Of a process that lives long enough to be seen by the engine; the plain SQL where that is not certain.
        """
        sql = "SELECT state = 'running' AND EXISTS (SELECT 1 FROM trial_fact f WHERE f.trial_id = t.trial_id AND f.name = 'agent session')"
        await self.until(f"{sql} FROM trial t WHERE trial_id = ?", trial_id)

    async def until_done(self, patience_s: float = PATIENCE_S) -> None:
        """Every cell done, parked or in review, every claim released, everything exported."""
        await self.until(
            "SELECT count(*) > 0 AND count(*) FILTER (WHERE state IN ('open', 'claimed')) = 0 FROM cell_state", patience_s=patience_s
        )
        await self.until("SELECT count(*) = 0 FROM claim WHERE released_at_ms IS NULL", patience_s=patience_s)
        await self.until("SELECT (SELECT count(*) FROM artifact_export) = (SELECT count(*) FROM trial)", patience_s=patience_s)

    def story(self) -> str:
        """What the ledger tells, for a failing test."""
        parts = [
            ("trials", "SELECT trial, task, arm, attempt, state FROM v_trial"),
            ("voids", "SELECT trial_id, code, reason FROM void"),
            ("reviews", "SELECT trial_id, code, detail FROM review"),
            ("parks", "SELECT cell_id, code, detail FROM park WHERE ended_at_ms IS NULL"),
            ("findings", "SELECT code, subject, detail, closed_at_ms FROM finding"),
            ("waiting", "SELECT value_json FROM observation WHERE key = 'waiting'"),
            ("stops", "SELECT kind, detail FROM admission_stop WHERE ended_at_ms IS NULL"),
        ]
        return "\n".join(f"{name}: {self.sql(query)}" for name, query in parts)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return json.dumps(value)
