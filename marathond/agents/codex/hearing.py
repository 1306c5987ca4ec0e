"""What the app-server tells while a codex arm runs, and what of it is written into the trial's log.

Owns the way from notifications and histories to the log's entries.  Must not know what is sent.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from anyio import to_thread

from marathond.agents.codex import drive, gates, server
from marathond.agents.codex.client import Event
from marathond.agents.codex.harness import Receipts
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
from marathond.agents.codex.shapes import Goal, Turn
from marathond.agents.codex.state import State
from marathond.agents.codex.story import Story
from marathond.core.names import Drive
from marathond.ports.agent import Environment

WARNINGS_LOGGED = 50
GOAL_CHANGES_LOGGED = 20_000
SUB_AGENT = "subAgent"
"""In the log, for whatever a sub-agent did."""


class Ear:
    """One daemon life's, over all its connections."""

    def __init__(self, env: Environment, state: State) -> None:
        self.env, self.state, self.codex = env, state, gates.codex_of(env)
        self.goals = self.codex.drive is Drive.GOAL
        self.story = Story(state.thread_id)
        self.sub_acts: Counter[str] = Counter()
        """Items of sub-agents' threads that did something, by type."""
        self._rerouted: set[tuple[str, str]] = set()
        self._goal_changes = 0
        self._responses: Counter[str] = Counter()
        """Of the model, by turn in flight, as far as this connection heard them."""
        self._begun_here: set[str] = set()
        """Turns in flight whose start this connection heard."""
        self._receipts = Receipts()

    async def note(self, kind: str, **detail: Any) -> None:
        """Durable first, then part of the state."""
        await self.env.log.append(kind, detail)
        self.state.apply(kind, detail)

    def forget(self) -> None:
        """What one connection alone heard: another one begins."""
        self._begun_here.clear()
        self._responses.clear()

    async def hear(self, event: Event) -> None:
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
                await self.turn_started(turn.id)
            case OnTurnCompleted(turn=turn):
                await self.turn_ended(turn)
            case OnItemCompleted(item=item) if self.state.wakes and self._receipts.replayed(item, self.state.wakes[-1]):
                await self.note("replayed", turn_id=self.state.wakes[-1])
            case OnGoalUpdated(goal=goal):
                await self.goal(goal)
            case OnGoalCleared():
                await self.goal(None)
            case _:
                pass

    async def _acted(self, kind: str) -> None:
        """Written down when it begins: a command may end the server that would tell of its end, or outlast its turn."""
        if kind not in self.state.acted:
            await self.note("acted", type=kind)

    async def goal(self, goal: Goal | None) -> None:
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

    async def turn_started(self, turn_id: str) -> None:
        if turn_id not in self.state.begun or (not self.state.in_flight and turn_id not in self.state.over):
            await self.note("turn_started", turn_id=turn_id)

    async def turn_ended(self, turn: Turn) -> None:
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
