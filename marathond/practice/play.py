"""Which answer a request gets: the decisions of the practice provider.

Owns the choice of the script, the position in it, and the faults that are spent.  The position is read from the request itself: a client
that asks again after a failure gets the same step again, and after a restart of this provider a conversation goes on where it was.
Only what leaves no trace in a request is remembered here: faults, answers that a client keeps nothing of, and how far a conversation
was before its history was compacted.  Must not know HTTP servers, files or clocks: time is an argument.
"""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass, field
from typing import Literal

from marathond.practice import surface
from marathond.practice.record import Outcome
from marathond.practice.request import Ask, Running, running
from marathond.practice.script import (
    CutFault,
    FailedFault,
    Fault,
    OutageFault,
    Practice,
    Script,
    StallFault,
    StatusFault,
    Step,
    Usage,
    filled,
)
from marathond.practice.sse import Stream
from marathond.practice.surface import CannotPlay, Item

CONVERSATIONS_AT_MOST = 1024
"""Of one trial that are remembered; then the one that was silent longest is forgotten: behind a gateway, all trials come with one key."""
DONE, BLOCKED = "Done.", "I am blocked."
UNTOLD_S, UNTOLD_AT_MOST = 0.5, 20
"""Of the host's clock, for one answer that waits for a goal's task; and how many answers wait."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, as far as the key or the path says."""

    trial: str
    task: str | None = None
    arm: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent: ``parts`` in their order, where a number is a pause in seconds; ``ends`` how the body ends."""

    outcome: Outcome
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    parts: tuple[bytes | float, ...] = ()
    ends: str = "whole"
    """``whole``, ``close`` (the connection breaks inside the body) or ``eof`` (a proper end, too early)."""
    note: dict[str, object] = field(default_factory=dict)
    """For the record."""
    usage: Usage | None = None
    """What a completed response costs; of a cut one, what it would have cost."""
    position: int | None = None


@dataclass(slots=True)
class Conversation:
    script: int
    words: dict[str, str] = field(default_factory=dict)
    """What the script's pattern caught."""
    floor: int = 0
    """Never go back behind this position: traces may be compacted away."""
    goal: bool = False
    served: dict[int, str] = field(default_factory=dict)
    """Position of a traceless step -> the turn in which it was sent whole."""
    spent: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    """(position, index of its fault) -> when it was first met, and how often it was played."""


@dataclass(slots=True)
class Trial:
    identity: Identity
    conversations: dict[str, Conversation] = field(default_factory=dict)
    untold: dict[str, int] = field(default_factory=dict)
    """Conversation -> answers that waited for its task."""
    outage: tuple[float, OutageFault] | None = None


