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
* ``keeps`` names what is worth keeping of what the agent leaves; the flow copies it to ``run_dir.kept``, for whoever wrote it may have put
  anything there (links, pipes, files without an end);
* ``collect`` is called once the agent is dead or its container gone, of void trials too, perhaps by another daemon life, perhaps again; it
  decides nothing about the trial, reads the copies and writes below ``run_dir.kept`` only;
* nothing here knows a deadline but the timer that ends the agent when no daemon is there to do it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from marathond.core.model import Arm, Mount, Task
from marathond.core.names import EndedBy
from marathond.ports.engine import Engine

HALT_S = 10.0


@dataclass(frozen=True, slots=True)
class RunDir:
    """A trial's folder on the host; ``logs`` is mounted at /logs, ``ctl`` at /marathond/ctl, ``inputs`` read-only at /marathond/inputs.

    ``home`` is the agent's own (CODEX_HOME), mounted where it wants it; ``root`` itself is ours alone, and so is ``kept``: what is exported
    beside the trial's logs/agent, and what no container can reach.
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

    @property
    def harness(self) -> Path:
        """What an arm's harness keeps in its trial, below folders that its agent names (``Agent.harness_folders``) and mounts."""
        return self.root / "harness"

    @property
    def kept(self) -> Path:
        return self.root / "kept"


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
    gates, both None where the kind needs none, or where the agent was started already (the keys are not kept).  ``model_answered``: whether
    the agent's model has answered at all, by the gateway's word; None where there is no gateway.  ``model_surplus``: how often the gateway
    has turned the agent away for what it had open at one time, 0 if that was only before a wall-clock time in milliseconds; None likewise.
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
    model_answered: Callable[[], Awaitable[bool]] | None = None
    model_surplus: Callable[[int], Awaitable[int]] | None = None


@dataclass(frozen=True, slots=True)
class GatePassed:
    """A gate's name and what it saw, for the record."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """The agent's own end.  ``exit_code`` None: neither the engine nor a file can say.  ``source``: ``exec``, ``file`` or ``driver``.

    ``ended_by`` is the driver's word where it ended the agent by a rule of the arm; ``at_ms`` (since 1970) when the harness says that its
    last turn ended, None: it does not say.
    """

    exit_code: int | None
    source: str
    ended_by: EndedBy = EndedBy.AGENT
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Files worth keeping: those in ``source`` (of the run directory) whose name fits one of the patterns ``names``, copied to ``target``
    (of ``run_dir.kept``).  ``deep``: also those in folders below."""

    source: str
    target: str
    names: tuple[str, ...]
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of one of them; ``path`` in ``run_dir.kept``.  ``why``: why it is not there, empty: it is."""

    path: str
    size_bytes: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """Requests of the trial's agent to one model, as the gateway counted them.  Tokens are of those whose usage is known; ``cached`` and
    ``cache_write`` are parts of ``input``, ``reasoning`` is a part of ``output``.  ``cost_nusd`` None: some of it has no price."""

    model: str
    requests: int
    failed: int
    unknown: int
    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int
    cost_nusd: int | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over, as the flow knows it.

    ``instruction``: what the agent was given.  ``gates``: what they saw, by name.  ``package_sha256``: of the staged tree, empty: unknown.
    ``ended_by`` None: the end was not seen (the trial was voided before).  ``void``: code and reason.  ``spent`` None: no gateway counted;
    ``answers``: requests whose usage it knows, ``in_flight``: those not ended.  Times in ms since 1970 or as durations; None: not known.
    """

    run_dir: RunDir
    arm: Arm
    log: AgentLog
    instruction: str
    trial: str
    campaign: str
    task: str
    replicate: int
    attempt: int
    gates: Mapping[str, str]
    kept: Sequence[Kept]
    package_sha256: str
    started_at_ms: int
    ended_at_ms: int | None
    ran_ms: int | None
    limit_ms: int | None
    limit_origin: str
    held_ms: int
    ended_by: EndedBy | None
    exit_code: int | None
    exit_source: str
    void: tuple[str, str] | None
    spent: Sequence[Spent] | None
    answers: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about a run that people should know: it becomes a finding on the trial.  ``severity`` as of findings."""

    code: str
    detail: str
    severity: str = "warning"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What is kept of an agent's run.  ``data`` was validated against the schema of that number (fault e03)."""

    schema: int
    data: Mapping[str, Any]
    remarks: Sequence[Remark] = ()


class ReceiptInvalid(ValueError):
    """What a receipt is made of, or the receipt itself, has not the shape that it must have (fault e03); ``str()`` names the field."""


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """Whether what an arm mounts can run in an image at all: ``argv`` must exit 0 there, in a container without a network that lives for
    nothing else.  ``what`` names it for people.  A task whose image fails is parked (``runtime_unfit``) for all arms of the campaign."""

    what: str
    mounts: tuple[Mount, ...]
    argv: tuple[str, ...]
    timeout_s: float = 60.0


class Agent(Protocol):
    @property
    def needs_model(self) -> bool:
        """Whether the flow opens a way to the model for it."""
        ...

    @property
    def has_tool_sessions(self) -> bool:
        """Whether it gives each tool command a session of its own, which must die with it (core/death.py, fault b07)."""
        ...

    @property
    def keeps(self) -> Sequence[Keep]: ...

    @property
    def harness_folders(self) -> Sequence[str]:
        """Folders below ``run_dir.harness`` that the flow makes with the run directory, open to the agent's user."""
        ...

    @property
    def harness_prefix(self) -> str:
        """Processes whose command line starts with this belong to the harness and die with the agent under every policy (fault c17);
        empty: there are none."""
        ...

    def image_check(self, arm: Arm, staged: Mapping[str, Path]) -> ImageCheck | None:
        """None: nothing that could fail.  ``staged`` as for ``mounts``; raises GateFailed like it."""
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

    async def collect(self, run: Finished) -> Receipt | None:
        """:raises ReceiptInvalid, OSError: nothing of it may be stored."""
        ...
