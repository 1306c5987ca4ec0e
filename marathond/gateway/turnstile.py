"""Waiting for the shared budget: the thin coroutine around :class:`~marathond.gateway.budget.Budget`.

Owns who sleeps and who wakes whom.  Decides nothing about order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from marathond.gateway.budget import Budget, Ticket
from marathond.ports.clock import Clock

Sleep = Callable[[float], Awaitable[None]]
WAKE_AT_LEAST_MS = 1
WAKE_AT_MOST_MS = 5_000


class Turnstile:
    """One per route; all its trials come through here."""

    def __init__(self, budget: Budget, clock: Clock, sleep: Sleep) -> None:
        self.budget, self._clock, self._sleep = budget, clock, sleep
        self._changed = asyncio.Event()

    async def enter(self, trial: str, tokens: int, until_ms: int, on_wait: Callable[[], None] = lambda: None) -> Ticket | None:
        """Wait until the request may go; None when it may not before ``until_ms`` (monotonic): the place in line is given up.

        :param on_wait: called before each wait; not at all when the request may go at once.
        :raises QueueFull: too many wait already.
        """
        ticket = self.budget.ask(trial, tokens, self._clock.mono_ms())
        try:
            while True:
                now_ms = self._clock.mono_ms()
                if any(admitted is not ticket for admitted in self.budget.admit(now_ms)):
                    self._wake()
                if ticket.admitted_ms is not None:
                    return ticket
                if now_ms >= until_ms:
                    self._drop(ticket)
                    return None
                on_wait()
                wait_ms = self.budget.next_ms(now_ms) or WAKE_AT_LEAST_MS
                await self._nap(max(WAKE_AT_LEAST_MS, min(wait_ms, until_ms - now_ms, WAKE_AT_MOST_MS)))
        except BaseException:  # cancelled: the client is gone; whoever stands behind must not wait for its place
            self._drop(ticket)
            raise

    def settle(self, ticket: Ticket, tokens: int | None) -> None:
        self.budget.settle(ticket, tokens, self._clock.mono_ms())
        self._wake()

    def refund(self, ticket: Ticket) -> None:
        self.budget.refund(ticket, self._clock.mono_ms())
        self._wake()

    def _drop(self, ticket: Ticket) -> None:
        if ticket.admitted_ms is not None:
            self.budget.refund(ticket, self._clock.mono_ms())
        self.budget.cancel(ticket)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _nap(self, wait_ms: int) -> None:
        """Until ``wait_ms`` have passed, or somebody came or went."""
        tasks = [asyncio.ensure_future(self._sleep(wait_ms / 1000)), asyncio.ensure_future(self._changed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
