"""The page in the daemon: a thread with an event loop of its own, begun, watched and ended without the daemon ever waiting for it.

Owns that its failure is the page's alone: a line in the log, the observation ``page`` and the finding ``page_down``, and another try a
minute later.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import anyio
import structlog

from marathond.core.errors import PASSING, LedgerRefused
from marathond.core.text import clean
from marathond.ledger.verbs import findings, settings
from marathond.ports.clock import Clock
from marathond.ports.ledger import Ledger
from marathond.service.page.address import parse
from marathond.service.page.place import Place

log = structlog.get_logger("marathond.page")

KEY = "page"
LOOK_S, AGAIN_S = 0.2, 60.0


class PageThread:
    """``where``: set once it listens; ``failed``: set once it has ended by itself, with why."""

    def __init__(self, place: Place, listen: str) -> None:
        self.where = ""
        self.failed: str | None = None
        self._place, self._listen = place, listen
        self._wanted = True
        self._stop: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Asks it to end, also before it has begun; from any thread."""
        self._wanted = False
        if self._stop is not None:
            self._stop()

    def _run(self) -> None:
        """What is heavy is loaded here: not by a daemon without a page, and not in the loop of one with it."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - its end is told by `failed`, whatever it was
            self.failed = f"{type(error).__name__}: {clean(error, 300)}" if not str(error).startswith("the page") else clean(error, 300)
        else:
            self.failed = self.failed or "it ended"

    async def _serve(self) -> None:
        from marathond.service.page.server import serve
        from marathond.service.page.sources import Sources

        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop.set)

        self._stop = end
        if not self._wanted:
            return
        sources = Sources(self._place)
        try:
            await serve(sources, parse(self._listen), stop, self._listens)
        finally:
            sources.close()

    def _listens(self, where: object) -> None:
        self.where = str(where)


async def keep(place: Place, listen: str, ledger: Ledger, clock: Clock) -> None:
    """Serve until cancelled; begin again what has ended."""
    while True:
        thread = PageThread(place, listen)
        thread.start()
        try:
            while not thread.where and thread.failed is None:  # noqa: ASYNC110 - another loop's word, not this one's
                await anyio.sleep(LOOK_S)
            if thread.where:
                log.info("page", at=thread.where)
                await _tell(ledger, clock, listen, thread.where, None)
            while thread.failed is None:  # noqa: ASYNC110
                await anyio.sleep(LOOK_S * 5)
        finally:
            thread.stop()
        why = thread.failed or "it ended"
        log.error("page_down", listen=listen, error=why, again_in_s=AGAIN_S)
        await _tell(ledger, clock, listen, "", why)
        await anyio.sleep(AGAIN_S)


async def _tell(ledger: Ledger, clock: Clock, listen: str, where: str, why: str | None) -> None:
    """``where`` empty: it is not served, ``why`` says for what reason.  A ledger without room misses it; the log has it."""
    now_ms = clock.wall_ms()
    try:
        await ledger.write(settings.observe, KEY, {"listen": listen, "ok": why is None, "at": where, "detail": why or ""}, now_ms=now_ms)
        if why is None:
            await ledger.write(findings.close_finding, code="page_down", subject=listen, now_ms=now_ms)
        else:
            await ledger.write(
                findings.raise_finding,
                code="page_down",
                severity="warning",
                subject=listen,
                detail=why,
                campaign_id=None,
                now_ms=now_ms,
            )
    except LedgerRefused as refused:
        if refused.code not in PASSING:
            raise
