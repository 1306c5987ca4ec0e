"""Typed access to one section of a task.toml.

Owns the wording of "where = what: expected" for a wrong value and the list of what was tolerated.  Must not know which keys exist.
Numbers written as text are read as numbers (Harbor's own reader does) and noted; a boolean is never a number.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from marathond.core.errors import ConfigError

MAX_SHOWN = 80
NEAR = 0.7
"""How alike a key must be to one that there is; the format has keys of a few letters that are like many words."""
MAX_NUMBER = 1e9
"""No number of a task is larger: 31 years in seconds, a petabyte in MiB.  What is derived from them must fit 64 bits everywhere."""
_LARGEST_EXACT = 2**53


def show(value: object) -> str:
    """``value`` as one short line; never raises (``repr`` of an integer beyond 4300 digits does)."""
    match value:
        case None:
            return "missing"
        case dict():
            return "a table"
        case list():
            return f"a list of {len(value)}"
        case bool():
            return str(value).lower()
        case int() if abs(value) > _LARGEST_EXACT:
            return f"an integer of {value.bit_length()} bits"
        case int() | float():
            return str(value)
        case str():
            text = repr(value[: MAX_SHOWN + 1])
            return text if len(value) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
        case _:
            return type(value).__name__


def show_key(key: str) -> str:
    """A key as people write it, quoted when it holds anything unusual."""
    plain = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key[:MAX_SHOWN] if plain else show(key)


class Section:
    """One table of task.toml.

    Every getter answers None for a missing key and raises :class:`ConfigError` for a wrong one.  ``warnings`` is shared by all
    sections of a file and collects one line for each thing that was tolerated.
    """

    def __init__(self, table: Mapping[str, Any], name: str, warnings: list[str]) -> None:
        self.table, self.name, self.warnings = table, name, warnings

    def where(self, key: str) -> str:
        """``environment.cpus``."""
        return f"{self.name}.{show_key(key)}" if self.name else show_key(key)

    def wrong(self, key: str, expected: str) -> ConfigError:
        """The error for the value at ``key``; to be raised by the caller."""
        return ConfigError(f"task.toml: {self.where(key)} = {show(self.table.get(key))}", "", expected)

    def note(self, key: str, remark: str) -> None:
        """Record that something about ``key`` was tolerated."""
        self.warnings.append(f"task.toml: {self.where(key)}: {remark}")

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return key in self.table

    def section(self, key: str) -> Section:
        """The sub-table at ``key``; an empty one when missing."""
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "must be a table")
        return Section(value, self.where(key), self.warnings)

    def note_unknown(self, known: frozenset[str]) -> None:
        """Record every key that is not in ``known``, and what may have been meant: an agent with ``timeout_secs`` has no limit."""
        for key in self.table:
            if key not in known:
                near = difflib.get_close_matches(key[:MAX_SHOWN], sorted(known - self.table.keys()), n=1, cutoff=NEAR)
                self.note(key, "unknown key, ignored" + (f"; did you mean {near[0]}?" if near else ""))

    def number(self, key: str, *, at_least: float | None = None) -> float | None:
        """A finite number greater than 0, or not less than ``at_least``."""
        if not self.has(key):
            return None
        value = self.table[key]
        if isinstance(value, str):
            value = self._number_in_text(key, value)
        bound = "greater than 0" if at_least is None else f"at least {at_least:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, f"must be a number {bound}")
        if isinstance(value, int) and abs(value) > _LARGEST_EXACT:
            raise self.wrong(key, "must be a number that fits")
        if not math.isfinite(value) or (value <= 0 if at_least is None else value < at_least):
            raise self.wrong(key, f"must be {bound}")
        if value > MAX_NUMBER:
            raise self.wrong(key, f"must be at most {MAX_NUMBER:g}")
        return float(value)

    def _number_in_text(self, key: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(key, "must be a number") from None
        self.note(key, "a number written as text, read as a number")
        return value

    def integer(self, key: str, *, at_least: int = 1) -> int | None:
        """A whole number not less than ``at_least``."""
        value = self.number(key, at_least=at_least)
        if value is None:
            return None
        if not value.is_integer():
            raise self.wrong(key, "must be a whole number")
        return int(value)

    def text(self, key: str) -> str | None:
        """Text without NUL bytes, which neither an environment nor a command line can carry."""
        if not self.has(key):
            return None
        value = self.table[key]
        if not isinstance(value, str):
            raise self.wrong(key, "must be text")
        if "\0" in value:
            raise self.wrong(key, "must not hold a NUL byte")
        return value

    def boolean(self, key: str) -> bool | None:
        """``true`` or ``false``, as TOML writes them."""
        if not self.has(key):
            return None
        value = self.table[key]
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def user(self, key: str) -> str | None:
        """A user name or uid, as text."""
        value = self.table.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value < 2**32 - 1:
                raise self.wrong(key, "must be a user name or a uid")
            return str(value)
        name = self.text(key)
        if name is not None and not name.strip():
            raise self.wrong(key, "must be a user name or a uid")
        return name
