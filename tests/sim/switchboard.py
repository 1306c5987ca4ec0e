"""The ports of one daemon life: the same engine, ledger and host for all, each behind the life's own switch.

Owns where a life can be struck: before and after each port call it may be dead, or frozen as by SIGSTOP.  Must not know what strikes it.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio

from marathond.ledger.writer import InlineLedger
from marathond.ports.engine import Engine, EngineEvent
from tests.sim.switch import DeadSwitch

P = ParamSpec("P")
T = TypeVar("T")


class LifeSwitch(DeadSwitch):
    """:param strike: called at the call that was chosen (:meth:`at_call`), in the middle of whatever the life does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._at = -1
        self._strike: Callable[[], None] = self.kill
        self._thawed: trio.Event | None = None

    def at_call(self, number: int, strike: Callable[[], None]) -> None:
        self._at, self._strike = number, strike

    def check(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            self._strike()
        super().check()

    @property
    def frozen(self) -> bool:
        return self._thawed is not None

    def freeze(self) -> None:
        """SIGSTOP: no port call begins or comes back until :meth:`thaw`."""
        self._thawed = self._thawed or trio.Event()

    def thaw(self) -> None:
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None

    async def point(self) -> None:
        """A place where the life can be struck."""
        self.check()
        while self._thawed is not None and not self.dead:
            await self._thawed.wait()
        super().check()


SWITCH: ContextVar[LifeSwitch | None] = ContextVar("switch", default=None)
"""Of the life whose task this is; None: the world outside."""


class LifeEngine:
    """Every method of the fake client, behind the switch."""

    def __init__(self, client: Engine, switch: LifeSwitch) -> None:
        self._client, self._switch = client, switch
        self.name = client.name

    def __getattr__(self, name: str) -> Any:
        call, switch = getattr(self._client, name), self._switch

        @functools.wraps(call)
        async def struck(*args: Any, **kwargs: Any) -> Any:
            await switch.point()
            try:
                return await call(*args, **kwargs)
            finally:
                if switch.frozen and not switch.dead:
                    await switch.point()

        setattr(self, name, struck)
        return struck

    async def events(self) -> AsyncIterator[EngineEvent]:
        async for event in self._client.events():
            await self._switch.point()
            yield event


class LifeLedger:
    """The one ledger as one life sees it.

    :param wrote: told after each transaction of this life that was committed: verb, arguments.
    :param undone: told after each that was not.
    """

    def __init__(
        self,
        conn: sqlite3.Connection,
        switch: LifeSwitch,
        wrote: Callable[[str, tuple[Any, ...], dict[str, Any]], None],
        undone: Callable[[str, BaseException], None],
    ) -> None:
        self._conn, self._inner = conn, InlineLedger(conn)
        self._switch, self._wrote, self._undone = switch, wrote, undone

    async def begin_life(self, **life: Any) -> int:
        return await self._inner.begin_life(**life)

    async def write(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        switch = self._switch
        await switch.point()

        def alive(c: sqlite3.Connection, /, *a: P.args, **k: P.kwargs) -> T:
            if switch.dead:
                switch.check()
            return verb(c, *a, **k)

        name = getattr(verb, "__name__", None) or getattr(verb, "func", verb).__name__
        try:
            result = await self._inner.write(alive, *args, **kwargs)
        except BaseException as error:
            self._undone(name, error)
            raise
        self._wrote(name, args, kwargs)
        await switch.point()  # committed, and not yet known to be
        return result

    async def read(self, verb: Callable[Concatenate[sqlite3.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """On the one connection nobody writes meanwhile: a transaction around it would only cost."""
        await trio.lowlevel.checkpoint()
        if self._switch.frozen or self._switch.dead:
            await self._switch.point()
        return verb(self._conn, *args, **kwargs)
