"""One connection to an app-server: requests answered one by one, notifications in the order in which they came.

Owns the WebSocket, request numbers, the counts of what was said and heard, and the bounds on what waits here.  Must not know arms, gates or
containers beyond :mod:`marathond.agents.codex.reach`; nothing here decides what a turn's end means.

The server and its turns outlive every client.  A connection that ends is therefore never an end of anything but itself:
:class:`~marathond.agents.codex.errors.ConnectionLost` means *reach again and* :func:`~marathond.agents.codex.attach.reattach`.

The socket is read without a pause whatever the consumer does: app-server drops a client that reads slowly.  What the consumer has not
taken yet waits in a queue bounded by number and bytes; beyond it the connection is closed with ``overflow``, which loses nothing either.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from marathond.agents.codex import wire
from marathond.agents.codex.errors import CodexError, ConnectionLost, ProtocolDrift, ReachError, RequestTimeout, RpcError
from marathond.agents.codex.messages import Capabilities, ClientInfo, Initialize, Initialized, Request, Result
from marathond.agents.codex.notices import DELTAS, NOTIFICATIONS, Known, OnConfigWarning, OnItemCompleted, OnItemStarted, OnWarning
from marathond.agents.codex.reach import Reach, reached
from marathond.agents.codex.shapes import parse
from marathond.ports.leaving import last_act

EVENTS_AT_MOST = 20_000
EVENT_BYTES_AT_MOST = 256 << 20
WARNINGS_KEPT = 200
METHODS_KEPT = 500
"""Names of methods that are counted one by one; a server that invents more of them is counted under ``OTHERS``."""
OTHERS = "…"
THREADS_KEPT = 1000
_CLOSE_S, _CLOSE_AT_MOST_S = 1.0, 10.0
"""How long the server is given to say goodbye; and all of our own closing."""
_CLIENT = ClientInfo(name="marathond", version="1")

Sink = Callable[[Mapping[str, Any]], None]
"""Takes ``{"way": "out" | "in", "message": …}`` for every message, in order; it must be quick, and what it raises ends the connection."""


@dataclass(frozen=True, slots=True)
class Event:
    """A notification.

    :param number: its place in this connection, from 1.
    :param body: typed, where ``notices.NOTIFICATIONS`` knows the method; else None, and ``params`` is all there is.
    :param thread_id: whose it is; None where it names no thread.
    """

    number: int
    method: str
    params: Mapping[str, Any]
    body: Known | None
    thread_id: str | None


@dataclass(slots=True)
class Counts:
    """What one connection saw.  Counts of two connections to one server add up to less than what happened: see ``attach``."""

    requests: Counter[str] = field(default_factory=Counter)
    """Sent, by method."""
    errors: Counter[str] = field(default_factory=Counter)
    """Requests that the server answered with an error, by method."""
    timeouts: Counter[str] = field(default_factory=Counter)
    notifications: Counter[str] = field(default_factory=Counter)
    """Of every thread, by method."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Those of them that this client has no type for."""
    refused: Counter[str] = field(default_factory=Counter)
    """Requests of the server (approvals and the like), all refused, by method."""
    by_thread: dict[str, Counter[str]] = field(default_factory=dict)
    """Notifications that name a thread, by thread and method: everything beside the main thread is a sub-agent's."""
    sub_agents: dict[str, str] = field(default_factory=dict)
    """Sub-agents' threads as the threads above them announced them, with the last activity: started, interacted, interrupted, completed."""
    warnings: list[str] = field(default_factory=list)
    """Texts of ``warning`` and ``configWarning``, the first of them."""


class Transport(Protocol):
    """What is used of a WebSocket."""

    async def send_str(self, data: str) -> None: ...

    async def receive(self) -> aiohttp.WSMessage: ...

    async def close(self) -> Any: ...


