"""The Agent port: how an arm drives a container.

Obligations of every implementation:

* ``gates`` runs before a token is spent and raises GateFailed (infrastructure) or returns what passed; it leaves no process behind;
* ``create`` only creates what ``begin`` starts, so that its id can be written down in between; None means there is nothing to run;
* the agent's output and exit status go to files in the container; no stream is held (fault b18);
* ``wait`` answers with the engine's word on the exit; a file that the container could have forged counts only when the engine has
  forgotten the exec, and is marked ``file`` (fault c18);
* nothing here knows a deadline but the timer that ends the agent when no daemon is there to do it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from marathond.core.model import Arm, Mount, Task
from marathond.ports.engine import Engine


@dataclass(frozen=True, slots=True)
class RunDir:
    """A trial's folder on the host; ``logs`` is mounted at /logs, ``ctl`` at /marathond/ctl, ``inputs`` read-only at /marathond/inputs."""

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


@dataclass(frozen=True, slots=True)
class Environment:
    """A container that is up.  ``timer_s`` ends the agent by itself when no daemon does; None: no limit."""

    engine: Engine
    container_id: str
    task: Task
    arm: Arm
    run_dir: RunDir
    gate_timeout_s: float
    timer_s: int | None = None


@dataclass(frozen=True, slots=True)
class GatePassed:
    """A gate's name and what it saw, for the record."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """The agent's own end.  ``exit_code`` None: neither the engine nor a file can say.  ``source``: ``exec`` or ``file``."""

    exit_code: int | None
    source: str


class Agent(Protocol):
    def mounts(self, task: Task, arm: Arm) -> Sequence[Mount]: ...

    def environment(self, task: Task, arm: Arm) -> Mapping[str, str]:
        """Variables of the container, on top of the task's own."""
        ...

    async def gates(self, env: Environment) -> Sequence[GatePassed]: ...

    async def create(self, env: Environment) -> str | None: ...

    async def begin(self, env: Environment, exec_id: str) -> None: ...

    async def wait(self, env: Environment, exec_id: str) -> AgentEnd: ...
