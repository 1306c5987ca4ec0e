"""A ledger that waits for its disk: what the flow writes while there is no room, or while another process holds the write lock for long,
is written when that is over.

Owns the wait and the words about it.  Nothing is acknowledged that is not on disk: the caller stands still until its own transaction is
there, so admission is closed meanwhile, and trials go on in their containers (fault f05).  Must not be used for a command of a person, who
is told at once.  All other refusals (damaged, read-only, an old epoch) end the daemon: waiting would change nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import structlog

from marathond.core.errors import PASSING, LedgerRefused
from marathond.ports.ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")

PAUSE_S, PAUSE_MAX_S = 0.2, 5.0
TELL_S = 60.0

log = structlog.get_logger("marathond")


class PatientLedger:
    """The Ledger port.  ``waits``: why something waits to be written, in words; empty: nothing does."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.waits = ""
        self._began_s = self._told_s = 0.0

    async def write(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Cancellation ends the wait; nothing was written then."""
        pause_s = PAUSE_S
        while True:
            try:
                done = await self._ledger.write(verb, *args, **kwargs)
            except LedgerRefused as refused:
                if refused.code not in PASSING:
                    raise
                self._tell(refused)
            else:
                self._over()
                return done
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def read(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._ledger.read(verb, *args, **kwargs)

    def _tell(self, refused: LedgerRefused) -> None:
        now_s = anyio.current_time()
        if not self.waits:
            self._began_s, self._told_s = now_s, now_s - TELL_S
        self.waits = str(refused)
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            log.error("ledger_waits", code=refused.code, since_s=round(now_s - self._began_s), why=self.waits)

    def _over(self) -> None:
        if self.waits:
            self.waits = ""
            log.info("ledger_goes_on", after_s=round(anyio.current_time() - self._began_s, 1))
