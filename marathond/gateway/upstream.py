"""One way out: the provider's address, the real key, the host's proxy, and a single attempt to get an answer.

Owns the connection and the key.  An attempt that brought no first byte is a :class:`Failure`, a value; what becomes of it is decided
elsewhere.  Must not know trials.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from marathond.gateway.body import HeldBody
from marathond.gateway.config import Bounds, Route
from marathond.gateway.keys import KeyFile, KeyUnavailable
from marathond.gateway.retry import error_code, retry_after_ms
from marathond.ports.clock import Clock

PIECE_BYTES = 256 * 1024
URLS_KEPT = 64
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding"}
    | {"upgrade"}
)
_ACCOUNT = frozenset({"openai-organization", "openai-project"})
_KEYS = frozenset({"authorization", "x-api-key", "api-key", "cookie"})
_NEVER_OUT = _HOP_BY_HOP | _ACCOUNT | _KEYS | {"host", "content-length", "content-encoding", "accept-encoding", "expect", "forwarded"}
_NEVER_BACK = _HOP_BY_HOP | _ACCOUNT | {"content-length", "content-encoding", "set-cookie", "location", "alt-svc"}


@dataclass(slots=True)
class Answer:
    """A 2xx answer whose first bytes are here; nothing of it was passed on yet."""

    response: aiohttp.ClientResponse
    headers: CIMultiDict[str]
    first: bytes
    upstream: Upstream

    def finish(self, complete: bool) -> None:
        """Every answer ends here: a whole one gives its connection back, a broken one takes it along."""
        self.response.release() if complete else self.response.close()
        self.upstream.left()

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def sse(self) -> bool:
        return self.response.content_type == "text/event-stream"


@dataclass(frozen=True, slots=True)
class Failure:
    """No first byte of an answer, or an answer that is no 2xx.

    :param kind: ``connect``, ``timeout``, ``cut``, ``empty``, ``key``, or the status as text.
    :param sent: the provider may have begun to work (and to count) for it.
    :param asked_ms: the wait it asked for.
    :param why: how far a connection came, in words of our own: neither an address nor a key is in them.
    """

    kind: str
    status: int | None = None
    sent: bool = False
    code: str | None = None
    asked_ms: int | None = None
    body: bytes = b""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    why: str = ""


class Upstream:
    """One route's connections.  Use as an async context manager."""

    def __init__(self, name: str, route: Route, bounds: Bounds, clock: Clock) -> None:
        self.name, self.route = name, route
        self._bounds, self._clock = bounds, clock
        self._busy, self._retired = 0, False
        self._urls: dict[str, URL] = {}
        self._closing: asyncio.Future[None] | None = None
        self.key = KeyFile(route.key_path(os.environ))
        tls: ssl.SSLContext | bool = ssl.create_default_context(cafile=str(route.ca_file)) if route.ca_file else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=bounds.connect_s, sock_read=bounds.upstream_idle_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Content-Type"),
            trust_env=False,
        )

    @property
    def closed(self) -> bool:
        return self._session.closed

    async def close(self) -> None:
        await self._session.close()

    async def retire(self) -> None:
        """No new attempts will come: close now, or when the last one under way has ended."""
        self._retired = True
        if self._busy == 0:
            await self._session.close()

    def left(self) -> None:
        """One attempt or answer less under way."""
        self._busy -= 1
        if self._retired and self._busy == 0:
            self._closing = asyncio.ensure_future(self._session.close())

    async def attempt(self, method: str, path: str, headers: CIMultiDict[str], body: HeldBody) -> Answer | Failure:
        """One request.  ``path`` is the client's, with query; its ``/v1`` becomes the route's ``base_url``."""
        self._busy += 1
        outcome: Answer | Failure | None = None
        try:
            outcome = await self._attempt(method, path, headers, body)
            return outcome
        finally:
            if not isinstance(outcome, Answer):
                self.left()

    async def _attempt(self, method: str, path: str, headers: CIMultiDict[str], body: HeldBody) -> Answer | Failure:
        try:
            key = self.key.current()
        except KeyUnavailable as err:
            return Failure("key", why=str(err))
        try:
            response = await self._session.request(
                method,
                self._url(path),
                headers=self._headers(headers, key, len(body.raw)),
                data=body.raw if 0 < len(body.raw) <= PIECE_BYTES else _pieces(body) if body.raw else None,
                proxy=self.route.host_proxy,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError) as err:
            return Failure("connect", why=connect_words(err))
        except TimeoutError:
            return Failure("timeout", sent=True, why="connected, and no answer in time")
        except (aiohttp.ClientError, OSError) as err:
            return Failure("cut", sent=True, why=f"connected, and cut off before an answer ({type(err).__name__})")
        try:
            return await self._first(response, key)
        except BaseException:
            response.close()
            raise

    async def _first(self, response: aiohttp.ClientResponse, key: str) -> Answer | Failure:
        headers = self._back(response, key)
        if response.status < 300:
            try:
                first = await response.content.readany()
            except TimeoutError:
                response.close()
                return Failure("timeout", sent=True)
            except (aiohttp.ClientError, OSError):
                response.close()
                return Failure("cut", sent=True)
            if first:
                return Answer(response, headers, first, self)
            response.close()
            return Failure("empty", sent=True)
        raw = await self._error_body(response)
        if response.status == 401 and self._rotated(key):
            return Failure("key", asked_ms=0)
        low = {name.lower(): value for name, value in response.headers.items()}
        return Failure(
            str(response.status),
            response.status,
            code=error_code(raw),
            asked_ms=retry_after_ms(low, self._clock.wall_ms()),
            body=self.key.redact(raw.replace(key.encode(), b"[key removed]")),
            headers=headers,
        )

    async def _error_body(self, response: aiohttp.ClientResponse) -> bytes:
        """At most ``error_bytes`` of it; an error that breaks off is still that error."""
        raw = bytearray()
        try:
            while len(raw) < self._bounds.error_bytes and (chunk := await response.content.readany()):
                raw += chunk
        except (aiohttp.ClientError, TimeoutError, OSError):
            response.close()
        if not response.content.at_eof():
            response.close()
        response.release()
        return bytes(raw[: self._bounds.error_bytes])

    def _url(self, path: str) -> URL:
        """Parsing a URL costs as much as everything else about a small request, and there are only a few."""
        url = self._urls.get(path)
        if url is None:
            url = URL(self.route.base_url.rstrip("/") + path.removeprefix("/v1"), encoded=True)
            if len(self._urls) < URLS_KEPT:
                self._urls[path] = url
        return url

    def _rotated(self, key: str) -> bool:
        try:
            return self.key.current() != key
        except KeyUnavailable:
            return True

    def _headers(self, given: CIMultiDict[str], key: str, length: int) -> CIMultiDict[str]:
        named = {name.strip().lower() for name in given.get("connection", "").split(",")}
        headers = CIMultiDict((name, value) for name, value in given.items() if name.lower() not in _NEVER_OUT | named)
        headers.update(self.route.headers)
        headers["Accept-Encoding"] = "identity"  # so that the event stream can be read as it passes
        headers[self.route.key_header] = f"Bearer {key}" if self.route.key_header == "authorization" else key
        if length:
            headers["Content-Length"] = str(length)
        return headers

    def _back(self, response: aiohttp.ClientResponse, key: str) -> CIMultiDict[str]:
        return CIMultiDict(
            (name, value) for name, value in response.headers.items() if name.lower() not in _NEVER_BACK and key not in value
        )


def connect_words(error: Exception) -> str:
    """At which step making a connection failed: name, TCP, TLS or the proxy's own word.

    aiohttp's errors quote the address they failed at, and a proxy's may hold a password: only their kind and the system's word pass.
    """
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no TCP connection in time"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refuses to connect (HTTP {error.status})"
    where = " of the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"TLS: its certificate is not trusted ({getattr(error.certificate_error, 'verify_message', 'no reason given')})"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "TLS: no handshake; is it really https?"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(error, aiohttp.ClientConnectorDNSError) or isinstance(cause, socket.gaierror):
        return f"DNS: the name{where} cannot be resolved"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return f"TCP{where}: {os.strerror(cause.errno).lower()}"
    return f"no connection{where} ({type(cause).__name__})"


async def _pieces(body: HeldBody) -> AsyncIterator[memoryview]:
    """A large body in pieces: one huge write would hold up every other stream."""
    view = memoryview(body.raw)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]
