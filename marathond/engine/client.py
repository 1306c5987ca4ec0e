"""Two aiodocker clients for one engine, and the few kinds of request the rest of the adapter is made of.

Owns connections and the negotiated API version.  Must not know what the requests mean.

Why two: one connector holds 100 connections and the 101st blocks, control calls included.  Streams (attached execs, builds, uploads,
events) live on a second, unlimited connector and can never starve an inspect or a kill.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

import aiodocker
import aiohttp
import anyio

from marathond.core.errors import ConfigError, EngineError, EngineUnreachable
from marathond.core.paths import ENGINE_SCHEMES
from marathond.engine.errors import answer_error, border
from marathond.engine.writers import tell_once

CONTROL_CONNECTIONS = 32
"""Control calls at once; more wait, inside their own deadline."""

LINE_MAX = 1 << 20
"""Longest JSON line taken from a stream; a longer one is dropped (aiodocker's own reader dies at 512 KiB)."""

TRANSFER_MAX_S = 3600.0
"""An upload that keeps moving may still not take longer."""

TAR = {"Content-Type": "application/x-tar"}

_NO_TIMEOUT = aiohttp.ClientTimeout()


class EngineClient:
    """Connections to one engine.  Connections are opened at the first call, inside the running event loop."""

    def __init__(self, url: str, call_timeout_s: float) -> None:
        self.url, self.call_timeout_s = url, call_timeout_s
        scheme, _, rest = url.partition("://")
        if f"{scheme}://" not in ENGINE_SCHEMES or not rest or (scheme == "unix" and not rest.startswith("/")):
            raise ConfigError(
                "", f"engine url {url!r}", "must be unix:///path/to/docker.sock or tcp://host:port (TLS and ssh are not supported)"
            )
        self._scheme, self._rest = scheme, rest
        self._clients: tuple[aiodocker.Docker, aiodocker.Docker] | None = None
        self._connectors: list[aiohttp.BaseConnector] = []
        self._closed = False

    def _open(self) -> tuple[aiodocker.Docker, aiodocker.Docker]:
        if self._closed:
            raise RuntimeError(f"the engine client for {self.url} is closed")
        if self._clients is None:
            tell_once()
            self._clients = (self._client(CONTROL_CONNECTIONS), self._client(0))
        return self._clients

    def _client(self, limit: int) -> aiodocker.Docker:
        connector: aiohttp.BaseConnector
        if self._scheme == "unix":
            connector, address = aiohttp.UnixConnector(self._rest, limit=limit), "unix://localhost"
        else:
            connector, address = aiohttp.TCPConnector(limit=limit), self.url
        self._connectors.append(connector)
        return aiodocker.Docker(url=address, connector=connector, api_version="auto")

    @property
    def control(self) -> aiodocker.Docker:
        """For short calls."""
        return self._open()[0]

    @property
    def streams(self) -> aiodocker.Docker:
        """For whatever stays open."""
        return self._open()[1]

    @property
    def api_version(self) -> str:
        """As negotiated (``1.41``); empty before the first call."""
        return self._clients[0].api_version.lstrip("v").replace("auto", "") if self._clients else ""

    def _forget_version(self) -> None:
        """The daemon may come back as another version: negotiate again after it was away."""
        for client in self._clients or ():
            client.api_version = "auto"

    async def request(
        self,
        call: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        deadline_s: float | None = None,
    ) -> Any:
        """One control call; returns the decoded JSON answer, or "" when there was none.

        :raises EngineError: or one of its kinds, see :mod:`marathond.engine.errors`.
        """
        client = self.control
        with self.guard(call, deadline_s, reads_only=method == "GET"):
            try:
                return await client._query_json(path, method, params=dict(params or {}), data=body, timeout=_NO_TIMEOUT)
            except (
                ValueError,
                KeyError,
                TypeError,
                RecursionError,
            ) as exc:  # what aiodocker makes of an answer that is no JSON, or not Docker's
                raise EngineError(call, 0, f"what answers at {self.url} does not speak like Docker: {exc!r}"[:500]) from exc

    async def head(self, call: str, path: str, params: Mapping[str, str]) -> None:
        """A HEAD request.  Past aiodocker's own reader, which fails on an error answer without a body.

        :raises NotFound: 404.  :raises EngineError: or one of its kinds.
        """
        client = self.control
        with self.guard(call, reads_only=True):
            await client._check_version()
            url = client._canonicalize_url(path, versioned_api=True)
            async with client.session.head(url, params=dict(params), timeout=_NO_TIMEOUT) as response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise answer_error(call, response.status, response.reason or "")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: object = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is read piece by piece, on the stream client.  Brings no deadline: wrap it in :meth:`guard`."""
        client = self.streams
        response = await client._do_query(path, method, params=dict(params or {}), headers=headers, data=data, timeout=_NO_TIMEOUT)
        try:
            yield response
        finally:
            response.close()  # not release(): that would read an endless stream to its end

    @contextmanager
    def guard(self, call: str, deadline_s: float | None = None, *, reads_only: bool) -> Iterator[anyio.CancelScope]:
        """A deadline and the translation of errors around the body; the default is the engine's call timeout.

        Yields the deadline's scope.
        """
        try:
            with border(call, self.url, self.call_timeout_s if deadline_s is None else deadline_s, reads_only=reads_only) as scope:
                yield scope
        except EngineUnreachable:
            self._forget_version()
            raise

    async def upload(self, call: str, path: str, params: Mapping[str, str], chunks: Callable[[], AsyncIterator[bytes]]) -> None:
        """PUT a tar stream.  The deadline moves with every chunk that the engine took, up to :data:`TRANSFER_MAX_S` in all."""
        with self.guard(call, reads_only=False) as scope:
            last = anyio.current_time() + TRANSFER_MAX_S

            def moved() -> None:
                scope.deadline = min(anyio.current_time() + self.call_timeout_s, last)

            source = BodySource(chunks, moved)
            with source.blame(call):
                async with self.stream("PUT", path, params=params, headers=TAR, data=source.read()) as response:
                    await response.read()

    async def aclose(self) -> None:
        """Close both clients and their connectors; later calls raise RuntimeError."""
        self._closed = True
        clients, self._clients = self._clients, None
        for client in clients or ():
            await client.close()
        for connector in self._connectors:
            await connector.close()
        self._connectors.clear()


class BodySource:
    """A request body whose own failure is remembered: aiohttp reports it as a broken connection otherwise."""

    def __init__(self, chunks: Callable[[], AsyncIterator[bytes]], moved: Callable[[], None]) -> None:
        self._chunks, self._moved = chunks, moved
        self.failure: Exception | None = None

    async def read(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks():
                yield chunk
                self._moved()
        except (OSError, EngineError, ValueError) as exc:
            self.failure = exc
            raise

    @contextmanager
    def blame(self, call: str) -> Iterator[None]:
        """Inside, an error that our own source caused is raised as that, never as the engine's."""
        try:
            yield
        except Exception as exc:
            if self.failure is None or exc is self.failure:
                raise
            if isinstance(self.failure, EngineError):
                raise self.failure from exc
            raise EngineError(call, 0, f"the data to send could not be read: {self.failure}") from self.failure


async def json_lines(call: str, response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a line stream.  A line over :data:`LINE_MAX` is dropped; a line that is no object is skipped.

    :raises EngineError: for a line that is no JSON (a stream cut in the middle of one).
    """
    buffer, dropping = bytearray(), False
    async for chunk in response.content.iter_any():
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = bytes(buffer) + line
            buffer.clear()
            if not dropping and len(whole) <= LINE_MAX and (item := _object(call, whole)) is not None:
                yield item
            dropping = False
        if not dropping:
            buffer += rest
            if len(buffer) > LINE_MAX:
                buffer.clear()
                dropping = True
    if not dropping and (item := _object(call, bytes(buffer))) is not None:
        yield item


def _object(call: str, line: bytes) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise EngineError(call, 0, f"the stream of {call} broke off in a line: {line[:80]!r}") from exc
    return item if isinstance(item, dict) else None
