"""The page beside the daemon: a process of its own, begun, watched and ended without the daemon ever waiting for it.

Owns that its failure is the page's alone: a line in the log, the observation ``page`` and the finding ``page_down``, and another try a
minute later; of a single page that breaks the finding ``page_broken``.  A process and no thread: making a picture keeps an interpreter
busy, and the daemon's loop, which would share it, was seen a fifth of a second late on a busy host.  It lives as long as its standard
input: each beat of the daemon's loop is a byte there, and its end, however the daemon ended, ends it.
"""

from __future__ import annotations

import json
import sqlite3
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
from marathond.service.page.breaks import Break, parsed
from marathond.service.page.place import Place, to_data

log = structlog.get_logger("marathond.page")

KEY = "page"
CHILD = "marathond.service.page.child"
BEAT_S, AGAIN_S, END_S = 1.0, 60.0, 1.0
SAID_MAX = 4096
LISTENS, REFUSED = "at ", "no "
"""How its first line of output begins; those after it are of :mod:`.breaks`."""
CODES = ("page_down", "page_broken")


async def keep(place: Place, listen: str | None, ledger: Ledger, clock: Clock) -> None:
    """Serve until cancelled; begin again what has ended.  ``listen`` None: nowhere, and what was wrong with an earlier page is over."""
    if listen is None:
        await _write(ledger, _over, now_ms=clock.wall_ms())
        return

    async def listens(where: str) -> None:
        log.info("page", at=where)
        await _write(ledger, _served, listen=listen, where=where, now_ms=clock.wall_ms())

    async def breaks(found: Break) -> None:
        await _write(ledger, _broken if found.why else _whole, found, now_ms=clock.wall_ms())

    while True:
        why = await _once(place, listen, listens, breaks)
        log.error("page_down", listen=listen, error=why, again_in_s=AGAIN_S)
        await _write(ledger, _down, listen=listen, why=why, now_ms=clock.wall_ms())
        await anyio.sleep(AGAIN_S)


async def _once(place: Place, listen: str, listens: Callable[[str], Awaitable[None]], breaks: Callable[[Break], Awaitable[None]]) -> str:
    """One life of it; why it is over."""
    argv = [sys.executable, "-m", CHILD, json.dumps(to_data(place)), listen]
    try:
        # A session of its own: what a terminal sends to the daemon is not for it.
        process = await anyio.open_process(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, start_new_session=True)
    except OSError as error:
        return f"it cannot be started: {(error.strerror or str(error)).lower()}"
    try:
        assert process.stdout is not None and process.stdin is not None
        output = BufferedByteReceiveStream(process.stdout)
        said = await _said(output)
        if said.startswith(REFUSED):
            return clean(said.removeprefix(REFUSED), 500)
        if said.startswith(LISTENS):
            await listens(said.removeprefix(LISTENS))
        async with anyio.create_task_group() as group:
            group.start_soon(_beat, process.stdin, name="page beat")
            group.start_soon(_hear, output, breaks, name="page breaks")
            status = await process.wait()
            group.cancel_scope.cancel()
        return f"it ended with status {status}; its own words are in the log"
    finally:
        await _ended(process)


async def _said(output: BufferedByteReceiveStream) -> str:
    """Its next line; empty when it ended without one."""
    try:
        return (await output.receive_until(b"\n", SAID_MAX)).decode("utf-8", "replace")
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.EndOfStream, anyio.BrokenResourceError):
        return ""


async def _hear(output: BufferedByteReceiveStream, breaks: Callable[[Break], Awaitable[None]]) -> None:
    while line := await _said(output):
        if (found := parsed(line)) is not None:
            await breaks(found)


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


# ── what the ledger is told ──


async def _write(ledger: Ledger, verb: Callable[..., None], *args: Break, **kwargs: str | int) -> None:
    """A ledger without room misses it; the log has it."""
    try:
        await ledger.write(verb, *args, **kwargs)
    except LedgerRefused as refused:
        if refused.code not in PASSING:
            raise


def _served(c: sqlite3.Connection, *, listen: str, where: str, now_ms: int) -> None:
    """A process that has just begun has broken nothing yet, and may be another version's."""
    settings.observe(c, KEY, {"listen": listen, "ok": True, "at": where, "detail": ""}, now_ms=now_ms)
    _over(c, now_ms=now_ms)


def _over(c: sqlite3.Connection, *, now_ms: int) -> None:
    """Wherever a page listened before: there is no other one beside this."""
    for row in findings.open_findings(c):
        if row.code in CODES:
            findings.close_finding(c, code=row.code, subject=row.subject, now_ms=now_ms)


def _down(c: sqlite3.Connection, *, listen: str, why: str, now_ms: int) -> None:
    settings.observe(c, KEY, {"listen": listen, "ok": False, "at": "", "detail": why}, now_ms=now_ms)
    findings.raise_finding(c, code="page_down", severity="warning", subject=listen, detail=why, campaign_id=None, now_ms=now_ms)


def _broken(c: sqlite3.Connection, found: Break, *, now_ms: int) -> None:
    findings.raise_finding(
        c, code="page_broken", severity="warning", subject=found.place, detail=found.why, campaign_id=None, now_ms=now_ms
    )


def _whole(c: sqlite3.Connection, found: Break, *, now_ms: int) -> None:
    findings.close_finding(c, code="page_broken", subject=found.place, now_ms=now_ms)
