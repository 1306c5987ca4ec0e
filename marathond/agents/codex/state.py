"""What the driver of a codex arm wrote down, and what it amounts to.  Pure.

Owns the log's kinds and their folding.  What to do next is decided in :mod:`~marathond.agents.codex.drive`.  Must not know connections,
containers or the ledger.

The log (``agent_event.kind`` and its detail).  An intention is written before it is acted on:

=================  ====================================================================================================================
``prepared``       {uid, cwd, untrusted, config_sha256, loopx}: from the gates; ``loopx``: its goal, where the arm has one
``server``         {pid}: host-side pid of the app-server, as its socket proved at the first connection
``thread_intended``{}: thread/start is about to be sent
``thread``         {thread_id, model, effort, cwd, path}: what thread/start answered, after it was compared with the arm
``goal_set``       {objective, token_budget}: about to be set active, together with the first turn
``goal_alone``     {turns}: the task is about to be said again, to a goal that had so many turns without it (codex dropped the message when
                   the daemon died)
``turn_intended``  {n, cause: first|retry, mark, pause_s}: turn/start is about to be sent; ``mark`` is the message's client id
``wake_intended``  {n, cause: first|hint|gate|retry, mark, pause_s, turn_id}: the same for a wake; ``turn_id`` is LoopX's, rendered into it
``turn_accepted``  {mark, turn_id}: codex took that message
``turn_started``   {turn_id}; a goal's own turns too
``turn_completed`` {turn_id, status, cause, info, message, commands, acts, sub_acts, said, responses, duration_ms, heard}: ``info`` codex's
                   word for an error; ``acts`` items that did something, ``sub_acts`` sub-agents' so far; ``responses`` of the model;
                   ``heard``: from its start to its end by one connection; ``cause``: first, retry, unblock, goal (codex went on by
                   itself), hint, gate
``acted``          {type}: the first item of that type that does something began; ``subAgent``: one of a sub-agent's
``goal``           {status, tokens_used}: each change; ``cleared`` when there is none any more
``loopx_gate``     {ids}: user gates open in LoopX, which was asked because the agent waits for somebody
``unblock``        {n, cause: model|gate|infra|stalled, pause_s, mark}: a goal is about to be set active again; ``mark`` with the whole
                   task in a message; ``gate``: LoopX's gates are about to be cleared, of a wake nothing else
``gate_cleared``   {ids}: LoopX's gates that were approved for it, and nobody is waited for any more
``quota``          {should_run, decision, action, todo_id, waiting_on, requires_user, stop, interval_s, max_interval_s, multiplier,
                   unchanged_at_most, …}: what LoopX's scheduler said between two wakes
``replayed``       {turn_id}: LoopX told the agent that it knew this wake's id before
``loopx_refused``  {call, code, detail}: LoopX cannot be asked any more although its agent went on
``stalled``        {goal}: an active goal that codex does not continue
``silent_turn``    {turn_id}: completed with neither a word nor an act (fault c13)
``warning``        {text, sidecar}: codex's own; ``sidecar``: it speaks of the sidecar that runs the tools (fault c01)
``stderr``         {line}: the same, from the server's output
``no_commands``    {acts, turns}: the agent ended without one command (fault c01)
``crowded``        {refused}: the model failed it while its listener was full of its own connections or requests
``rerouted``       {from, to}: another model than asked for
``config``         {sha256, same}: of config.toml after the run
``reattached``     {running, goal, life}: another connection took over
``unreachable``    {code, detail}: the socket cannot be reached while the server runs
``server_ended``   {exit_code, stderr}: it ended by itself
``rpc_counts``     {requests, errors, notifications, unknown, refused, sub_agents, sub_acts}: of one connection
``halt``           {}: the flow ends the agent (deadline, money)
``halted``         {goal, turn, ms}: codex said yes to pause, interrupt and clean
``ended``          {by, why, turn_ended_s}: the driver's word; ``turn_ended_s``: codex's of its last turn's end, seconds since 1970
=================  ====================================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from marathond.core.names import EndedBy
from marathond.ports.agent import AgentEnd

PACED = frozenset({"quota", "turn_completed", "stalled"})
"""Kinds after which there may be a pause: it counts from the last of them, so that a next life waits for the rest of it only."""
OPERATORS = frozenset({"model", "gate"})
"""Causes of ``unblock`` for which an operator stands in; they share one bound, ``unblocks_at_most``."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """``info``: codex's word for the error, empty without one.  ``acted``: whether an item did something.  ``goal``: status at its end."""

    turn_id: str
    status: str
    info: str
    message: str
    goal: str


