"""A gateway over loopback with a scripted provider behind it, and a clock that only sleeping moves.

The gateway is the real one; only the namespace is left out (sockets open on the host's loopback) and time is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp import web

from marathond.gateway import journal_read
from marathond.gateway.files import Ack, Listener, key_hash, read_ack, write_json, write_listener
from marathond.gateway.netns import NamespaceError
from marathond.gateway.serve import Gateway, opened
from tests.support import worker

REAL_KEY = "sk-real-0123456789abcdefghij"
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
}
Step = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def completed(model: str = "gpt-test-2026", usage: dict[str, Any] | None = None) -> bytes:
    return event("response.completed", response={"id": "r1", "model": model, "usage": USAGE if usage is None else usage})


HELLO = event("response.created", response={"id": "r1", "model": "gpt-test-2026"})


def streams(*chunks: bytes, before_each: Callable[[int], Awaitable[None]] | None = None, cut: bool = False) -> Step:
    """Answer 200 with these chunks; ``before_each(n)`` is awaited before chunk n; ``cut`` breaks the connection instead of ending it."""

    async def step(request: web.BaseRequest) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Openai-Organization": "org-secret"})
        await out.prepare(request)
        for number, chunk in enumerate(chunks):
            if before_each is not None:
                await before_each(number)
            await out.write(chunk)
        if cut:
            assert request.transport is not None
            request.transport.close()
        return out

    return step


def answers(status: int, told: Any = None, **headers: str) -> Step:
    async def step(_: web.BaseRequest) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(told if told is not None else {"error": {"message": "no", "code": "x"}}, status=status, headers=named)

    return step


def hangs_up() -> Step:
    async def step(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return step


OK = streams(HELLO, completed())


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Provider:
    """Answers by script, then with :data:`OK` for ever; remembers what came."""

    script: deque[Step] = field(default_factory=deque)
    default: Step = OK
    seen: list[Seen] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = bytearray()
        while chunk := await request.content.readany():
            raw += chunk
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.path_qs, headers, bytes(raw)))
        step = self.script.popleft() if self.script else self.default
        return await step(request)


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    it = Provider()
    server = web.Server(it.handle, access_log=None)
    sockets = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{sockets.sockets[0].getsockname()[1]}/api"
    try:
        yield it
    finally:
        sockets.close()
        await server.shutdown(0.1)


class FakeClock:
    def __init__(self) -> None:
        self.boot_id, self.now_ms, self.slept_ms = "boot-1", 1_000_000, 0
        self.on_sleep: Callable[[float], None] | None = None

    def wall_ms(self) -> int:
        return 1_790_000_000_000 + self.now_ms

    def mono_ms(self) -> int:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        """Time passes at once, and only here."""
        if self.on_sleep is not None:
            self.on_sleep(seconds)
        await asyncio.sleep(0)
        self.now_ms += round(seconds * 1000)
        self.slept_ms += round(seconds * 1000)


def host_socket(pid: int, ticks: int, port: int) -> socket.socket:
    """What netns.open_listening does, without a namespace."""
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(64)
        sock.setblocking(False)
    except OSError as err:
        sock.close()
        raise NamespaceError("port_taken", str(err)) from err
    return sock


def free_port() -> int:
    """Nobody takes it before it is listened at."""
    while True:
        port = worker.any_port()
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


class Asked:
    """A request under way.  What of its answer the test leaves unread is read when it is left, unless it was closed.

    Leaving an answer unread breaks its connection, and whether the gateway had passed all of it on by then is up to the machine: its line
    in the journal would say ``cut_by_client``, or not be there yet.  It is written before the answer's end goes out.
    """

    def __init__(self, coming: contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]) -> None:
        self._coming = coming
        self._got: aiohttp.ClientResponse | None = None

    def __await__(self) -> Generator[Any, None, aiohttp.ClientResponse]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> aiohttp.ClientResponse:
        self._got = await self._coming.__aenter__()
        return self._got

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._got is not None
        try:
            if error is None and not self._got.closed:
                await self._got.read()
        finally:
            await self._coming.__aexit__(kind, error, trace)


@dataclass
class Rig:
    folder: Path
    gateway: Gateway
    provider: Provider
    clock: FakeClock
    http: aiohttp.ClientSession
    dead: set[int] = field(default_factory=set)

    def listener(self, name: str = "t0001", **changes: Any) -> Listener:
        fields: dict[str, Any] = {
            "name": name,
            "version": 1,
            "trial": name.partition(".")[0],
            "account": "agent",
            "container_id": f"c-{name}",
            "started_at": "2026-11-29T10:00:00Z",
            "pid": 4242,
            "start_ticks": 7,
            "boot_id": self.clock.boot_id,
            "port": free_port(),
            "key_sha256": key_hash(f"dummy-{name}"),
            "route": "model",
            "network": "none",
        }
        return Listener(**{**fields, **changes})

    async def listen(self, name: str = "t0001", **changes: Any) -> Listener:
        wanted = self.listener(name, **changes)
        write_listener(self.folder, wanted)
        await self.gateway.poll()
        return wanted

    def ack(self, name: str = "t0001") -> Ack:
        ack = read_ack(self.folder, name)
        assert ack is not None
        return ack

    def post(self, at: Listener, body: Any = None, *, path: str = "/v1/responses", key: str | None = None, **headers: str) -> Asked:
        raw = body if isinstance(body, bytes) else json.dumps(body if body is not None else {"model": "m", "input": []}).encode()
        auth = {"Authorization": f"Bearer {key if key is not None else f'dummy-{at.name}'}"}
        return Asked(self.http.post(f"http://127.0.0.1:{at.port}{path}", data=io.BytesIO(raw), headers={**auth, **headers}))

    def entries(self) -> list[dict[str, Any]]:
        found, _ = journal_read.read_from(self.folder / "journal")
        return [entry.fields for entry in found if isinstance(entry, journal_read.Record)]

    def requests(self, event: str = "request") -> list[dict[str, Any]]:
        return [fields for fields in self.entries() if fields["event"] == event]

    async def until(self, there: Callable[[], Any]) -> Any:
        """Yield to the loop until something is there; bounded by the test's own time limit."""
        while not (found := there()):  # noqa: ASYNC110  # what is waited for is a line in a file
            await asyncio.sleep(0)
        return found


def write_config(folder: Path, url: str, *, hold: dict[str, Any] | None = None, bounds: dict[str, Any] | None = None, **route: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "real.key"
    if not key.exists():
        key.write_text(REAL_KEY + "\n")
    model = {"base_url": url, "key_file": str(key), **route}
    told = {"format": 1, "routes": {"model": model}, "hold": hold or {}, "bounds": bounds or {}, "poll_ms": 20}
    write_json(folder / "gateway.json", told)


@asynccontextmanager
async def rig(folder: Path, **config: Any) -> AsyncIterator[Rig]:
    clock = FakeClock()
    dead: set[int] = set()
    async with provider() as upstream, aiohttp.ClientSession() as http:
        write_config(folder, upstream.url, **config)
        async with opened(
            folder, clock=clock, sleep=clock.sleep, open_socket=host_socket, still_there=lambda pid, _: pid not in dead
        ) as gateway:
            gateway.house.chance = lambda: 0.0
            yield Rig(folder, gateway, upstream, clock, http, dead)
