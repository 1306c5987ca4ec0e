"""What is still done when a task is cancelled: shielded, by name, and never for longer than the end of its daemon life allows.

Owns the one budget of a life's end, and the list of what it cut.  Must not know what is being done.
Race prevented: each shield with a limit of its own, around a call that Docker never answers, would hold the daemon's end for as long as
the longest of them (fault f08).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio


class Leaving:
    """The end of one daemon life.  ``undone``: what was cut short by it, in order, each as a clause for a person."""

    def __init__(self) -> None:
        self.undone: list[str] = []
        self._until = math.inf
        self._open: set[anyio.CancelScope] = set()

    @property
    def begun(self) -> bool:
        return self._until < math.inf

    def begin(self, within_s: float) -> None:
        """What is under way, and what still comes, has ``within_s`` from now.  Called again: only sooner."""
        self._until = min(self._until, anyio.current_time() + within_s)
        for scope in self._open:
            scope.deadline = min(scope.deadline, self._until)

    @contextmanager
    def act(self, what: str, limit_s: float) -> Iterator[None]:
        with anyio.CancelScope(shield=True, deadline=min(anyio.current_time() + limit_s, self._until)) as scope:
            self._open.add(scope)
            try:
                yield
            finally:
                self._open.discard(scope)
        if scope.cancelled_caught and self.begun and what:
            self.undone.append(what)


_LIFE: ContextVar[Leaving | None] = ContextVar("marathond_leaving", default=None)


def new_life() -> Leaving:
    """The end that counts for this task and for all that it starts from now on."""
    made = Leaving()
    _LIFE.set(made)
    return made


@contextmanager
def last_act(what: str, limit_s: float) -> Iterator[None]:
    """For clean-up in ``finally``: a cancellation from outside waits for the body, for at most ``limit_s``, less at the life's end.

    A body that was cut is not raised.  ``what``: told then, if the life's end cut it; empty: nothing is lost by it.
    """
    with (_LIFE.get() or Leaving()).act(what, limit_s):
        yield
