"""What to do next with a codex thread: decided from the trial's log alone, so that the next daemon life decides alike.  Pure.

Owns the rules of the drives ``turn`` and ``goal``, and the log's kinds.  Must not know connections, containers or the ledger.

The log (``agent_event.kind`` and its detail).  An intention is written before it is acted on:

=================  ====================================================================================================================
``prepared``       {uid, cwd, untrusted, config_sha256}: from the gates
``server``         {pid}: host-side pid of the app-server, as its socket proved at the first connection
``thread_intended``{}: thread/start is about to be sent
``thread``         {thread_id, model, effort, cwd, path}: what thread/start answered, after it was compared with the arm
``goal_set``       {objective, token_budget}: about to be set active, together with the first turn
``turn_intended``  {n, cause: first|retry, mark, pause_s}: turn/start is about to be sent; ``mark`` is the message's client id
``turn_accepted``  {mark, turn_id}: codex took that message
``turn_started``   {turn_id}; a goal's own turns too
``turn_completed`` {turn_id, status, cause, info, message, commands, acts, sub_acts, said, responses, duration_ms, heard}: ``info`` codex's
                   word for an error; ``acts`` items that did something, ``sub_acts`` sub-agents' so far; ``responses`` of the model;
                   ``heard``: from its start to its end by one connection; ``cause``: first, retry, unblock, goal (codex went on by itself)
``acted``          {type}: the first item of that type that does something began; ``subAgent``: one of a sub-agent's
``goal``           {status, tokens_used}: each change; ``cleared`` when there is none any more
``unblock``        {n, cause: model|infra|stalled, pause_s}: a goal is about to be set active again
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
``ended``          {by, why}: the driver's word
=================  ====================================================================================================================

What a turn's end means, alike for every arm:

* ``failed``: the infrastructure, whatever the goal's status says (codex sets ``blocked`` then): taken up again ``infra_retries`` times per
  trial, after a pause that grows; by ``Continue.`` or by setting the goal active (fault a05).  After that ``model_failed``,
  unless the gateway turned the agent away in that turn for what it had open itself: then the failure is the agent's own end, ``crowded``;
* ``failed`` by a used-up quota: ``usage_limit`` at once; a goal that is ``usageLimited`` without one, or ``budgetLimited`` without a
  budget, was made so by the agent's shell: its own end;
* ``failed`` by what the agent itself brought about or the provider refuses by policy (:data:`OWN_ERRORS`: its context is too large even
  after compaction, say): the agent's own end, for a repetition would end alike;
* ``interrupted`` by nobody of us: the agent's shell can reach its own control socket: its own end.  So is a goal that is paused or cleared;
* ``completed``, goal blocked: the model's word; resumed only by an arm with an operator.  A goal that is complete is never resumed.

No act so far at a turn's end, not even one that only began, and a word from codex about its sidecar: the tools are dead, ``dead_agent``.
Without that word nothing of the kind is concluded, and the end is the agent's own.

A goal makes no progress while turns complete without an act in a single response.  A second response means that the model called a tool,
also one of which no item tells (waiting for a sub-agent, a script without a command).  Turns that were not heard whole do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from marathond.core.model import CodexArm, Drive, EndedBy

CONTINUE = "Continue."
"""The text of a plain arm's turn after one that the infrastructure failed."""
PAUSE_FIRST_S, PAUSE_FACTOR, PAUSE_AT_MOST_S = 5.0, 4.0, 120.0