class Player:
    """All conversations of all trials with one file of scripts."""

    def __init__(self, practice: Practice) -> None:
        self.practice = practice
        self.outage: tuple[float, OutageFault] | None = None
        """When it ends, and how requests are turned away until then."""

    def begin_outage(self, fault: OutageFault, now_s: float, trial: Trial | None = None) -> None:
        """From now on; ``trial`` given: for that one alone."""
        if trial is None:
            self.outage = (now_s + fault.for_s, fault)
        else:
            trial.outage = (now_s + fault.for_s, fault)

    def turned_away(self, trial: Trial, now_s: float) -> Answer | None:
        for outage in (self.outage, trial.outage):
            if outage is not None and now_s < outage[0]:
                fault = outage[1]
                note: dict[str, object] = {"fault": "outage"}
                if fault.how == "close":
                    return Answer("refused", status=0, ends="close", note=note)
                return refusal(fault.status, "the practice provider has an outage", "server_error", note=note)
        return None

    def answer(self, trial: Trial, ask: Ask, now_s: float, response_id: str, created_s: int) -> Answer:
        """Decide, and remember which faults were spent.  The sender calls :meth:`sent_whole` once an answer has left whole."""
        if (away := self.turned_away(trial, now_s)) is not None:
            return away
        if self._is_untold(trial, ask):
            return _untold(Stream(response_id, ask.model, created_s), UNTOLD_S * self.practice.speed)
        conversation = self._conversation(trial, ask)
        if isinstance(conversation, Answer):
            return conversation
        script = self.practice.script[conversation.script]
        for name in script.reject_fields:
            if ask.holds(name):
                return refusal(400, f"Unknown parameter: '{name}'.", "unknown_parameter", param=name, note={"fault": "reject_fields"})
        position, polled = self._position(script, conversation, ask)
        step = filled(_step(script, position, conversation.goal), {**conversation.words, **_latest(script, ask)})
        note: dict[str, object] = {"script": conversation.script, "step": position}
        stream = Stream(response_id, step.model or ask.model, created_s)
        try:
            if ask.is_compaction:
                items = [surface.compaction(position)] if ask.wants_compaction_item else [surface.message("So far: the script.", position)]
                step, note["compaction"] = Step(say="compacted", usage=step.usage), True
            elif polled is not None:
                items = [surface.poll(position, polled[0], polled[1], step.yield_ms)]
                step, note["poll"] = Step(say="polled", model=step.model, usage=step.usage), polled[0]
            else:
                items = surface.items_of(step, position, surface.surface_of(self.practice, ask), ask)
        except CannotPlay as err:
            return refusal(400, f"practice: step {position}: {err}", "practice_script", note=note)
        usage = step.usage or script.usage or Usage(input=ask.size // 4, output=len(json.dumps(items)) // 4)
        pauses: list[StallFault] = []
        for fault in self._faults(step, position, conversation, trial, now_s):
            note["fault"] = fault.kind
            if isinstance(fault, StallFault):
                pauses.append(fault)
                continue
            if isinstance(fault, OutageFault):
                return self.turned_away(trial, now_s) or refusal(503, "the practice provider had an outage", "server_error", note=note)
            return _failing(fault, stream, items, step, usage, pauses, note)
        parts = [*stream.opening(), *stream.body(items, step.shape)]
        held = [] if step.shape in ("empty", "deltas") else items
        headers = {"openai-model": step.model} if step.model and step.model_header else {}
        parts.append(stream.completed(held, usage))
        return Answer("completed", 200, headers, _paused(parts, pauses), note=note, usage=usage, position=position)

    def sent_whole(self, trial: Trial, ask: Ask, answer: Answer) -> None:
        """``response.completed`` has left: a traceless step is over once another turn asks."""
        conversation = trial.conversations.get(ask.conversation)
        if conversation is not None and answer.position is not None and not ask.is_compaction:
            script = self.practice.script[conversation.script]
            if _step(script, answer.position, conversation.goal).traceless:
                conversation.served[answer.position] = ask.turn

    def _is_untold(self, trial: Trial, ask: Ask) -> bool:
        """A goal's first turn may ask before the message with the task has come (50 ms between the two calls are enough, codex 0.171).

        An answer with nothing in it, a moment later, leaves no trace: codex then asks again in the same turn, with the message.
        """
        if ask.conversation in trial.conversations or ask.user_texts or not ask.has_goal:
            return False
        if not any(_reads_words(script, trial.identity) for script in self.practice.script):
            return False
        waited = trial.untold.get(ask.conversation, 0)
        if waited >= UNTOLD_AT_MOST:
            return False
        if not waited and len(trial.untold) >= CONVERSATIONS_AT_MOST:
            del trial.untold[next(iter(trial.untold))]
        trial.untold[ask.conversation] = waited + 1
        return True

    def _conversation(self, trial: Trial, ask: Ask) -> Conversation | Answer:
        found = trial.conversations.get(ask.conversation)
        if found is None:
            chosen = choose(self.practice, trial.identity, ask)
            if chosen is None:
                who = f"task {trial.identity.task or 'unnamed'}, arm {trial.identity.arm or 'unnamed'}, model {ask.model or 'unnamed'}"
                return refusal(400, f"practice: no script fits this conversation ({who})", "practice_script")
            if len(trial.conversations) >= CONVERSATIONS_AT_MOST:
                del trial.conversations[next(iter(trial.conversations))]
            found = Conversation(*chosen)
            trial.untold.pop(ask.conversation, None)
        trial.conversations.pop(ask.conversation, None)
        trial.conversations[ask.conversation] = found  # the last to be forgotten
        found.goal = found.goal or ask.has_goal
        return found

    def _position(self, script: Script, conversation: Conversation, ask: Ask) -> tuple[int, tuple[int, Running] | None]:
        """The step to play; or the step whose command is to be polled, with the poll's number and what it asks for."""
        position, last = 0, None
        for trace in ask.traces:
            if trace.position is None:  # the client lost the ids of messages: count them
                while position < len(script.step) and script.step[position].traceless:
                    position += 1
                position += not _step(script, position, conversation.goal).acts
            elif trace.is_call or not _step(script, trace.position, conversation.goal).acts:
                position = max(position, trace.position + 1)
            last = trace if trace.is_call else last
        position = max(position, conversation.floor)
        while position in conversation.served and conversation.served[position] != (ask.turn or None) and not _silent(script, position):
            del conversation.served[position]
            position += 1
        if position > conversation.floor:
            conversation.floor = position
            conversation.spent = {at: value for at, value in conversation.spent.items() if at[0] >= position}
        if last is not None and last.position is not None and last.position + 1 == position and last.poll < script.polls:
            step = _step(script, last.position, conversation.goal)
            if step.run is not None and step.wait and (still := running(last.output)) is not None:
                return last.position, (last.poll + 1, still)
        return position, None

    def _faults(self, step: Step, position: int, conversation: Conversation, trial: Trial, now_s: float) -> list[Fault]:
        """What goes wrong this time: every stall that is due, then at most one fault that ends the answer."""
        due: list[Fault] = []
        for index, fault in enumerate(step.fault):
            first_s, played = conversation.spent.get((position, index), (now_s, 0))
            if isinstance(fault, OutageFault):
                active = played == 0
                if active:
                    self.begin_outage(fault, now_s, trial if fault.scope == "trial" else None)
            elif isinstance(fault, StatusFault) and fault.for_s is not None:
                active = now_s - first_s < fault.for_s
            else:
                active = played < (fault.times or 1)
            if active:
                conversation.spent[position, index] = (first_s, played + 1)
                due.append(fault)
                if not isinstance(fault, StallFault):
                    break
        return due


def choose(practice: Practice, identity: Identity, ask: Ask) -> tuple[int, dict[str, str]] | None:
    """Index of the first script that fits, with what its pattern caught; None: no script fits."""
    arm = identity.arm or ("goal" if ask.has_goal else "plain")
    for index, script in enumerate(practice.script):
        if _fits(script, identity, arm, ask) and (words := _caught(script, ask)) is not None:
            return index, words
    return None


def _fits(script: Script, identity: Identity, arm: str, ask: Ask) -> bool:
    if script.arm is not None and script.arm != arm:
        return False
    if script.model is not None and not fnmatch.fnmatchcase(ask.model, script.model):
        return False
    if script.task is not None and identity.task is not None:
        return script.task == identity.task
    if script.text is not None:
        return any(script.text in text for text in ask.user_texts)
    if script.task is not None:
        word = re.compile(rf"(?<![\w-]){re.escape(script.task)}(?![\w-])")
        return any(word.search(text) for text in ask.user_texts)
    return True


def _caught(script: Script, ask: Ask) -> dict[str, str] | None:
    """What ``pattern`` catches in the first message that it matches; None: in none."""
    if script.pattern is None:
        return {}
    found = next((match for text in ask.user_texts if (match := re.fullmatch(script.pattern, text))), None)
    return None if found is None else {name: value or "" for name, value in found.groupdict().items()}


def _latest(script: Script, ask: Ask) -> dict[str, str]:
    """What ``latest`` catches in the user's last message, else in the goal's objective; nothing where it is not found."""
    if script.latest is None:
        return {}
    texts = (*ask.user_texts[-1:], ask.objective or "")
    found = next((match for text in texts if (match := re.search(script.latest, text))), None)
    return {} if found is None else {name: value or "" for name, value in found.groupdict().items()}


def _reads_words(script: Script, identity: Identity) -> bool:
    """Whether it depends on the user's messages if the script fits."""
    by_task = script.task is not None and identity.task is not None
    return script.pattern is not None or (not by_task and (script.task is not None or script.text is not None))


def refusal(
    status: int,
    text: str,
    code: str | None,
    *,
    param: str | None = None,
    retry_after_s: int | None = None,
    note: dict[str, object] | None = None,
) -> Answer:
    """An HTTP error in the form of the Responses API."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = code if status == 429 and code else kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = json.dumps({"error": {"message": text, "type": kind, "param": param, "code": code}}).encode()
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return Answer("refused", status, headers, (body,), note=note or {})


def _step(script: Script, position: int, goal: bool) -> Step:
    """The step at any position, those after the script's end included."""
    if position < len(script.step):
        return script.step[position]
    after = position - len(script.step)
    if script.then == "repeat":
        return script.step[position % len(script.step)]
    if script.then == "silent":
        return Step(shape="empty")
    status: Literal["blocked", "complete"] = "blocked" if script.then == "blocked" else "complete"
    if goal and after % 2 == 0:  # every turn, not once: a goal may be resumed, or set after the end
        return Step(goal=status)
    return Step(say=BLOCKED if status == "blocked" else DONE)


def _silent(script: Script, position: int) -> bool:
    """In the endless tail of empty answers, where every position is the same."""
    return script.then == "silent" and position >= len(script.step)


def _failing(
    fault: StatusFault | FailedFault | CutFault,
    stream: Stream,
    items: list[Item],
    step: Step,
    usage: Usage,
    pauses: list[StallFault],
    note: dict[str, object],
) -> Answer:
    if isinstance(fault, StatusFault):
        return refusal(fault.status, fault.message, fault.code, retry_after_s=fault.retry_after_s, note=note)
    if isinstance(fault, FailedFault):
        return Answer("failed", parts=_paused([*stream.opening(), stream.failed(fault.code, fault.message)], pauses), note=note)
    parts = [*stream.opening(), *stream.body(items, step.shape)]
    if fault.after == "event":
        last = parts.pop()
        parts.append(last[: len(last) // 2])
    return Answer("cut", parts=_paused(parts, pauses), ends=fault.how, note=note, usage=usage)


def _untold(stream: Stream, wait_s: float) -> Answer:
    nothing = Usage()
    return Answer("completed", parts=(*stream.opening(), wait_s, stream.completed([], nothing)), note={"untold": True}, usage=nothing)


def _paused(parts: list[bytes], pauses: list[StallFault]) -> tuple[bytes | float, ...]:
    before = [pause.for_s for pause in pauses if pause.at == "headers"]
    within = [pause.for_s for pause in pauses if pause.at == "stream"]
    return (*before, parts[0], *within, *parts[1:])
