"""The practice provider over loopback: every behaviour a script can ask for, as a client sees it, and what is recorded of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from marathond.practice.play import UNTOLD_AT_MOST, UNTOLD_S
from marathond.practice.script import OutageFault, Usage
from tests.support.practice import CODE, GOAL, Client, HandClock, lines, playing, practice

pytestmark = pytest.mark.anyio


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


async def test_a_goal_that_asks_before_its_task_was_told_is_answered_with_nothing_after_a_moment() -> None:
    clock = HandClock()
    async with playing(practice({"say": "one"}, task="greet"), clock) as (server, client):
        client.input = [GOAL]
        task = asyncio.create_task(client.ask())
        await clock.asleep.wait()
        assert not task.done()
        clock.advance(UNTOLD_S)
        got = await task
        assert (got.status, got.items) == (200, []) and got.completed is not None
        client.say("greet")
        assert (await client.ask()).said == "one"
        assert server.tally("t1").outcomes == {"completed": 2}


async def test_a_task_that_never_comes_is_not_waited_for_without_end() -> None:
    clock = HandClock()
    async with playing(practice({"say": "one"}, task="greet"), clock) as (_, client):
        client.input = [GOAL]
        for _ in range(UNTOLD_AT_MOST):
            task = asyncio.create_task(client.ask())
            await clock.asleep.wait()
            clock.advance(UNTOLD_S)
            assert (await task).items == []
        assert (await client.ask()).error["code"] == "practice_script"


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
