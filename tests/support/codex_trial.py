"""One trial's environment without daemon, ledger and gateway: a container, two ways to a model, and the codex agent's port.

The ways are practice providers that listen inside the container's own loopback, as the gateway does.  Owns what it made; not a campaign.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anyio import to_thread

from marathond.agents.codex.agent import CodexAgent
from marathond.core.model import Arm, CodexArm, Mount, Task
from marathond.core.names import AgentKind, Drive, EndedBy
from marathond.flow.collecting import copy_kept
from marathond.flow.environment import make_run_dir, standard_mounts
from marathond.gateway import netns
from marathond.ports.agent import Environment, Finished, Kept, LogEntry, ModelAccess, Receipt, RunDir
from marathond.ports.clock import SystemClock
from marathond.practice.gate import gate_practice
from marathond.practice.script import Practice
from marathond.practice.server import PracticeServer, practising
from marathond.tasks.harbor import read_task
from tests.support.codex_env import VERSION, codex_tree
from tests.support.yard import Yard

PORT, PACKAGE, LOOPX_PACKAGE = 8790, "codex-of-a-test", "loopx-of-a-test"


@dataclass
class ListLog:
    """An agent's log in memory."""

    lines: list[LogEntry] = field(default_factory=list)

    async def append(self, kind: str, detail: Mapping[str, Any]) -> None:
        clock = SystemClock()
        self.lines.append(LogEntry(len(self.lines) + 1, kind, dict(detail), clock.wall_ms(), clock.mono_ms()))

    def passed(self, seconds: float) -> None:
        """As if all of it had happened so much earlier."""
        ms = int(seconds * 1000)
        self.lines = [replace(line, at_ms=line.at_ms - ms, mono_ms=line.mono_ms - ms) for line in self.lines]

    async def entries(self) -> Sequence[LogEntry]:
        return tuple(self.lines)


@dataclass(frozen=True)
class Trial:
    env: Environment
    agent: CodexAgent
    model: PracticeServer
    gate: PracticeServer

    async def collect(self) -> Receipt | None:
        """As the flow does it once the agent is dead."""
        env, agent = self.env, self.agent
        kept = await to_thread.run_sync(functools.partial(copy_kept, env.run_dir, agent.keeps, max_bytes=1 << 30, max_files=10_000))
        return await agent.collect(finished(env, kept))

    def asked(self) -> tuple[int, int]:
        """Requests to the model and to the gate's."""
        return tuple(sum(tally.requests for tally in server.tallies.values()) for server in (self.model, self.gate))  # type: ignore[return-value]


def finished(env: Environment, kept: Sequence[Kept] = (), **known: Any) -> Finished:
    """A run of ``env`` that nobody voided; ``known``: what the flow knows besides."""
    facts: dict[str, Any] = {
        **{"trial": "t0001", "campaign": "test", "task": env.task.name, "replicate": 1, "attempt": 1, "gates": {}, "package_sha256": ""},
        **{"started_at_ms": 1_000, "ended_at_ms": 61_000, "ran_ms": 60_000, "limit_ms": None, "limit_origin": "none", "held_ms": 0},
        **{"ended_by": EndedBy.AGENT, "exit_code": None, "exit_source": "driver", "void": None},
        **{"spent": None, "answers": 0, "in_flight": 0},
        **known,
    }
    return Finished(run_dir=env.run_dir, arm=env.arm, log=env.log, instruction=env.task.instruction, kept=kept, **facts)


def codex_arm(drive: Drive = Drive.TURN, *, user: str | None = None, mounts: tuple[Mount, ...] = (), **codex: Any) -> Arm:
    row = CodexArm(**{"package": PACKAGE, "version": VERSION, "model": "gpt-5.5", "effort": "high", "drive": drive, **codex})
    return Arm("arm", AgentKind.CODEX, user=user, mounts=mounts, codex=row)


@asynccontextmanager
async def codex_trial(
    yard: Yard,
    folder: Path,
    arm: Arm,
    script: Practice,
    *,
    gate: Practice | None = None,
    gate_s: float = 300.0,
    files: Path | None = None,
    loopx: Path | None = None,
) -> AsyncIterator[Trial]:
    """``folder``: the task's; ``files``: a tree that the image is made to hold at /; ``loopx``: what is staged as LOOPX_PACKAGE."""
    read = read_task(folder, {})
    assert isinstance(read, Task), read
    agent = CodexAgent()
    async with AsyncExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
        stack.callback(shutil.rmtree, root)
        run = RunDir(root / "r" / "t1")
        make_run_dir(run, read.instruction, agent.harness_folders)
        staged = {PACKAGE: codex_tree().root, **({} if loopx is None else {LOOPX_PACKAGE: loopx})}
        mounts = (*standard_mounts(run), *agent.mounts(read, arm, run, staged))
        container = await yard.container(read, mounts)
        stack.push_async_callback(yard.remove, container)  # gone before the folders below it are
        if files is not None:
            await yard.engine.put_tree(container, files, "/")
        seen = await yard.engine.inspect_container(container)
        assert seen is not None
        ticks = netns.start_ticks(seen.pid)
        assert ticks is not None
        servers = [
            await stack.enter_async_context(practising(practice, sock=netns.open_listening(seen.pid, ticks, PORT + offset)))
            for offset, practice in enumerate((script, gate or gate_practice()))
        ]
        env = Environment(
            yard.engine,
            container,
            read,
            arm,
            run,
            gate_s,
            ListLog(),
            seen.pid,
            ticks,
            timer_s=600,
            model=ModelAccess(f"http://127.0.0.1:{PORT}/v1", "mt-key-of-a-test"),
            gate_model=ModelAccess(f"http://127.0.0.1:{PORT + 1}/v1", "mt-gate-of-a-test"),
        )
        yield Trial(env, agent, *servers)
