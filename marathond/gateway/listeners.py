"""From listener files to open sockets, and the acks that say how it went.

Owns which sockets are open.  Files are looked at by polling: a folder of at most a thousand small files, by inode, size and time.  A change
of key, deadline, route or policy keeps the socket; a change of container opens a new one.  What failed is tried again for as long as the
file asks for it: a port that the agent took may become free.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from marathond.core.errors import ArtifactError, ConfigError
from marathond.gateway import netns
from marathond.gateway.files import (
    LISTENERS_AT_MOST,
    NAME,
    Ack,
    AckState,
    Listener,
    ack_path,
    parse_listener,
    read_json,
    write_json,
)
from marathond.gateway.house import House, Refuse
from marathond.gateway.proxy import Door

log = structlog.get_logger("marathond.gateway")
RETRY_MS = 2_000
CLOSE_S = 1.0
READ_BUFFER_BYTES = 256 * 1024
OpenSocket = Callable[[int, int, int], socket.socket]
StillThere = Callable[[int, int], bool]
Signature = tuple[int, int, int]


class BoundedServer(web.Server):
    """Takes at most ``at_most`` connections, so that one agent cannot use up everybody's descriptors.

    The next one takes the place of one that asks nothing, those first that never did; only where all ask it is closed at once.  So an agent
    that opens connections and lets them lie does not cut off its own client.  Each one too many is counted as a refusal of the trial's own.
    """

    def __init__(self, door: Door, house: House) -> None:
        bounds = house.config.bounds
        self._door, self._house = door, house
        self._at_most = bounds.connections_per_listener
        self._asking: set[RequestHandler] = set()
        self._asked: dict[RequestHandler, int] = {}
        """When each one was answered last, as a count of answers; a connection that never asked is not among them."""
        self._answers = 0
        super().__init__(
            self._answer,
            handler_cancellation=True,
            access_log=None,
            max_line_size=bounds.header_line_bytes,
            max_field_size=bounds.header_line_bytes,
            max_headers=bounds.headers,
            read_bufsize=READ_BUFFER_BYTES,
            lingering_time=1.0,
        )

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]  # asyncio asks for no more than a Protocol
        there = self._there()
        return super().__call__() if len(there) < self._at_most or self._made_room(there) else _TurnedAway()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Counted once more: those that the loop accepts in one go were all let in while none of them was there yet."""
        super().connection_made(handler, transport)
        there = self._there()
        if len(there) > self._at_most and not self._made_room([each for each in there if each is not handler]):
            transport.abort()

    def _there(self) -> list[RequestHandler]:
        """One that was closed a moment ago has no transport any more, and is forgotten only when the loop comes to it."""
        return [each for each in self.connections if each.transport is not None]

    def _made_room(self, there: list[RequestHandler]) -> bool:
        """Whether one of them could be closed; the one too many is told in any case."""
        self._house.refuse(self._door.listener, Refuse(429, "too_many_connections", "too many connections at once"))
        silent = [each for each in there if each not in self._asking]
        if silent:
            min(silent, key=lambda each: self._asked.get(each, 0)).force_close()  # the oldest of those that are equal
        return bool(silent)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._asking.add(connection)
        try:
            return await self._door.handle(request)
        finally:
            self._asking.discard(connection)
            self._answers += 1
            self._asked[connection] = self._answers

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._asked.pop(handler, None)


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


@dataclass(slots=True)
class Seat:
    """One listener file as last seen, and what became of it."""

    signature: Signature
    listener: Listener | None = None
    door: Door | None = None
    server: BoundedServer | None = None
    sockets: asyncio.Server | None = None
    retry_at_ms: int = 0
    told: tuple[object, ...] = field(default=())


