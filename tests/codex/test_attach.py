"""Taking over from a client that is gone: what the server keeps, what it says again, and that nothing is begun twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex.attach import Attached, accepted, items, reattach, retell, running, turns
from marathond.agents.codex.client import CodexClient
from marathond.agents.codex.errors import ConnectionLost, RequestTimeout, RpcError
from marathond.agents.codex.messages import GoalSet, TextInput, ThreadResume, ThreadStart, TurnInterrupt, TurnStart
from marathond.agents.codex.story import Story
from marathond.practice.script import Practice
from tests.bench import reattach_run
from tests.support.app_server import TIMEOUT_S, app_server, pursue, turn_end, until
from tests.support.outcome import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
WAIT = "until [ -e /app/go ]; do sleep 0.05; done"
TOLD = {"text": "Do it."}
"""Of a goal's script: a turn that the goal began does nothing before it has the message."""


def practice(*steps: dict[str, Any], **script: Any) -> Practice:
    return Practice.model_validate({"script": [{"step": list(steps), **script}]})


def said(thread_id: str, mark: str, text: str = "Do it.") -> TurnStart:
    return TurnStart(thread_id=thread_id, input=[TextInput(text=text)], client_user_message_id=mark)


async def begin(client: CodexClient, thread_id: str, mark: str, text: str = "Do it.") -> str:
    return (await client.request(said(thread_id, mark, text), TIMEOUT_S)).turn.id


async def command(client: CodexClient, thread_id: str) -> None:
    """The next one has begun."""
    while "commandExecution" not in json.dumps((await until(client, "item/started", thread_id)).params):
        pass


async def joined(client: CodexClient, thread_id: str | None = None, *, goals: bool = False) -> Attached:
    found = await reattach(client, thread_id, goals=goals, timeout_s=TIMEOUT_S)
    assert found is not None
    return found


def heard(client: CodexClient) -> list[str]:
    """What waits to be taken, without what every connection hears."""
    methods = []
    while (event := client.taken()) is not None:
        methods.append(event.method)
    return [method for method in methods if method not in ("remoteControl/status/changed", "account/rateLimits/updated")]


async def test_from_nothing_to_a_turn_that_another_client_sees_to_its_end(docker_host: str, codex: Path) -> None:
    steps = [{"run": "echo one >> ran"}, {"run": f"{WAIT}; echo two >> ran"}]
    async with app_server(docker_host, codex, practice(*steps)) as (box, provider):
        client = await box.client()
        assert await reattach(client, None, goals=False, timeout_s=TIMEOUT_S) is None
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        await client.aclose()

        client = await box.client()  # the thread is known, and nothing was ever begun in it
        fresh = await joined(client)
        assert (fresh.thread_id, fresh.ready, fresh.running) == (thread, None, None)
        assert await accepted(client, fresh, "m1", TIMEOUT_S) is None
        with pytest.raises(RpcError):
            await reattach(client, "01a22891-2067-7be2-96f1-c143bd4ec2cc", goals=False, timeout_s=TIMEOUT_S)
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        turn = await begin(client, thread, "m1")
        await command(client, thread)
        await command(client, thread)  # so that the first one's end is written down
        await client.aclose()

        client = await box.client()  # the thread without a beginning is still there, and is not the one
        found, story = await joined(client), Story(thread)
        assert found.ready is not None and found.ready.thread.status.type == "active" and found.ready.model == "gpt-5.5"
        assert found.running == turn == await accepted(client, found, "m1", TIMEOUT_S)
        await retell(client, found, story, timeout_s=TIMEOUT_S)
        assert story.running is not None and story.running.id == turn and story.done()["commandExecution"] == 1
        await box.shell("touch /app/go")
        await client.aclose()

        await box.shell("until [ $(wc -l < /app/ran) = 2 ]; do sleep 0.05; done")
        client = await box.client()  # it ended, or ends now, while nobody listened
        found = await joined(client, thread)
        await retell(client, found, story, timeout_s=TIMEOUT_S)
        while story.running is not None:
            story.hear(await client.next_event())
        assert story.ended() == {"completed": 1} and story.done() == {"userMessage": 1, "commandExecution": 2, "agentMessage": 1}
        assert await accepted(client, found, "m1", TIMEOUT_S) == turn and await accepted(client, found, "m2", TIMEOUT_S) is None
        assert await running(client, thread, TIMEOUT_S) is None
        # Totals of a thread that idles come with its whole history, and only then.
        heard(client)
        await client.request(ThreadResume(thread_id=thread), TIMEOUT_S)
        await client.request(ThreadResume(thread_id=thread, exclude_turns=False), TIMEOUT_S)
        story.hear(await until(client, "thread/tokenUsage/updated", thread))
        usage = provider.tally("t1").usage
        assert story.tokens is not None and story.tokens.total.total_tokens == usage.input + usage.output
        assert client.counts.warnings == []
        marks = [item.item.client_id async for item in items(client, thread, timeout_s=TIMEOUT_S)]
        assert marks == ["m1", None, None, None]
        assert [item.turn_id async for item in items(client, thread, timeout_s=TIMEOUT_S, turn_id=turn, newest_first=True)] == [turn] * 4
        await client.aclose()


