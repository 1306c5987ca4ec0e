"""The run of a codex arm: one thread in one app-server, driven to its end by whoever is there.

Owns the loop decide → write down → send → hear → write down, over any number of connections and daemon lives.  What is decided stands in
:mod:`marathond.agents.codex.drive`; how a lost connection is taken up again in :mod:`marathond.agents.codex.attach`.

Nobody here takes a lost connection, or a socket that cannot be reached, for an end: the server and its turn go on, and the agent could
bring either about.  Only codex's word about its turns ends a run here, or the engine's about the server's exec.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import anyio
from anyio import to_thread

from marathond.agents.codex import actions, drive, gates, server, wake
from marathond.agents.codex import config as files
from marathond.agents.codex.attach import accepted, reattach, retell, running
from marathond.agents.codex.client import CodexClient, Event, connect
from marathond.agents.codex.errors import CodexError, ConnectionLost, ProtocolDrift, ReachError, RequestTimeout, RpcError
from marathond.agents.codex.harness import LoopX, Unanswered
from marathond.agents.codex.hearing import Ear
from marathond.agents.codex.messages import GoalGet, GoalIs, GoalSet, TerminalsClean, TextInput, TurnInterrupt, TurnStart
from marathond.agents.codex.reach import Reach
from marathond.agents.codex.shapes import COMMAND
from marathond.agents.codex.state import OPERATORS, PACED, Pending, State
from marathond.agents.codex.story import Story
from marathond.agents.codex.transcript import NAME, Transcript
from marathond.core.errors import GateFailed
from marathond.core.names import Drive, EndedBy
from marathond.ports.agent import AgentEnd, Environment
from marathond.ports.clock import SystemClock

RPC_S = 60.0
START_S = 120.0
"""From the exec's start to the first connection."""
PATIENCE_S = 600.0
"""For a message that met a turn in flight to show whether it was taken."""
RESTING_S = 60.0
"""Without a turn in flight, before codex is asked whether there is one."""
RETRY_FIRST_S, RETRY_AT_MOST_S = 0.1, 5.0
QUIET_S = 8.0


