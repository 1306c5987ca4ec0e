"""How far a staging is: small values for whoever shows them.  Must not know terminals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Step = Literal[
    "note", "waiting", "fetching", "checking", "unpacking", "reading", "copying", "building", "proving", "compiling", "verifying"
]


@dataclass(frozen=True, slots=True)
class Progress:
    """One sign of life.

    :param step: ``note`` is one line to be shown as it is; the others repeat while ``done`` grows.
    :param text: what is fetched, read or copied.
    :param done: bytes so far.
    :param total: bytes in all, None when nobody knows.
    """

    step: Step
    text: str
    done: int = 0
    total: int | None = None


Say = Callable[[Progress], None]


class Meter:
    """Adds up the bytes of one step."""

    def __init__(self, say: Say, step: Step, text: str, total: int | None = None) -> None:
        self._say, self._step, self._text, self._total = say, step, text, total
        self._done = 0
        self.reached(0)

    def __call__(self, more: int) -> None:
        self.reached(self._done + more)

    def reached(self, done: int) -> None:
        self._done = done
        self._say(Progress(self._step, self._text, done, self._total))
