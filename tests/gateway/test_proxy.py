"""One request through the gateway over loopback: who may, what goes out, what comes back, what is written down."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from marathond.core.requests import OWN_SURPLUS
from marathond.gateway.exchange import REFUSALS_EVERY_MS
from marathond.gateway.files import write_json, write_listener
from tests.support.gateway_rig import HELLO, REAL_KEY, Rig, answers, completed, event, rig, streams, write_config

pytestmark = pytest.mark.anyio


async def test_answer_comes_back_and_is_counted(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        async with it.post(at, {"model": "m", "input": ["x"]}, path="/v1/responses?v=2", originator="codex") as got:
            assert (got.status, got.content_type) == (200, "text/event-stream")
            assert await got.read() == HELLO + completed()
        sent = it.provider.seen[0]
        assert (sent.method, sent.path) == ("POST", "/api/responses?v=2")
        assert sent.headers["originator"] == "codex"
        assert sent.headers["accept-encoding"] == "identity"
        assert sent.body == b'{"model": "m", "input": ["x"]}'
        record = it.requests()[0]
        assert record["tokens"] == {"input": 100, "cached": 40, "cache_write": 0, "output": 20, "reasoning": 5}
        assert (record["trial"], record["number"], record["account"]) == ("t0001", 1, "agent")
        assert (record["status"], record["end"], record["usage"]) == (200, "complete", "known")
        assert (record["model"], record["model_asked"], record["error_type"]) == ("gpt-test-2026", "m", None)
        assert (record["retries"], record["held_ms"]) == (0, 0)


async def test_a16_response_model_is_recorded_as_the_provider_names_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.provider.script.append(streams(event("response.created", response={}), completed(model="gpt-other")))
        at = await it.listen()
        async with it.post(at) as got:
            await got.read()
        assert it.requests()[0]["model"] == "gpt-other"


async def test_chunks_pass_as_they_come(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def before(number: int) -> None:
        if number == 1:
            await gate.wait()

    async with rig(tmp_path) as it:
        it.provider.script.append(streams(HELLO, completed(), before_each=before))
        at = await it.listen()
        async with it.post(at) as got:
            assert await got.content.readexactly(len(HELLO)) == HELLO  # the provider has not sent the rest
            assert it.gateway.house.body_bytes == 0  # nothing will be sent again, so the request is not kept
            gate.set()
            assert await got.content.read() == completed()


async def test_c14_real_key_goes_out_and_nowhere_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    quoting = {"error": {"message": f"Incorrect API key provided: {REAL_KEY}", "code": "invalid_api_key"}}
    async with rig(tmp_path) as it:
        at = await it.listen()
        it.provider.script += [answers(400, quoting, X_Echo=REAL_KEY), answers(401, quoting), answers(200, {"ok": 1})]
        got_back = ""
        for _ in range(3):
            async with it.post(at) as got:
                got_back += await got.text() + str(got.headers)
        assert {sent.headers["authorization"] for sent in it.provider.seen} == {f"Bearer {REAL_KEY}"}
        assert "dummy-t0001" not in str(it.provider.seen)
        assert REAL_KEY not in got_back
        assert "upstream_auth" in got_back
        assert REAL_KEY not in repr(it.gateway.house.ways["model"].upstream.key)
    told = everything_below(tmp_path)
    assert REAL_KEY.encode() not in told
    assert b"dummy-t0001" not in told
    assert REAL_KEY not in caplog.text


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "real.key")


@pytest.mark.parametrize("key", ["", "dummy-t0002", REAL_KEY, "dummy-t0001x", "schlüssel"])
async def test_c14_only_the_trials_own_key_opens_its_listener(tmp_path: Path, key: str) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        async with it.post(at, key=key) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (401, "bad_key")
        assert it.provider.seen == []
        assert it.requests("refused")[0]["error_type"] == "bad_key"


async def test_key_rotates_without_a_restart(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        for key in (REAL_KEY, "sk-second"):
            (tmp_path / "aside").write_text(key)
            (tmp_path / "aside").replace(tmp_path / "real.key")
            async with it.post(at) as got:
                assert got.status == 200
        assert [sent.headers["authorization"] for sent in it.provider.seen] == [f"Bearer {REAL_KEY}", "Bearer sk-second"]


async def test_key_that_was_revoked_while_the_request_was_out_is_tried_again_with_the_new_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()

        async def revoked(request: Any) -> Any:
            (tmp_path / "real.key").write_text("sk-third-and-longer")
            return await answers(401)(request)

        it.provider.script.append(revoked)
        async with it.post(at) as got:
            assert got.status == 200
        assert it.provider.seen[1].headers["authorization"] == "Bearer sk-third-and-longer"


async def test_missing_key_is_waited_for(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        (tmp_path / "real.key").rename(tmp_path / "away")
        it.clock.on_sleep = lambda _: (tmp_path / "real.key").write_text("sk-back") and None
        async with it.post(at) as got:
            assert got.status == 200
        assert it.requests()[0]["retried"] == {"key": 1}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/files"),
        ("GET", "/v1/responses"),
        ("POST", "/v1/responses/../files"),
        ("POST", "/v1/responses/"),
        ("POST", "/v1/%72esponses"),
        ("DELETE", "/v1/responses"),
        ("POST", "/v1/responses/r1/cancel"),
    ],
)
async def test_only_listed_paths_are_served(tmp_path: Path, method: str, path: str) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        url = URL(f"http://127.0.0.1:{at.port}{path}", encoded=True)
        async with it.http.request(method, url, headers={"Authorization": "Bearer dummy-t0001"}) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (404, "not_allowed")
        assert it.provider.seen == []


async def test_models_are_listed_without_a_budget(tmp_path: Path) -> None:
    async with rig(tmp_path, requests_per_min=1) as it:
        at = await it.listen()
        it.provider.default = answers(200, {"models": []})
        for _ in range(3):
            url = f"http://127.0.0.1:{at.port}/v1/models?client_version=1"
            async with it.http.get(url, headers={"Authorization": "Bearer dummy-t0001"}) as got:
                assert (got.status, await got.json()) == (200, {"models": []})
        assert it.clock.slept_ms == 0
        assert [record["usage"] for record in it.requests()] == ["none"] * 3


async def test_models_may_be_limited(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen(models=("m",))
        async with it.post(at, {"model": "dear"}) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (403, "model")
        async with it.post(at) as got:
            assert got.status == 200


async def test_c19_nothing_is_served_after_the_stored_deadline(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen(deadline_mono_ms=it.clock.now_ms + 1)
        async with it.post(at) as got:
            assert got.status == 200
        it.clock.now_ms += 1
        async with it.post(at) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (403, "deadline")
        assert len(it.provider.seen) == 1


async def test_c19_deadline_also_ends_a_hold(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.provider.default = answers(500)
        at = await it.listen(deadline_mono_ms=it.clock.now_ms + 2000)
        async with it.post(at) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (403, "deadline")
        record = it.requests()[0]
        assert (record["held_ms"], record["end"], record["error_type"]) == (2000, "refused", "deadline")


async def test_c19_a_deadline_of_another_boot_has_passed(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        it.clock.boot_id = "boot-2"
        async with it.post(at) as got:
            assert (await got.json())["error"]["code"] == "deadline"


async def test_c19_a_moved_deadline_counts_without_a_new_socket(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen(deadline_mono_ms=1)
        later = it.listener(version=2, port=at.port, deadline_mono_ms=it.clock.now_ms + 5)
        write_listener(it.folder, later)
        await it.gateway.poll()
        assert (it.ack().version, it.ack().state) == (2, "listening")
        async with it.post(later) as got:
            assert got.status == 200


async def test_cut_in_mid_stream_is_unknown_and_never_sent_twice(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.provider.script.append(streams(HELLO, cut=True))
        at = await it.listen()
        with pytest.raises(aiohttp.ClientPayloadError):
            async with it.post(at) as got:
                await got.read()
        record = (await it.until(it.requests))[0]
        assert (record["usage"], record["tokens"], record["end"]) == ("unknown", None, "cut_by_provider")
        assert len(it.provider.seen) == 1


async def test_stream_that_ends_without_its_closing_event_is_unknown(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.provider.script.append(streams(HELLO))
        at = await it.listen()
        with pytest.raises(aiohttp.ClientPayloadError):
            async with it.post(at) as got:
                await got.read()
        record = (await it.until(it.requests))[0]
        assert (record["usage"], record["end"], record["model"]) == ("unknown", "cut_by_provider", "gpt-test-2026")


async def test_client_that_leaves_ends_the_upstream_request_as_unknown(tmp_path: Path) -> None:
    forever = asyncio.Event()

    async def before(number: int) -> None:
        if number:
            await forever.wait()

    async with rig(tmp_path) as it:
        it.provider.script.append(streams(HELLO, completed(), before_each=before))
        at = await it.listen()
        async with it.post(at) as got:
            assert await got.content.readexactly(len(HELLO)) == HELLO
            got.close()
        record = (await it.until(it.requests))[0]
        assert (record["usage"], record["end"]) == ("unknown", "cut_by_client")
        await it.until(lambda: it.gateway.house.streams == 0)
        forever.set()


@pytest.mark.parametrize("cut", [True, False])
async def test_who_hangs_up_after_the_closing_event_lost_nothing(tmp_path: Path, cut: bool) -> None:
    forever = asyncio.Event()

    async def before(number: int) -> None:
        if number == 2:
            await forever.wait()

    async with rig(tmp_path) as it:
        it.provider.script.append(streams(HELLO, completed(), cut=True) if cut else streams(HELLO, completed(), b"\n", before_each=before))
        at = await it.listen()
        async with it.post(at) as got:
            assert await got.content.readexactly(len(HELLO + completed())) == HELLO + completed()
            got.close()
        record = (await it.until(it.requests))[0]
        assert (record["end"], record["usage"], record["error_type"]) == ("complete", "known", None)
        await it.until(lambda: it.gateway.house.streams == 0)
        forever.set()


async def test_client_that_leaves_while_held_used_nothing_and_leaves_the_line(tmp_path: Path) -> None:
    async with rig(tmp_path, requests_per_min=1) as it:
        at = await it.listen()
        async with it.post(at) as got:
            await got.read()
        held = asyncio.Event()
        real_sleep = it.clock.sleep

        async def stand_still(_: float) -> None:
            held.set()
            await asyncio.Event().wait()

        it.gateway.house.ways["model"].turnstile._sleep = stand_still
        asking = asyncio.create_task(it.post(at).__aenter__())
        await held.wait()
        asking.cancel()
        record = (await it.until(lambda: it.requests()[1:]))[0]
        assert (record["usage"], record["end"]) == ("none", "cut_by_client")
        assert it.gateway.house.ways["model"].turnstile.budget.waiting == 0
        it.gateway.house.ways["model"].turnstile._sleep = real_sleep


def held_answer() -> tuple[asyncio.Event, asyncio.Event, Callable[[int], Awaitable[None]]]:
    """For ``streams(before_each=...)``: what lets the answer go on, what tells that it was begun, and the waiting itself."""
    gate, came = asyncio.Event(), asyncio.Event()

    async def before(number: int) -> None:
        came.set()
        await gate.wait()

    return gate, came, before


async def test_streams_of_all_listeners_together_are_bounded_under_another_name(tmp_path: Path) -> None:
    """What others have open is not the doing of the trial that is turned away for it."""
    gate, came, before = held_answer()
    async with rig(tmp_path, bounds={"streams": 1}) as it:
        it.provider.script.append(streams(HELLO, completed(), before_each=before))
        at, other = await it.listen(), await it.listen("t0002")
        first = asyncio.create_task(it.post(other).__aenter__())
        await came.wait()
        async with it.post(at) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (429, "gateway_busy")
        gate.set()
        async with await first as got:
            await got.read()
        assert not set(OWN_SURPLUS) & {record["error_type"] for record in it.requests("refused")}


async def test_streams_of_one_listener_are_bounded(tmp_path: Path) -> None:
    gate, came, before = held_answer()
    async with rig(tmp_path, bounds={"streams_per_listener": 1}) as it:
        it.provider.script.append(streams(HELLO, completed(), before_each=before))
        at, other = await it.listen(), await it.listen("t0002")
        first = asyncio.create_task(it.post(at).__aenter__())
        await came.wait()
        async with it.post(at) as got:
            assert (got.status, got.headers["Retry-After"], (await got.json())["error"]["code"]) == (429, "1", "too_many_streams")
        async with it.post(other) as got:
            assert got.status == 200
        gate.set()
        async with await first as got:
            assert (await got.read()).endswith(completed())


async def test_account_headers_stay_on_this_side(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        async with it.post(at, **{"OpenAI-Organization": "mine", "Cookie": "a=b", "X-Api-Key": "k"}) as got:
            assert "Openai-Organization" not in got.headers
        assert not {"openai-organization", "cookie", "x-api-key"} & set(it.provider.seen[0].headers)


async def test_verifiers_have_a_route_a_key_and_accounts_of_their_own(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        (tmp_path / "judge.key").write_text("sk-judge")
        judge = {"base_url": it.provider.url + "/judge", "key_file": str(tmp_path / "judge.key"), "key_header": "x-api-key"}
        judge["allow"] = ["POST /v1/chat/completions"]  # type: ignore[assignment]
        config = json.loads((tmp_path / "gateway.json").read_text())
        config["routes"]["judge"] = judge
        write_json(tmp_path / "gateway.json", config)
        at = await it.listen("t0001.verifier", account="verifier", route="judge", network="public")
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        it.provider.script.append(answers(200, {"model": "judge-1", "usage": usage}))
        async with it.post(at, {"model": "judge-1"}, path="/v1/chat/completions") as got:
            assert got.status == 200
        assert it.provider.seen[0].path == "/api/judge/chat/completions"
        assert it.provider.seen[0].headers["x-api-key"] == "sk-judge"
        assert "authorization" not in it.provider.seen[0].headers
        record = it.requests()[0]
        assert (record["trial"], record["account"], record["route"]) == ("t0001", "verifier", "judge")
        assert record["tokens"] == {"input": 7, "cached": 0, "cache_write": 0, "output": 3, "reasoning": 0}
        async with it.post(at) as got:
            assert got.status == 404


async def test_goes_out_through_the_hosts_proxy(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at = await it.listen()
        write_config(tmp_path, "http://model.invalid/v1", host_proxy=it.provider.url.removesuffix("/api"))
        await it.gateway.poll()
        async with it.post(at) as got:
            assert got.status == 200
        assert it.provider.seen[0].headers["host"] == "model.invalid"
        assert it.provider.seen[0].path == "/v1/responses"


async def knock(it: Rig, times: int) -> None:
    at = await it.listen()
    for _ in range(times):
        async with it.post(at, key="wrong") as got:
            assert got.status == 401


async def test_knocking_for_ever_does_not_fill_the_journal(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await knock(it, 200)
        told = [record["count"] for record in it.requests("refused")]
        assert told == [*range(1, 17), 32, 64, 128]


async def test_of_knocking_that_goes_on_the_journal_knows_that_it_does(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await knock(it, 20)
        it.clock.now_ms += REFUSALS_EVERY_MS
        await knock(it, 2)
        assert [record["count"] for record in it.requests("refused")] == [*range(1, 17), 21]