async def test_a_goal_found_in_mid_command_and_a_message_that_met_its_turn(docker_host: str, codex: Path) -> None:
    steps = [{"run": "echo one >> ran"}, {"say": "More to do."}, {"run": f"{WAIT}; echo two >> ran"}, {"run": "echo three >> ran"}]
    async with app_server(docker_host, codex, practice(*steps, **TOLD), goals=True) as (box, _):
        client = await box.client()
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        paused = GoalSet(thread_id=thread, objective="Finish the task.", status="paused", origin="user")
        await client.request(paused, TIMEOUT_S)
        await client.aclose()

        client = await box.client()  # a goal alone is a beginning, too: there is a thread to join
        found = await joined(client, goals=True)
        assert found.ready is not None and found.running is None and found.goal is not None and found.goal.status == "paused"
        assert await accepted(client, found, "m1", TIMEOUT_S) is None
        assert [turn async for turn in turns(client, thread, timeout_s=TIMEOUT_S)] == []
        first = (await pursue(client, GoalSet(thread_id=thread, status="active"), said(thread, "m1")))[1].turn.id
        await turn_end(client, thread)
        await command(client, thread)
        await client.aclose()

        client = await box.client()
        found = await joined(client, goals=True)
        assert found.running not in (None, first) and found.goal is not None and found.goal.status == "active"
        await until(client, "thread/goal/updated", thread)  # said again to everybody who joins: the command is waiting
        assert await accepted(client, found, "m1", TIMEOUT_S) == first
        # A message meets the running command: it is not recorded before the next request to the model, and the answer waits for that.
        assert await begin(client, thread, "m2", "Go on.") == found.running
        with pytest.raises(RequestTimeout):
            await accepted(client, found, "m2", 0.5)
        await box.shell("touch /app/go")
        assert await accepted(client, found, "m2", TIMEOUT_S) == found.running
        assert await accepted(client, found, "m3", TIMEOUT_S) is None
        story = Story(thread)
        await retell(client, found, story, timeout_s=TIMEOUT_S)
        while story.running is not None or story.goal is None or story.goal.status == "active":
            story.hear(await client.next_event())
        assert story.goal.status == "complete" and story.commands() == 3 and await box.ran() == ["one", "two", "three"]
        assert story.ended() == {"completed": 2} and story.done()["userMessage"] == 2
        await client.aclose()


async def test_a_server_that_was_killed_leaves_a_turn_cut_off_and_a_goal_that_goes_on(docker_host: str, codex: Path) -> None:
    steps = [{"run": f"echo one >> ran; {WAIT}"}, {"run": f"echo two >> ran; {WAIT}"}]
    async with app_server(docker_host, codex, practice(*steps, **TOLD), goals=True) as (box, _):
        client = await box.client()
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        active = GoalSet(thread_id=thread, objective="Finish the task.", status="active", origin="user")
        first = (await pursue(client, active, said(thread, "m1")))[1].turn.id
        await box.shell("until [ -e /app/ran ]; do sleep 0.05; done")
        os.kill(client.peer_pid, signal.SIGKILL)
        await client.aclose()
        await wait_for(lambda: not Path(f"/proc/{client.peer_pid}").exists())  # one that is dying still takes connections
        await box.serve()

        client = await box.client()
        assert await reattach(client, None, goals=True, timeout_s=TIMEOUT_S) is None  # nothing is loaded: its id must be known
        found, story = await joined(client, thread, goals=True), Story(thread)
        await retell(client, found, story, timeout_s=TIMEOUT_S)
        assert story.turns[first].status == "interrupted" and story.turns[first].completed_at is None
        assert await accepted(client, found, "m1", TIMEOUT_S) == first
        await box.shell("until [ $(wc -l < /app/ran) = 2 ]; do sleep 0.05; done; touch /app/go")
        while story.running is not None or story.goal is None or story.goal.status == "active":
            story.hear(await client.next_event())
        assert story.ended() == {"interrupted": 1, "completed": 1} and await box.ran() == ["one", "two"]
        await client.aclose()


async def test_one_client_of_the_host_at_a_time(docker_host: str, codex: Path) -> None:
    async with app_server(docker_host, codex, practice({"run": "sleep 300"})) as (box, _):
        first, second = await box.client(), await box.client()
        thread = (await first.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        turn = await begin(first, thread, "m1")
        await until(first, "item/started", thread)
        with pytest.raises(ConnectionLost) as raised:
            await reattach(second, thread, goals=False, timeout_s=0.3)
        assert raised.value.code == "contested"
        await first.aclose()
        assert (await joined(second)).running == turn
        await second.request(TurnInterrupt(thread_id=thread, turn_id=turn), TIMEOUT_S)
        assert (await turn_end(second, thread)).status == "interrupted"
        await second.aclose()


async def test_sub_agents_are_joined_too(docker_host: str, codex: Path) -> None:
    spawn = {"call": {"name": "spawn_agent", "namespace": "collaboration", "arguments": {"message": "Help.", "task_name": "kid"}}}
    async with app_server(docker_host, codex, practice(spawn, {"run": f"echo $$ >> ran; {WAIT}"}), model="gpt-6-sol") as (box, _):
        client = await box.client()
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        await begin(client, thread, "m1")
        await box.shell("until [ -e /app/ran ] && [ $(wc -l < /app/ran) = 2 ]; do sleep 0.05; done")
        await client.aclose()

        client = await box.client()
        found = await joined(client)
        assert found.thread_id == thread and len(found.sub_agents) == 1
        await box.shell("touch /app/go")
        ends = {(await until(client, "turn/completed")).thread_id for _ in range(2)}
        assert ends == {thread, *found.sub_agents}
        await client.aclose()


async def test_a_client_killed_in_mid_turn_and_mid_goal_is_followed_by_one_that_loses_nothing(docker_host: str, codex: Path) -> None:
    tally = await reattach_run.measure(docker_host, codex, times=5, seed=3, command_s=0.3)
    assert tally.in_flight >= 5 and tally.reattached == tally.kills and tally.wrong == [], tally.text(0)
