"""The page beside the daemon: a process of its own, begun, watched and ended without the daemon ever waiting for it.

Owns that its failure is the page's alone: a line in the log, the observation ``page`` and the finding ``page_down``, and another try a
minute later.  A process and no thread: making a picture keeps an interpreter busy, and the daemon's loop, which would share it, was seen a
fifth of a second late on a busy host.  It lives as long as its standard input: each beat of the daemon's loop is a byte there, and its end,
however the daemon ended, ends it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import structlog
from anyio.abc import ByteSendStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream

from marathond.core.errors import PASSING, LedgerRefused
from marathond.core.text import clean
from marathond.ledger.verbs import findings, settings
from marathond.ports.clock import Clock
from marathond.ports.ledger import Ledger
from marathond.service.page.place import Place, to_data

log = structlog.get_logger("marathond.page")

KEY = "page"
CHILD = "marathond.service.page.child"
BEAT_S, AGAIN_S, END_S = 1.0, 60.0, 1.0
SAID_MAX = 4096
LISTENS, REFUSED = "at ", "no "
"""How its only line of output begins."""


async def keep(place: Place, listen: str, ledger: Ledger, clock: Clock) -> None:
    """Serve until cancelled; begin again what has ended."""

    async def listens(where: str) -> None:
        log.info("page", at=where)
        await _tell(ledger, clock, listen, where, None)

    while True:
        why = await _once(place, listen, listens)
        log.error("page_down", listen=listen, error=why, again_in_s=AGAIN_S)
        await _tell(ledger, clock, listen, "", why)
        await anyio.sleep(AGAIN_S)


async def _once(place: Place, listen: str, listens: Callable[[str], Awaitable[None]]) -> str:
    """One life of it; why it is over."""
    argv = [sys.executable, "-m", CHILD, json.dumps(to_data(place)), listen]
    try:
        # A session of its own: what a terminal sends to the daemon is not for it.
        process = await anyio.open_process(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, start_new_session=True)
    except OSError as error:
        return f"it cannot be started: {(error.strerror or str(error)).lower()}"
    try:
        assert process.stdout is not None and process.stdin is not None
        said = await _said(process)
        if said.startswith(REFUSED):
            return clean(said.removeprefix(REFUSED), 500)
        if said.startswith(LISTENS):
            await listens(said.removeprefix(LISTENS))
        async with anyio.create_task_group() as group:
            group.start_soon(_beat, process.stdin, name="page beat")
            status = await process.wait()
            group.cancel_scope.cancel()
        return f"it ended with status {status}; its own words are in the log"
    finally:
        await _ended(process)


async def _said(process: Process) -> str:
    """Its line; empty when it ended without one."""
    assert process.stdout is not None
    try:
        return (await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", SAID_MAX)).decode("utf-8", "replace")
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.EndOfStream, anyio.BrokenResourceError):
        return ""


async def _beat(stdin: ByteSendStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await stdin.send(b".")
            await anyio.sleep(BEAT_S)


async def _ended(process: Process) -> None:
    """Its input ends, and so does it; bounded."""
    with anyio.CancelScope(shield=True):
        assert process.stdin is not None and process.stdout is not None
        with suppress(anyio.BrokenResourceError, OSError):
            await process.stdin.aclose()
        with anyio.move_on_after(END_S) as late:
            await process.wait()
        if late.cancelled_caught:
            with suppress(ProcessLookupError):
                process.kill()
            with anyio.move_on_after(END_S):
                await process.wait()
        await process.stdout.aclose()


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
