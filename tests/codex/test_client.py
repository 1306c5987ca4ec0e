"""The client and the real app-server: whole turns and goals, big messages, refusals, sub-agents, and every way a connection can end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex.errors import ConnectionLost, ReachError, RequestTimeout, RpcError
from marathond.agents.codex.messages import (
    ConfigRead,
    FeaturesList,
    GoalClear,
    GoalGet,
    GoalSet,
    LoadedList,
    SkillsList,
    TerminalsClean,
    TextInput,
    ThreadStart,
    TurnInterrupt,
    TurnStart,
)
from marathond.agents.codex.story import Story
from marathond.practice.script import Practice
from tests.support.app_server import TIMEOUT_S, Box, app_server, pursue, turn_end, until

pytestmark = [pytest.mark.anyio, pytest.mark.docker]


def practice(*steps: dict[str, Any], **script: Any) -> Practice:
    return Practice.model_validate({"script": [{"step": list(steps), **script}]})


def begin(thread_id: str, text: str = "Do it.", mark: str = "m1") -> TurnStart:
    return TurnStart(thread_id=thread_id, input=[TextInput(text=text)], client_user_message_id=mark)


async def test_a_plain_turn_with_everything_read_back_and_messages_of_megabytes(docker_host: str, codex: Path) -> None:
    said, asked = "ä" + "x" * 5_400_000, "€" + "x" * 1_000_000
    steps, usage = [{"run": "echo one >> ran"}, {"say": said}], {"input": 1000, "cached": 200, "output": 50, "reasoning": 5}
    async with app_server(docker_host, codex, practice(*steps, usage=usage)) as (box, provider):
        client = await box.client()
        assert client.initialized.codex_home == "/codex-home" and client.initialized.user_agent.startswith("marathond/0.171")
        ready = await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)
        assert (ready.model, ready.approval_policy, ready.sandbox["type"], ready.cwd) == ("gpt-5.5", "never", "dangerFullAccess", "/app")
        assert (await client.request(SkillsList(cwds=["/app"]), TIMEOUT_S)).data[0].skills == []
        features = await client.request(FeaturesList(), TIMEOUT_S)
        assert features.next_cursor is None and {f.name: f.enabled for f in features.data}["goals"] is False
        assert (await client.request(ConfigRead(cwd="/app"), TIMEOUT_S)).config["sandbox_mode"] == "danger-full-access"
        with pytest.raises(RpcError, match="goals feature is disabled"):
            await client.request(GoalGet(thread_id=ready.thread.id), TIMEOUT_S)
        assert client.counts.errors == {"thread/goal/get": 1}

        begun = await client.request(begin(ready.thread.id, asked), TIMEOUT_S)
        story, heard = Story(ready.thread.id), []
        while story.ended().total() == 0:
            heard.append(await client.next_event())
            story.hear(heard[-1])
        await client.aclose()
        assert list(story.turns) == [begun.turn.id] and story.ended() == {"completed": 1}
        assert story.done() == {"userMessage": 1, "commandExecution": 1, "agentMessage": 1} and await box.ran() == ["one"]
        words = [event.params["item"] for event in heard if event.method == "item/completed"]
        assert words[0]["content"][0]["text"] == asked and words[-1]["text"] == said
        billed = provider.tally("t1").usage
        assert story.tokens is not None and story.tokens.total.total_tokens == billed.input + billed.output == 2100
        assert [event.number for event in heard] == sorted(event.number for event in heard)
        # What nobody has a type for is kept as it came.
        limits = next(event for event in heard if event.method == "account/rateLimits/updated")
        assert limits.body is None and limits.params["rateLimits"]["limitId"] == "codex" and client.counts.unknown[limits.method] >= 1
        assert client.counts.requests["turn/start"] == 1 and client.counts.notifications["turn/completed"] == 1
        assert not any("delta" in method.lower() for method in client.counts.notifications)
        ways = [line["message"].get("method") for line in box.traffic if line["way"] == "out"]
        assert "turn/start" in ways and "initialized" in ways


async def test_c08_a_goal_goes_on_by_itself_and_ends_by_pause_interrupt_and_clean(docker_host: str, codex: Path) -> None:
    steps = [{"run": "echo one >> ran"}, {"say": "More to do."}, {"run": "sleep 600 & echo two >> ran; sleep 300"}]
    # By its text: the turn that the goal begins does nothing before it has the message.
    async with app_server(docker_host, codex, practice(*steps, text="Do it."), goals=True) as (box, _):
        client = await box.client()
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        active = GoalSet(thread_id=thread, objective="Finish the task.", status="active", origin="user")
        goal_set, first = await pursue(client, active, begin(thread))
        assert goal_set.goal.status == "active"
        assert (await turn_end(client, thread)).id == first.turn.id  # the text joined the turn that the goal had begun
        second = (await until(client, "turn/started", thread)).body
        await box.shell("until [ $(wc -l < /app/ran) = 2 ]; do sleep 0.05; done")
        assert (await client.request(GoalSet(thread_id=thread, status="paused"), TIMEOUT_S)).goal.status == "paused"
        await client.request(TurnInterrupt(thread_id=thread, turn_id=second.turn.id), TIMEOUT_S)  # type: ignore[union-attr]
        await client.request(TerminalsClean(thread_id=thread), TIMEOUT_S)
        assert (await turn_end(client, thread)).status == "interrupted"
        goal = (await client.request(GoalGet(thread_id=thread), TIMEOUT_S)).goal
        assert goal is not None and goal.status == "paused" and goal.tokens_used > 0
        assert (await client.request(GoalClear(thread_id=thread), TIMEOUT_S)).cleared
        await until(client, "thread/goal/cleared", thread)
        assert (await client.request(GoalGet(thread_id=thread), TIMEOUT_S)).goal is None
        await client.aclose()


async def test_what_the_server_asks_is_refused_and_counted_and_the_turn_goes_on(docker_host: str, codex: Path) -> None:
    async with app_server(docker_host, codex, practice({"run": "echo one >> ran"}, {"say": "Done."})) as (box, _):
        client = await box.client()
        asking = ThreadStart(cwd="/app", approval_policy="untrusted", sandbox="read-only")
        thread = (await client.request(asking, TIMEOUT_S)).thread.id
        await client.request(begin(thread), TIMEOUT_S)
        assert (await turn_end(client, thread)).status == "completed"
        assert client.counts.refused == {"item/commandExecution/requestApproval": 1} and await box.ran() == []
        await client.aclose()


async def test_sub_agents_threads_are_counted_apart(docker_host: str, codex: Path) -> None:
    spawn = {"call": {"name": "spawn_agent", "namespace": "collaboration", "arguments": {"message": "Help.", "task_name": "kid"}}}
    steps = [spawn, {"run": "until [ -e /app/go ]; do sleep 0.05; done; echo $$ >> ran"}]
    async with app_server(docker_host, codex, practice(*steps), model="gpt-6-sol") as (box, _):
        client = await box.client()
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        await client.request(begin(thread), TIMEOUT_S)
        story, ended = Story(thread), 0
        while ended < 2:
            event = await client.next_event()
            story.hear(event)
            ended += event.method == "turn/completed"
            if event.method == "turn/started":
                await box.shell("touch /app/go")
        (kid,) = client.counts.sub_agents
        assert kid != thread and set(client.counts.by_thread) == {thread, kid} and "thread/started" not in client.counts.by_thread[kid]
        assert client.counts.by_thread[kid]["turn/completed"] == 1
        # It inherits what was said, so it plays the rest of the same script: only the main thread's command is in the main thread's story.
        assert story.commands() == 1 and story.ended() == {"completed": 1} and len(await box.ran()) == 2
        await client.aclose()


async def test_a_server_that_ends_is_told_to_everybody_who_waits(docker_host: str, codex: Path) -> None:
    async with app_server(docker_host, codex, practice({"run": "sleep 300"})) as (box, _):
        client = await box.client()
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        await client.request(begin(thread), TIMEOUT_S)
        await until(client, "turn/started", thread)
        os.kill(client.peer_pid, signal.SIGSTOP)
        waiting = [asyncio.create_task(client.request(LoadedList(), TIMEOUT_S)) for _ in range(3)]
        listening = asyncio.create_task(_listen(client))
        await asyncio.sleep(0)
        os.kill(client.peer_pid, signal.SIGKILL)
        for task in (*waiting, listening):
            with pytest.raises(ConnectionLost) as raised:
                await task
            assert raised.value.code in ("closed", "broken")
        with pytest.raises(ConnectionLost):
            await client.request(LoadedList(), TIMEOUT_S)
        assert isinstance(client.failure, ConnectionLost)
        await client.aclose()
        await client.aclose()
        # While the process is ending its listener may still take a connection, which then breaks.
        while (again := await _refused(box)).code == "handshake":
            pass
        assert again.code == "socket_refused"


async def _refused(box: Box) -> ReachError | ConnectionLost:
    with pytest.raises((ReachError, ConnectionLost)) as raised:
        await box.once()
    return raised.value


async def _listen(client: Any) -> None:
    async for _ in client.events():
        pass


async def test_b10_a_server_that_does_not_answer_is_a_timeout_and_the_answer_may_come_later(docker_host: str, codex: Path) -> None:
    async with app_server(docker_host, codex, practice({"say": "Done."})) as (box, _):
        client, other = await box.client(), await box.client()
        await box.engine.pause(box.container)
        with pytest.raises(RequestTimeout) as raised:
            await client.request(ThreadStart(cwd="/app"), 0.2)
        assert raised.value.method == "thread/start" and client.counts.timeouts == {"thread/start": 1}
        with pytest.raises(RequestTimeout):
            await box.once(timeout_s=0.5)
        async with asyncio.timeout(TIMEOUT_S):
            await other.aclose()  # nobody says goodbye
        await box.engine.unpause(box.container)
        started = await until(client, "thread/started")  # it was carried out all the same
        assert (await client.request(LoadedList(), TIMEOUT_S)).data == [started.thread_id]
        await client.aclose()


async def test_a_consumer_that_takes_nothing_is_cut_off_by_name_and_loses_nothing(docker_host: str, codex: Path) -> None:
    steps = [{"run": f"echo {number} >> ran"} for number in range(6)]
    async with app_server(docker_host, codex, practice(*steps)) as (box, _):
        client = await box.client(events_at_most=8)
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        await client.request(begin(thread), TIMEOUT_S)
        await box.shell("until [ -e /app/ran ] && [ $(wc -l < /app/ran) = 6 ]; do sleep 0.05; done")
        taken = 0
        with pytest.raises(ConnectionLost, match="overflow"):
            while await client.next_event():
                taken += 1
        assert taken == 8 and isinstance(client.failure, ConnectionLost)
        await client.aclose()
        assert await box.ran() == [str(number) for number in range(6)]
        # Bounded by bytes as well: a single message beyond the bound.
        client = await box.client(event_bytes_at_most=600)
        asking = client.request(ThreadStart(cwd="/app"), TIMEOUT_S)
        with pytest.raises(ConnectionLost, match="overflow"):
            await asyncio.gather(asking, until(client, "no such thing"))
        await client.aclose()
