"""What a task folder asks of this host, also one that parks: variables of the host for its verifier, images to build upon.

Owns a lenient second reading of task.toml and Dockerfiles for ``marathonctl preflight``.  Whether the task can run is said by
:mod:`marathond.tasks.harbor` alone; what cannot be read here asks for nothing, and has its reason there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.core.dockerfile import base_images
from marathond.tasks.environment import TEMPLATE
from marathond.tasks.harbor import MAX_TOML_BYTES

DOCKERFILE_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HostVariable:
    """``[verifier.env] ANY = "${name}"``, or with ``${name:-default}``."""

    name: str
    has_default: bool


def verifier_variables(folder: Path) -> tuple[HostVariable, ...]:
    """Of a task folder; none of one whose task.toml cannot be read."""
    try:
        with (folder / "task.toml").open("rb") as file:
            root = tomllib.loads(file.read(MAX_TOML_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return ()
    env = _table(_table(root, "verifier"), "env")
    matches = [TEMPLATE.fullmatch(value) for value in env.values() if isinstance(value, str)]
    return tuple(HostVariable(match[1], match[2] is not None) for match in matches if match is not None)


def images_below(context: Path, build_args: Mapping[str, str]) -> tuple[str, ...]:
    """Images that ``context``'s Dockerfile builds upon.

    :raises OSError: it cannot be read.
    """
    with (context / "Dockerfile").open("rb") as file:
        return base_images(file.read(DOCKERFILE_MAX_BYTES).decode("utf-8", "replace"), build_args)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}
