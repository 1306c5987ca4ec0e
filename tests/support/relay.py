"""A unix socket between a client and a real engine that a test can cut, mute or watch.

Owns the forwarding of bytes; understands nothing of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path


class Relay:
    """``async with Relay(path, upstream)``; without upstream it accepts and never answers."""

    def __init__(self, path: Path, upstream: Path | None) -> None:
        self.path, self.upstream = path, upstream
        self.mute = False
        self.mute_at = b""
        """From the first request on that holds these bytes, which still reaches the engine, no answer comes back."""
        self._server: asyncio.Server | None = None
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
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def cut(self) -> None:
        """Every connection breaks and new ones are refused, as when dockerd is killed."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self.path.unlink(missing_ok=True)
        for writer in list(self._writers):
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def __aenter__(self) -> Relay:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
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
                await asyncio.gather(self._pump(reader, up_writer, True), self._pump(up_reader, writer, False))
            finally:
                up_writer.transport.abort()
                self._writers.discard(up_writer)
        except OSError:
            return  # either side went away, which is what a relay passes on by closing the other
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outward: bool) -> None:
        while data := await reader.read(65536):
            if outward and self.mute_at and self.mute_at in data:
                self.mute, self.mute_at = True, b""
            if outward or not self.mute:
                writer.write(data)
                await writer.drain()
            if outward:
                for request, event in self._wanted:
                    if request in data:
                        event.set()
        if writer.can_write_eof():
            writer.write_eof()
