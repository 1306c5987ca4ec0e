"""The Agent port: how an arm drives a container.

Obligations of every implementation:

* ``gates`` runs before a token is spent and raises GateFailed (infrastructure) or returns what passed; it leaves no process behind;
* ``create`` only creates what ``begin`` starts, so that its id can be written down in between; None means there is nothing to run;
* the agent's output and exit status go to files in the container; no stream is held (fault b18);
* ``wait`` may be called again by another daemon life at any moment of the run, and goes on from ``Environment.log`` and from what the
  container shows; an intention is appended to the log before it is acted on, so that nothing is done twice;
* ``wait`` answers with the engine's word on the exit; a file that the container could have forged counts only when the engine has
  forgotten the exec, and is marked ``file`` (fault c18).  A spent budget is a value of AgentEnd, never an exception (fault a04);
  GateFailed means that the infrastructure failed the agent;
* ``halt`` quiets an agent that is past its deadline, within ``HALT_S``; it may fail, for the death is proven afterwards (fault c08);
* ``collect`` is called once the agent is dead, and also when the trial is about to be void; it writes below ``run_dir.logs/agent`` only;
* nothing here knows a deadline but the timer that ends the agent when no daemon is there to do it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from marathond.core.model import Arm, EndedBy, Mount, Task
from marathond.ports.engine import Engine

HALT_S = 10.0


@dataclass(frozen=True, slots=True)
class RunDir:
    """A trial's folder on the host; ``logs`` is mounted at /logs, ``ctl`` at /marathond/ctl, ``inputs`` read-only at /marathond/inputs.

    ``home`` is the agent's own (CODEX_HOME), mounted where it wants it; ``root`` itself is ours alone.
    """

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def ctl(self) -> Path:
        return self.root / "ctl"

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def home(self) -> Path:
        return self.root / "home"


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The trial's way to a model: what a client in the container is given.  ``key`` is a dummy of this trial (fault c14)."""

    base_url: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of a trial's agent log."""

    seq: int
    kind: str
    detail: Mapping[str, Any]
    at_ms: int
    mono_ms: int


class AgentLog(Protocol):
    """What the driver did and saw, in the ledger: durable when ``append`` returns, read again by the next daemon life."""

    async def append(self, kind: str, detail: Mapping[str, Any]) -> None: ...

    async def entries(self) -> Sequence[LogEntry]: ...


@dataclass(frozen=True, slots=True)
class Environment:
    """A container that is up.  ``timer_s`` ends the agent by itself when no daemon does; None: no limit.

    ``pid`` and ``start_ticks``: the container's first process as the host numbers it.  ``model``: for the agent, ``gate_model``: for its
    gates, both None where the kind needs none, or where the agent was started already (the keys are not kept).
    """

    engine: Engine
    container_id: str
    task: Task
    arm: Arm
    run_dir: RunDir
    gate_timeout_s: float
    log: AgentLog
    pid: int
    start_ticks: int
    timer_s: int | None = None
    model: ModelAccess | None = None
    gate_model: ModelAccess | None = None


@dataclass(frozen=True, slots=True)
class GatePassed:
    """A gate's name and what it saw, for the record."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """The agent's own end.  ``exit_code`` None: neither the engine nor a file can say.  ``source``: ``exec``, ``file`` or ``driver``.

    ``ended_by`` is the driver's word where it ended the agent by a rule of the arm.
    """

    exit_code: int | None
    source: str
    ended_by: EndedBy = EndedBy.AGENT


@dataclass(frozen=True, slots=True)
class Receipt:
    """What is kept of an agent's run.  ``data`` was validated against the schema of that number (fault e03)."""

    schema: int
    data: Mapping[str, Any]


class Agent(Protocol):
    @property
    def needs_model(self) -> bool:
        """Whether the flow opens a way to the model for it."""
        ...

    @property
    def has_tool_sessions(self) -> bool:
        """Whether it gives each tool command a session of its own, which must die with it (core/death.py, fault b07)."""
        ...

    def mounts(self, task: Task, arm: Arm, run_dir: RunDir, staged: Mapping[str, Path]) -> Sequence[Mount]:
        """``staged``: package id to its folder on the host.  Raises GateFailed when what the arm needs is not staged."""
        ...

    def environment(self, task: Task, arm: Arm) -> Mapping[str, str]:
        """Variables of the container, on top of the task's own."""
        ...

    async def gates(self, env: Environment) -> Sequence[GatePassed]: ...

    async def create(self, env: Environment) -> str | None: ...

    async def begin(self, env: Environment, exec_id: str) -> None: ...

    async def wait(self, env: Environment, exec_id: str) -> AgentEnd: ...

    async def halt(self, env: Environment, exec_id: str) -> None: ...

    async def collect(self, env: Environment) -> Receipt | None: ...
