"""What a client asks for, as the gateway checks, strips, bounds and forwards it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_rig import answers, rig

pytestmark = pytest.mark.anyio


async def test_a02_configured_fields_are_stripped_and_counted(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen(strip=("service_tier", "text.verbosity", "input[].name", "absent.a"))
        items = [{"name": "goal", "a": 1}, {"a": 2}, "s"]
        body = {"model": "m", "service_tier": "x", "text": {"verbosity": "low", "keep": 1}, "input": items}
        async with it.post(at, body) as got:
            assert got.status == 200
        assert json.loads(it.provider.seen[0].body) == {"model": "m", "text": {"keep": 1}, "input": [{"a": 1}, {"a": 2}, "s"]}
        assert int(it.provider.seen[0].headers["content-length"]) == len(it.provider.seen[0].body)
        assert it.requests()[0]["stripped"] == 3


async def test_a02_a_400_is_passed_on_and_named(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        it.provider.script.append(answers(400, {"error": {"message": "Unknown parameter", "code": "unknown_parameter"}}))
        async with it.post(at) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (400, "unknown_parameter")
        record = it.requests()[0]
        assert (record["status"], record["error_type"], record["usage"], record["retries"]) == (400, "unknown_parameter", "none", 0)


SEARCHES: list[dict[str, Any]] = [
    {"tools": [{"type": "function", "name": "web_search"}, {"type": "web_search"}]},
    {"tools": [{"type": "web_search_preview_2025_03_11"}]},
    {"tools": [{"type": "namespace", "tools": [{"type": "web_search"}]}]},
    {"tools": [], "tool_choice": {"type": "web_search"}},
    {"tools": [{"type": "mcp", "server_url": "https://x"}]},
    {"web_search_options": {}},
    {"input": [{"type": "additional_tools", "tools": [{"type": "web_search"}]}]},
    {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x/a.pdf"}]}]},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/a.png"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/a.png"}}]}]},
    {"tools": [{"type": "shell", "environment": {"type": "container_auto", "network_policy": {"type": "allowlist"}}}]},
    {"model": "gpt-x-search-preview"},
    {"model": "x-deep-research"},
]


@pytest.mark.parametrize("extra", SEARCHES)
async def test_a15_search_is_refused_without_network_and_served_with(tmp_path: Path, extra: dict[str, Any]) -> None:
    async with rig(tmp_path) as it:
        without, public = await it.listen(), await it.listen("t0002", network="public")
        async with it.post(without, {"model": "m", **extra}) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (403, "web_search")
        assert it.provider.seen == []
        async with it.post(public, {"model": "m", **extra}) as got:
            assert got.status == 200


async def test_a15_a_tool_cannot_hide_behind_an_escape_or_a_second_key(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        async with it.post(at, b'{"tools":[{"type":"web\\u005fsearch"}]}') as got:
            assert (await got.json())["error"]["code"] == "web_search"
        async with it.post(at, b'{"tools":[{"type":"web_search"}],"tools":[]}') as got:
            assert (got.status, (await got.json())["error"]["code"]) == (400, "bad_body")
        assert it.provider.seen == []


async def test_a15_words_about_search_are_no_search(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        picture = {"type": "function_call_output", "output": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}
        body = {"input": [{"type": "message", "content": "web_search"}, picture], "tools": [{"type": "function", "name": "web_search"}]}
        async with it.post(at, body) as got:
            assert got.status == 200


@pytest.mark.parametrize("raw", [b"", b"[1]", b'{"web_search', b"\xff\xfe", b"[" * 100_000, '{"a":"web"}'.encode("utf-16-le") + b"x"])
async def test_body_that_cannot_be_checked_does_not_go_out(tmp_path: Path, raw: bytes) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        async with it.post(at, raw) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (400, "bad_body")
        assert it.provider.seen == []


async def test_compressed_body_is_read_checked_and_sent_plain(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        searching = gzip.compress(b'{"tools":[{"type":"web_search"}]}')
        async with it.post(at, searching, **{"Content-Encoding": "gzip"}) as got:
            assert (await got.json())["error"]["code"] == "web_search"
        async with it.post(at, gzip.compress(b'{"model":"m"}'), **{"Content-Encoding": "gzip"}) as got:
            assert got.status == 200
        assert it.provider.seen[0].body == b'{"model":"m"}'
        assert "content-encoding" not in it.provider.seen[0].headers


async def test_body_has_a_bound_also_when_it_grows_by_unpacking(tmp_path: Path) -> None:
    async with rig(tmp_path, bounds={"body_bytes": 100_000}) as it:
        at = await it.listen()
        for raw, headers in ((b"x" * 100_001, {}), (gzip.compress(b" " * 10_000_000), {"Content-Encoding": "gzip"})):
            async with it.post(at, raw, **headers) as got:
                assert (got.status, (await got.json())["error"]["code"]) == (413, "body_too_large")
        assert it.gateway.house.body_bytes == 0


async def test_large_body_arrives_whole(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        raw = json.dumps({"model": "m", "input": "é" * 1_500_000}).encode()
        async with it.post(at, raw) as got:
            assert got.status == 200
        assert it.provider.seen[0].body == raw
        assert it.requests()[0]["request_bytes"] == len(raw)


async def test_bodies_of_all_trials_together_are_bounded(tmp_path: Path) -> None:
    async with rig(tmp_path, bounds={"bodies_bytes": 1000}) as it:
        at = await it.listen()
        async with it.post(at, b"{" + b" " * 2000 + b"}") as got:
            assert (got.status, (await got.json())["error"]["code"]) == (429, "gateway_busy")
        async with it.post(at) as got:
            assert got.status == 200
        assert it.gateway.house.body_bytes == 0


async def test_bodies_of_one_trial_leave_room_for_the_others(tmp_path: Path) -> None:
    async with rig(tmp_path, bounds={"bodies_bytes_per_listener": 1000}) as it:
        greedy, other = await it.listen(), await it.listen("t0002")
        async with it.post(greedy, b"{" + b" " * 2000 + b"}") as got:
            assert (got.status, (await got.json())["error"]["code"]) == (429, "too_many_bytes")
        for at in (other, greedy):
            async with it.post(at) as got:
                assert got.status == 200


async def test_body_of_a_million_parts_is_refused_before_it_holds_up_the_others(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        async with it.post(at, b'{"tools":[{"type":"web_search"}],"input":[' + b"{}," * 1_000_001 + b"{}]}") as got:
            assert (got.status, (await got.json())["error"]["code"]) == (400, "bad_body")
        assert it.provider.seen == []
