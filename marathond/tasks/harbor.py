"""Reads a Harbor task directory into a :class:`~marathond.core.model.Task`, or says why it cannot run.

Owns the meaning of the format (Harbor 0.26.0, schema 1.0 to 1.4: defaults, deprecated keys, precedence).  Must not know the ledger,
Docker or campaigns.  Never raises for a bad task, never writes, never asks the process's own environment.
Facts from Harbor's ``models/task/config.py``, ``models/task/task.py`` and ``utils/env.py``.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marathond.core.errors import ConfigError
from marathond.core.model import Task, Unrunnable
from marathond.core.names import NetworkPolicy
from marathond.core.text import printable
from marathond.tasks.dataset import manifest_error
from marathond.tasks.digest import Kind, Tree, open_regular, scan, tree_digest
from marathond.tasks.environment import (
    ENVIRONMENT_KEYS,
    cpus_of,
    env_of,
    has_file,
    healthcheck_of,
    image_of,
    memory_of,
    size_mb,
    workdir_of,
)
from marathond.tasks.fields import Section, show
from marathond.tasks.look import Look, marks_of
from marathond.tasks.support import network_of, unsupported

MAX_TOML_BYTES = 1 << 20
MAX_INSTRUCTION_BYTES = 8 << 20
MAX_DETAIL = 500
BUILD_TIMEOUT_S = 600.0
VERIFIER_TIMEOUT_S = 600.0

_ROOT = frozenset(
    [
        "schema_version",
        "version",
        "task",
        "metadata",
        "verifier",
        "agent",
        "environment",
        "solution",
        "source",
        "multi_step_reward_strategy",
        "steps",
        "artifacts",
    ]
)
_TASK = frozenset(["name", "version", "description", "authors", "keywords"])
_AGENT = frozenset(["timeout_sec", "user", "network_mode", "allowed_hosts"])
_VERIFIER = frozenset(["timeout_sec", "env", "user", "environment_mode", "environment", "collect", "network_mode", "allowed_hosts"])
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_TOML_PLACE = re.compile(r"\s*\(at line (\d+), column \d+\)$")


def read_task(path: Path, environ: Mapping[str, str] | None = None, undeclared: NetworkPolicy = NetworkPolicy.PUBLIC) -> Task | Unrunnable:
    """Read and validate the task directory ``path``.

    :param environ: what ``${VAR}`` and ``${VAR:-default}`` in ``env`` tables stand for; empty when not given.  The caller decides what
        of its own environment a task may see.
    :param undeclared: the network of a task that declares none; the format's own is ``public``.
    :return: the task, or why it cannot run (``task_missing``, ``task_broken``, ``task_unsupported``), in one line.
    """
    return look(path, environ, undeclared).outcome


def look(path: Path, environ: Mapping[str, str] | None = None, undeclared: NetworkPolicy = NetworkPolicy.PUBLIC) -> Look:
    """As :func:`read_task`, and what the directory shows of a task that does not run, too."""
    digest, marks = None, None
    try:
        if not _storable(path):
            raise ConfigError("the path of the task directory", "not UTF-8", "a path that can be written down")
        tree = scan(path)
        digest = tree_digest(tree)
        root = _parse(tree)
        marks = marks_of(root, tree, undeclared)
        return Look(_outcome(path, tree, root, environ or {}, undeclared), digest, marks)
    except FileNotFoundError:
        return Look(_refused(path, "task_missing", f"{path}: no such directory"))
    except ConfigError as error:
        return Look(_refused(path, "task_broken", str(error)), digest, marks)


def _outcome(path: Path, tree: Tree, root: dict[str, Any], environ: Mapping[str, str], undeclared: NetworkPolicy) -> Task | Unrunnable:
    if refusal := unsupported(root, tree):
        return _refused(path, "task_unsupported", refusal)
    _check_folders(tree)
    outcome = _task(path, tree, Section(root, "", []), environ, undeclared)
    if isinstance(outcome, str):
        return _refused(path, "task_unsupported", outcome)
    if mismatch := manifest_error(tree, path, _declared_name(root)):
        return _refused(path, "task_broken", mismatch)
    return outcome


def _task(path: Path, tree: Tree, root: Section, environ: Mapping[str, str], undeclared: NetworkPolicy) -> Task | str:
    """The task, or an unsupported feature by name."""
    agent, verifier, environment, solution = (root.section(key) for key in ("agent", "verifier", "environment", "solution"))
    for section, known in ((root, _ROOT), (root.section("task"), _TASK), (agent, _AGENT), (verifier, _VERIFIER)):
        section.note_unknown(known)
    environment.note_unknown(ENVIRONMENT_KEYS)
    solution.note_unknown(frozenset({"env"}))
    _check_verifier_mode(verifier)
    if environment.integer("gpus", at_least=0):
        return f"task.toml: environment.gpus = {show(environment.table['gpus'])}: GPUs are not supported"
    if (environment.text("os") or "linux").lower() != "linux":
        raise environment.wrong("os", "must be linux")
    network = network_of(environment, agent, verifier, undeclared)
    if isinstance(network, str):
        return network
    if root.table.get("artifacts"):
        root.note("artifacts", "declared paths are not collected, only /logs/artifacts is")
    image, has_dockerfile = image_of(environment, tree)
    verifier_timeout_s = verifier.number("timeout_sec")
    return Task(
        name=path.absolute().name,
        path=str(path),
        digest=tree_digest(tree),
        context_digest=tree_digest(tree, "environment"),
        instruction=_instruction(tree),
        image=image,
        has_dockerfile=has_dockerfile,
        uploads_environment=image is not None and not has_dockerfile and bool(tree.under("environment")),
        build_timeout_s=environment.number("build_timeout_sec") or BUILD_TIMEOUT_S,
        agent_timeout_s=agent.number("timeout_sec"),
        agent_user=agent.user("user"),
        verifier_timeout_s=verifier_timeout_s or VERIFIER_TIMEOUT_S,
        verifier_timeout_declared=verifier_timeout_s is not None,
        verifier_user=verifier.user("user"),
        verifier_env=env_of(verifier, environ, verifier=True),
        solution_env=env_of(solution, environ),
        env=env_of(environment, environ),
        workdir=workdir_of(environment),
        cpus=cpus_of(environment),
        memory_mb=memory_of(environment),
        storage_mb=size_mb(environment, "storage"),
        network=network[0],
        network_origin=network[1],
        healthcheck=healthcheck_of(environment),
        has_solution=has_file(tree, "solution/solve.sh"),
        warnings=tuple(root.warnings),
    )


def _parse(tree: Tree) -> dict[str, Any]:
    text = _text(tree, "task.toml", MAX_TOML_BYTES)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        words = str(error)
        place = _TOML_PLACE.search(words)
        line = f":{place[1]}" if place else ""
        raise ConfigError(f"task.toml{line}", _TOML_PLACE.sub("", words), "TOML") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("task.toml", str(error) or type(error).__name__, "TOML that can be read") from error


def _text(tree: Tree, relative: str, max_bytes: int) -> str:
    """The UTF-8 text that was hashed: a file that changed since is refused, so that digest and content always belong together."""
    entry = tree.resolve(relative)
    if entry is None or entry.kind is not Kind.FILE:
        raise ConfigError(relative, "missing", "a file of that name in the task directory")
    if entry.size_bytes > max_bytes:
        raise ConfigError(relative, f"{entry.size_bytes} bytes", f"at most {max_bytes}")
    try:
        with open_regular(tree.root / entry.relative) as stream:
            data = stream.readall()
    except OSError as error:
        raise ConfigError(relative, f"cannot be read: {error.strerror or error}", "a readable file") from error
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise ConfigError(relative, "changed while it was read", "a task directory that nobody edits")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(relative, f"not UTF-8 at byte {error.start}", "text in UTF-8") from error


def _instruction(tree: Tree) -> str:
    text = _text(tree, "instruction.md", MAX_INSTRUCTION_BYTES).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise ConfigError("instruction.md", "holds a NUL byte", "text")
    if not has_file(tree, "tests/test.sh"):
        raise ConfigError("tests/test.sh", "missing", "a verifier")
    return strip_canary(text)


def strip_canary(text: str) -> str:
    """``text`` without its leading canary comment lines and the blank lines that follow them (Harbor's rule)."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


def _check_verifier_mode(verifier: Section) -> None:
    mode = verifier.text("environment_mode")
    if mode is not None and mode != "shared":
        raise verifier.wrong("environment_mode", "must be shared or separate")
    if verifier.has("environment"):
        raise verifier.wrong("environment", 'must not be there with environment_mode = "shared"')


def _declared_name(root: Mapping[str, Any]) -> str | None:
    table = root.get("task")
    name = table.get("name") if isinstance(table, dict) else None
    return name if isinstance(name, str) else None


def _check_folders(tree: Tree) -> None:
    """A link in the place of a whole folder would be uploaded, built and hashed as something else than it looks."""
    for name in ("environment", "tests", "solution"):
        entry = tree.get(name)
        if entry is not None and entry.kind is not Kind.FOLDER:
            raise ConfigError(name, f"a {entry.kind.value}", "a folder")


def _storable(path: Path) -> bool:
    """Whether the path's bytes are text: neither JSON nor a ledger takes others."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(path: Path, code: str, detail: str) -> Unrunnable:
    """Nobody opens a refused path again: bytes of it that are no text are written as escapes."""
    name, where = (os.fsencode(text).decode(errors="backslashreplace") for text in (path.absolute().name, str(path)))
    return Unrunnable(name, where, code, printable(detail, MAX_DETAIL))
