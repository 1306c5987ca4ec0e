"""Tables of expected task digests: ``campaign.digests``, written by ``marathonctl plan --write-digests``.

Owns the file's form, and what a task is that does not have its digest.  The digest is ours (:func:`marathond.tasks.digest.tree_digest`:
paths, kinds, executable bits, bytes); Harbor's own ``dataset.toml`` is checked beside it (:mod:`marathond.tasks.dataset`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from marathond.core.errors import ConfigError, Refused
from marathond.core.model import Task, Unrunnable
from marathond.service.knobs import did_you_mean
from marathond.service.settings_errors import ConfigErrors
from marathond.service.tomlfile import TomlFile, read_toml, show
from marathond.tasks.atomic import write_atomic
from marathond.tasks.look import Look

FORMAT = 1
SCHEME = "sha256:"
SHOWN = 12
_HEX = re.compile(r"sha256:[0-9a-f]{64}")
_KEYS = ("format", "digests")
_HEAD = "# Digests of task folders, for campaign.digests; written by marathonctl plan --write-digests.\n"


@dataclass(frozen=True, slots=True)
class Table:
    """``digests``: a task's name to ``sha256:…``."""

    file: TomlFile
    digests: Mapping[str, str]

    def where(self, name: str) -> str:
        return self.file.where(("digests", name))


def read(path: Path, cwd: Path) -> Table:
    """:raises ConfigError: it cannot be read or is no TOML; (as ConfigErrors) whatever else is wrong in it, a line each."""
    file = read_toml(path, cwd)
    known = f"; known: {', '.join(_KEYS)}"
    errors = [
        ConfigError(file.where((key,)), key, "unknown key" + did_you_mean(key, _KEYS, otherwise=known))
        for key in file.data
        if key not in _KEYS
    ]
    if type(number := file.data.get("format")) is not int or number != FORMAT:
        errors.append(ConfigError(file.where(("format",)), "format" if number is None else show("format", number), f"must be {FORMAT}"))
    table = file.data.get("digests")
    if not isinstance(table, Mapping) or not table:
        errors.append(ConfigError(file.where(("digests",)), "digests", "must be a table of at least one task's name and sha256:…"))
        raise ConfigErrors(errors)
    errors += [
        ConfigError(file.where(("digests", name)), show(f"digests.{name}", value), "must be sha256: and 64 hex digits")
        for name, value in table.items()
        if not isinstance(value, str) or not _HEX.fullmatch(value)
    ]
    if errors:
        raise ConfigErrors(errors)
    return Table(file, dict(table))


def unlisted(table: Table, looks: Mapping[str, Look]) -> list[ConfigError]:
    """Tasks that the table does not know.  Without a digest of their own they park anyway."""
    return [
        ConfigError(table.file.label, f"digests.{name}", "missing: list it, leave it out by campaign.exclude, or write the table anew")
        for name, look in looks.items()
        if look.digest is not None and name not in table.digests
    ]


def checked(table: Table, look: Look) -> Task | Unrunnable:
    """The task, or ``task_changed`` where its folder does not have the digest that the table expects of it (fault a18)."""
    task = look.outcome
    expected = table.digests.get(task.name)
    if look.digest is None or expected == SCHEME + look.digest:
        return task
    wanted = "lists no digest of it" if expected is None else f"expects {_short(expected)}…"
    detail = f"{table.where(task.name)}: {wanted}, the folder has {_short(SCHEME + look.digest)}…"
    return Unrunnable(task.name, task.path, "task_changed", detail)


def write(path: Path, looks: Mapping[str, Look]) -> int:
    """Write the table of all ``looks`` that have a digest; returns how many.

    :raises Refused: ``path`` exists: a table that pins something is not overwritten.  :raises ArtifactError: it cannot be written.
    """
    digests = {name: SCHEME + look.digest for name, look in sorted(looks.items()) if look.digest is not None}
    if path.exists() or path.is_symlink():
        raise Refused(f"{path}: exists already; nothing was changed")
    if not digests:
        raise Refused("no task folder can be read: there is no digest to write")
    write_atomic(path, (_HEAD + tomli_w.dumps({"format": FORMAT, "digests": digests})).encode())
    return len(digests)


def _short(digest: str) -> str:
    return digest[: len(SCHEME) + SHOWN]