class Run(Ear):
    """One daemon life's part of a run.  :meth:`to_its_end` is called once."""

    def __init__(self, env: Environment, state: State) -> None:
        super().__init__(env, state)
        self.wakes = self.codex.drive is Drive.WAKE
        self.transcript = Transcript(env.run_dir.root / NAME)
        self.resumed = bool(state.thread_intended or state.thread_id)
        """Whether an earlier life may have spoken to this server."""
        self.disconnected = anyio.Event()
        """Set while there is no connection: all that was heard is written down then."""
        self.disconnected.set()
        self._counts: dict[str, Any] = {}

    @cached_property
    def loopx(self) -> LoopX:
        """Of an arm that has it."""
        return LoopX(self.env, self.state.prepared["loopx"], lambda: self.state.has_acted)

    # ---- connections

    async def to_its_end(self) -> AgentEnd:
        """Until the run's end.  Raises GateFailed."""
        try:
            return await self._driven()
        except GateFailed:
            await self._note_counts()
            raise

    async def _driven(self) -> AgentEnd:
        began, pause_s, told = time.monotonic(), RETRY_FIRST_S, ""
        while True:
            try:
                async with self._connected() as client:
                    self.disconnected = anyio.Event()
                    try:
                        await self._attach(client)
                        pause_s, told = RETRY_FIRST_S, ""
                        return await self._converse(client)
                    finally:
                        self._count(client)
                        self.disconnected.set()
            except (ReachError, ConnectionLost, RequestTimeout) as error:
                code = getattr(error, "code", "no_answer")
                early = not (self.state.thread_id or self.state.thread_intended)
                if early and time.monotonic() - began > START_S:
                    raise GateFailed("driver_failed", f"codex app-server cannot be reached: {error}") from error
                if code != told and not (early and code in gates.NOT_YET):
                    told = code
                    await self.note("unreachable", code=code, detail=str(error)[:500])
            except (ProtocolDrift, RpcError) as error:
                raise GateFailed("driver_failed", str(error)) from error
            await self._note_counts()
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_AT_MOST_S)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[CodexClient]:
        client = await connect(self.reach(), sink=self.transcript.write, timeout_s=RPC_S)
        try:
            yield client
        finally:
            await client.aclose()

    def reach(self) -> Reach:
        """The way to the server; once its pid is known to nobody else who might listen there (fault c18)."""
        env, state = self.env, self.state
        return Reach(env.pid, env.start_ticks, int(state.prepared["uid"]), gates.SOCKET_NAME, state.server_pid)

    def _count(self, client: CodexClient) -> None:
        counts = client.counts
        self._counts = {
            "requests": dict(counts.requests),
            "errors": dict(counts.errors),
            "notifications": dict(counts.notifications),
            "unknown": dict(counts.unknown),
            "refused": dict(counts.refused),
            "sub_agents": len(counts.sub_agents),
            "sub_acts": dict(self.sub_acts),
        }

    async def _note_counts(self) -> None:
        if self._counts:
            counts, self._counts = self._counts, {}
            await self.note("rpc_counts", **counts)

    async def _attach(self, client: CodexClient) -> None:
        """Take over the thread if there is one, and write down what happened while nobody heard."""
        self.forget()
        if self.state.server_pid is None:
            await self.note("server", pid=client.peer_pid)
        if not self.resumed:
            self.resumed = True  # by this life's next connection
            return
        state = self.state
        attached = await reattach(client, state.thread_id or None, goals=self.goals, timeout_s=RPC_S)
        if attached is None or attached.ready is None:
            # Nothing was ever begun in it, and an idle thread cannot be joined: another one takes its place.
            await self.note("thread_intended")
            return
        if not state.thread_id:
            await self.note("thread", thread_id=attached.thread_id, model=attached.ready.model, effort=attached.ready.reasoning_effort)
        self.story.thread_id = attached.thread_id
        goal = "" if attached.goal is None else attached.goal.status
        await self.note("reattached", running=attached.running or "", goal=goal, thread_id=attached.thread_id)
        await retell(client, attached, self.story, timeout_s=RPC_S)
        for turn in list(self.story.turns.values()):
            await (self.turn_started(turn.id) if turn.status == "inProgress" else self.turn_ended(turn))
        if attached.running:
            await self.turn_started(attached.running)
        elif state.in_flight:
            # It ended while the history was read: the next look tells how.
            raise ConnectionLost("broken", "a turn ended during the re-attachment")
        await self.goal(attached.goal)
        if self.goals and attached.goal is None and state.intended and not state.goal_seen:
            await self._set_goal(client, first=True)
        pending = state.pending
        if pending is not None and pending.what == "turn":
            turn_id = await accepted(client, attached, pending.mark, PATIENCE_S)
            if turn_id is not None:
                await self.note("turn_accepted", mark=pending.mark, turn_id=turn_id)

    # ---- the loop

    async def _converse(self, client: CodexClient) -> AgentEnd:
        while True:
            match drive.decide(self.state, self.codex):
                case actions.StartThread():
                    await self._start_thread(client)
                case actions.First():
                    if self.goals:
                        await self.note("goal_set", objective=self._objective, token_budget=self.codex.token_budget)
                    await self._intend_message("first", 0.0)
                case actions.CarryOut(pending):
                    await self._carry_out(client, pending)
                case actions.Listen(resting):
                    await self._listen(client, resting=resting)
                case actions.Again(cause, n, pause_s):
                    await self._again(client, cause, n, pause_s)
                case actions.Wake(cause, pause_s):
                    if await self._rested(client, pause_s):
                        await self._intend_message(cause, pause_s)
                case actions.Look() | actions.Ask() as question:
                    await self._ask(client, question)
                case actions.End(by, why, quiet):
                    return await self._end(client, by, why, quiet=quiet)
                case actions.Fail(code, detail) as fail:
                    refused = await self._refused()
                    if (own := drive.own_doing(fail, refused)) is None:
                        raise GateFailed(code, detail)
                    await self.note("crowded", refused=refused)
                    return await self._end(client, own.by, own.why, quiet=own.quiet and self.goals)

    async def _refused(self) -> int:
        """By the gateway, for what the agent had open itself, since the last turn began."""
        if self.env.model_surplus is None:
            return 0
        began = [entry.at_ms for entry in await self.env.log.entries() if entry.kind == "turn_started"]
        return await self.env.model_surplus(max(began, default=0))

    async def _start_thread(self, client: CodexClient) -> None:
        if not self.state.thread_intended:
            await self.note("thread_intended")
        prepared = self.state.prepared
        model = self.env.model
        # Where this life was not given the way to the model, the first life wrote down what it had been.
        base_url = model.base_url if model is not None else prepared["base_url"]
        values = files.config(self.codex, base_url, prepared["untrusted"])
        skills = prepared.get("loopx", {}).get("skills", ())
        ready, _ = await gates.read_back(client, self.codex, values, prepared["cwd"], skills)
        await self.note(
            "thread",
            thread_id=ready.thread.id,
            model=ready.model,
            effort=ready.reasoning_effort,
            cwd=ready.cwd,
            path=ready.thread.path,
        )
        self.story = Story(ready.thread.id)

    def _mark(self) -> str:
        return f"marathond-{self.state.thread_id}-{self.state.intended + 1}"

    async def _intend_message(self, cause: str, pause_s: float) -> None:
        intention: dict[str, Any] = {"n": self.state.intended + 1, "cause": cause, "mark": self._mark(), "pause_s": pause_s}
        if self.wakes:
            await self.note("wake_intended", **intention, turn_id=wake.turn_id(datetime.now(UTC), self.state.wakes))
        else:
            await self.note("turn_intended", **intention)

    async def _carry_out(self, client: CodexClient, pending: Pending) -> None:
        if pending.by_operator and not await self._clear(pending):
            return
        if pending.what == "goal":
            await self._set_goal(client, first=False)
            return
        try:
            text = await self._text(pending)
        except Unanswered as error:
            await self._unanswered(error)
            return
        start = TurnStart(thread_id=self.state.thread_id, input=[TextInput(text=text)], client_user_message_id=pending.mark)
        if self.goals and pending.cause == "first" and (self.state.turns or self.state.in_flight):
            await self.note("goal_alone", turns=self.state.turns)
        if self.goals and pending.cause in ("first", "unblock"):
            # Both leave before the first is answered: codex would ask the model for the goal alone, before it has the task.
            active = self._goal_active(first=pending.cause == "first")
            goal, begun = await asyncio.gather(client.request(active, RPC_S), client.request(start, RPC_S))
            await self._goal_answered(goal)
        else:
            begun = await client.request(start, RPC_S)
        await self.note("turn_accepted", mark=pending.mark, turn_id=begun.turn.id)

    async def _text(self, pending: Pending) -> str:
        """Of a message.  Raises as :class:`~marathond.agents.codex.harness.LoopX`."""
        task = self.env.task.instruction
        if pending.wake:
            body = await self.loopx.body(pending.wake)
            return f"{task}\n\n{body}" if pending.cause in ("first", "gate") else body
        return task if pending.cause in ("first", "unblock") else drive.CONTINUE

    @property
    def _objective(self) -> str:
        """Of the native goal: the arm's own words, or LoopX's body."""
        return self.codex.objective if self.codex.loopx is None else str(self.state.prepared["loopx"]["body"])

    def _goal_active(self, *, first: bool) -> GoalSet:
        thread_id = self.state.thread_id
        if not first:
            return GoalSet(thread_id=thread_id, status="active")
        budget = self.codex.token_budget
        return GoalSet(thread_id=thread_id, status="active", objective=self._objective, token_budget=budget, origin="user")

    async def _set_goal(self, client: CodexClient, *, first: bool) -> None:
        await self._goal_answered(await client.request(self._goal_active(first=first), RPC_S))

    async def _goal_answered(self, answer: GoalIs) -> None:
        await self.note("goal", status=answer.goal.status, tokens_used=answer.goal.tokens_used)

    async def _listen(self, client: CodexClient, *, resting: bool) -> None:
        event: Event | None = None
        with anyio.move_on_after(RESTING_S if resting else None):
            event = await client.next_event()
        if event is not None:
            await self.hear(event)
            return
        turn_id = await running(client, self.state.thread_id, RPC_S)
        if turn_id is not None:
            await self.turn_started(turn_id)
            return
        if self.goals:
            await self.goal((await client.request(GoalGet(thread_id=self.state.thread_id), RPC_S)).goal)
        if isinstance(action := drive.decide(self.state, self.codex), actions.Listen) and action.resting:
            await self.note("stalled", goal=self.state.goal)

    async def _rested(self, client: CodexClient, pause_s: float) -> bool:
        """Whether the pause is over; False once codex goes on by itself meanwhile.  What an earlier life waited is not waited again."""
        seen = self.state.turns
        if pause_s:
            since = max((entry.mono_ms for entry in await self.env.log.entries() if entry.kind in PACED), default=0)
            with anyio.move_on_after(pause_s - (SystemClock().mono_ms() - since) / 1000):
                while not self.state.in_flight and self.state.turns == seen:
                    await self.hear(await client.next_event())
        return not self.state.in_flight and self.state.turns == seen

    async def _again(self, client: CodexClient, cause: str, n: int, pause_s: float) -> None:
        """After the pause, unless codex goes on by itself meanwhile."""
        if not await self._rested(client, pause_s):
            return
        if self.goals or cause == "gate":
            # The operator of an arm with LoopX brings the whole task once more; what only clears a gate of LoopX says nothing to codex.
            mark = self._mark() if self.goals and self.codex.loopx is not None and cause in OPERATORS else ""
            await self.note("unblock", n=n, cause=cause, pause_s=pause_s, mark=mark)
        else:
            await self._intend_message("retry", pause_s)

    # ---- LoopX

    async def _ask(self, client: CodexClient, question: actions.Look | actions.Ask) -> None:
        try:
            if isinstance(question, actions.Look):
                await self.note("loopx_gate", ids=await self.loopx.gates())
            elif await self._rested(client, question.pause_s):
                await self.note("quota", **await self.loopx.poll())
        except Unanswered as error:
            await self._unanswered(error)

    async def _clear(self, pending: Pending) -> bool:
        """LoopX's gates, before the goal is set active again; False: there is nothing else to be done for ``pending``."""
        if not self.state.cleared and not self.state.refused:
            try:
                await self.note("gate_cleared", ids=await self.loopx.clear())
            except Unanswered as error:
                await self._unanswered(error)
        return pending.what != "gate"

    async def _unanswered(self, error: Unanswered) -> None:
        await self.note("loopx_refused", call=error.call, code=error.code, detail=error.detail)

    async def _end(self, client: CodexClient, by: EndedBy, why: str, *, quiet: bool) -> AgentEnd:
        state = self.state
        if state.ended is None:
            if not state.commands and COMMAND not in state.acted:
                await self.note("no_commands", acts=state.acts, sub_acts=self.sub_acts.total(), turns=state.turns)
            await self.note("ended", by=by.value, why=why, turn_ended_s=self._turn_ended_s)
        if quiet:
            with anyio.move_on_after(QUIET_S), suppress(CodexError):
                await self.quiet(client)
        self._count(client)
        await self._note_counts()
        return state.driver_end(by)

    @property
    def _turn_ended_s(self) -> int | None:
        """When the last turn ended, as codex tells it to whoever asks, also of what nobody heard."""
        turn = None if self.state.last is None else self.story.turns.get(self.state.last.turn_id)
        return None if turn is None else turn.completed_at

    async def quiet(self, client: CodexClient) -> dict[str, Any]:
        """Nothing more is begun, what runs is stopped (fault c08): an interrupt alone leaves a goal active and a shell command running.

        What codex said: the goal's status, the turn that was interrupted.
        """
        thread_id, goal = self.state.thread_id, ""
        if self.goals:
            goal = (await client.request(GoalSet(thread_id=thread_id, status="paused"), RPC_S)).goal.status
        turn_id = await running(client, thread_id, RPC_S)
        if turn_id is not None:
            with suppress(RpcError):  # it ended by itself in between
                await client.request(TurnInterrupt(thread_id=thread_id, turn_id=turn_id), RPC_S)
        await client.request(TerminalsClean(thread_id=thread_id), RPC_S)
        return {"goal": goal, "turn": turn_id or ""}

    async def server_ended(self, exit_code: int | None) -> AgentEnd:
        """The engine says that the exec ended.  Raises GateFailed."""
        if self.state.ended is not None:
            return self.state.driver_end(self.state.ended)
        line = await to_thread.run_sync(server.last_line, self.env)
        await self.note("server_ended", exit_code=exit_code, stderr=line)
        acted = bool(self.state.has_acted or drive.acts(self.story.done()))
        return await server.ended(self.env, self.state, exit_code, acted=acted)
