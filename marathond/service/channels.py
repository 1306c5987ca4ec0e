"""The two ways in which a person is told: a command of theirs, and a webhook.

Owns one try over one of them, bounded in time, and what may be said of it: an address is a secret, so answers and errors are put into words
of our own.  Must not know when anybody is told, nor how often it is tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

import aiohttp
import anyio
from anyio.abc import Process

from marathond.core.text import hidden_url, printable
from marathond.ports.leaving import last_act
from marathond.service.sections_model import NotifySection

COMMAND_S = 30.0
WEBHOOK_S = 20.0
REAPED_S = 5.0
SAID_MAX = 200
_TAIL_BYTES = 4096
_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")
"""Variables that systemd meant for this process alone."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``words``: one clean line, without anything secret."""

    ok: bool
    words: str


class Channel(Protocol):
    """A way to tell somebody."""

    @property
    def name(self) -> str: ...

    async def tell(self, message: Mapping[str, Any]) -> Answer:
        """One try; never raises but for cancellation."""
        ...


def channels_of(notify: NotifySection) -> list[Channel]:
    """As configured; empty: nobody is told."""
    found: list[Channel] = []
    if notify.command:
        found.append(Command(notify.command))
    if notify.webhook is not None:
        found.append(Webhook(notify.webhook))
    return found


@dataclass(frozen=True, slots=True)
class Command:
    """Runs ``argv``, with the message as one JSON object on its standard input; exit status 0 is told."""

    argv: Sequence[str]
    within_s: float = COMMAND_S

    @property
    def name(self) -> str:
        return "command"

    async def tell(self, message: Mapping[str, Any]) -> Answer:
        environ = {name: value for name, value in os.environ.items() if name not in _OURS}
        # Its output goes to a file: a pipe that a left-over process holds open would never end.
        with tempfile.TemporaryFile() as said:
            try:
                process = await anyio.open_process(
                    list(self.argv), stdin=subprocess.PIPE, stdout=said, stderr=said, env=environ, start_new_session=True
                )
            except OSError as error:
                return Answer(False, f"{printable(self.argv[0], SAID_MAX)} cannot be run: {error.strerror or type(error).__name__}")
            try:
                status = await self._end(process, json.dumps(message).encode() + b"\n")
            finally:
                _kill(process)
                with last_act("", REAPED_S):
                    await process.aclose()
            words = _tail(said)
        if status is None:
            return Answer(False, f"no end within {self.within_s:g} s, killed{words}")
        return Answer(status == 0, f"exit status {status}{words}")

    async def _end(self, process: Process, text: bytes) -> int | None:
        """Exit status; None: it did not end in time."""
        with anyio.move_on_after(self.within_s):
            assert process.stdin is not None
            with contextlib.suppress(OSError, anyio.BrokenResourceError):  # it need not read
                await process.stdin.send(text)
            with contextlib.suppress(OSError, anyio.BrokenResourceError):
                await process.stdin.aclose()
            return await process.wait()
        return None


def _kill(process: Process) -> None:
    """The whole session, while its first process is not reaped and the number is certainly its own (fault f10)."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _tail(said: IO[bytes]) -> str:
    """``: last words``; empty when it said nothing."""
    end = said.seek(0, os.SEEK_END)
    said.seek(max(0, end - _TAIL_BYTES))
    lines = [printable(line, SAID_MAX) for line in said.read(_TAIL_BYTES).decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return f": {last}" if last else ""


@dataclass(frozen=True, slots=True)
class Webhook:
    """POSTs the message as JSON; 2xx is told.  Certificates are verified, redirections not followed, the host's proxy variables obeyed."""

    url: str
    within_s: float = WEBHOOK_S

    @property
    def name(self) -> str:
        return "webhook"

    async def tell(self, message: Mapping[str, Any]) -> Answer:
        where = hidden_url(self.url)
        timeout = aiohttp.ClientTimeout(total=self.within_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
                session.post(self.url, json=dict(message), allow_redirects=False) as answer,
            ):
                return Answer(200 <= answer.status < 300, f"{where}: HTTP {answer.status}")
        except TimeoutError:
            return Answer(False, f"{where}: no answer within {self.within_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(False, f"{where}: {_words(error)}")


def _words(error: Exception) -> str:
    """Errors quote the address they failed at, so only their kind and the system's own word are passed on."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientConnectorSSLError | ssl.SSLError):
        return "no TLS connection"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    system = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(system, OSError) and system.errno is not None and system.errno > 0:
        return os.strerror(system.errno)
    return type(error).__name__
