"""What a Harbor task may ask for that this version does not run, refused by name.

Owns the list of unsupported features and the decision about the network.  Pure: tables and file names in, words out.  A task is never
run as something else than it says: what is not in here and not read by :mod:`marathond.tasks.harbor` must not change a score.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from marathond.core.model import Unrunnable
from marathond.core.names import NetworkPolicy
from marathond.tasks.digest import Tree
from marathond.tasks.fields import Section, show

_MODES = {"public": NetworkPolicy.PUBLIC, "no-network": NetworkPolicy.NONE}
_PHASES = ("agent", "verifier")
_VERSION = re.compile(r"1(\.\d+)*|'1(\.\d+)*'", re.ASCII)
MEBIBYTE = 1 << 20


def unsupported(root: Mapping[str, Any], tree: Tree) -> str | None:
    """The first feature that is not supported, as ``where: which``; None when there is none.  Wrong types are not its business."""
    return next(_unsupported(root, tree), None)


def _unsupported(root: Mapping[str, Any], tree: Tree) -> Iterator[str]:
    environment, verifier = _table(root, "environment"), _table(root, "verifier")
    version = root.get("schema_version", root.get("version", "1.0"))
    if not _VERSION.fullmatch(show(version)):
        yield f"task.toml: schema_version = {show(version)}: only 1.x is supported"
    if root.get("steps"):
        yield "task.toml: steps: multi-step tasks are not supported"
    if tree.get("steps") is not None:
        yield "steps/: multi-step tasks are not supported"
    if tree.get("environment/docker-compose.yaml") is not None:
        yield "environment/docker-compose.yaml: compose environments are not supported"
    if tree.get("trajectory.json") is not None:
        yield "trajectory.json: seeding an agent with prior context is not supported"
    if verifier.get("environment_mode") == "separate":
        yield 'task.toml: verifier.environment_mode = "separate": a separate verifier is not supported'
    if "environment" in verifier and verifier.get("environment_mode") != "shared":
        yield "task.toml: verifier.environment: implies a separate verifier, which is not supported"
    if verifier.get("collect"):
        yield "task.toml: verifier.collect: collect hooks are not supported"
    yield from _unsupported_environment(environment)
    yield from _unsupported_network(root)
    for entry in tree.entries:
        if entry.relative.startswith(("tests/", "solution/")) and entry.relative.endswith("/.harborignore") and entry.size_bytes:
            yield f"{show(entry.relative)}: ignore rules for tests and solution are not supported"


def _unsupported_environment(environment: Mapping[str, Any]) -> Iterator[str]:
    for key in ("skills_dir", "mcp_servers", "tpu"):
        if environment.get(key):
            yield f"task.toml: environment.{key}: not supported"
    gpus = environment.get("gpus")
    if isinstance(gpus, int | float) and gpus > 0:
        yield f"task.toml: environment.gpus = {show(gpus)}: GPUs are not supported"
    system = environment.get("os")
    if isinstance(system, str) and system.lower() == "windows":
        yield 'task.toml: environment.os = "windows": only Linux containers are supported'


def _unsupported_network(root: Mapping[str, Any]) -> Iterator[str]:
    for name in ("environment", *_PHASES):
        table = _table(root, name)
        if table.get("network_mode") == "allowlist":
            yield f'task.toml: {name}.network_mode = "allowlist": allowlists are not supported'
        if table.get("allowed_hosts"):
            yield f"task.toml: {name}.allowed_hosts: allowlists are not supported"


def _table(root: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = root.get(name)
    return value if isinstance(value, dict) else {}


FORMAT_DEFAULT, CONFIGURED = "format default", "network.undeclared"
"""Where the network of a task came from that declares none."""


def network_of(
    environment: Section, agent: Section, verifier: Section, undeclared: NetworkPolicy = NetworkPolicy.PUBLIC
) -> tuple[NetworkPolicy, str] | str:
    """The one network policy of a task and where it came from, or a refusal by name when its phases differ.

    A phase without its own ``network_mode`` has the environment's; an environment without one is ``public``, by the format, or what the
    configuration says instead (``undeclared``, fault b17: never silently).

    :raises ConfigError: a mode that is no word of the format.
    """
    base, origin = _baseline(environment, undeclared)
    own = {phase.name: _mode(phase) for phase in (agent, verifier)}
    effective = {name: mode or base for name, mode in own.items()}
    first, second = effective.values()
    if first is not second:
        words = ", ".join(f"{name} {_word(mode)}" for name, mode in effective.items())
        return f"task.toml: network_mode: phases whose networks differ are not supported ({words})"
    if first is base:
        return base, origin
    if origin not in {FORMAT_DEFAULT, CONFIGURED}:
        return f"task.toml: network_mode: phases whose networks differ are not supported (environment {_word(base)}, phases {_word(first)})"
    return first, "task agent and verifier network_mode"


def _baseline(environment: Section, undeclared: NetworkPolicy) -> tuple[NetworkPolicy, str]:
    allow = environment.boolean("allow_internet")
    mode = _mode(environment)
    if allow is not None:
        environment.note("allow_internet", "deprecated" + (", network_mode applies" if mode else ""))
    if mode is not None:
        return mode, "task network_mode"
    if allow is not None:
        return (NetworkPolicy.PUBLIC if allow else NetworkPolicy.NONE), "task allow_internet"
    return undeclared, FORMAT_DEFAULT if undeclared is NetworkPolicy.PUBLIC else CONFIGURED


def _mode(section: Section) -> NetworkPolicy | None:
    word = section.text("network_mode")
    if word is None:
        return None
    if word not in _MODES:
        raise section.wrong("network_mode", "must be public, no-network or allowlist")
    return _MODES[word]


def _word(policy: NetworkPolicy) -> str:
    return next(word for word, mode in _MODES.items() if mode is policy)


class Sized(Protocol):
    """What a task declares of its size, whoever holds it."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def cpus(self) -> float | None: ...
    @property
    def memory_mb(self) -> int | None: ...


def check_host(task: Sized, ncpu: int, memory_bytes: int, *, pids: int | None, limits_pids: bool) -> Unrunnable | None:
    """Refuse a task that declares more than the engine's host has (``ncpu`` processors, ``memory_bytes``); storage is not checked here.

    And every task where a limit of processes is configured (``pids``) that the engine would silently leave out (``limits_pids`` False).
    """
    if pids is not None and not limits_pids:
        detail = f"limits.pids = {pids}: this engine cannot limit processes (no pids cgroup); a campaign with limits.pids = 0 would run"
        return Unrunnable(task.name, task.path, "engine_without_pids", detail)
    if task.cpus is not None and task.cpus > ncpu:
        detail = f"environment.cpus = {task.cpus:g}: this host has {ncpu}"
    elif task.memory_mb is not None and task.memory_mb * MEBIBYTE > memory_bytes:
        detail = f"environment.memory_mb = {task.memory_mb}: this host has {memory_bytes // MEBIBYTE} MiB"
    else:
        return None
    return Unrunnable(task.name, task.path, "host_too_small", detail)
