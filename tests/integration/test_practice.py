"""The practice provider over loopback: every behaviour a script can ask for, as a client sees it, and what is recorded of it."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import marathond.practice as practice_room
from marathond.core.errors import ConfigError
from marathond.practice.__main__ import main
from marathond.practice.play import Identity
from marathond.practice.script import OutageFault, Practice, Usage, parse
from marathond.practice.server import Bounds, PracticeServer, practising
from tests.support.practice import CODE, DIRECT, GOAL, Client, HandClock

pytestmark = pytest.mark.anyio
KEY = "key-of-a-test"
EXAMPLE = Path(practice_room.__file__).with_name("example.toml")


def practice(*steps: dict[str, Any], **script: Any) -> Practice:
    return Practice.model_validate({"script": [{"step": list(steps), **script}]})


@asynccontextmanager
async def playing(
    script: Practice, clock: HandClock | None = None, record: Path | None = None, bounds: Bounds | None = None
) -> AsyncIterator[tuple[PracticeServer, Client]]:
    async with (
        practising(script, clock=clock or HandClock(), record_dir=record, bounds=bounds) as server,
        aiohttp.ClientSession() as session,
    ):
        server.enroll(KEY, Identity("t1"))
        client = Client(session, server.url + "/v1", KEY)
        client.say("do it")
        yield server, client


def lines(folder: Path, trial: str = "t1") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{trial}.jsonl").read_text().splitlines()]


async def test_a_whole_answer_has_every_event_in_order_and_the_usage() -> None:
    usage = {"input": 100, "cached": 40, "output": 9, "reasoning": 4}
    async with playing(practice({"say": "Looking around.", "run": "ls", "usage": usage})) as (server, client):
        got = await client.ask()
        assert got.headers["Content-Type"] == "text/event-stream"
        assert got.kinds[0] == "response.created" and got.kinds[-1] == "response.completed"
        assert [event["sequence_number"] for event in got.events] == list(range(len(got.events)))
        deltas = [event["delta"] for event in got.events if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == "Looking around." and len(deltas) > 1
        assert [item["type"] for item in got.items] == ["message", "function_call"]
        assert got.completed is not None
        assert got.completed["usage"] == {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 40},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 109,
        }
        assert got.completed["model"] == "gpt-5.5" and got.completed["output"] == got.items
        assert server.tally("t1").usage == Usage(input=100, cached=40, output=9, reasoning=4)


async def test_steps_come_in_order_and_asking_again_gives_the_same_step() -> None:
    async with playing(practice({"run": "one"}, {"say": "two"}, {"goal": "complete"}, {"say": "four"})) as (_, client):
        first = await client.ask(keep=False)
        again = await client.ask()
        assert first.items == again.items and first.completed != again.completed  # same step, another response
        assert (await client.ask()).said == "two"
        client.say("go on")
        assert (await client.ask()).items[0]["name"] == "update_goal"
        assert (await client.ask()).said == "four"
        client.say("go on")
        assert (await client.ask()).said == "Done."


async def test_a_client_that_loses_the_ids_of_messages_is_counted_by_them() -> None:
    async with playing(practice({"say": "one"}, {"say": "two", "run": "x"}, {"shape": "empty"}, {"say": "four"})) as (_, client):
        client.loses_message_ids = True
        assert (await client.ask()).said == "one"
        client.say("next")
        assert (await client.ask()).said == "two"
        assert (await client.ask()).items == []
        client.say("next")
        assert (await client.ask()).said == "four"
        client.say("next")
        assert (await client.ask()).said == "Done."


async def test_a_restarted_provider_goes_on_where_the_conversation_was() -> None:
    script = practice({"run": "one"}, {"run": "two"}, {"say": "three"})
    async with playing(script) as (_, client):
        await client.ask()
        await client.ask()
        history = client.input
    async with playing(script) as (_, client):
        client.input = history
        assert (await client.ask()).said == "three"


async def test_a_history_that_was_compacted_away_does_not_bring_steps_back() -> None:
    async with playing(practice({"run": "one"}, {"run": "two"}, {"say": "three"})) as (_, client):
        await client.ask()
        await client.ask()
        assert (await client.ask(keep=False)).said == "three"
        summary = await client.ask(keep=False, request_kind="compaction")
        assert [item["type"] for item in summary.items] == ["message"]
        client.input = [*client.input[:1], {"type": "compaction_trigger"}]
        assert [item["type"] for item in (await client.ask(keep=False)).items] == ["compaction"]
        client.input = client.input[:1]
        assert (await client.ask()).said == "three"


async def test_code_mode_is_chosen_by_what_the_request_offers() -> None:
    async with playing(practice({"run": "ls"}, {"say": "end"})) as (_, client):
        del client.body["tools"]
        client.body["model"] = "gpt-6-sol"
        client.input.insert(0, CODE)
        (item,) = (await client.ask()).items
        assert (item["type"], item["name"]) == ("custom_tool_call", "exec") and "tools.exec_command" in item["input"]
        assert (await client.ask()).said == "end"


@pytest.mark.parametrize(
    ("output", "name", "argument"),
    [
        ("Chunk ID: 1\nProcess running with session ID 42\nOutput:\n", "write_stdin", ("session_id", 42)),
        ("Script running with cell ID c7\nOutput:\n", "wait", ("cell_id", "c7")),
    ],
)
async def test_a_running_command_is_polled_until_it_ends_or_the_polls_do(output: str, name: str, argument: tuple[str, Any]) -> None:
    async with playing(practice({"run": "sleep"}, {"run": "sleep"}, {"run": "sleep", "wait": False}, {"say": "end"}, polls=2)) as (
        _,
        client,
    ):
        client.keep(await client.ask(keep=False), output)
        for _ in range(2):
            got = await client.ask(keep=False)
            assert got.items[0]["name"] == name
            assert json.loads(got.items[0]["arguments"])[argument[0]] == argument[1]
            client.keep(got, output)
        client.keep(await client.ask(keep=False), output)  # two polls were all: the second step
        client.keep(await client.ask(keep=False), "Process exited with code 0\nOutput:\n")  # its first poll: it is over
        client.keep(await client.ask(keep=False), output)
        assert (await client.ask()).said == "end"


@pytest.mark.parametrize("goal", [True, False])
async def test_what_comes_after_the_script(goal: bool) -> None:
    async def after(then: str) -> list[str]:
        async with playing(practice({"say": "one"}, then=then)) as (_, client):
            client.input += [GOAL] * goal
            heard = []
            for _ in range(4):
                got = await client.ask()
                heard.append(got.said or (json.loads(got.items[0]["arguments"])["status"] if got.items else "(nothing)"))
                if not got.items or got.items[0]["type"] == "message":
                    client.say("go on")
            return heard

    assert await after("done") == (["one", "complete", "Done.", "complete"] if goal else ["one", "Done.", "Done.", "Done."])
    blocked = "I am blocked."
    assert await after("blocked") == (["one", "blocked", blocked, "blocked"] if goal else ["one", blocked, blocked, blocked])
    assert await after("repeat") == ["one", "one", "one", "one"]
    assert await after("silent") == ["one", "(nothing)", "(nothing)", "(nothing)"]


async def test_silent_zeros_leave_nothing_and_are_over_with_their_turn() -> None:
    steps = ({"shape": "empty"}, {"shape": "deltas", "say": "lost"}, {"shape": "completed_only", "say": "hidden"}, {"say": "heard"})
    async with playing(practice(*steps)) as (server, client):
        empty = await client.ask()
        assert empty.kinds == ["response.created", "response.in_progress", "response.completed"]
        assert (await client.ask()).kinds == empty.kinds  # the same turn again: a retry
        client.say("next")
        deltas = await client.ask()
        assert "response.output_text.delta" in deltas.kinds and deltas.items == []
        client.say("next")
        hidden = await client.ask()
        assert hidden.items == [] and hidden.completed is not None
        assert hidden.completed["output"][0]["content"][0]["text"] == "hidden"
        client.say("next")
        assert (await client.ask()).said == "heard"
        assert server.tally("t1").outcomes == {"completed": 5}


async def test_429_for_a_number_of_requests_with_and_without_retry_after() -> None:
    faults = [
        {"kind": "status", "status": 429, "times": 2, "retry_after_s": 3},
        {"kind": "status", "status": 429, "code": "insufficient_quota"},
        {"kind": "status", "status": 500, "times": 2},
    ]
    async with playing(practice({"say": "one"}, {"say": "two", "fault": faults})) as (server, client):
        assert (await client.ask()).said == "one"
        client.say("next")
        for _ in range(2):
            got = await client.ask()
            assert (got.status, got.headers["Retry-After"], got.error["type"]) == (429, "3", "rate_limit_error")
        got = await client.ask()
        assert (got.status, got.error["type"]) == (429, "insufficient_quota") and "Retry-After" not in got.headers
        assert [(await client.ask()).status for _ in range(2)] == [500, 500]
        assert (await client.ask()).said == "two"
        assert server.tally("t1").outcomes == {"completed": 2, "refused": 5}


async def test_429_for_a_time_of_the_clock_counts_from_the_first_request_that_meets_it() -> None:
    clock = HandClock()
    async with playing(practice({"say": "one", "fault": [{"kind": "status", "status": 429, "for_s": 30}]}), clock) as (_, client):
        clock.advance(1000)
        assert (await client.ask()).status == 429
        clock.advance(29.9)
        assert (await client.ask()).status == 429
        clock.advance(0.1)
        assert (await client.ask()).said == "one"


async def test_400_while_the_request_holds_a_field_and_nothing_once_it_is_stripped() -> None:
    async with playing(practice({"say": "one"}, reject_fields=["input.*.namespace"])) as (_, client):
        client.input.append(GOAL)
        got = await client.ask()
        assert (got.status, got.error["param"], got.error["code"]) == (400, "input.*.namespace", "unknown_parameter")
        client.input[-1] = {key: value for key, value in GOAL.items() if key != "namespace"}
        assert (await client.ask()).said == "one"


@pytest.mark.parametrize("how", ["close", "eof"])
async def test_a_stream_cut_in_mid_event_gives_the_same_step_again_and_costs_nothing_known(how: str) -> None:
    usage = {"input": 10, "output": 5}
    cut = {"kind": "cut", "how": how}
    async with playing(practice({"say": "one", "usage": usage, "fault": [cut]})) as (server, client):
        got = await client.ask()
        assert got.broken == (how == "close") and got.completed is None
        assert got.rest.startswith(b"event: response.output_item.done\ndata: {")
        assert (await client.ask()).said == "one"
        tally = server.tally("t1")
        assert tally.outcomes == {"cut": 1, "completed": 1}
        assert tally.usage == tally.unknown == Usage(input=10, output=5)


async def test_a_stream_cut_after_its_item_is_not_played_twice_to_a_client_that_kept_it() -> None:
    async with playing(practice({"run": "one", "fault": [{"kind": "cut", "after": "item"}]}, {"run": "two"})) as (_, client):
        got = await client.ask()
        assert got.broken and got.rest == b"" and got.completed is None
        client.keep(got)
        assert json.loads((await client.ask()).items[0]["arguments"])["cmd"] == "two"


@pytest.mark.parametrize("at", ["headers", "stream"])
async def test_a_stall_sends_no_byte_for_its_time_and_goes_on(at: str) -> None:
    clock = HandClock()
    async with playing(practice({"say": "one", "fault": [{"kind": "stall", "for_s": 300, "at": at}]}), clock) as (_, client):
        task = asyncio.create_task(client.ask())
        await clock.asleep.wait()
        clock.advance(299)
        assert clock.asleep.is_set() and not task.done()
        clock.advance(1)
        assert (await task).said == "one"


async def test_a_client_that_leaves_in_a_stall_is_booked_as_abandoned_and_gets_the_step_later(tmp_path: Path) -> None:
    clock = HandClock()
    steps = {"say": "one", "usage": {"input": 7}, "fault": [{"kind": "stall", "for_s": 300}]}
    async with playing(practice(steps), clock, tmp_path) as (server, client):
        async with client.session.post(**client.request()) as response:
            assert (await response.content.readuntil(b"\n\n")).startswith(b"event: response.created")
            response.close()
        await clock.awake.wait()
        assert server.tally("t1").unknown == Usage(input=7)
        assert (await client.ask()).said == "one"
    assert [line["outcome"] for line in lines(tmp_path) if line["kind"] == "answer"] == ["abandoned", "completed"]


async def test_a_failed_response_and_another_model() -> None:
    failed = {"kind": "failed", "code": "rate_limit_exceeded", "message": "slow down"}
    steps = ({"say": "one", "model": "gpt-other", "fault": [failed]}, {"say": "two", "model": "gpt-other", "model_header": False})
    async with playing(practice(*steps)) as (_, client):
        got = await client.ask()
        assert got.kinds[-1] == "response.failed"
        assert got.events[-1]["response"]["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}
        got = await client.ask()
        assert got.completed is not None and got.completed["model"] == "gpt-other" and got.headers["openai-model"] == "gpt-other"
        client.say("next")
        got = await client.ask()
        assert got.completed is not None and got.completed["model"] == "gpt-other" and "openai-model" not in got.headers


@pytest.mark.parametrize("how", ["status", "close"])
@pytest.mark.parametrize("scope", ["trial", "all"])
async def test_an_outage_of_20_minutes_ends_by_the_clock(how: str, scope: str) -> None:
    clock = HandClock()
    outage = {"kind": "outage", "for_s": 1200, "how": how, "scope": scope}
    async with playing(practice({"run": "one"}, {"say": "two", "fault": [outage]}), clock) as (server, client):
        other = Client(client.session, client.url, "another-key")
        other.say("do it")
        assert len((await client.ask()).items) == 1
        expected = 503 if how == "status" else 0
        assert (await client.ask()).status == expected
        clock.advance(1199)
        assert (await client.ask()).status == expected
        assert (await other.ask(keep=False)).status == (expected if scope == "all" else 200)
        clock.advance(1)
        assert (await client.ask()).said == "two"
        server.outage(OutageFault(kind="outage", for_s=5), "t1")
        assert (await client.ask()).status == 503
        assert (await other.ask()).status == 200


async def test_trials_are_told_apart_by_path_and_by_key_and_their_scripts_by_task_and_arm() -> None:
    script = parse(
        '[[script]]\ntask = "greet"\narm = "goal"\n[[script.step]]\nsay = "greet goal"\n[[script]]\ntask = "greet"\n'
        '[[script.step]]\nsay = "greet"\n[[script]]\n[[script.step]]\nsay = "any"\n'
        '[[key]]\nkey = "key-of-t7"\ntrial = "t7"\ntask = "greet"\narm = "goal"\n'
    )
    async with practising(script) as server, aiohttp.ClientSession() as session:
        said = {}
        for prefix, key in (
            ("/trial/t1/task/greet/arm/plain/v1", "same-key"),
            ("/trial/t2/task/greet/arm/goal/v1", "same-key"),
            ("/trial/t3/v1", "same-key"),
            ("/v1", "key-of-t7"),
            ("/v1", "unknown-key"),
        ):
            client = Client(session, server.url + prefix, key)
            client.say("work")
            said[prefix, key] = (await client.ask()).said
        assert list(said.values()) == ["greet", "greet goal", "any", "greet goal", "any"]
        assert list(server.tallies)[:4] == ["t1", "t2", "t3", "t7"]
        assert all(server.tally(trial).outcomes == {"completed": 1} for trial in server.tallies)


async def test_what_is_refused_is_told_in_a_sentence() -> None:
    strict = Practice.model_validate({"script": [{"task": "greet"}], "key": [{"key": "key-of-t7", "trial": "t7"}], "known_keys_only": True})
    async with practising(strict, bounds=Bounds(request_bytes=2000)) as server, aiohttp.ClientSession() as session:

        async def refused(path: str, body: bytes, key: str = "key-of-t7", method: str = "POST") -> tuple[int, str]:
            async with session.request(method, server.url + path, data=body, headers={"Authorization": f"Bearer {key}"}) as response:
                return response.status, (await response.json())["error"]["message"]

        assert await refused("/v1/responses", b"{}", key="other") == (401, "practice: this key is not known")
        assert await refused("/v1/responses", b"[") == (400, "practice: the body is no JSON: Expecting value: line 1 column 2 (char 1)")
        status, words = await refused("/v1/responses", b'{"model": "m"}')
        assert (status, words) == (400, "practice: no script fits this conversation (task unnamed, arm unnamed, model m)")
        assert await refused("/v1/responses", b" " * 2001) == (413, "practice: a request holds at most 2000 bytes")
        assert (await refused("/v1/models", b"", method="GET"))[0] == 404


async def test_the_number_of_trials_is_bounded() -> None:
    async with playing(practice({"say": "one"}), bounds=Bounds(trials=1)) as (server, client):
        assert (await client.ask()).said == "one"
        other = Client(client.session, client.url, "another-key")
        other.say("do it")
        assert (await other.ask()).error["message"] == "practice: more than 1 trials"
        assert list(server.tallies) == ["t1"]


async def test_requests_are_recorded_whole_and_no_key_with_them(tmp_path: Path) -> None:
    async with playing(practice({"say": "one"}, {"shape": "empty"}), record=tmp_path) as (server, client):
        client.say(f"my key is {KEY}")
        client.thread = f"thread of {KEY}"
        await client.ask()
        await client.ask()
        expected = server.tally("t1").usage
    text = (tmp_path / "t1.jsonl").read_text()
    assert KEY not in text and stat.S_IMODE((tmp_path / "t1.jsonl").stat().st_mode) == 0o600
    first, answer, *_ = found = lines(tmp_path)
    assert first["body"]["tools"] == DIRECT and first["body"]["input"][1]["content"][0]["text"] == "my key is ********"
    assert first["headers"]["Authorization"].startswith("(sha256 ") and first["path"] == "/v1/responses"
    assert (answer["outcome"], answer["step"], answer["conversation"]) == ("completed", 0, "thread of ********")
    usages = [Usage(**line["usage"]) for line in found if line["kind"] == "answer"]
    assert usages[0] + usages[1] == expected and expected.input > 0


async def test_a_record_that_cannot_be_written_is_no_answer_and_no_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with playing(practice({"say": "one"}), record=tmp_path / "record") as (server, client):
        (tmp_path / "record" / "t1.jsonl").mkdir()
        async with client.session.post(**client.request()) as response:
            assert response.status == 500
        (tmp_path / "record" / "t1.jsonl").rmdir()
        assert (await client.ask()).said == "one"
        assert server.tally("t1").outcomes == {"broken": 1, "completed": 1}
    assert "Is a directory" in caplog.text


async def test_a_body_over_several_lines_and_one_that_is_no_json_are_lines_of_the_record(tmp_path: Path) -> None:
    async with playing(practice({"say": "one"}), record=tmp_path) as (server, client):
        for body in (b'{\r\n "input":\n "do\\nit"}', b"no\njson"):
            headers = {"Authorization": f"Bearer {KEY}"}
            async with client.session.post(server.url + "/v1/responses", data=body, headers=headers) as response:
                await response.read()
    bodies = [line["body"] for line in lines(tmp_path) if line["kind"] == "request"]
    assert bodies == [{"input": "do\nit"}, {"not_json": "no\njson"}]


async def test_the_record_is_bounded_and_the_accounts_go_on(tmp_path: Path) -> None:
    async with playing(practice({"say": "one"}), record=tmp_path, bounds=Bounds(record_bytes=3000)) as (server, client):
        for _ in range(20):
            client.say("x" * 1000)
            await client.ask(keep=False)
        assert server.tally("t1").outcomes == {"completed": 20}
    found = [line for line in lines(tmp_path) if line["kind"] == "request"]
    assert "body" in found[0] and found[-1]["left_out"] == "body"
    assert (tmp_path / "t1.jsonl").stat().st_size <= 6000


async def test_it_serves_a_given_socket_and_no_address_but_loopback(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        async with (
            practising(practice({"say": "one"}), sock=sock),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as session,
        ):
            client = Client(session, "http://localhost/v1")
            client.say("do it")
            assert (await client.ask()).said == "one"
    with pytest.raises(ConfigError, match="must be a loopback address"):
        async with practising(practice({"say": "one"}), host="0.0.0.0"):
            pass
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen"):
        async with practising(practice({"say": "one"}), port=taken.getsockname()[1]):
            pass


async def test_as_a_process_it_says_where_it_listens_and_ends_at_sigterm(tmp_path: Path) -> None:
    argv = ["-m", "marathond.practice", "--script", str(EXAMPLE), "--record", str(tmp_path / "record")]
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    words, _, url = (await process.stdout.readline()).decode().strip().rpartition(" ")
    assert words == "practice provider listens on"
    async with aiohttp.ClientSession() as session:
        client = Client(session, url, "no-trial-of-its-own")
        client.say("# greet")
        assert (await client.ask()).said
    process.terminate()
    assert await process.wait() == 0
    assert [path.name[:4] for path in (tmp_path / "record").iterdir()] == ["key-"]


def test_the_command_tells_what_is_wrong_with_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.toml"
    path.write_text("[[script]]\nthem = 1\n")
    assert main(["--script", str(path), "--check"]) == 2
    assert capsys.readouterr().err == f"{path}:2: script.0.them: no such key\n"
    path.write_text('[[script]]\nthen = "silent"\n')
    assert main(["--script", str(path), "--check"]) == 0
