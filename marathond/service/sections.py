"""The sections of a configuration as frozen models: names, types, ranges and defaults of every key.

Owns what a valid value is.  Must not know where values come from (file, environment, command line) or how errors are shown; a rule over
several keys names the guilty one through :func:`guilty`.  Each field's description says what it does, in which unit.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from marathond.core import paths
from marathond.core.names import AfterAgent, AgentKind, Drive, LoopXProfile
from marathond.core.order import Expected, Order
from marathond.core.proxies import EXCEPTIONS, PROXY_VARIABLES, leads_to_itself
from marathond.core.subnets import SMALLEST_PREFIX
from marathond.service.knobs import KNOBS

SLUG = r"[a-z0-9]+(?:[-_][a-z0-9]+)*"
PIDS_AT_LEAST, PIDS_AT_MOST = 32, 1 << 22
"""The idle container with a shell and its tools fits into the first, a codex needs more; the kernel numbers no more than the second."""
_OWN_FOLDERS = ("/tests", "/solution", "/logs", "/marathond")


def guilty(key: str, expected: str) -> PydanticCustomError:
    """An error of a rule over several keys, blamed on ``key`` (dotted, below the model that found it)."""
    return PydanticCustomError("guilty", "{expected}", {"key": key, "expected": expected})


def _wrong(expected: str) -> PydanticCustomError:
    return PydanticCustomError("wrong", "{expected}", {"expected": expected})


def _slug(value: str) -> str:
    if len(value) > 60 or not re.fullmatch(SLUG, value):
        raise _wrong("must be lower-case letters and digits, joined by - or _, at most 60")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise _wrong("must not contain a NUL byte")
    return value


def _container_path(value: str) -> str:
    if not value.startswith("/"):
        raise _wrong("must be an absolute path in the container")
    return _no_nul(value)


def _path(value: Any) -> Any:
    """Paths come here absolute, but for those that are no path at all."""
    if isinstance(value, str) and (problem := paths.path_problem(value)) is not None:
        raise _wrong(problem)
    return value


def _env_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise _wrong("must be a variable's name (letters, digits, _)")
    return value


def _pids(value: int) -> int:
    if value and not PIDS_AT_LEAST <= value <= PIDS_AT_MOST:
        raise _wrong(f"must be 0 (no limit) or lie in {PIDS_AT_LEAST}-{PIDS_AT_MOST}")
    return value


@dataclass(frozen=True, eq=False)
class Checked:
    """A check of a value, and what of it a JSON Schema can say, so that an editor refuses what the daemon would."""

    check: Callable[[Any], Any]
    facts: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), **self.facts}


Int = Annotated[int, Strict()]
Num = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict(), AfterValidator(_no_nul)]
Word = Annotated[str, Strict(), StringConstraints(min_length=1), AfterValidator(_no_nul)]
Slug = Annotated[str, Strict(), Checked(_slug, {"pattern": f"^{SLUG}$", "maxLength": 60})]
HostPath = Annotated[Path, BeforeValidator(_path)]
InContainer = Annotated[str, Strict(), Checked(_container_path, {"pattern": "^/"})]
Undeclared = Literal["public", "no-network"]
"""Harbor's words for the network of a task that declares none."""
EnvMap = dict[Annotated[str, Checked(_env_name, {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"})], Text]


class Section(BaseModel):
    """Unknown keys are errors, values are never coerced from another type, nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)


def _knob(key: str) -> Any:
    """A field whose default and range live in :data:`marathond.service.knobs.KNOBS`."""

    def check(value: Any) -> Any:
        if (problem := KNOBS[key].problem(value)) is not None:
            raise _wrong(problem)
        return value

    knob = KNOBS[key]
    facts = {"enum": list(knob.choices) or None, "exclusiveMinimum" if knob.low_open else "minimum": knob.low, "maximum": knob.high}
    told = {name: fact for name, fact in facts.items() if fact is not None}
    return Checked(check, {"description": knob.effect, **told})


class Daemon(Section):
    """``[daemon]``: where the daemon keeps things, and how it logs.  Fixed until it restarts."""

    state_dir: HostPath = Field(description="ledger, run directories, sockets; on a local disk, with a short path")
    out_dir: HostPath = Field(
        default_factory=lambda data: paths.default_below(data["state_dir"], "out_dir"), description="artifacts; may be NFS"
    )
    ledger: HostPath = Field(default_factory=lambda data: paths.default_below(data["state_dir"], "ledger"), description="the SQLite ledger")
    control_socket: HostPath = Field(
        default_factory=lambda data: paths.default_below(data["state_dir"], "control_socket"), description="where marathonctl talks to it"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least severity that is logged")
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, the journal, else json"
    )

    @model_validator(mode="after")
    def _sockets_fit(self) -> Daemon:
        if problem := paths.state_dir_problem(self.state_dir):
            raise guilty("state_dir", problem)
        if problem := paths.socket_path_problem(self.control_socket):
            raise guilty("control_socket", problem)
        return self


class EngineSection(Section):
    """``[engine]``: the Docker engine and how images come about.  Fixed until the daemon restarts."""

    name: Slug = Field(default="local", description="the engine's name in the ledger; two engines must differ in it")
    url: Word = Field(default=paths.DEFAULT_ENGINE_URL, description="socket of the engine")
    call_timeout_s: Num = Field(default=30.0, gt=0, le=3600, description="deadline of every call that should be short")
    build_network: Word | None = Field(default=None, description="network of image builds (host, none, a name)")
    build_args: EnvMap = Field(default_factory=dict, description="build arguments; the only home of a proxy for builds")
    build_concurrency: Int = Field(default=1, ge=1, le=64, description="image builds at one time")
    pull_timeout_s: Num = Field(default=600.0, gt=0, le=86400, description="deadline of one image pull")
    build_retries: Int = Field(default=2, ge=0, le=20, description="further attempts at a failed build or pull")

    @model_validator(mode="after")
    def _url_is_one(self) -> EngineSection:
        scheme = next((scheme for scheme in paths.ENGINE_SCHEMES if self.url.startswith(scheme)), None)
        if scheme is None or self.url == scheme:
            raise guilty("url", f"must start with one of {', '.join(paths.ENGINE_SCHEMES)} (TLS and ssh are not supported)")
        if scheme == "unix://":
            path = Path(self.url.removeprefix(scheme))
            if not path.is_absolute():
                raise guilty("url", "must name an absolute path, as in unix:///var/run/docker.sock")
            if problem := paths.socket_path_problem(path):
                raise guilty("url", problem)
        return self


class Network(Section):
    """``[network]``: where trials' subnets come from (faults b01, b02), and the proxy of tasks with a network (fault b13)."""

    mode: Literal["explicit", "auto"] = Field(default="explicit", description="explicit: subnets from range; auto: the engine's own pools")
    range: Word = Field(default="198.19.0.0/16", description="explicit: the IPv4 range that subnets are cut from")
    prefix: Int = Field(default=28, ge=16, le=SMALLEST_PREFIX, description="explicit: size of one trial's subnet")
    cap: Annotated[Int, _knob("network.cap")] = Field(default=64, description=KNOBS["network.cap"].effect)
    margin: Annotated[Int, _knob("network.margin")] = Field(default=2, description=KNOBS["network.margin"].effect)
    undeclared: Undeclared = Field(default="public", description="network of a task that declares none; the format's own is public")
    runtime_proxy: EnvMap = Field(default_factory=dict, description="proxy variables of the containers of tasks with a network")

    @model_validator(mode="after")
    def _proxies_lead_somewhere(self) -> Network:
        for name, value in self.runtime_proxy.items():
            if name.lower() not in PROXY_VARIABLES:
                raise guilty(f"runtime_proxy.{name}", f"must be one of {', '.join(sorted(PROXY_VARIABLES))}, in either case")
            if not value.strip():
                raise guilty(f"runtime_proxy.{name}", "must not be empty: leave it out")
            if name.lower() not in EXCEPTIONS and leads_to_itself(value):
                raise guilty(f"runtime_proxy.{name}", "must not be a loopback address: in a container that is the container itself")
        return self

    @model_validator(mode="after")
    def _subnets_fit(self) -> Network:
        try:
            net = ipaddress.IPv4Network(self.range)
        except ValueError as error:
            raise guilty("range", f"must be an IPv4 network such as 198.19.0.0/16 ({error})") from error
        if net.is_global or net.is_loopback or net.is_link_local or net.is_multicast or net.is_unspecified or net.is_reserved:
            raise guilty("range", "must be a private range: not public, loopback, link-local or multicast")
        if net.prefixlen > SMALLEST_PREFIX:
            raise guilty("range", f"must be at least as large as one subnet of a trial, a /{SMALLEST_PREFIX}")
        if self.prefix < net.prefixlen:
            raise guilty("prefix", f"must be at least {net.prefixlen}, the size of network.range")
        if self.mode == "explicit" and self.cap > (room := 2 ** (self.prefix - net.prefixlen)):
            raise guilty("cap", f"must be at most {room}: no more /{self.prefix} fit in {self.range}")
        return self


class Admission(Section):
    """``[admission]``: how many trials run and when.  All of it may change while a campaign runs."""

    concurrency: Annotated[Int, _knob("admission.concurrency")] = 4
    order: Annotated[Order, _knob("admission.order")] = Order.REPLICATE_MAJOR
    expected: Annotated[Expected, _knob("admission.expected")] = Expected.LEARNED
    seed: Annotated[Int, _knob("admission.seed")] = 1
    cpu_overcommit: Annotated[Num, _knob("admission.cpu_overcommit")] = 1.0
    memory_overcommit: Annotated[Num, _knob("admission.memory_overcommit")] = 1.0
    reserve_cpus: Annotated[Num, _knob("admission.reserve_cpus")] = 0.0
    reserve_memory_mb: Annotated[Int, _knob("admission.reserve_memory_mb")] = 512
    undeclared_cpus: Annotated[Num, _knob("admission.undeclared_cpus")] = 0.25
    undeclared_memory_mb: Annotated[Int, _knob("admission.undeclared_memory_mb")] = 256
    disk_floor_percent: Annotated[Num, _knob("admission.disk_floor_percent")] = 5.0
    disk_floor_gb: Annotated[Num, _knob("admission.disk_floor_gb")] = 2.0
    passes: Annotated[Int, _knob("admission.passes")] = 3
    breaker_after: Annotated[Int, _knob("admission.breaker_after")] = 5
    breaker_pause_s: Annotated[Num, _knob("admission.breaker_pause_s")] = 300.0


class Limits(Section):
    """``[limits]``: how long agents and verifiers may take, and how many processes; the first five are part of the treatment."""

    agent_timeout_s: Annotated[Num, Field(gt=0, le=31536000)] | None = Field(default=None, description="our own deadline of an agent")
    agent_timeout_multiplier: Num = Field(default=1.0, gt=0, le=1000, description="times the task's agent limit")
    verifier_timeout_multiplier: Num = Field(default=1.0, gt=0, le=1000, description="times the task's verifier limit")
    build_timeout_multiplier: Num = Field(default=1.0, gt=0, le=1000, description="times the task's limit of an image build")
    after_agent: AfterAgent = Field(default=AfterAgent.KEEP_DETACHED, description="what happens to processes an agent detached on purpose")
    pids: Annotated[Int, Checked(_pids, {"minimum": 0, "maximum": PIDS_AT_MOST})] = Field(
        default=16384, description="processes and threads of one container; 0: no limit"
    )
    gate_timeout_s: Num = Field(default=60.0, gt=0, le=86400, description="deadline of one gate before the agent's start")
    artifact_max_mb: Int = Field(default=2048, ge=1, le=2**20, description="most that is collected from one trial")
    artifact_max_files: Int = Field(default=20000, ge=1, le=10**7, description="most files that are collected from one trial")


class MountSection(Section):
    """``[[arms.NAME.mounts]]``: a folder or file of the host inside the container."""

    source: HostPath = Field(description="path on the host")
    target: InContainer = Field(description="path in the container")
    read_only: Flag = Field(default=True, description="whether the container may not write there")

    @model_validator(mode="after")
    def _covers_nothing_of_ours(self) -> MountSection:
        target = "/" + "/".join(part for part in self.target.split("/") if part not in {"", "."})
        if ".." in target.split("/") or target == "/":
            raise guilty("target", "must be a path below / without ..")
        if any(target == own or target.startswith(own + "/") for own in _OWN_FOLDERS):
            raise guilty("target", f"must not lie in {', '.join(_OWN_FOLDERS)}, which belong to the trial itself")
        return self


_GOAL, _WAKE = (Drive.GOAL,), (Drive.WAKE,)
DRIVE_KEYS = {
    **dict.fromkeys(("objective", "token_budget"), _GOAL),
    **dict.fromkeys(("operator", "unblocks_at_most", "turns_at_most", "idle_turns_at_most"), _GOAL + _WAKE),
}
LOOPX_KEYS = {"loopx": _GOAL + _WAKE, "wake_interval_s": _WAKE}
CODEX_KEYS = ("drive", *DRIVE_KEYS, *LOOPX_KEYS)
"""Keys of a codex arm, most of them with the drives for which they mean something."""


class ArmSection(Section):
    """``[arms.NAME]``: one way of driving the agent.  Everything here is part of the treatment."""

    kind: AgentKind = Field(description="command: a program; codex: driven by drive; oracle: the task's own solution; nop: nothing")
    argv: tuple[Text, ...] = Field(default=(), description="of a command arm: program and arguments")
    env: EnvMap = Field(default_factory=dict, description="variables of the agent")
    user: Word | None = Field(default=None, description="of the agent in the container; default: the task's, else the image's")
    cwd: InContainer | None = Field(default=None, description="folder in which the agent starts; default: the image's")
    mounts: tuple[MountSection, ...] = Field(default=(), description="folders and files of the host in the container")
    install_check: tuple[Text, ...] = Field(default=(), description="program and arguments that must succeed before the agent starts")
    after_agent: AfterAgent | None = Field(default=None, description="instead of limits.after_agent")
    drive: Drive | None = Field(default=None, description="of a codex arm: turn (one turn, goals off), goal (a native goal), wake")
    objective: Annotated[str, Strict(), StringConstraints(min_length=1, max_length=4000)] | None = Field(
        default=None, description="of the goal; default: Finish the task."
    )
    token_budget: Annotated[Int, Field(ge=1)] | None = Field(default=None, description="tokens that the goal may use; default: no bound")
    operator: Flag | None = Field(default=None, description="whether a blocked goal is resumed; default: with loopx")
    unblocks_at_most: Annotated[Int, Field(ge=0, le=1000)] | None = Field(default=None, description="so many times; default: 8")
    turns_at_most: Annotated[Int, Field(ge=1, le=1_000_000)] | None = Field(default=None, description="turns of a trial; default: 500")
    idle_turns_at_most: Annotated[Int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="turns in a row without a tool call; default: 3"
    )
    loopx: LoopXProfile | None = Field(default=None, description="LoopX's runtime profile, for an arm that gets LoopX")
    wake_interval_s: Annotated[Num, Field(gt=0, le=86400)] | None = Field(default=None, description="instead of LoopX's own pause")

    @model_validator(mode="after")
    def _keys_of_codex(self) -> ArmSection:
        codex = self.kind is AgentKind.CODEX
        if codex and self.drive is None:
            raise guilty("drive", f'required for kind = "codex": {" or ".join(drive.value for drive in Drive)}')
        if not codex and self.drive is not None:
            raise guilty("drive", 'only for kind = "codex"')
        for key, drives in {**DRIVE_KEYS, **LOOPX_KEYS}.items():
            if getattr(self, key) is not None and self.drive not in drives:
                raise guilty(key, f'only for kind = "codex"{" with drive = " + " or ".join(drives) if codex else ""}')
        return self

    @model_validator(mode="after")
    def _loopx_fits_its_drive(self) -> ArmSection:
        if self.drive is Drive.WAKE and self.loopx is not LoopXProfile.GENERIC_CLI:
            raise guilty("loopx", f"must be {LoopXProfile.GENERIC_CLI} with drive = wake")
        if self.drive is Drive.GOAL and self.loopx is LoopXProfile.GENERIC_CLI:
            raise guilty("loopx", f"must be {LoopXProfile.SSH_GOAL} or {LoopXProfile.CODEX_CLI} with drive = goal; generic_cli is for wake")
        if self.loopx is not None and self.objective is not None:
            raise guilty("objective", "forbidden with loopx: LoopX itself writes the goal's objective")
        return self

    @model_validator(mode="after")
    def _argv_belongs_to_command(self) -> ArmSection:
        if self.kind is AgentKind.COMMAND and not self.argv:
            raise guilty("argv", 'required for kind = "command"')
        if self.kind is not AgentKind.COMMAND and self.argv:
            raise guilty("argv", f'forbidden for kind = "{self.kind}", only "command" has one')
        for key, argv in (("argv", self.argv), ("install_check", self.install_check)):
            if argv and not argv[0]:
                raise guilty(key, "must start with a program's name")
        targets = [mount.target.rstrip("/") for mount in self.mounts]
        for index, target in enumerate(targets):
            if target in targets[:index]:
                raise guilty(f"mounts.{index}.target", "already the target of another mount")
        return self


class Campaign(Section):
    """``[campaign]``: which cells there are.  May grow while it runs (``marathonctl submit``)."""

    name: Slug = Field(description="of the campaign; artifacts lie in <out_dir>/<name>/")
    tasks: tuple[Word, ...] = Field(min_length=1, description="task folders, folders of such, or patterns")
    include: tuple[Word, ...] = Field(default=(), description="names or patterns of tasks: only these; default: all")
    exclude: tuple[Word, ...] = Field(default=(), description="names or patterns of tasks that are left out")
    arms: tuple[Slug, ...] | None = Field(default=None, min_length=1, description="of [arms], in this order; default: all, as defined")
    replicates: Int = Field(default=1, ge=1, le=1000, description="repetitions of each task under each arm")
    benchmark: Word | None = Field(default=None, description="a profile that ships with the package, or the path of one's own")
    digests: HostPath | None = Field(default=None, description="table of the tasks' expected digests")

    @model_validator(mode="after")
    def _nothing_twice(self) -> Campaign:
        for key in ("tasks", "include", "exclude", "arms"):
            values: tuple[str, ...] = getattr(self, key) or ()
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise guilty(f"{key}.{index}", "named twice")
        for index, name in enumerate(self.exclude):
            if name in self.include:
                raise guilty(f"exclude.{index}", "both included and excluded")
        return self
