"""The words of the field as types: tasks, limits, arms.

Owns the values that travel between rooms.  Must not know where they come from (TOML, SQL, Docker).
Units are in the names: ``_s`` seconds (float), ``_ms`` integer milliseconds, ``_mb`` mebibytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marathond.core.names import AfterAgent, AgentKind, Drive, LoopXProfile, NetworkPolicy


@dataclass(frozen=True, slots=True)
class Limit:
    """An effective time limit and its history.

    ``limit_s`` None means unlimited.  ``origin`` is text such as ``own`` or ``task 36000 x 1.0``; ``loser`` is the limit that did not
    apply, in the same words, or empty.
    """

    limit_s: float | None
    origin: str
    loser: str = ""


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """`[environment.healthcheck]`: a shell command that must exit 0 before the agent starts."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Task:
    """One Harbor task directory, read and validated (facts: Harbor 0.26 task format, schema 1.0 to 1.4).

    ``digest`` is the sha256 over the whole directory (paths, modes and bytes); ``context_digest`` over ``environment/`` alone, which
    identifies the image.  ``image`` is the declared ``docker_image`` or None when a Dockerfile is built.
    ``agent_timeout_s`` None means the task declares no limit.  ``cpus``/``memory_mb`` None: the task declares none, the container
    runs unlimited.  ``verifier_timeout_declared`` False: ``verifier_timeout_s`` is the format's default.  ``uploads_environment``: the
    image is prebuilt, there is no Dockerfile, and the files of ``environment/`` are copied into the working directory before the agent.
    """

    name: str
    path: str
    digest: str
    context_digest: str
    instruction: str
    image: str | None
    has_dockerfile: bool
    build_timeout_s: float
    agent_timeout_s: float | None
    agent_user: str | None
    verifier_timeout_s: float
    verifier_user: str | None
    verifier_env: Mapping[str, str]
    solution_env: Mapping[str, str]
    env: Mapping[str, str]
    workdir: str | None
    cpus: float | None
    memory_mb: int | None
    storage_mb: int | None
    network: NetworkPolicy
    network_origin: str
    healthcheck: Healthcheck | None = None
    has_solution: bool = False
    uploads_environment: bool = False
    verifier_timeout_declared: bool = True
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """A task directory that parks its cells instead of running.

    ``code`` is stable: ``task_missing``, ``task_broken``, ``task_unsupported``, ``task_changed``, ``host_too_small``, ``image_missing``,
    ``image_build_failed``, ``image_needs_buildkit``, ``engine_without_pids``, ``runtime_unfit``
    (what an arm mounts cannot run in the image: for all arms).  ``detail`` is one line: what, where, expected.
    """

    name: str
    path: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount into the container."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class LoopXArm:
    """What a LoopX arm is given beside codex.  All of it is treatment.

    The first block is one for all arms of a campaign (``[loopx]``), the second the arm's own.  ``package``: what identifies the staged
    profile with its Python and Node.  ``source``: where LoopX came from (a wheel's hash, a commit).  ``state_inside``: its state lies in
    the task's tree.  ``wake_interval_s``: pause between two wakes instead of the one that LoopX asks for; None: LoopX's own.
    """

    package: str
    version: str
    source: str
    state_inside: bool = False

    profile: LoopXProfile = LoopXProfile.SSH_GOAL
    wake_interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class CodexArm:
    """What a codex arm is given and how it is driven.  All of it is treatment.

    The first block is one for all arms of a campaign (``[codex]``), the second the arm's own.  ``package``: what identifies the staged
    binaries (version, source and content).  ``infra_retries``: how often a turn that the infrastructure failed is taken up again.
    ``objective``: of a goal, unless ``loopx`` renders it; the whole instruction goes into the turn.  ``operator``: whether a goal that the
    model declared blocked is resumed, and a gate of LoopX cleared, at most ``unblocks_at_most`` times together.  ``turns_at_most``: of one
    trial.  ``idle_turns_at_most``: turns in a row without a tool call, or resumptions in a row after which nothing was done, after which a
    run is no longer continued (a model that answers nothing spins 25 turns a second, fault c07).
    """

    package: str
    version: str
    model: str
    effort: str
    infra_retries: int = 3
    request_max_retries: int = 8
    stream_max_retries: int = 8
    stream_idle_timeout_ms: int = 300_000

    drive: Drive = Drive.TURN
    objective: str = "Finish the task."
    token_budget: int | None = None
    operator: bool = False
    unblocks_at_most: int = 8
    turns_at_most: int = 500
    idle_turns_at_most: int = 3
    loopx: LoopXArm | None = None


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of driving the agent, as data.  Everything here is part of the treatment."""

    name: str
    kind: AgentKind
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    cwd: str | None = None
    mounts: tuple[Mount, ...] = ()
    install_check: tuple[str, ...] = ()
    after_agent: AfterAgent = AfterAgent.KEEP_DETACHED
    codex: CodexArm | None = None
