"""A unix socket between a client and a real engine that a test can cut, mute, slow down or watch, and that can answer in its stead.

Owns the forwarding of bytes; understands nothing of them but where a request's words stand.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

WORDS = b'{"message":"containerd: connection refused"}'
FAILED = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(WORDS)
) + WORDS


class Relay:
    """``async with Relay(path, upstream)``; without upstream it accepts and never answers."""

    def __init__(self, path: Path, upstream: Path | None) -> None:
        self.path, self.upstream = path, upstream
        self.mute = False
        self.mute_at = b""
        """From the first request on that holds these bytes, which still reaches the engine, no answer comes back."""
        self.deaf = False
        self.deaf_at = b""
        """The same, and no later request reaches the engine either: it hangs, and has carried this one out."""
        self.delay_s = 0.0
        """Before each piece of an answer is handed on."""
        self.fails_at: tuple[bytes, ...] = ()
        """Requests that hold one of these never reach the engine: they are answered with 500, and counted in ``failed``."""
        self.failed = 0
        self.breaks_at: list[bytes] = []
        """The first request that holds the first of these breaks its connection unheard, then the next one's turn comes."""
        self.carried = 0
        """Bytes that came in, from both sides."""
        self._streams: list[tuple[bytes, asyncio.StreamWriter]] = []
        self._server: asyncio.Server | None = None
        self._open = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted: list[tuple[bytes, asyncio.Event]] = []

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def sees(self, request: bytes) -> asyncio.Event:
        """Set once a client has sent bytes that hold ``request``, after they were handed to the engine."""
        event = asyncio.Event()
        self._wanted.append((request, event))
        return event

    async def listen(self) -> None:
        self._open = True
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def cut(self) -> None:
        """Every connection breaks and new ones are refused, as when dockerd is killed."""
        self._open = False
        if self._server is not None:
            self._server.close()
            self._server = None
            self.path.unlink(missing_ok=True)
        for writer in list(self._writers):
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def cut_requests(self, words: bytes) -> int:
        """Break the connections whose last request holds these words, and no other; how many there were."""
        found = [writer for request, writer in self._streams if words in request and not writer.transport.is_closing()]
        for writer in found:
            writer.transport.abort()
        return len(found)

    async def __aenter__(self) -> Relay:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if not self._open:  # accepted a moment before the cut, which did not know of it yet
            writer.transport.abort()
            return
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self.upstream is None:
                while await reader.read(65536):
                    pass
                return
            up_reader, up_writer = await asyncio.open_unix_connection(self.upstream)
            self._writers.add(up_writer)
            try:
                if not self._open:  # cut while the engine's side was being opened
                    return
                await asyncio.gather(self._pump(reader, up_writer, True, writer), self._pump(up_reader, writer, False, writer))
            finally:
                up_writer.transport.abort()
                self._writers.discard(up_writer)
        except OSError:
            return  # either side went away, which is what a relay passes on by closing the other
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outward: bool, client: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.carried += len(data)
            if outward:
                self._streams = [each for each in self._streams if each[1] is not client] + [(data[:1000], client)]
                if any(words in data for words in self.fails_at):
                    self.failed += 1
                    client.write(FAILED)
                    await client.drain()
                    client.close()
                    return
                if self.breaks_at and self.breaks_at[0] in data:
                    self.breaks_at.pop(0)
                    client.transport.abort()
                    return
            elif self.delay_s:
                await asyncio.sleep(self.delay_s)
            if outward and self.mute_at and self.mute_at in data:
                self.mute, self.mute_at = True, b""
            unheard = outward and self.deaf
            if outward and self.deaf_at and self.deaf_at in data:
                self.mute, self.deaf, self.deaf_at = True, True, b""
            if not unheard and (outward or not self.mute):
                writer.write(data)
                await writer.drain()
            if outward:
                for request, event in self._wanted:
                    if request in data:
                        event.set()
        if writer.can_write_eof():
            writer.write_eof()
