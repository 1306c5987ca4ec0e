"""One trial's environment without daemon, ledger and gateway: a container, two ways to a model, and the codex agent's port.

The ways are practice providers that listen inside the container's own loopback, as the gateway does.  Owns what it made; not a campaign.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marathond.agents.codex.agent import CodexAgent
from marathond.core.model import AgentKind, Arm, CodexArm, Drive, Mount, Task
from marathond.flow.environment import make_run_dir, standard_mounts
from marathond.gateway import netns
from marathond.ports.agent import Environment, LogEntry, ModelAccess, RunDir
from marathond.practice.gate import gate_practice
from marathond.practice.script import Practice
from marathond.practice.server import PracticeServer, practising
from marathond.tasks.harbor import read_task
from tests.support.codex_env import codex_tree
from tests.support.yard import Yard

PORT, PACKAGE = 8790, "codex-of-a-test"


@dataclass
class ListLog:
    """An agent's log in memory."""

    lines: list[LogEntry] = field(default_factory=list)

    async def append(self, kind: str, detail: Mapping[str, Any]) -> None:
        self.lines.append(LogEntry(len(self.lines) + 1, kind, dict(detail), 0, 0))

    async def entries(self) -> Sequence[LogEntry]:
        return tuple(self.lines)


@dataclass(frozen=True)
class Trial:
    env: Environment
    agent: CodexAgent
    model: PracticeServer
    gate: PracticeServer

    def asked(self) -> tuple[int, int]:
        """Requests to the model and to the gate's."""
        return tuple(sum(tally.requests for tally in server.tallies.values()) for server in (self.model, self.gate))  # type: ignore[return-value]


def codex_arm(drive: Drive = Drive.TURN, *, user: str | None = None, mounts: tuple[Mount, ...] = (), **codex: Any) -> Arm:
    row = CodexArm(**{"package": PACKAGE, "version": "0.171.0", "model": "gpt-5.5", "effort": "high", "drive": drive, **codex})
    return Arm("arm", AgentKind.CODEX, user=user, mounts=mounts, codex=row)


@asynccontextmanager
async def codex_trial(
    yard: Yard, folder: Path, arm: Arm, script: Practice, *, gate: Practice | None = None, gate_s: float = 60.0, files: Path | None = None
) -> AsyncIterator[Trial]:
    """``folder``: the task's; ``files``: a tree that the image is made to hold at /."""
    read = read_task(folder, {})
    assert isinstance(read, Task), read
    agent = CodexAgent()
    async with AsyncExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
        stack.callback(shutil.rmtree, root)
        run = RunDir(root / "r" / "t1")
        make_run_dir(run, read.instruction)
        mounts = (*standard_mounts(run), *agent.mounts(read, arm, run, {PACKAGE: codex_tree().root}))
        container = await yard.container(read, mounts)
        stack.push_async_callback(yard.engine.remove_container, container)
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
