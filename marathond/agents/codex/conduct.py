"""The run of a codex arm: one thread in one app-server, driven to its end by whoever is there.

Owns the loop decide → write down → send → hear → write down, over any number of connections and daemon lives.  What is decided stands in
:mod:`marathond.agents.codex.drive`; how a lost connection is taken up again in :mod:`marathond.agents.codex.attach`.

Nobody here takes a lost connection, or a socket that cannot be reached, for an end: the server and its turn go on, and the agent could
bring either about.  Only codex's word about its turns ends a run here, or the engine's about the server's exec.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio import to_thread

from marathond.agents.codex import config as files
from marathond.agents.codex import drive, gates, server
from marathond.agents.codex.attach import accepted, reattach, retell, running
from marathond.agents.codex.client import CodexClient, Event, connect
from marathond.agents.codex.errors import CodexError, ConnectionLost, ProtocolDrift, ReachError, RequestTimeout, RpcError
from marathond.agents.codex.messages import GoalGet, GoalIs, GoalSet, TerminalsClean, TextInput, TurnInterrupt, TurnStart
from marathond.agents.codex.notices import (
    OnConfigWarning,
    OnGoalCleared,
    OnGoalUpdated,
    OnItemCompleted,
    OnItemStarted,
    OnRerouted,
    OnTokenUsage,
    OnTurnCompleted,
    OnTurnStarted,
    OnWarning,
)
from marathond.agents.codex.reach import Reach
from marathond.agents.codex.shapes import COMMAND, Goal, Turn
from marathond.agents.codex.story import Story
from marathond.agents.codex.transcript import NAME, Transcript
from marathond.core.errors import GateFailed
from marathond.core.model import Drive, EndedBy
from marathond.ports.agent import AgentEnd, Environment

RPC_S = 60.0
START_S = 120.0
"""From the exec's start to the first connection."""
PATIENCE_S = 600.0
"""For a message that met a turn in flight to show whether it was taken."""
RESTING_S = 60.0
"""Without a turn in flight, before codex is asked whether there is one."""
RETRY_FIRST_S, RETRY_AT_MOST_S = 0.1, 5.0
QUIET_S = 8.0
WARNINGS_LOGGED = 50
GOAL_CHANGES_LOGGED = 20_000
SUB_AGENT = "subAgent"
"""In the log, for whatever a sub-agent did."""


