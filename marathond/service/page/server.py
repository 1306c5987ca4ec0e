"""HTTP: what is asked for, by whom it may be asked, and how much of it.

Owns the routes, the headers and the bounds.  Only GET and HEAD, no cookie, no redirect; nothing here changes anything.  A client may be
slow or hostile: connections, their age, heads and the time for an answer are bounded.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path

import structlog
from aiohttp import web

from marathond.core.canonical import canonical_json
from marathond.core.errors import MarathonError, Refused
from marathond.core.names import trial_label
from marathond.core.text import clean
from marathond.service.exits import CallFailed, Exit
from marathond.service.page import health, metrics, render
from marathond.service.page.address import Address, Port, Socket, host_allowed
from marathond.service.page.breaks import Breaks
from marathond.service.page.health import Health
from marathond.service.page.place import now_ms
from marathond.service.page.render import STATIC
from marathond.service.page.sources import Screens, Sources
from marathond.service.picture.reader import number_of

log = structlog.get_logger("marathond.page")

CONNECTIONS_MAX = 64
"""Open at one time; the next is told to come again."""
LIFE_S = 120.0
"""Of one connection: who reads or asks slower than that is cut off.  A browser simply opens the next."""
ANSWER_S = 20.0
HEAD_MAX = 8 << 10
LABEL_MAX = 24
SOCKET_MODE = 0o660
COMPRESS_FROM = 1_400

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Server": "marathond",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 20\r\n\r\ntoo many connections"


HTML = "text/html; charset=utf-8"
Answer = Callable[[web.BaseRequest, Screens, str, str], Awaitable[web.Response]]
"""A screen; the way to the first screen's folder, and to what changed."""


class Turned(asyncio.Protocol):
    """A connection too many: told so, and closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_BUSY)
        transport.close()


class PageServer:
    """``address`` as asked for; :attr:`bound` as it came to be.  ``breaks``: hears what breaks; None: the log alone does."""

    def __init__(self, sources: Sources, address: Address, breaks: Breaks | None = None) -> None:
        self.sources, self.address, self.bound = sources, address, address
        self._breaks = breaks
        self._server = web.Server(
            self._handle, max_line_size=HEAD_MAX, max_field_size=HEAD_MAX, max_headers=64, keepalive_timeout=30.0, lingering_time=0.0
        )
        self._born: dict[int, tuple[object, float]] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[PageServer]:
        """Listens while the block runs.

        :raises Refused: it cannot; the place and why.
        """
        listener = _listener(self.address)
        self.bound = _bound(self.address, listener)
        loop = asyncio.get_running_loop()
        found = await (loop.create_unix_server if isinstance(self.address, Socket) else loop.create_server)(self._connected, sock=listener)
        janitor = asyncio.create_task(self._sweep(), name="page-janitor")
        try:
            yield self
        finally:
            janitor.cancel()
            found.close()
            await self._server.shutdown(0.2)
            if isinstance(self.address, Socket):
                with suppress(OSError):
                    self.address.path.unlink()

    def _connected(self) -> asyncio.Protocol:
        return Turned() if self.connections >= CONNECTIONS_MAX else self._server()

    @property
    def connections(self) -> int:
        """Open ones."""
        return len(self._server.connections)

    async def _sweep(self) -> None:
        """Ends connections that have lived too long, whatever they are doing."""
        while True:
            await asyncio.sleep(1.0)
            now, there = time.monotonic(), {id(each): each for each in self._server.connections}
            self._born = {key: self._born.get(key, (each, now)) for key, each in there.items()}
            for key, (_, born) in self._born.items():
                transport = there[key].transport
                if now - born > LIFE_S and transport is not None:
                    transport.abort()

    # ── one request ──

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await self._answered(request)
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    async def _answered(self, request: web.BaseRequest) -> web.Response:
        if not host_allowed(self.address, request.headers.get("Host")):
            return _words(421, "this page is asked for by another name; use localhost or 127.0.0.1")
        if request.method not in ("GET", "HEAD"):
            answer = _words(405, "only GET and HEAD: this page changes nothing")
            answer.headers["Allow"] = "GET, HEAD"
            answer.force_close()
            return answer
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._route(request)
        except TimeoutError:
            return _words(503, f"the ledger or a log was not read within {ANSWER_S:g} s")
        except MarathonError as error:
            return _words(503, clean(error))
        except Exception as error:
            path, why = clean(request.path, 200), f"{type(error).__name__}: {clean(error, 300)}"
            log.error("page_broken", path=path, error=why, exc_info=error)
            if self._breaks is not None:
                self._breaks.broke(path, why)
            return _words(500, "this page is broken; the daemon's log has why")
        if self._breaks is not None and answer.status < 400:
            self._breaks.answered(request.path)
        return answer

    async def _route(self, request: web.BaseRequest) -> web.Response:
        path = request.path
        match path.removeprefix("/").split("/"):
            case [""]:
                return await self._page(request, self.sources.board, "", "parts")
            case ["parts"]:
                return await self._parts(request, self.sources.board)
            case ["trial", label] if (number := _number(label)) is not None:
                return await self._trial(request, number, self._page)
            case ["trial", label, "parts"] if (number := _number(label)) is not None:
                return await self._trial(request, number, self._parts)
            case ["static", name] if name in STATIC:
                return _static(request, name)
            case ["metrics"]:
                body = await self.sources.metrics.get()
                return _packed(request, body, metrics.CONTENT_TYPE)
            case ["livez"]:
                return _healthy(await self._liveness())
            case ["readyz"]:
                return _healthy(await self.sources.ready.get())
        return _words(404, "nothing here: /, /trial/t0001, /metrics, /livez, /readyz")

    async def _liveness(self) -> Health:
        """The daemon's beat needs no ledger: where that hangs, this still answers."""
        return health.live(self.sources.place) if self.sources.place.beat_s is not None else await self.sources.live.get()

    async def _trial(self, request: web.BaseRequest, number: int, answer: Answer) -> web.Response:
        try:
            return await answer(request, self.sources.trial(number), "../", f"{trial_label(number)}/parts")
        except CallFailed as error:
            if error.exit_code != Exit.FAILED:
                raise
            screen = render.problem("no such trial", clean(error), now_ms(), "../")
            return _packed(request, render.page(screen, root="../", parts_at=""), HTML, status=404)

    async def _page(self, request: web.BaseRequest, screens: Screens, root: str, parts_at: str) -> web.Response:
        screen = await screens.get()
        return _packed(request, render.page(screen, root=root, parts_at=parts_at), HTML)

    async def _parts(self, request: web.BaseRequest, screens: Screens, *_: str) -> web.Response:
        """What changed since the version that the browser has; 304 when nothing did."""
        screen = await screens.get()
        had = request.headers.get("If-None-Match", "")[:64].removeprefix("W/").strip('"')
        fresh = {"ETag": f'"{screen.version}"', "X-As-Of": screen.at, "X-Again": f"{screens.kept.pause_s:.0f}"}
        if had == screen.version:
            return web.Response(status=304, headers=fresh)
        told = {"version": screen.version, "title": screen.title, "parts": screens.changed(screen, had)}
        body = canonical_json(told).encode("utf-8", "replace")
        answer = _packed(request, body, "application/json")
        answer.headers.update(fresh)
        return answer