class CodexClient:
    """Made by :func:`connect`.  Requests may be under way at once; one task consumes :meth:`events`."""

    def __init__(self, transport: Transport, sink: Sink, *, events_at_most: int, event_bytes_at_most: int) -> None:
        self.counts = Counts()
        self.initialized: Initialized
        """What the server said of itself."""
        self.peer_pid = 0
        """Host-side pid of the server, as proven when the socket was reached."""
        self.socket_name = ""
        self._transport, self._sink = transport, sink
        self._events_at_most, self._event_bytes_at_most = events_at_most, event_bytes_at_most
        self._last = 0
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._queue: deque[tuple[Event, int]] = deque()
        self._queued_bytes = 0
        self._heard = 0
        self._news = asyncio.Event()
        self._failure: BaseException | None = None
        self._on_close: list[Callable[[], Any]] = []
        self._reader = asyncio.create_task(self._read(), name="codex-reader")

    @property
    def failure(self) -> BaseException | None:
        """Why nothing more will be heard; None while the connection stands."""
        return self._failure

    async def request(self, request: Request[Result], timeout_s: float) -> Result:
        """Send it and wait for its answer.

        :raises RequestTimeout: it may have been carried out.
        :raises RpcError: the server said no.
        :raises ConnectionLost: it may have been carried out.
        :raises ProtocolDrift: the answer has another shape.
        """
        raw = await self.call(request.METHOD, request.params(), timeout_s)
        made: Result = parse(request.METHOD, request.RESULT, raw)  # type: ignore[assignment]
        return made

    async def call(self, method: str, params: Mapping[str, Any], timeout_s: float) -> Any:
        """The same for a method without a type: its raw result."""
        self._raise_failure()
        self._last += 1
        number = self._last
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (method, answer)
        self.counts.requests[method] += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(wire.request(number, method, params))
                return await answer
        except TimeoutError:
            self.counts.timeouts[method] += 1
            raise RequestTimeout(method, timeout_s) from None
        finally:
            self._waiting.pop(number, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # taken here too, where sending failed: nobody else will

    async def events(self) -> AsyncIterator[Event]:
        """Notifications, oldest first, those that came before the call too.  Ends only by raising.

        :raises ConnectionLost: after the last one.
        :raises ProtocolDrift: after the last one that could be read.
        """
        while True:
            yield await self.next_event()

    async def next_event(self) -> Event:
        """The next notification; may be cancelled without losing one."""
        while not self._queue:
            self._raise_failure()
            self._news.clear()
            await self._news.wait()
        event, size = self._queue.popleft()
        self._queued_bytes -= size
        return event

    def taken(self) -> Event | None:
        """The next notification if one waits here already."""
        if not self._queue:
            return None
        event, size = self._queue.popleft()
        self._queued_bytes -= size
        return event

    async def aclose(self) -> None:
        """Leave, within about a second, also when cancelled; the server and its turn go on.  May be called twice."""
        self._fail(ConnectionLost("here", "closed on this side"))
        self._reader.cancel()
        with last_act("", _CLOSE_AT_MOST_S):
            await asyncio.wait({self._reader})
            try:
                await self._transport.close()
            finally:
                while self._on_close:
                    await self._on_close.pop()()

    # ---- inside

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _fail(self, failure: BaseException) -> None:
        """The first failure stays; everybody who waits is told."""
        if self._failure is None:
            self._failure = failure
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._failure)
        self._news.set()

    def _log(self, way: str, message: Mapping[str, Any]) -> None:
        try:
            self._sink({"way": way, "message": message})
        except Exception as err:
            self._fail(err)
            raise

    async def _send(self, message: Mapping[str, Any]) -> None:
        self._log("out", message)
        try:
            await self._transport.send_str(wire.encode(message))
        except (aiohttp.ClientError, OSError, RuntimeError) as err:
            self._fail(ConnectionLost("broken", f"sending: {err}"))
            self._raise_failure()

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._transport.receive()
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    raise _ended(frame)
                await self._take(frame.data)
        except asyncio.CancelledError:
            raise
        except Exception as err:  # noqa: BLE001 -- whatever ends the reading must reach those who wait; _fail keeps it
            self._fail(err)
            await self._transport.close()

    async def _take(self, text: str) -> None:
        raw = wire.load(text)
        self._log("in", raw)
        match wire.read(raw):
            case wire.Answer(number, result):
                if (waiting := self._waiting.get(number)) is not None and not waiting[1].done():
                    waiting[1].set_result(result)
            case wire.Failure(number, code, message, data):
                if (waiting := self._waiting.get(number)) is not None and not waiting[1].done():
                    self.counts.errors[waiting[0]] += 1
                    waiting[1].set_exception(RpcError(waiting[0], code, message, data))
            case wire.Asked(method=method) as asked:
                _count_one(self.counts.refused, method)
                await self._send(wire.refusal(asked))
            case wire.Heard(method, params):
                self._hear(method, params, len(text))

    def _hear(self, method: str, params: Mapping[str, Any], size: int) -> None:
        self._heard += 1
        model = NOTIFICATIONS.get(method)
        body = None if model is None else parse(method, model, params)
        thread_id = _thread_of(params)
        self._count(method, body, thread_id)
        if len(self._queue) >= self._events_at_most or self._queued_bytes + size > self._event_bytes_at_most:
            raise ConnectionLost("overflow", f"{len(self._queue)} notifications of {self._queued_bytes} bytes wait to be taken")
        self._queue.append((Event(self._heard, method, params, body, thread_id), size))
        self._queued_bytes += size
        self._news.set()

    def _count(self, method: str, body: Known | None, thread_id: str | None) -> None:
        counts = self.counts
        _count_one(counts.notifications, method)
        if body is None:
            _count_one(counts.unknown, method)
        if thread_id is not None and (thread_id in counts.by_thread or len(counts.by_thread) < THREADS_KEPT):
            _count_one(counts.by_thread.setdefault(thread_id, Counter()), method)
        match body:
            case OnItemCompleted(item=item) | OnItemStarted(item=item) if item.agent_thread_id is not None:
                if item.agent_thread_id in counts.sub_agents or len(counts.sub_agents) < THREADS_KEPT:
                    counts.sub_agents[item.agent_thread_id] = item.kind or ""
            case OnWarning(message=text) | OnConfigWarning(summary=text) if len(counts.warnings) < WARNINGS_KEPT:
                counts.warnings.append(text[:2000])
            case _:
                pass


