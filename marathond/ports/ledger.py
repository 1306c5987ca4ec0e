"""The Ledger port: whole verbs, run as one transaction each.

Obligations of every implementation:

* ``write`` runs ``verb(connection, …)`` inside BEGIN IMMEDIATE … COMMIT, alone, on the one
  writer; an exception rolls back and is re-raised;
* a write that was begun is finished or rolled back whatever happens to the awaiting task: cancellation is delivered
  only afterwards (fault f03);
* a write of a daemon life that has been replaced raises LedgerRefused("old_epoch") before the verb runs;
* ``read`` runs ``verb`` in one read transaction, never blocks the writer, and sees a consistent state;
* busy is waited for, bounded, then raised (fault f04).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Ledger(Protocol):
    """The one place of truth."""

    async def write(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def read(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
