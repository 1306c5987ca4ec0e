"""Carries out checks side by side, each under its own deadline, and turns whatever happens to one into its row.

Owns what a check that fails, hangs or breaks becomes: ``unknown`` with the reason, never ``ok``, and never anybody else's trouble.  Must
not know what is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

from marathond.core.errors import MarathonError
from marathond.core.preflight.rows import Row, unknown
from marathond.core.text import printable

T = TypeVar("T")
WHY_MAX = 500
SETTLE_S = 2.0
_LIVE: set[threading.Thread] = set()
"""Threads of :func:`aside` that have not ended."""


class Unseen(MarathonError):
    """A check cannot see, and why; its row says unknown."""


@dataclass(frozen=True, slots=True)
class Check:
    """``work`` gives at least one row.  ``codes``: of the rows that say why there are none."""

    codes: tuple[str, ...]
    work: Callable[[], Awaitable[Row | Sequence[Row]]]
    within_s: float
    subject: str = ""


class Fact(Generic[T]):
    """Something that several checks need, looked up once; each of them waits for it in its own time.

    Run by :func:`carry_out`, so that a check that gives up takes nothing away from the others.
    """

    def __init__(self, work: Callable[[], Awaitable[T]], within_s: float) -> None:
        self._work, self._within_s = work, within_s
        self._known = anyio.Event()
        self._values: list[T] = []
        self._why = ""

    async def look(self) -> None:
        """Once; never raises but for cancellation."""
        try:
            with anyio.move_on_after(self._within_s) as scope:
                self._values.append(await self._work())
            if scope.cancelled_caught:
                self._why = _late(self._within_s)
        except Exception as error:  # noqa: BLE001 - it becomes the reason of every check that needs this
            self._why = reason(error)
        self._known.set()

    async def get(self) -> T:
        """:raises Unseen: it could not be looked up."""
        await self._known.wait()
        if not self._values:
            raise Unseen(self._why)
        return self._values[0]


async def carry_out(checks: Sequence[Check], facts: Sequence[Fact[object]] = ()) -> list[Row]:
    """Rows in the order of their checks."""
    rows: dict[int, list[Row]] = {}

    async def one(number: int, check: Check) -> None:
        rows[number] = await _rows(check)

    async with anyio.create_task_group() as group:
        for fact in facts:
            group.start_soon(fact.look)
        for number, check in enumerate(checks):
            group.start_soon(one, number, check, name=check.codes[0])
    return [row for number in sorted(rows) for row in rows[number]]


async def _rows(check: Check) -> list[Row]:
    found: Row | Sequence[Row] = ()
    why, todo = "the check said nothing", ""
    try:
        with anyio.move_on_after(check.within_s) as scope:
            found = await check.work()
        if scope.cancelled_caught:
            found, why, todo = (), _late(check.within_s), "look what hangs, then again"
    except Exception as error:  # noqa: BLE001 - one broken check never hides the others
        why = reason(error)
    rows = [found] if isinstance(found, Row) else list(found)
    return rows or [unknown(code, why, todo, check.subject) for code in check.codes]


def _late(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


def reason(error: Exception) -> str:
    """One line; a bug is called one."""
    if isinstance(error, MarathonError):
        return printable(str(error), WHY_MAX)
    if isinstance(error, OSError):
        words = error.strerror or str(error) or type(error).__name__
        return printable(f"{error.filename}: {words}" if error.filename else words, WHY_MAX)
    return printable(f"the check itself broke: {type(error).__name__}: {error}", WHY_MAX)


async def aside(work: Callable[[], T]) -> T:
    """``work`` in a thread that nobody waits for: a file system that hangs must hold up neither the other checks nor the end."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def tell(set_it: Callable[[], None]) -> None:
        if not outcome.done():
            set_it()

    def run() -> None:
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            failed = error
            with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
                loop.call_soon_threadsafe(tell, lambda: outcome.set_exception(failed))
        else:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, lambda: outcome.set_result(value))
        finally:
            _LIVE.discard(threading.current_thread())

    thread = threading.Thread(target=run, name="preflight", daemon=True)
    _LIVE.add(thread)
    thread.start()
    return await outcome


def settle() -> None:
    """A moment for threads that nobody waits for any more: those that do not hang remove their probe files.  Blocks for it."""
    until = time.monotonic() + SETTLE_S
    for thread in list(_LIVE):
        thread.join(max(0.0, until - time.monotonic()))
