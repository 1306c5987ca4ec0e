"""The practice provider's HTTP server: ``POST {any prefix}/responses``, answered as the scripts say, streamed unbuffered.

Owns sockets, keys and paths, the sending of an answer and its bookkeeping.  The only module here that knows aiohttp and asyncio.

A request belongs to the trial that its path names (``/trial/NAME[/task/NAME][/arm/NAME]/…/responses``), else to the one that a ``[[key]]``
of the scripts or :meth:`PracticeServer.enroll` names for its key, else to one named after the key's fingerprint.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from aiohttp import web

from marathond.core.errors import ConfigError
from marathond.practice.clock import PracticeClock, ScaledClock
from marathond.practice.play import Answer, Identity, Player, Trial, refusal
from marathond.practice.record import BYTES_AT_MOST, Outcome, Recorder, Tally, fingerprint
from marathond.practice.request import Ask, BadRequest, read
from marathond.practice.script import OutageFault, Practice, load

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the provider takes at most; beyond it requests are refused with a sentence that says so."""

    request_bytes: int = 64 << 20
    trials: int = 4096
    record_bytes: int = BYTES_AT_MOST
    """Of one trial's record."""


class PracticeServer:
    """One process's provider; :func:`practising` starts and ends it.

    :param record_dir: where requests are recorded, one file per trial; None: nowhere, only the accounts are kept.
    """

    def __init__(
        self, practice: Practice, *, clock: PracticeClock | None = None, record_dir: Path | None = None, bounds: Bounds | None = None
    ) -> None:
        self.player, self.bounds = Player(practice), bounds or Bounds()
        self.clock: PracticeClock = clock or ScaledClock(practice.speed)
        self.recorder = Recorder(record_dir, self.bounds.record_bytes)
        self.trials: dict[str, Trial] = {}
        self.tallies: dict[str, Tally] = {}
        self.url = ""
        """Base URL without a prefix, once it listens on TCP; ``{url}/v1`` is what a client is given."""
        self._keys = {entry.key: Identity(entry.trial, entry.task, entry.arm) for entry in practice.key}
        self._runner: web.AppRunner | None = None

    def enroll(self, key: str, identity: Identity) -> None:
        """From now on requests with ``key`` belong to ``identity``."""
        self._keys[key] = identity

    def outage(self, fault: OutageFault, trial: str | None = None) -> None:
        """Begin an outage now, of one trial that has asked before or of all."""
        self.player.begin_outage(fault, self.clock.now_s(), self.trials[trial] if trial is not None else None)

    def tally(self, trial: str) -> Tally:
        """The accounts of a trial; empty ones when it has not asked yet."""
        return self.tallies.get(trial, Tally())

    async def start(self, host: str = "127.0.0.1", port: int = 0, sock: socket.socket | None = None) -> int:
        """Listen on ``sock`` if given, else on a loopback address; port 0 is one that is free.  Returns the port (0 for a unix socket).

        :raises ConfigError: ``host`` is no loopback address, or the port cannot be had.
        """
        app = web.Application(client_max_size=self.bounds.request_bytes)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Cancelled as soon as the client goes away: a stall must not outlive the one it is for.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            site = web.SockSite(self._runner, sock) if sock is not None else web.TCPSite(self._runner, _loopback(host), port)
            await site.start()
        except (OSError, ConfigError) as err:
            await self.stop()
            if isinstance(err, ConfigError):
                raise
            raise ConfigError("practice provider", f"{host}:{port}", f"cannot listen: {err.strerror or err}") from err
        address = self._runner.addresses[0]
        if not isinstance(address, tuple):
            return 0
        self.url = f"http://{'[' + address[0] + ']' if ':' in address[0] else address[0]}:{address[1]}"
        return int(address[1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        key = _key_of(request)
        identity = self._identity(request.path, key)
        if identity is None:
            return await self._plain(request, refusal(401, "practice: this key is not known", "invalid_api_key"))
        trial = self.trials.get(identity.trial)
        if trial is None:
            if len(self.trials) >= self.bounds.trials:
                return await self._plain(request, refusal(400, f"practice: more than {self.bounds.trials} trials", "practice_limit"))
            trial = self.trials[identity.trial] = Trial(identity)
        trial.identity = identity
        tally = self.tallies.setdefault(identity.trial, Tally())
        tally.requests += 1
        number = tally.requests
        done = _Booked(self, identity.trial, key, tally, number)
        try:
            return await self._serve(request, trial, key, number, done)
        except (asyncio.CancelledError, ConnectionError):
            done("abandoned")  # no-op where the answer has been booked
            raise
        except Exception:
            done("broken")
            raise

    async def _serve(self, request: web.Request, trial: Trial, key: str, number: int, done: _Booked) -> web.StreamResponse:
        name = trial.identity.trial
        ask: Ask | None = None
        answer: Answer | None = None
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raw, answer = b"", refusal(413, f"practice: a request holds at most {self.bounds.request_bytes} bytes", "practice_limit")
        if answer is None:
            try:
                ask = read(raw, request.headers)
            except BadRequest as err:
                answer = refusal(400, f"practice: {err}", "practice_request")
        self.recorder.request(name, number, self.clock.now_s(), request.path_qs, request.headers, raw, key, ask is not None)
        if request.method != "POST" or not request.path.endswith("/responses"):
            answer = refusal(404, f"practice: only POST …/responses is served, not {request.method} {request.path[:200]}", "not_found")
        if answer is None:
            assert ask is not None
            answer = self.player.answer(trial, ask, self.clock.now_s(), f"resp_{name}_{number}", int(time.time()))
        done.answer, done.ask = answer, ask
        if answer.status >= 400:
            done("refused")
            return await self._plain(request, answer)
        return await self._stream(request, answer, done, lambda: self._whole(trial, ask, answer))

    def _whole(self, trial: Trial, ask: Ask | None, answer: Answer) -> None:
        if ask is not None and answer.outcome == "completed":
            self.player.sent_whole(trial, ask, answer)

    async def _plain(self, request: web.Request, answer: Answer) -> web.Response:
        body = b"".join(part for part in answer.parts if isinstance(part, bytes))
        return web.Response(status=answer.status, headers=answer.headers, body=body, content_type="application/json")

    async def _stream(self, request: web.Request, answer: Answer, done: _Booked, whole: Callable[[], None]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", **answer.headers})
        for part in answer.parts:
            if not isinstance(part, bytes):
                await self.clock.sleep(part)
                continue
            if not response.prepared:
                await response.prepare(request)
            await response.write(part)
        if answer.ends == "close":
            done(answer.outcome)
            if request.transport is not None:
                request.transport.close()  # flushes what was written; the body's end is never sent
            return response
        whole()
        done(answer.outcome)  # before the end of the body: who has read it finds it booked
        await response.write_eof()
        return response

    def _identity(self, path: str, key: str) -> Identity | None:
        words = path.split("/")
        named = {word: value for word, value in pairwise(words) if word in ("trial", "task", "arm") and value}
        known = self._keys.get(key)
        if known is None and self.player.practice.known_keys_only:
            return None
        if (trial := named.get("trial")) is not None and _NAME.fullmatch(trial):
            return Identity(trial, named.get("task"), named.get("arm"))
        found = known or Identity(f"key-{fingerprint(key)}")
        return replace(found, task=named.get("task", found.task), arm=named.get("arm", found.arm))


class _Booked:
    """Books the outcome of one request, once: in the accounts and in the record."""

    def __init__(self, server: PracticeServer, trial: str, key: str, tally: Tally, number: int) -> None:
        self.server, self.trial, self.key, self.tally, self.number = server, trial, key, tally, number
        self.answer: Answer | None = None
        self.ask: Ask | None = None
        self._over = False

    def __call__(self, outcome: Outcome) -> None:
        if self._over:
            return
        self._over = True
        answer, ask = self.answer, self.ask
        self.tally.count(outcome, answer.usage if answer else None)
        fields: dict[str, object] = {"status": answer.status if answer else 0, **(answer.note if answer else {})}
        if ask is not None:
            fields |= {"conversation": ask.conversation, "turn": ask.turn, "model": ask.model}
        if answer is not None and answer.usage is not None:
            fields["usage"] = answer.usage.model_dump()
        self.server.recorder.answer(self.trial, self.number, self.server.clock.now_s(), outcome, self.key, fields)


@asynccontextmanager
async def practising(
    practice: Practice,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    sock: socket.socket | None = None,
    clock: PracticeClock | None = None,
    record_dir: Path | None = None,
    bounds: Bounds | None = None,
) -> AsyncIterator[PracticeServer]:
    """A provider that listens for as long as the context lasts."""
    server = PracticeServer(practice, clock=clock, record_dir=record_dir, bounds=bounds)
    await server.start(host, port, sock)
    try:
        yield server
    finally:
        await server.stop()


async def serve(script: Path, host: str = "127.0.0.1", port: int = 0, record_dir: Path | None = None) -> None:
    """Serve the file ``script`` until SIGTERM or SIGINT; the base URL is printed on one line once it listens.

    :raises ConfigError: the script is wrong, or the address cannot be had.
    """
    practice = load(script)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    async with practising(practice, host=host, port=port, record_dir=record_dir) as server:
        sys.stdout.write(f"practice provider listens on {server.url}/v1\n")
        sys.stdout.flush()
        await over.wait()


def _key_of(request: web.Request) -> str:
    given = request.headers.get("Authorization", "")
    return given[7:].strip() if given[:7].lower() == "bearer " else given or request.headers.get("api-key", "")


def _loopback(host: str) -> str:
    name = "127.0.0.1" if host == "localhost" else host
    try:
        if ipaddress.ip_address(name).is_loopback:
            return name
    except ValueError:
        pass
    raise ConfigError("practice provider", f"host {host}", "must be a loopback address: it takes any key; give a socket for more")
