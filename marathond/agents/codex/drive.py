"""What to do next with a codex thread: decided from the trial's log alone, so that the next daemon life decides alike.  Pure.

Owns the rules of all drives but for LoopX's cadence (:mod:`~marathond.agents.codex.wake`).  What the log holds stands in
:mod:`~marathond.agents.codex.state`.  Must not know connections, containers or the ledger.

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

An operator stands in for a person, alike for a goal that is blocked and for LoopX's gates: at most ``unblocks_at_most`` times, from the
second time on not before :data:`OPERATOR_PAUSE_S` is over, and not when nothing was done after the last ``idle_turns_at_most`` of them
(fault c06).  An arm with LoopX is asked for its gates first: they are cleared together with the resumption, which brings the whole task
once more.

No act so far at a turn's end, not even one that only began, and a word from codex about its sidecar: the tools are dead, ``dead_agent``.
Without that word nothing of the kind is concluded, and the end is the agent's own.

A goal makes no progress while turns complete without an act in a single response.  A second response means that the model called a tool,
also one of which no item tells (waiting for a sub-agent, a script without a command).  Turns that were not heard whole do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from marathond.agents.codex.actions import Action, Again, CarryOut, End, Fail, First, Listen, Look, StartThread
from marathond.agents.codex.state import State, TurnEnd
from marathond.agents.codex.wake import after_wake
from marathond.core.model import CodexArm
from marathond.core.names import Drive, EndedBy

CONTINUE = "Continue."
"""The text of a plain arm's turn after one that the infrastructure failed."""
PAUSE_FIRST_S, PAUSE_FACTOR, PAUSE_AT_MOST_S = 5.0, 4.0, 120.0
OPERATOR_PAUSE_S = 10.0

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
    if codex.drive is Drive.WAKE and state.refused:
        return End(EndedBy.AGENT, f"LoopX does not answer any more: {state.refused}"[:1000])
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
    if codex.drive is Drive.WAKE:
        return after_wake(state, codex, _operator(state, codex, "LoopX waits for a person"))
    return _goal_goes_on(state, codex) if goal else End(EndedBy.AGENT, "turn completed")


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
    if state.goal == "blocked":
        return _operator(state, codex, "the model declared its goal blocked")
    if state.turns >= codex.turns_at_most:
        return End(EndedBy.TURN_CAP, f"{state.turns} turns", quiet=True)
    if state.idle >= codex.idle_turns_at_most:
        return End(EndedBy.NO_PROGRESS, f"{state.idle} turns in a row without a tool call", quiet=True)
    if state.stalled:
        if state.infra >= codex.infra_retries:
            return Fail("driver_failed", "codex does not continue its active goal")
        return Again("stalled", state.infra + 1, pause_s(state.infra + 1))
    return Listen(resting=True)


def _operator(state: State, codex: CodexArm, waits: str) -> Action:
    """The agent waits for somebody; ``waits`` says so.  With LoopX its gates are looked for first."""
    quiet = codex.drive is Drive.GOAL
    if not codex.operator:
        return End(EndedBy.BLOCKED, waits)
    if state.unblocks >= codex.unblocks_at_most:
        return End(EndedBy.UNBLOCK_CAP, f"blocked again after {state.unblocks} times")
    if state.turns >= codex.turns_at_most:
        return End(EndedBy.TURN_CAP, f"{state.turns} turns", quiet=quiet)
    if state.fruitless >= codex.idle_turns_at_most:
        return End(EndedBy.NO_PROGRESS, f"resumed {state.fruitless} times in a row, and nothing was done", quiet=quiet)
    if codex.loopx is not None and state.gates is None and not state.refused:
        return Look()
    cause: Literal["model", "gate"] = "gate" if state.gates or codex.drive is Drive.WAKE else "model"
    return Again(cause, state.unblocks + 1, OPERATOR_PAUSE_S if state.unblocks else 0.0)


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