@dataclass(frozen=True, slots=True)
class Pending:
    """An intention whose effect was not seen yet.  ``what``: ``turn`` (a message with ``mark``), ``goal`` (set active) or ``gate`` (LoopX's
    cleared).  ``wake``: LoopX's id of the turn."""

    what: Literal["turn", "goal", "gate"]
    cause: str
    mark: str = ""
    wake: str = ""

    @property
    def by_operator(self) -> bool:
        """With LoopX: its gates are cleared before.  What the infrastructure failed is taken up again without anybody's approval."""
        return self.what == "gate" or (self.what == "turn" and self.cause == "unblock")


@dataclass(frozen=True, slots=True)
class Poll:
    """What LoopX's scheduler said.  ``unchanged_at_most``: polls in a row that say the same, after which it wants to be left alone."""

    should_run: bool
    decision: str
    action: str
    todo_id: str | None
    waiting_on: str
    requires_user: bool
    stop: bool
    interval_s: float | None
    max_interval_s: float | None
    multiplier: float | None
    unchanged_at_most: int | None

    @classmethod
    def of(cls, detail: Mapping[str, Any]) -> Poll:
        """What of ``quota`` decides anything."""
        return cls(**{each.name: detail[each.name] for each in fields(cls)})


@dataclass(slots=True)
class State:
    """The log, folded."""

    thread_intended: bool = False
    thread_id: str = ""
    intended: int = 0
    """Messages."""
    pending: Pending | None = None
    begun: set[str] = field(default_factory=set)
    """Ids of turns that were seen to start or to end."""
    over: set[str] = field(default_factory=set)
    in_flight: str = ""
    awaited: str = ""
    """The turn that took the last message, while nobody has seen it begin."""
    cause: str = "goal"
    """Of the turn that starts next."""
    causes: dict[str, str] = field(default_factory=dict)
    last: TurnEnd | None = None
    answered: bool = True
    """Whether the last end was followed by an intention."""
    goal: str = ""
    """Last known status; empty: none was ever set."""
    goal_seen: bool = False
    """Whether codex said so."""
    stalled: bool = False
    infra: int = 0
    unblocks: int = 0
    """By the operator."""
    fruitless: int = 0
    """The last of them, in a row, after which nothing was done."""
    idle: int = 0
    """Completed turns in a row in which the model called no tool, after which the goal was still active, or another wake was due."""
    wakes: list[str] = field(default_factory=list)
    """LoopX's turn ids, in their order."""
    poll: Poll | None = None
    """Since the last turn's end, or since the gates were cleared."""
    last_poll: Poll | None = None
    unchanged: int = 0
    """Polls in a row that said what the one before had said."""
    gates: tuple[str, ...] | None = None
    """LoopX's open ones, asked for since the last turn's end."""
    cleared: bool = False
    """LoopX's gates, for the pending resumption."""
    after_gate: bool = False
    """The next wake follows a clearing."""
    refused: str = ""
    """LoopX, to answer the driver."""
    commands: int = 0
    acts: int = 0
    sub_acts: int = 0
    acted: set[str] = field(default_factory=set)
    """Types of items that do something and were seen to begin: what still runs, or ended the server itself, never ends as an item."""
    evidence: str = ""
    """Codex's own word about its sidecar."""
    warnings: int = 0
    halted: bool = False
    ended: EndedBy | None = None
    turn_ended_s: int | None = None
    """The last turn, by codex's word, when the run was ended."""
    prepared: dict[str, Any] = field(default_factory=dict)
    server_pid: int | None = None

    @property
    def turns(self) -> int:
        return len(self.over)

    @property
    def has_acted(self) -> bool:
        """Whether anything was done at all, or begun."""
        return bool(self.acts or self.sub_acts or self.acted)

    def driver_end(self, by: EndedBy) -> AgentEnd:
        """A life may be killed between its word and the ledger's: the next one says the same."""
        return AgentEnd(None, "driver", by, None if self.turn_ended_s is None else self.turn_ended_s * 1000)

    def apply(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Take one entry.  Kinds that decide nothing are passed over."""
        match kind:
            case "prepared":
                self.prepared = dict(detail)
            case "server":
                self.server_pid = detail["pid"]
            case "thread_intended":
                self.thread_intended = True
                self.thread_id = ""
            case "thread":
                self.thread_id = detail["thread_id"]
            case "goal_set":
                self.goal = "active"
            case "turn_intended" | "wake_intended":
                self._message(detail)
            case "unblock":
                self._unblock(detail)
            case "turn_accepted":
                self.causes.setdefault(detail["turn_id"], self.cause)
                self.awaited = "" if detail["turn_id"] in self.begun else detail["turn_id"]
                self._seen("turn")
            case "turn_started":
                self._begin(detail["turn_id"])
                self.in_flight = detail["turn_id"] if detail["turn_id"] not in self.over else self.in_flight
            case "turn_completed":
                self._complete(detail)
            case "acted":
                self.acted.add(detail["type"])
            case "goal":
                self._goal(detail["status"])
            case "loopx_gate":
                self.gates = tuple(detail["ids"])
            case "gate_cleared":
                self.cleared, self.poll = True, None
                self._seen("gate")
            case "quota":
                self._polled(Poll.of(detail))
            case "loopx_refused":
                self._refused(detail)
            case "stalled":
                self.stalled = True
            case "warning" | "stderr":
                self.warnings += 1
                if detail.get("sidecar", True):
                    self.evidence = self.evidence or str(detail.get("text") or detail.get("line"))
            case "halt":
                self.halted = True
            case "ended":
                self.ended = EndedBy(detail["by"])
                self.turn_ended_s = detail.get("turn_ended_s")
            case _:
                pass

    def _message(self, detail: Mapping[str, Any]) -> None:
        self.intended += 1
        self.infra += detail["cause"] == "retry"
        wake = detail.get("turn_id", "")
        if wake:
            self.wakes.append(wake)
            self.poll, self.after_gate = None, False
        self._intend(Pending("turn", detail["cause"], detail["mark"], wake))

    def _unblock(self, detail: Mapping[str, Any]) -> None:
        cause, mark = detail["cause"], detail.get("mark", "")
        if cause in OPERATORS:
            self.unblocks += 1
            self.fruitless += 1
            self.cleared = False
        else:
            self.infra += 1
        if mark:
            self.intended += 1
            self._intend(Pending("turn", "unblock", mark))
        elif cause == "gate":
            self.after_gate = True
            self._intend(Pending("gate", "unblock"))
            self.answered = False  # nothing begins by it: LoopX is asked again
        else:
            self._intend(Pending("goal", "unblock"))

    def _goal(self, status: str) -> None:
        self.goal, self.goal_seen = status, True
        if status == "active":
            self._seen("goal")
        elif status == "complete" and self.pending is not None and self.pending.cause == "unblock":
            # Somebody in the container completed it meanwhile, and a goal that is complete is never set active again.
            self.pending, self.answered = None, False

    def _refused(self, detail: Mapping[str, Any]) -> None:
        self.refused = f"{detail['call']}: {detail['detail']}"
        if self.pending is not None and (self.pending.wake or self.pending.what == "gate"):
            self.pending, self.answered = None, False  # it cannot be done

    def _polled(self, poll: Poll) -> None:
        self.unchanged = self.unchanged + 1 if poll == self.last_poll else 0
        self.poll = self.last_poll = poll

    def _intend(self, pending: Pending) -> None:
        self.pending, self.cause, self.answered, self.stalled = pending, pending.cause, True, False
        self.gates = None

    def _seen(self, what: str) -> None:
        if self.pending is not None and self.pending.what == what:
            self.pending = None

    def _begin(self, turn_id: str) -> None:
        if turn_id not in self.begun:
            self.begun.add(turn_id)
            self.awaited = "" if turn_id == self.awaited else self.awaited
            self.causes.setdefault(turn_id, self.cause)
            self.cause = "goal"
            # A turn that starts after the goal was to be set active is that intention's effect; of a message only its own turn is.
            self._seen("goal")
            self.stalled = False

    def _complete(self, detail: Mapping[str, Any]) -> None:
        turn_id = detail["turn_id"]
        if turn_id in self.over:
            return
        self._begin(turn_id)
        self.over.add(turn_id)
        self.in_flight = "" if self.in_flight == turn_id else self.in_flight
        self.last = TurnEnd(turn_id, detail["status"], detail.get("info", ""), detail.get("message", ""), self.goal)
        self.answered = self.pending is not None
        self.poll = self.gates = None
        self.commands += detail["commands"]
        self.acts += detail["acts"]
        if detail["acts"] or detail.get("sub_acts", 0) > self.sub_acts:
            self.fruitless = 0
        self.sub_acts = max(self.sub_acts, detail.get("sub_acts", 0))
        going_on = self.goal == "active" or bool(self.wakes)
        if detail["acts"] or detail.get("responses", 0) > 1 or (detail["status"] == "completed" and not going_on):
            self.idle = 0
        elif detail["status"] == "completed" and detail.get("heard", True) and not self.awaited:
            # A goal's own turns run before its first message where the daemon was killed between the two: their ends may be heard when the
            # message was taken already, and without a task nobody can call a tool.
            self.idle += 1


def fold(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> State:
    state = State()
    for kind, detail in entries:
        state.apply(kind, detail)
    return state