MODEL_FAILED = "model_failed"
USAGE = frozenset({"usageLimitExceeded"})
OWN_ERRORS = frozenset(
    {"contextWindowExceeded", "cyberPolicy", "bioPolicy", "misalignmentPolicyViolation", "tooManyDenials", "sessionBudgetExceeded"}
)
TALK = frozenset(
    {
        "userMessage",
        "hookPrompt",
        "agentMessage",
        "functionCallOutput",
        "plan",
        "reasoning",
        "enteredReviewMode",
        "exitedReviewMode",
        "contextCompaction",
    }
)
"""Types of items that do nothing; every other one, known or not, is an act."""
SIDECAR_WORDS = re.compile(r"code[-_ ]mode[-_ ](host|session)", re.IGNORECASE)
"""In a warning or an ERROR line: codex cannot reach what runs its tools."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


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
    """An intention whose effect was not seen yet.  ``what``: ``turn`` (a message with ``mark``) or ``goal`` (set active)."""

    what: Literal["turn", "goal"]
    cause: str
    mark: str = ""


@dataclass(slots=True)
class State:
    """The log, folded."""

    thread_intended: bool = False
    thread_id: str = ""
    intended: int = 0
    pending: Pending | None = None
    begun: set[str] = field(default_factory=set)
    """Ids of turns that were seen to start or to end."""
    over: set[str] = field(default_factory=set)
    in_flight: str = ""
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
    idle: int = 0
    """Completed turns in a row in which the model called no tool, after which the goal was still active."""
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
    prepared: dict[str, Any] = field(default_factory=dict)
    server_pid: int | None = None

    @property
    def turns(self) -> int:
        return len(self.over)

    @property
    def has_acted(self) -> bool:
        """Whether anything was done at all, or begun."""
        return bool(self.acts or self.sub_acts or self.acted)

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
            case "turn_intended":
                self.intended += 1
                self.infra += detail["cause"] == "retry"
                self._intend(Pending("turn", detail["cause"], detail["mark"]))
            case "unblock":
                self.infra += detail["cause"] != "model"
                self.unblocks += detail["cause"] == "model"
                self._intend(Pending("goal", "unblock"))
            case "turn_accepted":
                self.causes.setdefault(detail["turn_id"], self.cause)
                self._seen("turn")
            case "turn_started":
                self._begin(detail["turn_id"])
                self.in_flight = detail["turn_id"] if detail["turn_id"] not in self.over else self.in_flight
            case "turn_completed":
                self._complete(detail)
            case "acted":
                self.acted.add(detail["type"])
            case "goal":
                self.goal, self.goal_seen = detail["status"], True
                if self.goal == "active":
                    self._seen("goal")
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
            case _:
                pass

    def _intend(self, pending: Pending) -> None:
        self.pending, self.cause, self.answered, self.stalled = pending, pending.cause, True, False

    def _seen(self, what: str) -> None:
        if self.pending is not None and self.pending.what == what:
            self.pending = None

    def _begin(self, turn_id: str) -> None:
        if turn_id not in self.begun:
            self.begun.add(turn_id)
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
        self.commands += detail["commands"]
        self.acts += detail["acts"]
        self.sub_acts = max(self.sub_acts, detail.get("sub_acts", 0))
        if detail["acts"] or detail.get("responses", 0) > 1 or (detail["status"] == "completed" and self.goal != "active"):
            self.idle = 0
        elif detail["status"] == "completed" and detail.get("heard", True):
            self.idle += 1


def fold(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> State:
    state = State()
    for kind, detail in entries:
        state.apply(kind, detail)
    return state


# ---- what to do


@dataclass(frozen=True, slots=True)
class StartThread:
    """Start a thread, compare what is in effect, write it down."""


@dataclass(frozen=True, slots=True)
class First:
    """The first message; in a goal's arm together with the goal."""


@dataclass(frozen=True, slots=True)
class CarryOut:
    """Send what was intended and not seen to be done."""

    pending: Pending


@dataclass(frozen=True, slots=True)
class Listen:
    """Wait for news.  ``resting``: nothing is in flight although something should be: look after a while."""

    resting: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Take it up again after a pause.  ``cause``: ``infra``, ``stalled`` or ``model``; ``n`` counts that cause's."""

    cause: Literal["infra", "stalled", "model"]
    n: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class End:
    """The agent ended.  ``quiet``: its goal would go on, so it is stopped first."""

    by: EndedBy
    why: str
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """The infrastructure failed the agent; a void code and its evidence."""

    code: str
    detail: str


Action = StartThread | First | CarryOut | Listen | Again | End | Fail


def pause_s(n: int) -> float:
    """Before the ``n``-th time that something is taken up again, from 1."""
    return float(min(PAUSE_FIRST_S * PAUSE_FACTOR ** (min(n, 10) - 1), PAUSE_AT_MOST_S))


