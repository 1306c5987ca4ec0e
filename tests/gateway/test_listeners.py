"""Listener files, sockets and acks; settings that change under way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from marathond.core.errors import Refused
from marathond.gateway.files import Listener, key_hash, listener_path, remove_listener, write_json, write_listener
from marathond.gateway.listeners import RETRY_MS
from marathond.gateway.serve import opened
from tests.support.gateway_rig import HELLO, answers, completed, free_port, host_socket, rig, streams, write_config

pytestmark = pytest.mark.anyio


async def test_ack_names_version_container_and_life(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen(version=7)
        ack = it.ack()
        assert (ack.version, ack.state, ack.code, ack.port) == (7, "listening", "", at.port)
        assert (ack.container_id, ack.started_at, ack.life) == (at.container_id, at.started_at, it.gateway.life)


async def test_removed_file_closes_the_listener(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        remove_listener(it.folder, at.name)
        await it.gateway.poll()
        assert it.ack().state == "closed"
        with pytest.raises(aiohttp.ClientConnectorError):
            await it.post(at)
        assert it.gateway.listeners.listening == 0


async def test_port_that_the_agent_took_is_named_and_tried_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        port = free_port()
        agents = host_socket(0, 0, port)
        at = await it.listen(port=port)
        assert (it.ack().state, it.ack().code) == ("failed", "port_taken")
        agents.close()
        await it.gateway.poll()
        assert it.ack().code == "port_taken"  # not at every poll
        it.clock.now_ms += RETRY_MS
        await it.gateway.poll()
        assert it.ack().state == "listening"
        async with it.post(at) as got:
            assert got.status == 200


async def test_ended_container_closes_the_listener_and_a_restarted_one_gets_a_new(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        it.dead.add(at.pid)
        await it.gateway.poll()
        assert (it.ack().state, it.ack().code) == ("failed", "container_gone")
        await it.listen(version=2, started_at="2026-11-29T11:00:00Z", pid=4343, port=at.port)
        assert (it.ack().version, it.ack().state, it.ack().started_at) == (2, "listening", "2026-11-29T11:00:00Z")
        async with it.post(at) as got:
            assert got.status == 200


async def test_file_of_another_boot_opens_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.listen(boot_id="boot-0")
        assert (it.ack().state, it.ack().code) == ("failed", "container_gone")


async def test_bad_file_is_named_and_the_listener_goes_on(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        listener_path(it.folder, at.name).write_text('{"format": 1')
        await it.gateway.poll()
        assert (it.ack().state, it.ack().code) == ("refused", "bad_file")
        async with it.post(at) as got:
            assert got.status == 200
        await it.listen(version=2, port=at.port)
        assert (it.ack().version, it.ack().state) == (2, "listening")


async def test_changed_key_counts_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        write_listener(it.folder, it.listener(version=2, port=at.port, key_sha256=key_hash("another")))
        await it.gateway.poll()
        for key, status in (("dummy-t0001", 401), ("another", 200)):
            async with it.post(at, key=key) as got:
                assert got.status == status


async def test_unknown_route_is_told_and_served_once_there_is_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen(route="judge")
        assert (it.ack().state, it.ack().code) == ("refused", "no_route")
        async with it.post(at) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (503, "no_route")
        told = json.loads((tmp_path / "gateway.json").read_text())
        told["routes"]["judge"] = told["routes"]["model"]
        write_json(tmp_path / "gateway.json", told)
        await it.gateway.poll()
        assert it.ack().state == "listening"
        async with it.post(at) as got:
            assert got.status == 200


async def test_settings_change_under_a_stream_without_cutting_it(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def before(number: int) -> None:
        if number:
            await gate.wait()

    async with rig(tmp_path) as it:
        it.provider.script.append(streams(HELLO, completed(), before_each=before))
        at = await it.listen()
        async with it.post(at) as got:
            assert await got.content.readexactly(len(HELLO)) == HELLO
            write_config(tmp_path, it.provider.url + "/new", requests_per_min=5)
            await it.gateway.poll()
            gate.set()
            assert await got.content.read() == completed()
        async with it.post(at) as got:
            await got.read()
        assert [sent.path for sent in it.provider.seen] == ["/api/responses", "/api/new/responses"]
        await it.until(lambda: all(upstream.closed for upstream in it.gateway.retired))


async def test_held_request_goes_out_by_the_new_way(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        it.provider.script += [answers(500), answers(500)]
        changing: list[Any] = []

        def change(_: float) -> None:
            if not changing:
                write_config(tmp_path, it.provider.url + "/new")
                changing.append(asyncio.ensure_future(it.gateway.poll()))

        it.clock.on_sleep = change
        async with it.post(at) as got:
            assert got.status == 200
        assert it.provider.seen[-1].path == "/api/new/responses"


async def test_refused_settings_leave_the_old_ones(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        (tmp_path / "gateway.json").write_text('{"format": 1, "routes": {}}')
        await it.gateway.poll()
        it.gateway.sign_of_life()
        assert "routes" in json.loads((tmp_path / "alive.json").read_text())["config_error"]
        async with it.post(at) as got:
            assert got.status == 200


@contextlib.asynccontextmanager
async def silent(at: Listener, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections that ask nothing, opened one after another."""
    opened = [await asyncio.open_connection("127.0.0.1", at.port) for _ in range(count)]
    yield [reader for reader, _ in opened]
    for _, writer in opened:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_connections_of_one_listener_are_bounded_and_the_oldest_silent_one_makes_room(tmp_path: Path) -> None:
    """An agent that fills its own listener does not cut off its own client; whose doing it was is told."""
    async with rig(tmp_path, bounds={"connections_per_listener": 4}) as it:
        at, other = await it.listen(), await it.listen("t0002")
        async with silent(at, 100) as readers:
            for reader in readers[:96]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            async with it.post(at) as got:
                assert got.status == 200
            async with it.post(other) as got:
                assert got.status == 200
        told = {(record["trial"], record["account"], record["error_type"]) for record in it.requests("refused")}
        assert told == {("t0001", "agent", "too_many_connections")}
        assert max(record["count"] for record in it.requests("refused")) >= 64


