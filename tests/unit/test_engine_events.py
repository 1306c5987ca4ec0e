"""The fan-out of events: who is woken by what, and what a slow listener loses.  No engine is needed: nobody answers at this socket."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from marathond.engine.client import EngineClient
from marathond.engine.events import QUEUE_MAX, RESYNC, EventHub
from marathond.ports.engine import EngineEvent

pytestmark = pytest.mark.anyio


def _died(exec_id: str) -> EngineEvent:
    return EngineEvent("container", "exec_die", "c1", {"execID": exec_id})


@pytest.fixture
def client(tmp_path: Path) -> EngineClient:
    return EngineClient(f"unix://{tmp_path}/none", 5.0)


async def test_an_end_wakes_its_own_watchers_and_a_reconnect_wakes_all(client: EngineClient) -> None:
    hub = EventHub("x", client)
    mine, also_mine, other = hub.watch("e1"), hub.watch("e1"), hub.watch("e2")
    hub._publish(EngineEvent("container", "exec_start", "c1", {"execID": "e1"}))
    assert not mine.is_set()
    hub._publish(_died("e1"))
    assert (mine.is_set(), also_mine.is_set(), other.is_set()) == (True, True, False)
    hub.unwatch("e1", mine)
    mine.clear()
    hub._publish(RESYNC)
    assert (mine.is_set(), other.is_set()) == (False, True)
    await hub.aclose()
    await client.aclose()


async def test_a_slow_subscriber_loses_the_oldest_and_ends_with_the_hub(client: EngineClient) -> None:
    hub = EventHub("x", client)
    events = hub.subscribe()
    heard: list[EngineEvent] = []
    async with anyio.create_task_group() as group:
        started = anyio.Event()

        async def listen() -> None:
            started.set()
            async for event in events:
                heard.append(event)

        group.start_soon(listen)
        await started.wait()
        await anyio.wait_all_tasks_blocked()
        for number in range(QUEUE_MAX + 10):
            hub._publish(_died(f"e{number}"))
        await anyio.wait_all_tasks_blocked()
        await hub.aclose()
    assert [event.attributes["execID"] for event in (heard[0], heard[-1])] == ["e10", f"e{QUEUE_MAX + 9}"]
    assert len(heard) == QUEUE_MAX
    with pytest.raises(RuntimeError, match="closed"):
        hub.watch("e1")
    await client.aclose()