def decide(state: State, codex: CodexArm) -> Action:
    """The next step; the same state always gives the same."""
    if state.ended is not None:
        return End(state.ended, "ended before")
    if state.halted:
        return Listen()
    if not state.thread_id:
        return StartThread()
    if state.pending is not None:
        return CarryOut(state.pending)
    if not state.intended:
        return First()
    if state.in_flight:
        return Listen()
    if state.answered and not state.stalled:
        return Listen(resting=True)
    if state.last is None:
        return Fail("driver_failed", "codex accepted the first message and began no turn")
    if state.last.status == "completed" and not state.has_acted and state.evidence:
        return Fail("dead_agent", f"no command ran, and codex says: {state.evidence[:500]}")
    return _after_turn(state, state.last, codex)


def _after_turn(state: State, last: TurnEnd, codex: CodexArm) -> Action:
    """A turn ended and nothing is in flight."""
    goal = codex.drive is Drive.GOAL
    if last.info in USAGE or (goal and state.goal == "usageLimited" and last.status == "failed"):
        return Fail("usage_limit", last.message or "the goal is usageLimited")
    if goal:
        match state.goal:
            case "complete":
                return End(EndedBy.AGENT, "goal complete")
            case "budgetLimited" if codex.token_budget is not None:
                return End(EndedBy.TOKEN_BUDGET, "goal budgetLimited")
            case "paused" | "cleared" | "usageLimited" | "budgetLimited" as status:
                return End(EndedBy.AGENT, f"goal {status} by nobody of us")
            case _:
                pass
    if last.status == "failed":
        return _failed(state, last, codex)
    if last.status != "completed":
        return End(EndedBy.AGENT, f"turn {last.status} by nobody of us", quiet=goal)
    if not goal:
        return End(EndedBy.AGENT, "turn completed")
    return _goal_goes_on(state, codex)


def _failed(state: State, last: TurnEnd, codex: CodexArm) -> Action:
    if last.info in OWN_ERRORS:
        return End(EndedBy.AGENT, last.info, quiet=codex.drive is Drive.GOAL)
    if state.infra >= codex.infra_retries:
        return Fail(MODEL_FAILED, f"{last.info or 'no code'}: {last.message}, after {state.infra} retries")
    if state.turns >= codex.turns_at_most:
        return End(EndedBy.TURN_CAP, f"{state.turns} turns", quiet=codex.drive is Drive.GOAL)
    return Again("infra", state.infra + 1, pause_s(state.infra + 1))


def own_doing(fail: Fail, refused: int) -> End | None:
    """The agent's own end in place of a failure that it brought about; None: the failure stands.

    :param refused: times that the gateway turned it away for what it had open at one time, in the turn that failed last.
    """
    if fail.code != MODEL_FAILED or not refused:
        return None
    return End(EndedBy.AGENT, f"its own connections or requests filled its way to the model, {refused} refused: {fail.detail}", quiet=True)


def _goal_goes_on(state: State, codex: CodexArm) -> Action:
    """The last turn completed, and the goal is active or blocked."""
    blocked = state.goal == "blocked"
    if blocked and not codex.operator:
        return End(EndedBy.BLOCKED, "the model declared its goal blocked")
    if blocked and state.unblocks >= codex.unblocks_at_most:
        return End(EndedBy.UNBLOCK_CAP, f"blocked again after {state.unblocks} times")
    if state.turns >= codex.turns_at_most:
        return End(EndedBy.TURN_CAP, f"{state.turns} turns", quiet=True)
    if state.idle >= codex.idle_turns_at_most:
        return End(EndedBy.NO_PROGRESS, f"{state.idle} turns in a row without a tool call", quiet=True)
    if blocked:
        return Again("model", state.unblocks + 1, 0.0)
    if state.stalled:
        if state.infra >= codex.infra_retries:
            return Fail("driver_failed", "codex does not continue its active goal")
        return Again("stalled", state.infra + 1, pause_s(state.infra + 1))
    return Listen(resting=True)


def error_word(info: Any) -> str:
    """codexErrorInfo as one word: a text as it is, of an object its key and HTTP status (``httpConnectionFailed 401``)."""
    if isinstance(info, str):
        return info
    if isinstance(info, Mapping) and len(info) == 1:
        key, value = next(iter(info.items()))
        status = value.get("httpStatusCode") if isinstance(value, Mapping) else None
        return f"{key} {status}" if status is not None else str(key)
    return ""


def plain(line: str) -> str:
    """A line of codex's log without its colours."""
    return _COLOURS.sub("", line).strip()


def acts(done: Mapping[str, int]) -> int:
    """How many of these items (by type) did something."""
    return sum(count for kind, count in done.items() if kind not in TALK)
