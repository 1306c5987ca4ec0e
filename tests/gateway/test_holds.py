"""Waiting out what the provider's side breaks, alike for everybody, and saying how long it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from marathond.gateway import journal_read
from tests.support.gateway_rig import HELLO, Step, answers, completed, hangs_up, rig, streams, write_config

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (answers(429), "429"),
        (answers(500), "500"),
        (answers(503), "503"),
        (answers(529), "529"),
        (hangs_up(), "cut"),
        (streams(cut=True), "cut"),
        (streams(), "empty"),
    ],
)
async def test_a01_trouble_before_the_first_byte_is_waited_out(tmp_path: Path, step: Step, kind: str) -> None:
    async with rig(tmp_path) as it:
        it.provider.script += [step, step]
        at = await it.listen()
        async with it.post(at) as got:
            assert (got.status, await got.read()) == (200, HELLO + completed())
        record = it.requests()[0]
        assert (record["retries"], record["retried"]) == (2, {kind: 2})
        assert record["held_ms"] == it.clock.slept_ms == 500 + 1000
        assert record["usage"] == "known"


async def test_a01_retry_after_is_honoured(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.provider.script += [answers(429, Retry_After="7"), answers(503, **{"retry-after-ms": "250"})]
        at = await it.listen()
        async with it.post(at) as got:
            assert got.status == 200
        assert it.requests()[0]["held_ms"] == 7250


async def test_a01_one_trials_429_makes_all_wait(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.provider.script.append(answers(429, Retry_After="7"))
        first, second = await it.listen(), await it.listen("t0002")
        asked = asyncio.Event()
        go = asyncio.Event()
        real = it.clock.sleep

        async def sleep(seconds: float) -> None:
            asked.set()
            await go.wait()
            await real(seconds)

        it.gateway.house.sleep = sleep
        waiting = asyncio.create_task(it.post(first).__aenter__())
        await asked.wait()
        async with it.post(second) as got:
            assert got.status == 200
        go.set()
        async with await waiting as got:
            assert got.status == 200
        held = {record["trial"]: record["budget_held_ms"] for record in it.requests()}
        assert held["t0002"] == 7000


async def test_outage_is_held_then_answered_with_429_and_retry_after(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.provider.default = answers(500)
        at = await it.listen()
        started_ms = it.clock.now_ms
        async with it.post(at) as got:
            assert got.status == 429
            assert (await got.json())["error"]["code"] == "held_500"
            assert int(got.headers["Retry-After"]) == 30
        assert 200_000 < it.clock.now_ms - started_ms <= 240_000
        record = it.requests()[0]
        assert (record["end"], record["status"], record["upstream_status"], record["retry_after_s"]) == ("gave_up", 429, 500, 30)
        assert record["held_ms"] == it.clock.now_ms - started_ms
        assert record["usage"] == "none"


async def test_outage_of_twenty_minutes_is_survived_by_a_client_that_comes_back(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        ends_ms = it.clock.now_ms + 20 * 60_000
        it.provider.default = answers(503)
        at = await it.listen()
        away_ms = 0

        def heal(_: float) -> None:
            if it.clock.now_ms >= ends_ms:
                it.provider.default = streams(HELLO, completed())

        it.clock.on_sleep = heal
        for _ in range(10):
            async with it.post(at) as got:
                if got.status == 200:
                    break
                it.clock.now_ms += int(got.headers["Retry-After"]) * 1000
                away_ms += int(got.headers["Retry-After"]) * 1000
        assert got.status == 200
        told = sum(record["held_ms"] + 1000 * (record["retry_after_s"] or 0) for record in it.requests())
        assert told == it.clock.slept_ms + away_ms >= 20 * 60_000


async def test_nothing_listens_at_the_provider(tmp_path: Path) -> None:
    async with rig(tmp_path, hold={"hold_ms": 2000}) as it:
        at = await it.listen()
        write_config(tmp_path, "http://127.0.0.1:1/v1", hold={"hold_ms": 2000})
        await it.gateway.poll()
        async with it.post(at) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (429, "held_connect")
        assert it.requests()[0]["attempts_unknown"] == 0


@pytest.mark.parametrize("code", ["insufficient_quota", "usage_limit_reached"])
async def test_usage_limit_is_passed_on_at_once_and_marked(tmp_path: Path, code: str) -> None:
    async with rig(tmp_path) as it:
        it.provider.script.append(answers(429, {"error": {"type": code, "message": "spent"}}, Retry_After="3600"))
        at = await it.listen()
        async with it.post(at) as got:
            assert (got.status, got.headers["Retry-After"]) == (429, "3600")
            assert (await got.json())["error"]["type"] == code
        record = it.requests()[0]
        assert (record["error_type"], record["retries"], it.clock.slept_ms) == ("usage_limit", 0, 0)


async def test_a17_time_held_for_the_shared_budget_is_recorded(tmp_path: Path) -> None:
    async with rig(tmp_path, requests_per_min=1) as it:
        first, second = await it.listen(), await it.listen("t0002")
        for at in (first, second):
            async with it.post(at) as got:
                assert got.status == 200
        held = {record["trial"]: (record["held_ms"], record["budget_held_ms"]) for record in it.requests()}
        assert held == {"t0001": (0, 0), "t0002": (60_000, 60_000)}


async def test_a17_budget_that_cannot_be_had_in_time_is_a_429(tmp_path: Path) -> None:
    async with rig(tmp_path, requests_per_min=1, hold={"hold_ms": 5000}) as it:
        at = await it.listen()
        async with it.post(at) as got:
            await got.read()
        async with it.post(at) as got:
            assert (got.status, got.headers["Retry-After"], (await got.json())["error"]["code"]) == (429, "5", "held_budget")
        assert it.requests()[1]["budget_held_ms"] == 5000
        assert len(it.provider.seen) == 1


@pytest.mark.parametrize(
    ("config", "script"), [({}, [answers(429), answers(503)]), ({"requests_per_min": 1}, [])], ids=["provider", "budget"]
)
async def test_a17_a_wait_is_told_when_it_begins_and_when_it_is_over(tmp_path: Path, config: dict[str, int], script: list[Step]) -> None:
    async with rig(tmp_path, **config) as it:
        at = await it.listen()
        if config:
            async with it.post(at) as got:
                await got.read()
            assert it.requests("held") + it.requests("released") == []  # who does not wait tells nothing
        it.provider.script += script
        since_ms = it.clock.now_ms
        told: list[int] = []
        it.clock.on_sleep = lambda _: told.append(len(it.requests("held")))
        async with it.post(at) as got:
            assert got.status == 200
        assert told[0] == 1 and set(told) == {1}, "before the first moment of waiting, and once"
        (held,), (released,), record = it.requests("held"), it.requests("released"), it.requests()[-1]
        assert held["begin"] == released["begin"] == record["begin"]
        assert held["from_mono_ms"] == record["held_from_mono_ms"] == since_ms
        assert released["until_mono_ms"] == since_ms + record["held_ms"] == it.clock.now_ms


async def test_a_journal_that_takes_no_lines_is_told_in_the_sign_of_life_until_it_does(tmp_path: Path) -> None:
    async with rig(tmp_path, bounds={"segment_bytes": 1500, "segments": 2}) as it:
        at = await it.listen()
        said = b""
        while b"journal_full" not in said:
            async with it.post(at) as got:
                said = await got.read()
        it.gateway.sign_of_life()
        assert "segments that nobody has ingested" in json.loads((tmp_path / "alive.json").read_text())["journal_error"]
        _, after = journal_read.read_from(tmp_path / "journal")
        journal_read.write_ingested(tmp_path / "journal", after)
        it.gateway.sign_of_life()
        assert json.loads((tmp_path / "alive.json").read_text())["journal_error"] == ""
        assert it.requests("recovered")
        async with it.post(at) as got:
            assert got.status == 200


async def test_a_key_that_cannot_be_read_is_told_in_the_sign_of_life(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        (tmp_path / "real.key").rename(tmp_path / "away")
        it.gateway.sign_of_life()
        assert "No such file" in json.loads((tmp_path / "alive.json").read_text())["key_errors"]["model"]
        (tmp_path / "away").rename(tmp_path / "real.key")
        it.gateway.sign_of_life()
        assert json.loads((tmp_path / "alive.json").read_text())["key_errors"] == {}


async def test_real_usage_settles_the_estimate(tmp_path: Path) -> None:
    """120 tokens used of 1000: eight more fit without waiting, though each is reserved with a guess of over 500."""
    async with rig(tmp_path, tokens_per_min=1000, output_tokens_guess=500) as it:
        at = await it.listen()
        for _ in range(5):
            async with it.post(at) as got:
                await got.read()
        assert it.clock.slept_ms == 0
        async with it.post(at) as got:
            await got.read()
        assert it.clock.slept_ms > 0
