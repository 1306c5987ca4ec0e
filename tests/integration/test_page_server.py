"""The page over HTTP: what may be asked, by whom, how much and how slowly; trials and their logs; a server that cannot listen."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import anyio
import pytest

from marathond.core.errors import Refused
from marathond.core.names import trial_label
from marathond.service.doctor.scratch import Scratch
from marathond.service.page import keeper, server
from marathond.service.page.address import Port, Socket
from marathond.service.page.server import CONNECTIONS_MAX, PageServer
from marathond.service.page.sources import Sources
from tests.support.page_house import conversation, half_done, log_of, place_of, served

pytestmark = pytest.mark.anyio
GONE = (aiohttp.ClientError, ConnectionError)


@pytest.fixture(scope="module")
def house() -> Iterator[Scratch]:
    with half_done() as scratch:
        yield scratch


def first(house: Scratch, state: str, arm: str = "%") -> int:
    sql = "SELECT min(trial_id) FROM trial JOIN arm USING (arm_id) WHERE state = ? AND name LIKE ?"
    return int(house.c.execute(sql, (state, arm)).fetchone()[0])


async def test_every_page_is_there_and_says_what_it_may_load(house: Scratch) -> None:
    trial = trial_label(first(house, "running"))
    async with served(place_of(house, beat=time.monotonic)) as url, aiohttp.ClientSession() as client:
        for path, kind in {
            "/": "text/html",
            f"/trial/{trial}": "text/html",
            "/metrics": "text/plain",
            "/livez": "text/plain",
            "/readyz": "text/plain",
            "/static/page.css": "text/css",
            "/static/page.js": "text/javascript",
            "/static/icon.svg": "image/svg+xml",
        }.items():
            async with client.get(url + path) as answer:
                body = await answer.read()
                assert (answer.status, answer.content_type) == (200, kind), path
                assert (
                    "default-src 'none'" in answer.headers["Content-Security-Policy"]
                    and "unsafe" not in answer.headers["Content-Security-Policy"]
                )
                assert answer.headers["X-Content-Type-Options"] == "nosniff" and "Set-Cookie" not in answer.headers
            async with client.head(url + path) as answer:
                assert answer.status == 200 and await answer.read() == b""
                assert int(answer.headers["Content-Length"]) > 0 and body
        for path in (
            "/nothing",
            "/trial/x",
            "/trial/t",
            "/trial/t1/x",
            "/static/../server.py",
            "/static/%2e%2e/server.py",
            "//",
            "/trial/t" + "9" * 40,
        ):
            async with client.get(url + path) as answer:
                assert answer.status == 404, path
        async with client.get(f"{url}/trial/t9999") as answer:
            assert answer.status == 404 and "no trial t9999 in this ledger (last is" in await answer.text()


async def test_only_reading_is_possible_and_only_by_our_own_name(house: Scratch) -> None:
    async with served(place_of(house)) as url, aiohttp.ClientSession() as client:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            async with client.request(method, f"{url}/", data=b"x" * 10) as answer:
                assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD"
        for name, status in {"evil.example": 421, "evil.example:8620": 421, "localhost:1": 200, "127.0.0.1": 200}.items():
            async with client.get(f"{url}/livez", headers={"Host": name}) as answer:
                assert answer.status == status, name


async def test_only_what_changed_is_sent_again(house: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LEAST_S", 0.0)
    monkeypatch.setattr(keeper, "SHARE", 1e9)
    settled = "UPDATE observation SET at_ms = at_ms WHERE key = 'disk'"
    async with served(place_of(house)) as url, aiohttp.ClientSession() as client:
        house.c.execute(settled)
        async with client.get(f"{url}/parts") as answer:
            whole = await answer.json()
            assert set(whole["parts"]) == {"head", "todo", "live", "arms", "grid", "events"} and answer.headers["X-As-Of"]
        house.finding("audit_failed", "warning", "some-rule", "it broke")
        house.commit()
        async with client.get(f"{url}/parts", headers={"If-None-Match": answer.headers["ETag"]}) as answer:
            changed = await answer.json()
            assert answer.status == 200 and "audit_failed" in changed["parts"]["todo"] and not {"grid", "arms"} & set(changed["parts"])
        async with client.get(f"{url}/parts", headers={"If-None-Match": '"never-seen"'}) as answer:
            assert set((await answer.json())["parts"]) == set(whole["parts"]), "who has something unknown gets all of it"
        quiet = trial_label(first(house, "scored"))
        async with client.get(f"{url}/trial/{quiet}/parts") as answer:
            etag = answer.headers["ETag"]
        async with client.get(f"{url}/trial/{quiet}/parts", headers={"If-None-Match": etag}) as answer:
            assert answer.status == 304 and await answer.read() == b"" and answer.headers["X-Again"]


async def test_a_unix_socket_is_for_its_group_and_taken_over_from_the_dead_alone(house: Scratch, tmp_path: Path) -> None:
    path = tmp_path / "page.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with served(place_of(house), Socket(path)) as url:
        assert url == f"unix:{path}" and stat.S_IMODE(path.stat().st_mode) == 0o660
        connector = aiohttp.UnixConnector(str(path))
        async with aiohttp.ClientSession(connector=connector) as client, client.get("http://whoever.example/livez") as answer:
            assert answer.status == 200
        with pytest.raises(Refused, match=r"cannot listen at .*page\.sock: address already in use"):
            async with served(place_of(house), Socket(path)):
                raise AssertionError("two servers on one socket")
    assert not path.exists()
    path.write_text("somebody's file")
    with pytest.raises(Refused, match="address already in use"):
        async with served(place_of(house), Socket(path)):
            raise AssertionError("a file was replaced")
    assert path.read_text() == "somebody's file"
    with pytest.raises(Refused, match="no such file or directory"):
        async with served(place_of(house), Socket(tmp_path / "absent" / "page.sock")):
            raise AssertionError("it listens nowhere")


async def test_a_taken_port_is_one_clear_line(house: Scratch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(Refused, match=r"the page cannot listen at 127\.0\.0\.1:\d+: address already in use"):
            async with served(place_of(house), Port("127.0.0.1", other.getsockname()[1])):
                raise AssertionError("it listens twice")


async def test_connections_beyond_the_bound_are_told_and_the_others_served(house: Scratch) -> None:
    async with served(place_of(house)) as url:
        host, port = url.removeprefix("http://").split(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS_MAX)]
        await asyncio.sleep(0.2)
        reader, writer = await asyncio.open_connection(host, int(port))
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 503 ") and b"Retry-After" in told
        idle[0][1].write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await idle[0][0].readline()).startswith(b"HTTP/1.1 200 ")
        for _, each in (*idle, (reader, writer)):
            each.close()
        with anyio.fail_after(60):
            served_again = False
            while not served_again:
                # Turned away while we ask, we may find the connection reset instead of the words.
                with suppress(*GONE):
                    async with aiohttp.ClientSession() as client, client.get(f"{url}/livez") as answer:
                        served_again = answer.status == 200


async def test_who_is_slow_or_sends_too_much_is_cut_off(house: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LIFE_S", 1.0)
    sources = Sources(place_of(house))
    async with PageServer(sources, Port("127.0.0.1", 0)).serving() as there:
        assert isinstance(there.bound, Port)
        host, port, url = there.bound.host, there.bound.port, str(there.bound).rstrip("/")
        reader, slow = await asyncio.open_connection(host, port)
        slow.write(b"GET / HTTP/1.1\r\nHost: loc")  # and never the rest
        _, deaf = await asyncio.open_connection(host, port, limit=1024)
        deaf.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)  # and never reads
        with anyio.fail_after(60):
            while there.connections < 2:  # noqa: ASYNC110 - the server's own count
                await asyncio.sleep(0.02)
            while there.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            with suppress(ConnectionError):
                assert await reader.read() == b""
        for each in (slow, deaf):
            each.transport.abort()
        async with aiohttp.ClientSession() as client:
            for headers, path in (({"X-Long": "x" * 20_000}, "/"), ({}, "/" + "x" * 20_000), ({f"X-{n}": "y" for n in range(300)}, "/")):
                with suppress(*GONE):
                    async with client.get(url + path, headers=headers) as answer:
                        assert answer.status in (400, 404, 431), path[:20]
            async with client.get(f"{url}/livez") as answer:
                assert answer.status == 200
    sources.close()


async def test_a_page_that_breaks_is_one_page(house: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(place_of(house))

    def broken(_trial: int) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(sources, "trial", broken)
    async with PageServer(sources, Port("127.0.0.1", 0)).serving() as there, aiohttp.ClientSession() as client:
        async with client.get(f"{there.bound}trial/t0001") as answer:
            assert answer.status == 500 and "a bug" not in await answer.text()
        async with client.get(f"{there.bound}") as answer:
            assert answer.status == 200
    sources.close()


async def test_a_ledger_that_goes_away_is_said_and_found_again(house: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LEAST_S", 0.0)
    monkeypatch.setattr(keeper, "SHARE", 1e9)
    async with served(place_of(house)) as url, aiohttp.ClientSession() as client:
        async with client.get(f"{url}/") as answer:
            assert "cannot be read" not in await answer.text()
        aside = house.path.with_name("aside.db")
        house.path.rename(aside)
        try:
            async with client.get(f"{url}/") as answer:
                text = await answer.text()
                assert answer.status == 200 and "the ledger cannot be read" in text and "Trials in work" in text
            async with client.get(f"{url}/readyz") as answer:
                assert answer.status == 503 and (await answer.text()).startswith("unknown: ")
        finally:
            aside.rename(house.path)
        async with client.get(f"{url}/") as answer:
            assert "cannot be read" not in await answer.text()


async def test_logs_are_the_agents_words_and_never_another_file(house: Scratch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the real key")
    oracle, verified = first(house, "preparing", "oracle"), first(house, "verifying")
    log_of(house, oracle, "agent/output.txt", "one\n\tindented \x1b[31mred\x1b[0m\x07 <b>bold</b>\n" * 3_000 + "the last line")
    talk = house.folder / "r" / trial_label(verified) / "codex-messages.jsonl"
    talk.parent.mkdir(parents=True, exist_ok=True)
    talk.write_text(conversation("I begin.", "<script>done</script>"))
    at = log_of(house, verified, "verifier/test-stdout.txt", "")
    at.unlink()
    at.symlink_to(secret)
    async with served(place_of(house)) as url, aiohttp.ClientSession() as client:
        async with client.get(f"{url}/trial/{trial_label(oracle)}") as answer:
            text = await answer.text()
            assert "the last line" in text and "indented red &lt;b&gt;bold" in text and "bytes before this" in text and "\x1b" not in text
            assert len(text) < 150_000
        async with client.get(f"{url}/trial/{trial_label(verified)}") as answer:
            text = await answer.text()
            assert "I begin." in text and "&lt;script&gt;done" in text and "the real key" not in text
    folder = at.parent
    at.unlink()
    folder.rmdir()
    (tmp_path / "test-stdout.txt").write_text("the real key")
    folder.symlink_to(tmp_path)
    assert "the real key" not in await shown(house, verified)
    folder.unlink()
    folder.mkdir()
    os.mkfifo(folder / "test-stdout.txt")
    assert "not a plain file" in await shown(house, verified) or "no output" in await shown(house, verified), "a pipe holds nobody up"


async def shown(house: Scratch, trial_id: int) -> str:
    """A trial's page, from a server that never saw it before."""
    address = f"/trial/{trial_label(trial_id)}"
    async with served(place_of(house)) as url, aiohttp.ClientSession() as client, client.get(url + address) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_answers_are_packed_where_that_is_understood(house: Scratch) -> None:
    async with served(place_of(house)) as url, aiohttp.ClientSession(auto_decompress=False) as client:
        async with client.get(f"{url}/parts", headers={"Accept-Encoding": "gzip"}) as answer:
            packed = await answer.read()
            assert answer.headers["Content-Encoding"] == "gzip" and "parts" in json.loads(gzip.decompress(packed))
        async with client.get(f"{url}/parts", headers={"Accept-Encoding": "identity"}) as answer:
            plain = await answer.read()
            assert "Content-Encoding" not in answer.headers and len(plain) > 3 * len(packed)