class Listeners:
    """Call :meth:`poll` again and again; it raises nothing that a single file could cause."""

    def __init__(
        self,
        folder: Path,
        house: House,
        life: str,
        open_socket: OpenSocket = netns.open_listening,
        still_there: StillThere = netns.still_there,
    ) -> None:
        self._folder, self._house, self._life = folder, house, life
        self._open_socket, self._still_there = open_socket, still_there
        self._seats: dict[str, Seat] = {}
        self.beyond = 0

    @property
    def listening(self) -> int:
        return sum(seat.sockets is not None for seat in self._seats.values())

    async def poll(self) -> None:
        """Look at every file once: open what is new, follow what changed, close what is gone."""
        there = self._look()
        for name in [name for name in self._seats if name not in there]:
            await self._remove(name)
        for name, signature in there.items():
            seat = self._seats.get(name)
            if seat is None or seat.signature != signature:
                await self._changed(name, signature)
            else:
                await self._keep(name, seat)

    async def close(self) -> None:
        """Stop listening, without an ack: the files stand, the next life opens them again."""
        await asyncio.gather(*(self._shut(seat) for seat in self._seats.values()))

    def stop_accepting(self) -> None:
        for seat in self._seats.values():
            if seat.sockets is not None:
                seat.sockets.close()

    def _look(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        folder = self._folder / "listeners"
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        paths = sorted(path for path in folder.glob("*.json") if NAME.match(path.stem))
        beyond = max(0, len(paths) - LISTENERS_AT_MOST)
        if beyond != self.beyond:
            log.warning("listeners_beyond_bound", beyond=beyond, at_most=LISTENERS_AT_MOST)
            self.beyond = beyond
        for path in paths[:LISTENERS_AT_MOST]:
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue  # removed between the listing and the look
            found[path.stem] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        return found

    async def _changed(self, name: str, signature: Signature) -> None:
        old = self._seats.get(name)
        try:
            told = read_json(self._folder / "listeners" / f"{name}.json")
            if told is None:
                return
            listener = parse_listener(name, told)
        except (ConfigError, ArtifactError) as err:
            # What was understood last goes on: a half-understood file must not cut a running trial off.
            seat = old or Seat(signature)
            seat.signature = signature
            self._seats[name] = seat
            self._ack(name, seat, "refused", "bad_file", str(err))
            return
        if old is not None and old.listener is not None and old.door is not None and old.listener.place == listener.place:
            old.signature, old.listener, old.door.listener = signature, listener, listener
            if old.sockets is not None:
                self._listening(name, old)
                return
        elif old is not None:
            await self._shut(old)
        seat = Seat(signature, listener)
        self._seats[name] = seat
        await self._open(name, seat)

    async def _keep(self, name: str, seat: Seat) -> None:
        listener = seat.listener
        if listener is None:
            return
        if seat.sockets is not None and not self._is_there(listener):
            await self._shut(seat)
            self._ack(name, seat, "failed", "container_gone", f"process {listener.pid} has ended")
        elif seat.sockets is not None:
            self._listening(name, seat)  # its route may have come or gone
        elif seat.sockets is None and self._house.clock.mono_ms() >= seat.retry_at_ms:
            await self._open(name, seat)

    def _is_there(self, listener: Listener) -> bool:
        return listener.boot_id == self._house.clock.boot_id and self._still_there(listener.pid, listener.start_ticks)

    async def _open(self, name: str, seat: Seat) -> None:
        listener = seat.listener
        assert listener is not None
        seat.retry_at_ms = self._house.clock.mono_ms() + RETRY_MS
        if listener.boot_id != self._house.clock.boot_id:
            self._ack(name, seat, "failed", "container_gone", "the host was started anew since")
            return
        try:
            opened = await asyncio.to_thread(self._open_socket, listener.pid, listener.start_ticks, listener.port)
        except netns.NamespaceError as err:
            self._ack(name, seat, "failed", err.code, err.detail)
            return
        seat.door = Door(self._house, listener)
        seat.server = BoundedServer(seat.door, self._house)
        try:
            seat.sockets = await asyncio.get_running_loop().create_server(seat.server, sock=opened, backlog=netns.BACKLOG)
        except OSError as err:
            opened.close()
            self._ack(name, seat, "failed", "io", str(err))
            return
        self._listening(name, seat)

    def _listening(self, name: str, seat: Seat) -> None:
        """Open.  A route that does not exist is told with it: requests are refused until the settings name one."""
        assert seat.listener is not None
        if seat.listener.route in self._house.ways:
            self._ack(name, seat, "listening", "", "")
        else:
            self._ack(name, seat, "refused", "no_route", f"no route named {seat.listener.route}")

    async def _remove(self, name: str) -> None:
        seat = self._seats.pop(name)
        await self._shut(seat)
        self._house.refusals.forget(name)
        self._ack(name, seat, "closed", "", "")

    async def _shut(self, seat: Seat) -> None:
        sockets, server = seat.sockets, seat.server
        seat.sockets = seat.server = seat.door = None
        if sockets is not None:
            sockets.close()
        if server is not None:
            server.pre_shutdown()  # connections that only wait for a next request end now
            await server.shutdown(CLOSE_S)

    def _ack(self, name: str, seat: Seat, state: AckState, code: str, detail: str) -> None:
        """Said once per version and outcome, not at every poll."""
        listener = seat.listener
        version = listener.version if listener is not None else 0
        saying = (version, state, code, detail, listener.place if listener else ())
        if seat.told == saying:
            return
        seat.told = saying
        ack = Ack(
            name=name,
            version=version,
            state=state,
            code=code,
            detail=detail[:400],
            container_id=listener.container_id if listener else "",
            started_at=listener.started_at if listener else "",
            port=listener.port if listener else 0,
            life=self._life,
            mono_ms=self._house.clock.mono_ms(),
        )
        try:
            write_json(ack_path(self._folder, name), {field: getattr(ack, field) for field in Ack.__slots__})
        except ArtifactError as err:
            seat.told = ()
            log.error("ack_not_written", listener=name, error=str(err))
        (log.info if state in ("listening", "closed") else log.warning)(
            "listener", listener=name, state=state, code=code, detail=ack.detail, version=version
        )