class Run:
    """One daemon life's part of a run.  :meth:`to_its_end` is called once."""

    def __init__(self, env: Environment, state: drive.State) -> None:
        self.env, self.state, self.codex = env, state, gates.codex_of(env)
        self.goals = self.codex.drive is Drive.GOAL
        self.story = Story(state.thread_id)
        self.transcript = Transcript(env.run_dir.root / NAME)
        self.sub_acts: Counter[str] = Counter()
        """Items of sub-agents' threads that did something, by type."""
        self.resumed = bool(state.thread_intended or state.thread_id)
        """Whether an earlier life may have spoken to this server."""
        self.disconnected = anyio.Event()
        """Set while there is no connection: all that was heard is written down then."""
        self.disconnected.set()
        self._counts: dict[str, Any] = {}
        self._rerouted: set[tuple[str, str]] = set()
        self._goal_changes = 0
        self._responses: Counter[str] = Counter()
        """Of the model, by turn in flight, as far as this connection heard them."""
        self._begun_here: set[str] = set()
        """Turns in flight whose start this connection heard."""

    async def note(self, kind: str, **detail: Any) -> None:
        """Durable first, then part of the state."""
        await self.env.log.append(kind, detail)
        self.state.apply(kind, detail)

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
            with anyio.CancelScope(shield=True):
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
        self._begun_here.clear()
        self._responses.clear()
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
            await (self._turn_started(turn.id) if turn.status == "inProgress" else self._turn_ended(turn))
        if attached.running:
            await self._turn_started(attached.running)
        elif state.in_flight:
            # It ended while the history was read: the next look tells how.
            raise ConnectionLost("broken", "a turn ended during the re-attachment")
        await self._goal(attached.goal)
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
                case drive.StartThread():
                    await self._start_thread(client)
                case drive.First():
                    if self.goals:
                        await self.note("goal_set", objective=self.codex.objective, token_budget=self.codex.token_budget)
                    await self._intend_turn("first", 0.0)
                case drive.CarryOut(pending):
                    await self._carry_out(client, pending)
                case drive.Listen(resting):
                    await self._listen(client, resting=resting)
                case drive.Again(cause, n, pause_s):
                    await self._again(client, cause, n, pause_s)
                case drive.End(by, why, quiet):
                    return await self._end(client, by, why, quiet=quiet)
                case drive.Fail(code, detail) as fail:
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

    async def _intend_turn(self, cause: str, pause_s: float) -> None:
        n = self.state.intended + 1
        await self.note("turn_intended", n=n, cause=cause, mark=f"marathond-{self.state.thread_id}-{n}", pause_s=pause_s)

    async def _carry_out(self, client: CodexClient, pending: drive.Pending) -> None:
        if pending.what == "goal":
            await self._set_goal(client, first=False)
            return
        text = self.env.task.instruction if pending.cause == "first" else drive.CONTINUE
        start = TurnStart(thread_id=self.state.thread_id, input=[TextInput(text=text)], client_user_message_id=pending.mark)
        if pending.cause == "first" and self.goals:
            # Both leave before the first is answered: codex would ask the model for the goal alone, before it has the task.
            goal, begun = await asyncio.gather(client.request(self._goal_active(first=True), RPC_S), client.request(start, RPC_S))
            await self._goal_answered(goal)
        else:
            begun = await client.request(start, RPC_S)
        await self.note("turn_accepted", mark=pending.mark, turn_id=begun.turn.id)

    def _goal_active(self, *, first: bool) -> GoalSet:
        thread_id, codex = self.state.thread_id, self.codex
        if not first:
            return GoalSet(thread_id=thread_id, status="active")
        return GoalSet(thread_id=thread_id, status="active", objective=codex.objective, token_budget=codex.token_budget, origin="user")

    async def _set_goal(self, client: CodexClient, *, first: bool) -> None:
        await self._goal_answered(await client.request(self._goal_active(first=first), RPC_S))

    async def _goal_answered(self, answer: GoalIs) -> None:
        await self.note("goal", status=answer.goal.status, tokens_used=answer.goal.tokens_used)

    async def _listen(self, client: CodexClient, *, resting: bool) -> None:
        event: Event | None = None
        with anyio.move_on_after(RESTING_S if resting else None):
            event = await client.next_event()
        if event is not None:
            await self._hear(event)
            return
        turn_id = await running(client, self.state.thread_id, RPC_S)
        if turn_id is not None:
            await self._turn_started(turn_id)
            return
        if self.goals:
            await self._goal((await client.request(GoalGet(thread_id=self.state.thread_id), RPC_S)).goal)
        if isinstance(action := drive.decide(self.state, self.codex), drive.Listen) and action.resting:
            await self.note("stalled", goal=self.state.goal)

    async def _again(self, client: CodexClient, cause: str, n: int, pause_s: float) -> None:
        """After the pause, unless codex goes on by itself meanwhile."""
        seen = self.state.turns
        with anyio.move_on_after(pause_s):
            while pause_s and not self.state.in_flight and self.state.turns == seen:
                await self._hear(await client.next_event())
        if self.state.in_flight or self.state.turns != seen:
            return
        if self.goals:
            await self.note("unblock", n=n, cause=cause, pause_s=pause_s)
        else:
            await self._intend_turn("retry", pause_s)

    async def _end(self, client: CodexClient, by: EndedBy, why: str, *, quiet: bool) -> AgentEnd:
        state = self.state
        if state.ended is None:
            if not state.commands and COMMAND not in state.acted:
                await self.note("no_commands", acts=state.acts, sub_acts=self.sub_acts.total(), turns=state.turns)
            await self.note("ended", by=by.value, why=why)
        if quiet:
            with anyio.move_on_after(QUIET_S), suppress(CodexError):
                await self.quiet(client)
        self._count(client)
        await self._note_counts()
        return AgentEnd(None, "driver", by)

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

    # ---- what is heard

    async def _hear(self, event: Event) -> None:
        self.story.hear(event)
        match event.body:
            case OnWarning(message=text) | OnConfigWarning(summary=text):
                if self.state.warnings < WARNINGS_LOGGED:
                    await self.note("warning", text=text[:1000], sidecar=bool(drive.SIDECAR_WORDS.search(text)))
            case OnItemStarted(item=item) if drive.acts({item.type: 1}):
                await self._acted(item.type if event.thread_id == self.state.thread_id else SUB_AGENT)
            case OnItemCompleted(item=item) if event.thread_id != self.state.thread_id:
                self.sub_acts[item.type] += drive.acts({item.type: 1})
            case OnTokenUsage(turn_id=turn_id) if event.thread_id == self.state.thread_id:
                self._responses[turn_id] += 1
            case OnRerouted(from_model=asked, to_model=got) if (asked, got) not in self._rerouted:
                self._rerouted.add((asked, got))
                await self.note("rerouted", **{"from": asked, "to": got})
            case _:
                pass
        if event.thread_id != self.state.thread_id:
            return
        match event.body:
            case OnTurnStarted(turn=turn):
                self._begun_here.add(turn.id)
                await self._turn_started(turn.id)
            case OnTurnCompleted(turn=turn):
                await self._turn_ended(turn)
            case OnGoalUpdated(goal=goal):
                await self._goal(goal)
            case OnGoalCleared():
                await self._goal(None)
            case _:
                pass

    async def _acted(self, kind: str) -> None:
        """Written down when it begins: a command may end the server that would tell of its end, or outlast its turn."""
        if kind not in self.state.acted:
            await self.note("acted", type=kind)

    async def _goal(self, goal: Goal | None) -> None:
        """A change of its status; the pending intention to set it active is answered by its answer, not by what was on its way."""
        status = "cleared" if goal is None else goal.status
        if not self.goals or status == self.state.goal or (goal is None and not self.state.goal_seen):
            return
        self._goal_changes += 1
        detail = {"status": status, "tokens_used": 0 if goal is None else goal.tokens_used}
        if self._goal_changes > GOAL_CHANGES_LOGGED:  # the agent's shell can reach its control socket, and the log is no place to fill
            self.state.apply("goal", detail)
            return
        await self.note("goal", **detail)

    async def _turn_started(self, turn_id: str) -> None:
        if turn_id not in self.state.begun or (not self.state.in_flight and turn_id not in self.state.over):
            await self.note("turn_started", turn_id=turn_id)

    async def _turn_ended(self, turn: Turn) -> None:
        state, story = self.state, self.story
        if turn.id in state.over:
            return
        done = story.done(turn.id)
        acts = drive.acts(done)
        said = sum(1 for item in story.items.get(turn.id, {}).values() if item.type == "agentMessage" and item.said_something)
        error = turn.error
        await self.note(
            "turn_completed",
            turn_id=turn.id,
            status=turn.status,
            cause=state.causes.get(turn.id, state.cause),
            info="" if error is None else drive.error_word(error.codex_error_info),
            message="" if error is None else error.message[:1000],
            commands=story.commands(turn.id),
            acts=acts,
            sub_acts=self.sub_acts.total(),
            said=said,
            responses=self._responses.pop(turn.id, 0),
            duration_ms=turn.duration_ms,
            heard=turn.id in self._begun_here,
        )
        self._begun_here.discard(turn.id)
        if not state.has_acted and not self.sub_acts and not state.evidence and (line := await self._sidecar_line()):
            await self.note("stderr", line=line)
        if turn.status == "completed" and not acts and not said:
            await self.note("silent_turn", turn_id=turn.id)

    async def _sidecar_line(self) -> str:
        return await to_thread.run_sync(server.sidecar_line, self.env)

    async def server_ended(self, exit_code: int | None) -> AgentEnd:
        """The engine says that the exec ended.  Raises GateFailed."""
        if self.state.ended is not None:
            return AgentEnd(None, "driver", self.state.ended)
        line = await to_thread.run_sync(server.last_line, self.env)
        await self.note("server_ended", exit_code=exit_code, stderr=line)
        acted = bool(self.state.has_acted or drive.acts(self.story.done()))
        return await server.ended(self.env, self.state, exit_code, acted=acted)
