"""Arguments of a request, read with their types: what another program sends is checked before a verb sees it.

Owns the words of refusal for a wrong argument.  Must not know the verbs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from marathond.core.errors import ConfigError
from marathond.core.text import printable

REASON_MAX = 1000
"""Characters of a reason that is stored and shown."""

NAME_MAX = 200
PATH_MAX = 4096
IDS_MAX = 10_000


Word = TypeVar("Word", bound=StrEnum)


class Args:
    """One request's arguments.  Every reader raises ConfigError (exit 2) that names the verb and the argument."""

    def __init__(self, verb: str, given: Mapping[str, Any], known: Collection[str]) -> None:
        self._verb, self._given = verb, given
        for name in given:
            if name not in known:
                raise self._wrong(name, "unknown argument")

    def _wrong(self, name: str, expected: str) -> ConfigError:
        return ConfigError(self._verb, printable(name, 40), expected)

    def text(self, name: str, max_len: int = NAME_MAX) -> str | None:
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value or len(value) > max_len:
            raise self._wrong(name, f"must be a text of 1 to {max_len} characters")
        return value

    def word(self, name: str) -> str:
        if (value := self.text(name)) is None:
            raise self._wrong(name, "is needed")
        return value

    def reason(self) -> str:
        """One line that a later reader can understand; control characters go."""
        value = printable(self.text("reason", REASON_MAX) or "", REASON_MAX)
        if not value:
            raise self._wrong("reason", "is needed: say why, it is kept with the decision")
        return value

    def integer(self, name: str, least: int = 1) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            raise self._wrong(name, f"must be a whole number of at least {least}")
        return value

    def whole(self, name: str, least: int = 0) -> int:
        """As :meth:`integer`, and it must be there."""
        if (value := self.integer(name, least)) is None:
            raise self._wrong(name, "is needed")
        return value

    def path(self, name: str) -> str:
        """An absolute path, whatever is there."""
        value = self.text(name, PATH_MAX)
        if value is None or not value.startswith("/") or "\0" in value:
            raise self._wrong(name, "must be an absolute path")
        return value

    def one_of(self, name: str, kinds: type[Word]) -> Word:
        value = self.word(name)
        if value not in [kind.value for kind in kinds]:
            raise self._wrong(name, f"must be one of {', '.join(kind.value for kind in kinds)}")
        return kinds(value)

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not low <= value <= high:
            raise self._wrong(name, f"must be a number from {low:g} to {high:g}")
        return float(value) + 0.0  # of a negative zero: zero

    def flag(self, name: str) -> bool:
        value = self._given.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "must be true or false")
        return value

    def ids(self, name: str) -> list[int]:
        """Numbers of trials, each once, in the order given; empty when absent."""
        value = self._given.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > IDS_MAX:
            raise self._wrong(name, f"must be a list of at most {IDS_MAX} numbers")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or not 1 <= item < 2**63:
                raise self._wrong(name, "must be a list of whole numbers")
        return list(dict.fromkeys(value))

    def exactly_one(self, *names: str) -> str:
        """Which of ``names`` was given."""
        given = [name for name in names if not (self._given.get(name) is None or self._given.get(name) is False)]
        if len(given) != 1:
            raise ConfigError(self._verb, " | ".join(names), "exactly one of these is needed")
        return given[0]
