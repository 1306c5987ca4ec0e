"""The practice provider and the real codex binary: whole turns, in both tool surfaces, and what codex makes of failures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import marathond.practice as practice_room
from marathond.demo.host import SetupError
from marathond.practice.gate import DONE as GATE_DONE
from marathond.practice.gate import gate_message, gate_practice
from marathond.practice.play import Identity
from marathond.practice.script import Practice, load
from marathond.practice.server import PracticeServer, practising
from tests.conftest import IN_CI
from tests.support.codex_env import codex_binary
from tests.support.codex_turns import KEY, Codex

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(480)]
DIRECT, CODE = "gpt-5.5", "gpt-6-sol"
both_surfaces = pytest.mark.parametrize("model", [DIRECT, CODE])


@pytest.fixture(scope="session")
def codex() -> Path:
    """The real binary.  Where it cannot be had: a failure in CI, else skipped with the reason."""
    try:
        return codex_binary()
    except SetupError as err:
        if IN_CI:
            pytest.fail(str(err))
        pytest.skip(str(err))


def practice(*steps: dict[str, Any], **script: Any) -> Practice:
    return Practice.model_validate({"script": [{"step": list(steps), **script}]})


def provider(script: Practice, record: Path) -> Any:
    return practising(script, record_dir=record / "record")


def url(server: PracticeServer) -> str:
    server.enroll(KEY, Identity("t1"))
    return f"{server.url}/v1"


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    text = (folder / "record" / "t1.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def answers(folder: Path) -> list[dict[str, Any]]:
    return lines(folder, "answer")


async def asked(server: PracticeServer) -> None:
    """Until the first request has come."""
    while True:
        if server.tally("t1").requests:
            return
        await asyncio.sleep(0.01)


def count(word: str) -> dict[str, Any]:
    """A step whose command leaves a line for each time that it ran."""
    return {"run": f"echo {word} >> ran"}


def ran(codex: Codex) -> list[str]:
    return (codex.app / "ran").read_text().split()


@both_surfaces
async def test_a_turn_runs_its_commands_and_the_tokens_agree(codex: Path, tmp_path: Path, model: str) -> None:
    usage = {"input": 1000, "cached": 400, "output": 50, "reasoning": 20}
    steps = [
        {"say": "Looking.", **count("one"), "usage": usage},
        {"patch": "*** Begin Patch\n*** Add File: patched\n+it's `here`\n*** End Patch\n", "usage": usage},
        {**count("two"), "usage": usage},
        {"say": "All done.", "usage": usage},
    ]
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), model) as driven:
        turn = await driven.turn("do it")
        assert (turn["status"], turn["error"]) == ("completed", None)
        assert ran(driven) == ["one", "two"] and (driven.app / "patched").read_text() == "it's `here`\n"
        assert [item["exitCode"] for item in driven.items("commandExecution")] == [0, 0]
        assert [item["text"] for item in driven.items("agentMessage")] == ["Looking.", "All done."]
        tally = server.tally("t1")
        assert tally.outcomes == {"completed": 4}
        told = driven.tokens()
        assert (told["inputTokens"], told["cachedInputTokens"]) == (tally.usage.input, tally.usage.cached)
        assert (told["outputTokens"], told["reasoningOutputTokens"]) == (tally.usage.output, tally.usage.reasoning)


@both_surfaces
async def test_the_example_that_ships_solves_its_task(codex: Path, tmp_path: Path, model: str) -> None:
    example = Path(practice_room.__file__).with_name("example.toml")
    async with provider(load(example), tmp_path) as server, Codex(codex, tmp_path, url(server), model) as driven:
        assert (await driven.turn("# greet\n\nWrite a program that greets."))["status"] == "completed"
        assert driven.items("commandExecution")[-1]["aggregatedOutput"].strip() == "Hello, Ada!"
        assert [item["text"] for item in driven.items("agentMessage")] == ["I look around first.", "Done."]


@both_surfaces
async def test_a_long_command_is_polled_until_it_ends(codex: Path, tmp_path: Path, model: str) -> None:
    steps = [{"run": "sleep 2; echo one >> ran", "yield_ms": 250}, {"run": "cat ran"}]
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), model) as driven:
        assert (await driven.turn("do it"))["status"] == "completed"
        assert driven.items("commandExecution")[-1]["aggregatedOutput"].strip() == "one"
    assert any("poll" in line for line in answers(tmp_path))


@both_surfaces
async def test_a_goal_goes_on_over_turns_until_the_script_completes_it(codex: Path, tmp_path: Path, model: str) -> None:
    script = practice(count("one"), {"say": "more to do"}, {"shape": "empty"}, count("two"), arm="goal")
    async with provider(script, tmp_path) as server, Codex(codex, tmp_path, url(server), model, goals=True) as driven:
        turns, status = await driven.pursue("do it")
        assert {turn["status"] for turn in turns} == {"completed"} and ran(driven) == ["one", "two"]
        assert status == "complete"


@both_surfaces
async def test_a_goal_that_the_model_blocks(codex: Path, tmp_path: Path, model: str) -> None:
    script = practice(count("one"), then="blocked")
    async with provider(script, tmp_path) as server, Codex(codex, tmp_path, url(server), model, goals=True) as driven:
        turns, status = await driven.pursue("do it")
        assert [turn["status"] for turn in turns] == ["completed"] and status == "blocked"
        assert ran(driven) == ["one"]


async def test_a_goal_whose_text_comes_after_the_first_request_is_played_all_the_same(codex: Path, tmp_path: Path) -> None:
    script = practice(count("one"), text="do it")
    async with provider(script, tmp_path) as server, Codex(codex, tmp_path, url(server), DIRECT, goals=True) as driven:
        await driven.ask("thread/goal/set", threadId=driven.thread, objective="Finish the task.", status="active", origin="user")
        await asked(server)
        turns, status = await driven.pursue("do it")
        assert {turn["status"] for turn in turns} == {"completed"} and status == "complete" and ran(driven) == ["one"]
    assert answers(tmp_path)[0].get("untold")


async def test_400_for_a_field_that_only_a_goal_sends_fails_its_turn_and_no_other(codex: Path, tmp_path: Path) -> None:
    script = practice(count("one"), reject_fields=["input.*.namespace"])
    async with provider(script, tmp_path) as server, Codex(codex, tmp_path, url(server), DIRECT, goals=True) as driven:
        assert (await driven.turn("do it"))["status"] == "completed" and ran(driven) == ["one"]
        turns, status = await driven.pursue("do it")
        assert [turn["status"] for turn in turns] == ["failed"] and status == "blocked"
        assert "input.*.namespace" in json.dumps(turns[0]["error"])


@both_surfaces
async def test_500_is_retried_and_nothing_runs_twice(codex: Path, tmp_path: Path, model: str) -> None:
    steps = [count("one"), {**count("two"), "fault": [{"kind": "status", "status": 500, "times": 2}]}]
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), model) as driven:
        assert (await driven.turn("do it"))["status"] == "completed"
        assert ran(driven) == ["one", "two"]
        assert server.tally("t1").outcomes == {"completed": 3, "refused": 2}


@pytest.mark.parametrize("how", ["status", "close"])
async def test_an_outage_of_20_minutes_in_a_second_of_the_clock_is_lived_through(codex: Path, tmp_path: Path, how: str) -> None:
    outage = {"kind": "outage", "for_s": 1200, "how": how}
    script = practice(count("one"), {**count("two"), "fault": [outage]}).model_copy(update={"speed": 1200})
    async with provider(script, tmp_path) as server, Codex(codex, tmp_path, url(server), DIRECT) as driven:
        assert (await driven.turn("do it"))["status"] == "completed"
        assert ran(driven) == ["one", "two"]
    asked, answered = lines(tmp_path, "request"), answers(tmp_path)
    away = next(line for line in answered if line.get("fault") == "outage")
    after = next(line for line in answered if line["n"] > away["n"] and line["outcome"] == "completed")
    began = next(line for line in asked if line["n"] == away["n"])  # written before the outage began, by the provider's clock
    assert after["at_s"] - began["at_s"] >= 1200


async def test_429_with_retry_after_is_waited_out(codex: Path, tmp_path: Path) -> None:
    steps = [{**count("one"), "fault": [{"kind": "status", "status": 429, "retry_after_s": 2}]}]
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), DIRECT) as driven:
        assert (await driven.turn("do it"))["status"] == "completed"
        assert ran(driven) == ["one"]
    first, second, *_ = answers(tmp_path)
    assert (first["status"], second["status"]) == (429, 200) and second["at_s"] - first["at_s"] >= 2


async def test_429_without_retry_after_fails_the_turn_at_the_first_request(codex: Path, tmp_path: Path) -> None:
    steps = [{**count("one"), "fault": [{"kind": "status", "status": 429}]}]
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), DIRECT) as driven:
        turn = await driven.turn("do it")
        assert turn["status"] == "failed" and "429" in json.dumps(turn["error"])
        assert server.tally("t1").outcomes == {"refused": 1}
        assert (await driven.turn("again"))["status"] == "completed" and ran(driven) == ["one"]


async def test_an_empty_answer_completes_a_silent_turn(codex: Path, tmp_path: Path) -> None:
    shapes = [{"shape": "empty"}, {"shape": "deltas", "say": "lost"}, {"shape": "completed_only", "say": "hidden"}]
    async with provider(practice(*shapes, {"say": "heard"}), tmp_path) as server, Codex(codex, tmp_path, url(server), DIRECT) as driven:
        for _ in shapes:
            turn = await driven.turn("do it")
            assert (turn["status"], turn["error"]) == ("completed", None)
            assert driven.items("agentMessage") == [] and driven.items("commandExecution") == []
        await driven.turn("do it")
        assert [item["text"] for item in driven.items("agentMessage")] == ["heard"]
        assert server.tally("t1").outcomes == {"completed": 4}


@both_surfaces
@pytest.mark.parametrize("after", ["event", "item"])
@pytest.mark.parametrize("how", ["close", "eof"])
async def test_a_cut_stream_is_asked_for_again_and_nothing_runs_twice(
    codex: Path, tmp_path: Path, model: str, after: str, how: str
) -> None:
    steps = [{**count("one"), "fault": [{"kind": "cut", "after": after, "how": how}]}, count("two")]
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), model) as driven:
        assert (await driven.turn("do it"))["status"] == "completed"
        assert ran(driven) == ["one", "two"]
        assert server.tally("t1").outcomes["cut"] == 1


async def test_a_stall_longer_than_codex_waits_is_asked_for_again(codex: Path, tmp_path: Path) -> None:
    steps = [{**count("one"), "fault": [{"kind": "stall", "for_s": 600}]}]
    idle = "stream_idle_timeout_ms = 6000"  # longer than a loaded machine takes for an ordinary answer
    async with (
        provider(practice(*steps), tmp_path) as server,
        Codex(codex, tmp_path, url(server), DIRECT, provider=idle) as driven,
    ):
        assert (await driven.turn("do it"))["status"] == "completed"
        assert ran(driven) == ["one"]
        assert server.tally("t1").outcomes == {"abandoned": 1, "completed": 2}


@both_surfaces
async def test_a_compacted_history_brings_no_step_back(codex: Path, tmp_path: Path, model: str) -> None:
    big = {"input": 90_000, "output": 10}
    steps = [{**count("one"), "usage": big}, {**count("two"), "usage": {"input": 100}}]
    limit = "model_auto_compact_token_limit = 50000"
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), model, extra=limit) as driven:
        assert (await driven.turn("do it"))["status"] == "completed"
        assert ran(driven) == ["one", "two"]
    assert any(line.get("compaction") for line in answers(tmp_path))


async def test_another_model_than_asked_for_is_noticed_by_the_header_alone(codex: Path, tmp_path: Path) -> None:
    steps = [{"say": "I am another.", "model": "gpt-other", "model_header": False}, {"say": "So am I.", "model": "gpt-other"}]
    async with provider(practice(*steps), tmp_path) as server, Codex(codex, tmp_path, url(server), DIRECT) as driven:
        for expected in ([], ["gpt-other"]):
            assert (await driven.turn("do it"))["status"] == "completed"
            rerouted = [note["params"] for note in driven.heard if note["method"] == "model/rerouted"]
            assert [note["toModel"] for note in rerouted] == expected


@both_surfaces
async def test_the_gate_writes_its_proof_and_takes_no_other_message(codex: Path, tmp_path: Path, model: str) -> None:
    async with provider(gate_practice(), tmp_path) as server, Codex(codex, tmp_path, url(server), model) as driven:
        proof, path = "0fe1-a/b_c.d", str(driven.app / "proof")
        turn = await driven.turn(gate_message(proof, path))
        assert (turn["status"], turn["error"]) == ("completed", None)
        assert (driven.app / "proof").read_text() == proof
        assert [item["exitCode"] for item in driven.items("commandExecution")] == [0]
        assert [item["text"] for item in driven.items("agentMessage")] == [GATE_DONE]
        assert server.tally("t1").usage.input == 0 and driven.heard and not driven.errors()
    (tmp_path / "other").mkdir()
    async with provider(gate_practice(), tmp_path) as server, Codex(codex, tmp_path / "other", url(server), model) as driven:
        assert (await driven.turn("marathond-gate x /tmp/x; touch y"))["status"] == "failed"
        assert driven.items("commandExecution") == []
