"""Taking over a server that an earlier client left, with nothing lost and nothing begun twice.

Owns the rule by which a new client learns what became of an old one's requests.  Must not know what a driver does with it.

What codex 0.171 does, as measured:

* server, turn and goal go on without a client.  What was notified meanwhile is NOT repeated to the next one, except that ``thread/resume``
  is followed by one ``thread/goal/updated`` (the goal as it is).  Totals of tokens come with the next response of the model; for a thread
  that idles, ``ThreadResume(exclude_turns=False)`` is followed by one ``thread/tokenUsage/updated``, but its answer is the whole history;
* turns and items are kept: ``thread/turns/list`` and ``thread/items/list`` tell all of them, also those of the running turn, an item from
  its end on.  So counts are not added up over connections but read again: :func:`turns` and :func:`items`, merged by id (``story``);
* a thread that nobody listened to for half an hour is unloaded once it idles, and loaded again by ``thread/resume``: after that only its id
  finds it, and a list of loaded threads that is empty does not mean that none was begun;
* a turn that its server's end cut off has no ``completedAt`` in the history of the next server, and is called ``interrupted`` while the
  thread idles, ``inProgress`` while another turn runs; an active goal goes on there by itself.  A turn that has just begun may be called
  either, too.  So a history never says what runs: :func:`running` does, and events do;
* a request whose client died before the answer is carried out or dropped, about half of each; the server never carries one out twice, but
  it does not recognise a repetition either: two ``turn/start`` with one ``client_user_message_id`` are two messages;
* a message that meets a request to the model makes codex drop that request's answer and ask again with the message: the tokens are billed
  and in no total.  So ``thread/goal/set`` and the ``turn/start`` that joins the goal's first turn belong together, without a pause between;
* a sub-agent's thread is announced by an item of type subAgentActivity in the thread above, not by ``thread/started``.  The connection that
  the main thread was started on hears of it; a later one does so after a ``thread/resume`` of its own.  It may outlast the main turn.

The rule for a driver, so that no turn is begun twice and none lost:

1. before ``turn/start`` write down a mark (any unique text) and the thread's id; send the mark as ``client_user_message_id``;
2. after a lost connection or a RequestTimeout: :func:`reattach`, then :func:`accepted` with the mark.  A turn's id: go on with that turn.
   None: it was not carried out and never will be; send ``turn/start`` again with the SAME mark;
3. the same for ``thread/start``: an id that was written down is always given.  Was none, nothing was begun, and :func:`reattach` with
   ``thread_id=None`` finds the thread if there is one, else answers None: start one.  ``thread/goal/set`` may simply be repeated
   (``Attached.goal`` tells whether it must);
4. ``Attached.ready`` None: nothing was ever begun in that thread, and this connection hears nothing of it yet: forget it, start another.

Why :func:`accepted` can be sure of its No: :func:`reattach` first waits until the server has closed every other connection of this host, so
that it has read what the dead client wrote; then a question goes through the thread's own queue (a ``turn/steer`` that names an impossible
turn and is always refused), behind anything that was read; only then the items are looked at.  While a turn is in flight (a goal's own,
say) a message may have been taken and not be recorded yet: it is recorded before the next request to the model, so its absence after more
responses than that is a No as well.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from marathond.agents.codex.client import CodexClient
from marathond.agents.codex.errors import ConnectionLost, ProtocolDrift, RequestTimeout, RpcError
from marathond.agents.codex.messages import (
    GoalGet,
    ItemEntry,
    ItemsList,
    LoadedList,
    ThreadRead,
    ThreadReady,
    ThreadResume,
    TurnsList,
    TurnSteer,
)
from marathond.agents.codex.reach import connections_from_here
from marathond.agents.codex.shapes import Goal, Thread, Turn
from marathond.agents.codex.story import Story

_POLL_S = 0.02
_POLL_AT_MOST_S = 1.0
_SETTLE_S = 1.0
_RESPONSES_AT_MOST = 4
"""Of the model, heard while a message is looked for, after which it was never taken: the first may have been asked for before the message
came, and before the second it is recorded; the rest is room for compactions, which take nothing along."""
_NO_TURN = "no active turn"
_FOUND = re.compile(r"but found `([^`]+)`")
_NO_SUCH_TURN = "none"
PAGES_AT_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Attached:
    """A thread that this connection took over.

    :param thread_id: the main thread's.
    :param ready: settings in effect and the thread's status; None: no turn was ever begun in it (see rule 4).
    :param running: id of the turn in flight, None when the thread idles.
    :param goal: None when there is none, or goals were not asked for.
    :param sub_agents: sub-agents' threads that are loaded; they are heard of as well.
    """

    thread_id: str
    ready: ThreadReady | None
    running: str | None
    goal: Goal | None
    sub_agents: tuple[str, ...] = ()


async def reattach(client: CodexClient, thread_id: str | None, *, goals: bool, timeout_s: float) -> Attached | None:
    """Join ``thread_id`` (None: the only main thread that is loaded) and hear of it from now on.  None: there is no thread.

    :param goals: ask for the goal; with the feature off the question is an error.
    :param timeout_s: for the whole of it.
    :raises ConnectionLost: ``contested``: another client of this host keeps its connection; else as for every request.
    :raises RpcError: the server has no such thread (any more); one in which nothing was begun is gone with half an hour of silence.
    :raises RequestTimeout, ProtocolDrift: as for every request.
    """
    deadline = time.monotonic() + timeout_s
    await _alone(client, deadline)
    if thread_id is None:
        thread_id = await _main_thread(client, deadline)
        if thread_id is None:
            return None
    ready, turn = await _join(client, thread_id, deadline)
    goal = (await client.request(GoalGet(thread_id=thread_id), _left(deadline))).goal if goals else None
    return Attached(thread_id, ready, turn, goal, await _join_sub_agents(client, deadline))


async def _join(client: CodexClient, thread_id: str, deadline: float) -> tuple[ThreadReady | None, str | None]:
    while True:
        try:
            ready = await client.request(ThreadResume(thread_id=thread_id), _left(deadline))
        except RpcError:
            if await running(client, thread_id, _left(deadline)) is None:
                if not await _is_loaded(client, thread_id, deadline):
                    raise
                return None, None
            # A thread has no rollout before its first message is recorded: with a turn in flight that is a matter of moments.
            await asyncio.sleep(_POLL_S)
            continue
        # Asked for once this connection hears of the thread: what ends or begins after this is notified.
        return ready, await running(client, thread_id, _left(deadline))


async def _join_sub_agents(client: CodexClient, deadline: float) -> tuple[str, ...]:
    _, others = await threads(client, timeout_s=_left(deadline))
    for other in others:
        with suppress(RpcError):  # it ended and was unloaded meanwhile, or has recorded nothing yet: it is listed all the same
            await client.request(ThreadResume(thread_id=other.id), _left(deadline))
    return tuple(other.id for other in others)


async def running(client: CodexClient, thread_id: str, timeout_s: float) -> str | None:
    """Id of the turn in flight in a loaded thread, asked behind everything the server has read for that thread.  Changes nothing.

    :raises RpcError: the server refuses the question for another reason than the two expected.
    """
    try:
        await client.request(TurnSteer(thread_id=thread_id, expected_turn_id=_NO_SUCH_TURN, input=[]), timeout_s)
    except RpcError as err:
        if _NO_TURN in err.message or "not found" in err.message:  # not loaded: nothing runs in it
            return None
        if (found := _FOUND.search(err.message)) is not None:
            return found[1]
        raise
    raise ProtocolDrift(TurnSteer.METHOD, "expectedTurnId", "a turn that does not exist was steered")


async def accepted(client: CodexClient, attached: Attached, mark: str, timeout_s: float) -> str | None:
    """The turn that took the message with ``mark``; None: none did, and none will.

    Answers within milliseconds where the thread idles or the message is recorded.  A message that met a turn in flight waits for that
    turn's next request to the model, and so does the answer here: allow minutes.

    :raises RequestTimeout: not decided; ask again, and start nothing before it is.
    """
    if attached.ready is None:
        return None
    deadline = time.monotonic() + timeout_s
    thread_id, pause_s = attached.thread_id, _POLL_S
    first = _responses(client, thread_id)
    while True:
        responses = _responses(client, thread_id) - first
        turn = await running(client, thread_id, _left(deadline))
        async for entry in items(client, thread_id, timeout_s=_left(deadline), newest_first=True):
            if entry.item.client_id == mark:
                return entry.turn_id
        if turn is None or responses >= _RESPONSES_AT_MOST:
            return None
        await asyncio.sleep(min(pause_s, _left(deadline)))
        pause_s = min(pause_s * 1.5, _POLL_AT_MOST_S)


async def turns(client: CodexClient, thread_id: str, *, timeout_s: float) -> AsyncIterator[Turn]:
    """Every turn of a thread, oldest first, without items.  ``timeout_s`` for each page.

    :raises RpcError: also for a thread in which nothing was ever begun.
    """
    cursor: str | None = None
    for _ in range(PAGES_AT_MOST):
        page = await client.request(TurnsList(thread_id=thread_id, cursor=cursor), timeout_s)
        for turn in page.data:
            yield turn
        if (cursor := page.next_cursor) is None:
            return
    raise ProtocolDrift(TurnsList.METHOD, "nextCursor", f"more than {PAGES_AT_MOST} pages")


async def items(
    client: CodexClient, thread_id: str, *, timeout_s: float, turn_id: str | None = None, newest_first: bool = False
) -> AsyncIterator[ItemEntry]:
    """Every item that ended, of a thread or one of its turns.  ``timeout_s`` for each page.

    :raises RpcError: also for a thread in which nothing was ever begun.
    """
    cursor: str | None = None
    for _ in range(PAGES_AT_MOST):
        asked = ItemsList(thread_id=thread_id, turn_id=turn_id, cursor=cursor, sort_direction="desc" if newest_first else "asc")
        page = await client.request(asked, timeout_s)
        for entry in page.data:
            yield entry
        if (cursor := page.next_cursor) is None:
            return
    raise ProtocolDrift(ItemsList.METHOD, "nextCursor", f"more than {PAGES_AT_MOST} pages")


async def threads(client: CodexClient, *, timeout_s: float) -> tuple[list[Thread], list[Thread]]:
    """Threads that are loaded: main ones, and sub-agents'.  ``timeout_s`` for each request."""
    main: list[Thread] = []
    others: list[Thread] = []
    for thread_id in (await client.request(LoadedList(), timeout_s)).data:
        with suppress(RpcError):  # unloaded since it was listed
            thread = (await client.request(ThreadRead(thread_id=thread_id), timeout_s)).thread
            (others if thread.of_a_sub_agent else main).append(thread)
    return main, others