async def test_connections_that_are_accepted_in_one_go_are_bounded_as_well(tmp_path: Path) -> None:
    """They are made before the loop looks, which on a loaded machine happens to any two that come soon after each other."""
    async with rig(tmp_path, bounds={"connections_per_listener": 4}) as it:
        at, loop = await it.listen(), asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            came = [stack.enter_context(socket.create_connection(("127.0.0.1", at.port))) for _ in range(40)]
            for each in came:
                each.setblocking(False)
            for each in came[:36]:
                with contextlib.suppress(ConnectionError):
                    assert await loop.sock_recv(each, 1) == b""
            for each in came[36:]:
                with pytest.raises(BlockingIOError):
                    each.recv(1)
            async with it.post(at) as got:
                assert got.status == 200
        assert max(record["count"] for record in it.requests("refused")) >= 32


async def test_a_request_under_way_never_makes_room_and_where_all_ask_the_next_connection_is_closed(tmp_path: Path) -> None:
    gate, came = asyncio.Event(), asyncio.Semaphore(0)

    async def before(number: int) -> None:
        came.release()
        await gate.wait()

    async with rig(tmp_path, bounds={"connections_per_listener": 2}) as it:
        it.provider.default = streams(HELLO, completed(), before_each=before)
        at = await it.listen()
        first = asyncio.create_task(it.post(at).__aenter__())
        await came.acquire()
        async with silent(at, 5):
            second = asyncio.create_task(it.post(at).__aenter__())
            await came.acquire()
        async with silent(at, 1) as (reader,):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        gate.set()
        for task in (first, second):
            async with await task as got:
                assert (await got.read()).endswith(completed())


async def test_headers_are_bounded(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        async with it.post(at, X_Long="x" * 20_000) as got:
            assert got.status == 400
        assert it.provider.seen == []


async def test_next_life_opens_the_same_listeners(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        first = it.gateway.life
    clock = it.clock
    async with opened(tmp_path, clock=clock, sleep=clock.sleep, open_socket=host_socket, still_there=lambda *_: True) as again:
        assert again.listeners.listening == 1
        assert it.ack().life == again.life != first
        with socket.create_connection(("127.0.0.1", at.port)):
            pass


async def test_one_gateway_per_folder(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        with pytest.raises(Refused, match="another gateway"):
            async with opened(tmp_path, clock=it.clock):
                pass


async def test_full_journal_lets_nothing_out(tmp_path: Path) -> None:
    async with rig(tmp_path, bounds={"segment_bytes": 2000, "segments": 2}) as it:
        at = await it.listen()
        codes = []
        for _ in range(20):
            async with it.post(at) as got:
                codes.append(got.status if got.status == 200 else (await got.json())["error"]["code"])
        assert codes[0] == 200
        assert codes[-1] == "journal_full"
        assert len(it.provider.seen) == codes.count(200)
        write_json(tmp_path / "journal/ingested.json", {"segment": 99, "byte": 0})
        await it.gateway.poll()
        async with it.post(at) as got:
            assert got.status == 200
        begun = [fields["seq"] for fields in it.entries() if fields["event"] == "begin"]
        assert it.gateway.house.journal.open_requests == {}
        assert begun


async def test_listeners_beyond_the_bound_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marathond.gateway.listeners.LISTENERS_AT_MOST", 1)
    async with rig(tmp_path) as it:
        await it.listen()
        await it.listen("t0002")
        it.gateway.sign_of_life()
        told = json.loads((tmp_path / "alive.json").read_text())
        assert (told["listening"], told["not_opened"]) == (1, 1)
