"""What one walk over a task directory shows: the task or why it does not run, its digest, and its marks.

Owns how the marks are seen.  Tolerant: the folder of a task that is refused for one thing still shows all its marks.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marathond.core.benchmark import Mark
from marathond.core.model import Task, Unrunnable
from marathond.core.names import NetworkPolicy
from marathond.tasks.digest import Kind, Tree


@dataclass(frozen=True, slots=True)
class Look:
    """``digest``: ours of the whole directory, hex sha256; None: it could not be walked.  ``marks`` None: its task.toml is not readable."""

    outcome: Task | Unrunnable
    digest: str | None = None
    marks: frozenset[Mark] | None = None


def marks_of(root: Mapping[str, Any], tree: Tree, undeclared: NetworkPolicy) -> frozenset[Mark]:
    """What ``task.toml`` and the files show.  Wrong types show nothing.

    :param undeclared: the network of a task that declares none.
    """
    return frozenset(_marks(root, tree, undeclared))


def _marks(root: Mapping[str, Any], tree: Tree, undeclared: NetworkPolicy) -> Iterator[Mark]:
    environment, verifier = _table(root, "environment"), _table(root, "verifier")
    gpus = environment.get("gpus")
    if isinstance(gpus, int | float) and gpus > 0:
        yield Mark.GPU
    if _offline(environment, _table(root, "agent"), undeclared):
        yield Mark.OFFLINE
    mode = verifier.get("environment_mode")
    if mode == "separate" or ("environment" in verifier and mode != "shared"):
        yield Mark.SEPARATE_VERIFIER
    if (found := tree.get("tests/Dockerfile")) is not None and found.kind is not Kind.FOLDER:
        yield Mark.VERIFIER_IMAGE
    if root.get("steps") or tree.get("steps") is not None:
        yield Mark.MULTI_STEP
    if tree.get("environment/docker-compose.yaml") is not None:
        yield Mark.COMPOSE


def _offline(environment: Mapping[str, Any], agent: Mapping[str, Any], undeclared: NetworkPolicy) -> bool:
    """The agent's phase alone: a verifier that downloads its tools does not give the agent a network."""
    for table in (agent, environment):
        if (mode := table.get("network_mode")) is not None:
            return bool(mode == "no-network")
    if isinstance(allowed := environment.get("allow_internet"), bool):
        return not allowed
    return undeclared is NetworkPolicy.NONE


def _table(root: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = root.get(name)
    return value if isinstance(value, dict) else {}