@cache
def _static_body(name: str) -> bytes:
    return render.static(name)


def _static(request: web.BaseRequest, name: str) -> web.Response:
    etag = f'"{render.build()}"'
    headers = {
        "ETag": etag,
        "Cache-Control": "public, max-age=31536000, immutable" if request.query_string == render.build() else "no-cache",
    }
    if request.headers.get("If-None-Match") == etag:
        return web.Response(status=304, headers=headers)
    answer = _packed(request, _static_body(name), f"{STATIC[name]}; charset=utf-8")
    answer.headers.update(headers)
    return answer


def _number(label: str) -> int | None:
    """Of a trial's name as we print it; another word is no trial's."""
    if len(label) > LABEL_MAX:
        return None
    try:
        return number_of(label, "t", "") if label[:1] in "tT" else None
    except CallFailed:
        return None


def _packed(request: web.BaseRequest, body: bytes, content_type: str, *, status: int = 200) -> web.Response:
    headers = {"Content-Type": content_type, "Vary": "Accept-Encoding"}
    if len(body) >= COMPRESS_FROM and "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(status=status, body=gzip.compress(body, 5, mtime=0), headers=headers | {"Content-Encoding": "gzip"})
    return web.Response(status=status, body=body, headers=headers)


def _words(status: int, words: str) -> web.Response:
    return web.Response(status=status, text=f"{words}\n", content_type="text/plain")


def _healthy(found: Health) -> web.Response:
    answer = _words(200 if found.good else 503, found.words)
    answer.headers["Cache-Control"] = "no-store"
    return answer


# ── where ──


def _listener(address: Address) -> socket.socket:
    try:
        return _unix_listener(address.path) if isinstance(address, Socket) else _tcp_listener(address)
    except OSError as error:
        raise Refused(f"the page cannot listen at {_where(address)}: {(error.strerror or str(error)).lower()}") from error


def _where(address: Address) -> str:
    return str(address.path) if isinstance(address, Socket) else f"{address.host}:{address.port}"


def _tcp_listener(address: Port) -> socket.socket:
    """By the address alone: ``localhost`` is resolved once, and only to loopback."""
    host = "127.0.0.1" if address.host == "localhost" else address.host
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, address.port))
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


def _unix_listener(path: Path) -> socket.socket:
    """A socket that an ended server left is replaced; one that answers, or another kind of file, is not.

    Its mode is settled before anybody can connect: nothing is accepted between bind and listen.
    """
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            found.bind(str(path))
        except OSError:
            if not stat.S_ISSOCK(os.lstat(path).st_mode) or _answers(path):
                raise
            path.unlink()
            found.bind(str(path))
        path.chmod(SOCKET_MODE)
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _bound(address: Address, listener: socket.socket) -> Address:
    return address if isinstance(address, Socket) else Port(address.host, int(listener.getsockname()[1]))


async def serve(
    sources: Sources, address: Address, stop: asyncio.Event, told: Callable[[Address], None], breaks: Breaks | None = None
) -> None:
    """Until ``stop``; ``told`` hears where, once it listens, ``breaks`` what breaks.

    :raises Refused: it cannot listen there.
    """
    server = PageServer(sources, address, breaks)
    async with server.serving():
        told(server.bound)
        await stop.wait()
