"""What all listeners share, and the gateway's own answers.

Owns the shared counters and the words of a refusal.  Must not know how a request goes its way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiohttp import web

from marathond.core.errors import ArtifactError
from marathond.gateway.config import GatewayConfig
from marathond.gateway.exchange import Exchange, Refusals, bury
from marathond.gateway.files import Listener
from marathond.gateway.journal import Journal
from marathond.gateway.turnstile import Turnstile
from marathond.gateway.upstream import Upstream
from marathond.ports.clock import Clock

log = structlog.get_logger("marathond.gateway")


class Refuse(Exception):
    """An answer of our own.  ``code`` is stable; the message never holds anything secret."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: int | None = None) -> None:
        self.status, self.code, self.message, self.retry_after_s = status, code, message, retry_after_s
        super().__init__(f"{status} {code}: {message}")

    def response(self) -> web.Response:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        error = {"message": f"gateway: {self.message}", "type": "gateway", "code": self.code, "param": None}
        return web.json_response({"error": error}, status=self.status, headers=headers)


@dataclass(slots=True)
class Way:
    """A route with everything that its trials share."""

    upstream: Upstream
    turnstile: Turnstile


@dataclass(slots=True)
class House:
    """What all listeners share."""

    config: GatewayConfig
    ways: dict[str, Way]
    journal: Journal
    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    wrote: Callable[[], None]
    chance: Callable[[], float] = random.random
    refusals: Refusals = field(default_factory=Refusals)
    streams: int = 0
    body_bytes: int = 0
    closing: bool = False
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    untold: list[int] = field(default_factory=list)

    def refuse(self, listener: Listener, refuse: Refuse) -> None:
        """Count a refusal; a journal that cannot be written must not turn it into something else."""
        try:
            self.refusals.count(self.journal, self.clock, listener, refuse.status, refuse.code)
        except ArtifactError as err:
            log.error("refusal_not_recorded", listener=listener.name, code=refuse.code, error=str(err))
        self.wrote()

    def first(self, exchange: Exchange, shape: dict[str, Any]) -> None:
        """Record the shape of a listener's first request; one that is not recorded is not compared, and nothing waits for it."""
        try:
            exchange.first(self.journal, shape)
        except ArtifactError as err:
            log.error("shape_not_recorded", trial=exchange.listener.trial, error=str(err))
        self.wrote()

    def waits(self, exchange: Exchange) -> None:
        """Record that a request has to wait; whoever cannot be told now is told at the next wait, or at the end."""
        try:
            exchange.waits(self.journal, self.clock)
        except ArtifactError as err:
            log.error("hold_not_recorded", trial=exchange.listener.trial, number=exchange.number, error=str(err))
        self.wrote()

    def answered(self, exchange: Exchange) -> None:
        """Record that a wait is over."""
        if not exchange.held_told:
            return
        try:
            exchange.answered(self.journal)
        except ArtifactError as err:
            log.error("release_not_recorded", trial=exchange.listener.trial, number=exchange.number, error=str(err))
        self.wrote()

    def ended(self, exchange: Exchange) -> None:
        """Record a request's end.  What cannot be written now stays open, and is told as unknown once the journal takes lines again."""
        try:
            exchange.ends(self.journal, self.clock)
        except ArtifactError as err:
            self.untold.append(exchange.begin)
            log.error("request_not_recorded", trial=exchange.listener.trial, number=exchange.number, error=str(err))
        self.wrote()

    def tell_untold(self) -> None:
        """Try again; bounded by the number of open requests, because nothing goes out while the journal refuses lines."""
        if self.untold:
            bury(self.journal, self.clock, "not_recorded", self.untold)
            self.untold.clear()