def _count_one(counter: Counter[str], method: str) -> None:
    counter[method if method in counter or len(counter) < METHODS_KEPT else OTHERS] += 1


def _thread_of(params: Mapping[str, Any]) -> str | None:
    thread = params.get("thread")
    found = params.get("threadId", thread.get("id") if isinstance(thread, dict) else None)
    return found if isinstance(found, str) else None


def _ended(frame: aiohttp.WSMessage) -> CodexError:
    match frame.type:
        case aiohttp.WSMsgType.BINARY:
            return ProtocolDrift("frame", "-", "a binary frame, expected text")
        case aiohttp.WSMsgType.ERROR:
            too_large = isinstance(frame.data, aiohttp.WebSocketError) and frame.data.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
            return ConnectionLost("too_large" if too_large else "broken", str(frame.data)[:300])
        case _:
            return ConnectionLost("closed", f"the server's side closed the connection ({frame.data} {frame.extra or ''})".rstrip())


async def connect(
    reach: Reach,
    *,
    sink: Sink,
    timeout_s: float,
    events_at_most: int = EVENTS_AT_MOST,
    event_bytes_at_most: int = EVENT_BYTES_AT_MOST,
) -> CodexClient:
    """Reach the socket, connect, and introduce ourselves (``initialize``, ``initialized``).

    :raises ReachError: nothing was said to anybody.
    :raises ConnectionLost: ``handshake``, or the connection ended at once.
    :raises RequestTimeout: no answer to ``initialize``; also ``connect`` for the handshake.
    :raises RpcError, ProtocolDrift: the server is no app-server that we know.
    """
    session: aiohttp.ClientSession | None = None
    client: CodexClient | None = None
    try:
        async with asyncio.timeout(timeout_s):
            with reached(reach) as way:  # the descriptors are needed until the connection stands
                session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(way.path), trust_env=False)
                socket = await session.ws_connect(
                    "http://localhost/",
                    max_msg_size=wire.FRAME_BYTES_AT_MOST,
                    compress=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                )
            client = CodexClient(socket, sink, events_at_most=events_at_most, event_bytes_at_most=event_bytes_at_most)
            client._on_close.append(session.close)
            client.peer_pid, client.socket_name = way.peer_pid, way.name
            asked = Initialize(client_info=_CLIENT, capabilities=Capabilities(opt_out_notification_methods=list(DELTAS)))
            client.initialized = await client.request(asked, timeout_s)
            await client._send(wire.notification("initialized"))
            return client
    except TimeoutError:
        await _leave(client, session)
        raise RequestTimeout("connect", timeout_s) from None
    except (aiohttp.ClientError, OSError) as err:
        await _leave(client, session)
        if isinstance(err, OSError) and err.errno == errno.ECONNREFUSED:  # the listener ended after it had been looked at
            raise ReachError("socket_refused", "nobody listens at the socket any more") from err
        raise ConnectionLost("handshake", str(err)[:300]) from err
    except BaseException:
        await _leave(client, session)
        raise


async def _leave(client: CodexClient | None, session: aiohttp.ClientSession | None) -> None:
    if client is not None:
        await client.aclose()
    elif session is not None:
        await session.close()
