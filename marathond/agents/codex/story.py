"""What happened in a thread, put together from notifications and from histories, in any order and any number of times.

Owns the merging by id, so that nothing counts twice and nothing is missing after a re-attachment.  Pure; must not know connections.

A driver keeps one :class:`Story` for its whole life, gives it every event, and after each re-attachment every turn and item of the history
(:func:`~marathond.agents.codex.attach.retell`).  What no history holds is gone when nobody heard it: warnings and errors that were retried.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from marathond.agents.codex.client import Event
from marathond.agents.codex.messages import ItemEntry
from marathond.agents.codex.notices import OnGoalCleared, OnGoalUpdated, OnItemCompleted, OnTokenUsage, OnTurnCompleted, OnTurnStarted
from marathond.agents.codex.shapes import COMMAND, Goal, Item, TokenUsage, Turn


@dataclass(frozen=True, slots=True)
class Done:
    """An item that ended, as far as it is kept."""

    type: str
    status: str | None
    exit_code: int | None
    said_something: bool


@dataclass(slots=True)
class Story:
    """One thread's.  ``turns`` by id, in the order in which they were first heard of; ``items`` by turn and item id."""

    thread_id: str
    turns: dict[str, Turn] = field(default_factory=dict)
    items: dict[str, dict[str, Done]] = field(default_factory=dict)
    goal: Goal | None = None
    tokens: TokenUsage | None = None
    """The last word: totals of the thread."""

    def hear(self, event: Event) -> None:
        """Take one notification; what is another thread's or says nothing of these is passed over."""
        if event.thread_id != self.thread_id:
            return
        match event.body:
            case OnTurnStarted(turn=turn) | OnTurnCompleted(turn=turn):
                self.tell_turn(turn)
            case OnItemCompleted(turn_id=turn_id, item=item):
                self._item(turn_id, item)
            case OnGoalUpdated(goal=goal):
                self.goal = goal
            case OnGoalCleared():
                self.goal = None
            case OnTokenUsage(token_usage=usage):
                self.tokens = usage
            case _:
                pass

    def tell_turn(self, turn: Turn) -> None:
        """Take a turn; an end that is known is never taken back by an older view of the turn."""
        known = self.turns.get(turn.id)
        if known is None or not _has_ended(known):
            self.turns[turn.id] = turn

    def tell_running(self, turn_id: str | None) -> None:
        """This turn is in flight, None: none is, whatever a history says of turns that end nowhere: the others were cut off."""
        if turn_id is not None and turn_id not in self.turns:
            self.turns[turn_id] = Turn(
                id=turn_id,
                status="inProgress",
                error=None,
                items=[],
                items_view="notLoaded",
                started_at=None,
                completed_at=None,
                duration_ms=None,
            )
        for turn in list(self.turns.values()):
            if not _has_ended(turn):
                self.turns[turn.id] = turn.model_copy(update={"status": "inProgress" if turn.id == turn_id else "interrupted"})

    def tell_item(self, entry: ItemEntry) -> None:
        self._item(entry.turn_id, entry.item)

    def _item(self, turn_id: str, item: Item) -> None:
        self.items.setdefault(turn_id, {})[item.id] = Done(item.type, item.status, item.exit_code, bool(item.text))

    @property
    def running(self) -> Turn | None:
        return next((turn for turn in reversed(self.turns.values()) if turn.status == "inProgress"), None)

    @property
    def open_ended(self) -> bool:
        """A turn that does not run has no end."""
        return any(turn.status == "interrupted" and not _has_ended(turn) for turn in self.turns.values())

    def ended(self) -> Counter[str]:
        """Turns that ended, by status."""
        return Counter(turn.status for turn in self.turns.values() if turn.status != "inProgress")

    def done(self, turn_id: str | None = None) -> Counter[str]:
        """Items that ended, by type, of one turn or of all."""
        return Counter(item.type for item in self._of(turn_id))

    def commands(self, turn_id: str | None = None) -> int:
        return self.done(turn_id)[COMMAND]

    def _of(self, turn_id: str | None) -> list[Done]:
        if turn_id is not None:
            return list(self.items.get(turn_id, {}).values())
        return [item for turn in self.items.values() for item in turn.values()]


def _has_ended(turn: Turn) -> bool:
    """For good.  A history calls a turn without an end inProgress or interrupted, be it cut off with its server or begun a moment ago."""
    return turn.status != "inProgress" and not (turn.status == "interrupted" and turn.completed_at is None)
