"""How a daemon life ends by kill -9 in the simulation: from one instant on, none of its ports answers any more.

Owns the switch alone.  Race prevented: cancelling the life's tasks runs their ``finally`` and ``except`` blocks, which a killed process
does not run; with every port dead first, such a block can change nothing outside its own life.
"""

from __future__ import annotations


class Killed(BaseException):
    """Raised by every port of a killed life.  No Exception: nothing in the product may take it for an error and go on."""


class DeadSwitch:
    """One for each daemon life; shared by all of its ports, which look before and after each await."""

    def __init__(self) -> None:
        self.dead = False

    def kill(self) -> None:
        """From now on every port call of this life raises :class:`Killed`.  Cancel the life's tasks afterwards, never before."""
        self.dead = True

    def check(self) -> None:
        """:raises Killed: when the life is dead."""
        if self.dead:
            raise Killed