def _responses(client: CodexClient, thread_id: str) -> int:
    """Counted as they are heard, whether or not somebody took the events."""
    return client.counts.by_thread.get(thread_id, Counter())["thread/tokenUsage/updated"]


async def _main_thread(client: CodexClient, deadline: float) -> str | None:
    main, _ = await threads(client, timeout_s=_left(deadline))
    if len(main) > 1:
        # A thread/start whose answer was never heard leaves an empty one behind: what was begun in the other decides.
        main = [t for t in main if t.preview] or main[:1]
    if len(main) > 1:
        raise ProtocolDrift(LoadedList.METHOD, "data", f"{len(main)} main threads with a history, expected one")
    return main[0].id if main else None


async def _is_loaded(client: CodexClient, thread_id: str, deadline: float) -> bool:
    try:
        await client.request(ThreadRead(thread_id=thread_id), _left(deadline))
    except RpcError:
        return False
    return True


async def _alone(client: CodexClient, deadline: float) -> None:
    """Until the server holds no other connection of this host: only then has it read all that a dead client wrote."""
    while connections_from_here(client.peer_pid, client.socket_name) > 1:
        if time.monotonic() > deadline:
            raise ConnectionLost("contested", "the server keeps a connection to another client of this host")
        await asyncio.sleep(_POLL_S)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise RequestTimeout("re-attachment", 0.0)
    return left


async def retell(client: CodexClient, attached: Attached, story: Story, *, timeout_s: float) -> None:
    """Give ``story`` everything that the server keeps of the thread.  ``timeout_s`` for each request.

    A turn without an end that does not run is looked at again for a second: it may end or begin this moment.  What stays so was cut off
    with an earlier server, and is told as interrupted, ``completed_at`` None.
    """
    story.goal = attached.goal
    if attached.ready is None:
        return
    settled_at = time.monotonic() + _SETTLE_S
    while True:
        async for turn in turns(client, attached.thread_id, timeout_s=timeout_s):
            story.tell_turn(turn)
        story.tell_running(await running(client, attached.thread_id, timeout_s))
        if not story.open_ended or time.monotonic() > settled_at:
            break
        await asyncio.sleep(_POLL_S)
    async for entry in items(client, attached.thread_id, timeout_s=timeout_s):
        story.tell_item(entry)
