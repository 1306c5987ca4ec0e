"""What a server may send that is no message: every kind of it ends the connection by name.  The server is scripted; the client is real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import pytest

from marathond.agents.codex import wire
from marathond.agents.codex.client import CodexClient, Event
from marathond.agents.codex.errors import ConnectionLost, ProtocolDrift, RpcError
from marathond.agents.codex.messages import GoalGet, ItemEntry, LoadedList, TurnsList
from marathond.agents.codex.notices import OnItemCompleted, OnTurnCompleted
from marathond.agents.codex.shapes import Turn, parse
from marathond.agents.codex.story import Story

pytestmark = pytest.mark.anyio
TEXT, CLOSE = aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.CLOSED


class Wire:
    """Plays frames to the client; an answer may be computed from what was asked."""

    def __init__(self, *frames: object) -> None:
        self.frames, self.sent = list(frames), list[dict[str, Any]]()
        self.asked = asyncio.Event()

    async def send_str(self, data: str) -> None:
        self.sent.append(json.loads(data))
        self.asked.set()

    async def receive(self) -> aiohttp.WSMessage:
        if not self.frames:
            await asyncio.Event().wait()
        frame = self.frames.pop(0)
        if callable(frame):
            await self.asked.wait()
            self.asked.clear()
            frame = json.dumps(frame(self.sent[-1]))
        return frame if isinstance(frame, aiohttp.WSMessage) else aiohttp.WSMessage(TEXT, frame, None)

    async def close(self) -> None:
        pass


def client(*frames: object, sink: Callable[[Mapping[str, Any]], None] = lambda _: None) -> CodexClient:
    return CodexClient(Wire(*frames), sink, events_at_most=100, event_bytes_at_most=1 << 20)


def answer(result: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda asked: {"id": asked["id"], "result": result}


@pytest.mark.parametrize(
    ("frame", "method", "field"),
    [
        ("{", "frame", "-"),
        ("[]", "frame", "-"),
        ("[" * 100_000, "frame", "-"),
        ('{"id": ' + "9" * 5000 + "}", "frame", "-"),
        ("{}", "frame", "id"),
        ('{"id": "1", "result": {}}', "frame", "id"),
        ('{"id": true, "result": {}}', "frame", "id"),
        ('{"id": 1}', "frame", "result"),
        ('{"id": 1, "error": "no"}', "frame", "error"),
        ('{"method": 7}', "frame", "method"),
        ('{"method": "turn/started", "params": []}', "turn/started", "params"),
        ('{"method": "turn/started", "params": {"thread": "t"}}', "turn/started", "threadId"),
        ('{"method": "x", "id": null}', "x", "id"),
        (aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, b"", None), "frame", "-"),
    ],
)
async def test_e03_what_is_no_message_ends_the_connection_naming_method_and_field(frame: object, method: str, field: str) -> None:
    codex = client(frame)
    with pytest.raises(ProtocolDrift) as raised:
        await codex.next_event()
    assert (raised.value.method, raised.value.field) == (method, field)
    with pytest.raises(ProtocolDrift):
        await codex.request(LoadedList(), 5)
    await codex.aclose()


async def test_e03_an_answer_of_another_shape_fails_the_request_alone() -> None:
    codex = client(answer({"data": ["t"], "nextCursor": 7}), answer({"goals": None}), answer({"data": ["t"]}))
    for request, field in ((TurnsList(thread_id="t"), "data.0"), (GoalGet(thread_id="t"), "goal")):
        with pytest.raises(ProtocolDrift) as raised:
            await codex.request(request, 5)
        assert (raised.value.method, raised.value.field) == (request.METHOD, field)
    assert (await codex.request(LoadedList(), 5)).data == ["t"]
    await codex.aclose()


async def test_answers_come_to_whom_they_belong_and_strangers_are_passed_over() -> None:
    refused = {"error": {"code": -32600, "message": "no such thread", "data": {"a": 1}}}
    codex = client('{"id": 77, "result": {}}', lambda asked: {"id": asked["id"], **refused}, '{"method": "new/thing", "params": {"a": 1}}')
    with pytest.raises(RpcError) as raised:
        await codex.request(GoalGet(thread_id="t"), 5)
    assert (raised.value.method, raised.value.number, raised.value.data) == ("thread/goal/get", -32600, {"a": 1})
    event = await codex.next_event()
    assert (event.method, event.body, event.params, event.thread_id) == ("new/thing", None, {"a": 1}, None)
    assert codex.counts.unknown == {"new/thing": 1} and codex.counts.errors == {"thread/goal/get": 1}
    await codex.aclose()


async def test_a_request_of_the_server_is_refused_with_its_own_id() -> None:
    frames = Wire('{"method": "item/tool/call", "id": "s-1", "params": {}}', aiohttp.WSMessage(CLOSE, None, None))
    codex = CodexClient(frames, lambda _: None, events_at_most=1, event_bytes_at_most=1)
    with pytest.raises(ConnectionLost) as raised:
        await codex.next_event()
    assert raised.value.code == "closed" and frames.sent[0]["id"] == "s-1" and frames.sent[0]["error"]["code"] == wire.NOT_SUPPORTED
    assert codex.counts.refused == {"item/tool/call": 1}
    await codex.aclose()


async def test_what_a_server_invents_is_counted_within_bounds() -> None:
    frames = [json.dumps({"method": f"new/{number}", "params": {"threadId": f"t{number}"}}) for number in range(1100)]
    codex = CodexClient(Wire(*frames), lambda _: None, events_at_most=2000, event_bytes_at_most=1 << 20)
    heard = [await codex.next_event() for _ in frames]
    assert heard[-1].number == 1100 and heard[-1].thread_id == "t1099"
    assert len(codex.counts.unknown) == 501 and codex.counts.unknown.total() == 1100 and len(codex.counts.by_thread) == 1000
    await codex.aclose()


async def test_a_log_that_cannot_be_written_ends_the_connection_with_its_own_words() -> None:
    def full(_: Mapping[str, Any]) -> None:
        raise OSError(28, "No space left on device")

    for frames in (['{"method": "x"}'], []):  # met by what is heard, or by what is said
        codex = client(*frames, sink=full)
        with pytest.raises(OSError, match="No space left"):
            await (codex.next_event() if frames else codex.request(LoadedList(), 5))
        assert isinstance(codex.failure, OSError)
        await codex.aclose()


TURN = {
    "id": "u1",
    "status": "inProgress",
    "error": None,
    "items": [],
    "itemsView": "notLoaded",
    "startedAt": 1,
    "completedAt": None,
    "durationMs": None,
}


def test_a_story_told_twice_and_out_of_order_counts_once() -> None:
    def event(number: int, method: str, body: Any) -> Event:
        return Event(number, method, {}, body, body.thread_id)

    item = {"id": "c1", "type": "commandExecution", "status": "completed", "command": "x", "exitCode": 1}
    done = parse("item/completed", OnItemCompleted, {"threadId": "t", "turnId": "u1", "item": item, "completedAtMs": 1})
    ended = parse("turn/completed", OnTurnCompleted, {"threadId": "t", "turn": {**TURN, "status": "completed"}})
    other = parse("turn/completed", OnTurnCompleted, {"threadId": "kid", "turn": {**TURN, "status": "failed"}})
    story = Story("t")
    for _ in range(2):
        story.hear(event(1, "item/completed", done))
        story.hear(event(2, "turn/completed", ended))
        story.hear(event(3, "turn/completed", other))
        story.tell_item(parse("thread/items/list", ItemEntry, {"turnId": "u1", "item": item}))
        story.tell_turn(parse("turn", Turn, TURN))  # an older view
    assert story.ended() == {"completed": 1} and story.commands() == story.commands("u1") == 1 and story.running is None
    assert story.commands("u2") == 0


def test_a_history_does_not_say_what_runs() -> None:
    story = Story("t")
    story.tell_turn(parse("turn", Turn, TURN))
    story.tell_running(None)
    assert story.open_ended and story.running is None and story.ended() == {"interrupted": 1}
    story.tell_turn(parse("turn", Turn, TURN))  # called so while another runs
    story.tell_running("u2")
    assert story.open_ended and story.running is not None and story.running.id == "u2" and story.ended() == {"interrupted": 1}
    story.tell_turn(parse("turn", Turn, {**TURN, "status": "interrupted", "completedAt": 2}))
    story.tell_turn(parse("turn", Turn, {**TURN, "id": "u2", "status": "failed"}))
    story.tell_running("u1")  # too late
    assert not story.open_ended and story.running is None and story.ended() == {"interrupted": 1, "failed": 1}


def test_an_item_without_what_its_type_needs_is_named() -> None:
    item = {"id": "c1", "type": "commandExecution", "state": "completed", "command": "x"}
    with pytest.raises(ProtocolDrift) as raised:
        parse("item/completed", OnItemCompleted, {"threadId": "t", "turnId": "u1", "item": item, "completedAtMs": 1})
    assert raised.value.field == "item.status"
