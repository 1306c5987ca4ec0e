"""A person's decisions while no daemon lives: the same commands as over the control socket, on a ledger that is held for the moment.

Only for trials that no daemon could be running.  Must not decide which those are.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import anyio

from marathond.ports.clock import SystemClock
from marathond.service.commands import Commands, DaemonControl
from marathond.service.offline import OfflineWriter, offline_writer
from marathond.service.peers import Peer, user_name

P = ParamSpec("P")
T = TypeVar("T")


class _Held:
    """The Ledger port over a writer that is ours alone."""

    def __init__(self, writer: OfflineWriter) -> None:
        self._writer = writer

    async def write(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._writer.write(verb, *args, **kwargs)

    async def read(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._writer.read(verb, *args, **kwargs)


class _NobodyRuns:
    """What a decision would tell a daemon; there is none."""

    def wake(self) -> None:
        return


def answer(ledger: Path, verb: str, args: dict[str, Any]) -> dict[str, Any]:
    """As the daemon would have answered.

    :raises MarathonError: refused, in one line; ``in_use``: a daemon lives.
    """
    with asking(ledger, f"marathonctl {verb}") as ask:
        return ask(verb, args)


@contextmanager
def asking(ledger: Path, what: str) -> Iterator[Callable[[str, dict[str, Any]], dict[str, Any]]]:
    """Any number of requests, on a ledger that is held until the block ends.  Raises as :func:`answer`."""
    peer = Peer(os.getpid(), os.geteuid(), os.getegid(), user_name(os.geteuid()))
    with offline_writer(ledger, what) as writer:
        commands = Commands(_Held(writer), cast(DaemonControl, _NobodyRuns()), SystemClock())
        yield lambda verb, args: anyio.run(commands.handle, peer, verb, args)
