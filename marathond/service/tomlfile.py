"""A configuration file as data, with the line of each key.

Owns reading and the errors of a file that is no TOML.  Must not know which keys are right, and must not import pydantic.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marathond.core.errors import ConfigError
from marathond.core.text import printable
from marathond.core.tomlindex import KeyPath, index_lines, line_of

MAX_BYTES = 4 << 20
"""No configuration is larger; a larger file is the wrong file."""

SHOWN_MAX = 80
"""Characters of a wrong value that are shown."""

_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """``label``: the file as a person knows it, for error lines.  ``base``: the folder against which relative paths are meant."""

    path: Path
    label: str
    data: Mapping[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)

    @property
    def base(self) -> Path:
        return self.path.parent

    def where(self, path: KeyPath) -> str:
        """``config.toml:31``, or the bare file for something that is nowhere in it."""
        line = line_of(self.lines, path)
        return self.label if line is None else f"{self.label}:{line}"


def read_toml(path: Path, cwd: Path) -> TomlFile:
    """Read ``path`` (absolute).

    :raises ConfigError: missing, unreadable, too large, not UTF-8 or not TOML; with the line where there is one.
    """
    label = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(label, "cannot be read", (error.strerror or str(error)).lower()) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(label, "not a configuration", f"larger than {MAX_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}:{line}", f"byte 0x{raw[error.start]:02x}", "must be UTF-8 text") from error
    try:
        data = tomllib.loads(text)
        lines = index_lines(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(label, text, str(error)) from error
    except RecursionError as error:
        raise ConfigError(label, "not TOML", "nested too deeply") from error
    return TomlFile(path, label, data, lines)


def is_there(path: Path) -> bool:
    """Whether there is anything at ``path``; a folder counts, so that reading it says what is wrong.

    :raises ConfigError: it cannot be told (permission denied): never taken for "no configuration".
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(str(path), "cannot be looked at", (error.strerror or str(error)).lower()) from error
    return True


def show(key: str, value: object) -> str:
    """``admission.passes = 0``, the value much as it was written, on one line, cut at :data:`SHOWN_MAX`; of a table only the key."""
    shown = key if isinstance(value, Mapping) else f"{key} = {_show_value(value)}"
    return shown if shown.isprintable() else printable(shown, len(shown))


def _show_value(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # dates and paths have no JSON
        text = str(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def _not_toml(label: str, text: str, message: str) -> ConfigError:
    position = _POSITION.search(message)
    line = int(position[1]) if position and position[1] else text.rstrip().count("\n") + 1
    return ConfigError(f"{label}:{line}", "not TOML", _POSITION.sub("", message))
