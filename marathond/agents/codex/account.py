"""The driver's log of a run, added up for its receipt.  Pure.

Owns which fields of the log the receipt is made of: one that is missing or of another kind, or a kind of entry that is not known here, is
an error by name (fault e03), for a renamed one would read as nothing for ever.  The kinds are ``drive``'s.  Must not know rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from marathond.agents.codex.account_loopx import Gates, LoopXAccount, Quota, Refused, Replayed, SetUp, WakeIntended
from marathond.agents.codex.account_shapes import Detail
from marathond.ports.agent import LogEntry, ReceiptInvalid

TRANSITIONS_AT_MOST = 1000
WARNINGS_AT_MOST = 50


class _Nothing(Detail):
    pass


class _Prepared(Detail):
    config_sha256: str
    base_url: str
    untrusted: list[str]
    loopx: SetUp | None = None


class _Thread(Detail):
    thread_id: str
    model: str
    effort: str | None


class _GoalSet(Detail):
    objective: str
    token_budget: int | None


class _Intended(Detail):
    cause: str


class _Accepted(Detail):
    mark: str


class _TurnStarted(Detail):
    turn_id: str


class _TurnCompleted(Detail):
    turn_id: str
    status: str
    cause: str
    info: str
    commands: int
    acts: int
    said: int
    duration_ms: int | None
    heard: bool


class _Goal(Detail):
    status: str
    tokens_used: int


class _Halted(Detail):
    goal: str


class _Warning(Detail):
    text: str


class _Stderr(Detail):
    line: str


class _Counts(Detail):
    requests: dict[str, int]
    errors: dict[str, int]
    notifications: dict[str, int]
    unknown: dict[str, int]
    refused: dict[str, int]


class _Ended(Detail):
    by: str
    why: str


KINDS: Mapping[str, type[Detail]] = {
    "prepared": _Prepared,
    "server": _Nothing,
    "thread_intended": _Nothing,
    "thread": _Thread,
    "goal_set": _GoalSet,
    "goal_alone": _Nothing,
    "turn_intended": _Intended,
    "wake_intended": WakeIntended,
    "turn_accepted": _Accepted,
    "acted": _Nothing,
    "turn_started": _TurnStarted,
    "turn_completed": _TurnCompleted,
    "goal": _Goal,
    "unblock": _Intended,
    "loopx_gate": Gates,
    "gate_cleared": Gates,
    "quota": Quota,
    "replayed": Replayed,
    "loopx_refused": Refused,
    "stalled": _Nothing,
    "silent_turn": _TurnStarted,
    "warning": _Warning,
    "stderr": _Stderr,
    "no_commands": _Nothing,
    "crowded": _Nothing,
    "rerouted": _Nothing,
    "config": _Nothing,
    "reattached": _Nothing,
    "unreachable": _Nothing,
    "server_ended": _Nothing,
    "rpc_counts": _Counts,
    "halt": _Nothing,
    "halted": _Halted,
    "ended": _Ended,
}


@dataclass(frozen=True, slots=True)
class Transition:
    """A goal's new status, and who brought it about: ``arm``, ``operator``, ``retry`` and ``stalled`` set it active; ``model``,
    ``infrastructure``, ``provider`` and ``token budget`` ended it; ``harness`` at the end of its time, ``container`` nobody of us."""

    at_ms: int
    status: str
    cause: str
    tokens_used: int


@dataclass(slots=True)
class Account:
    """Counts by what their names say.  ``thread_ids``: the last is the one that was driven; earlier ones had no beginning."""

    config_sha256: str = ""
    base_url: str = ""
    untrusted: tuple[str, ...] = ()
    thread_ids: list[str] = field(default_factory=list)
    model: str = ""
    effort: str = ""
    objective: str | None = None
    token_budget: int | None = None
    transitions: list[Transition] = field(default_factory=list)
    transitions_left_out: int = 0
    turns: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """Of failed turns, by codex's word."""
    begun: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    unheard: int = 0
    silent: int = 0
    commands: int = 0
    acts: int = 0
    said: int = 0
    turns_ms: int = 0
    retries: int = 0
    unblocks: Counter[str] = field(default_factory=Counter)
    accepted: set[str] = field(default_factory=set)
    """Marks of the messages that codex took."""
    loopx: LoopXAccount = field(default_factory=LoopXAccount)
    warnings: list[str] = field(default_factory=list)
    warnings_left_out: int = 0
    no_commands: bool = False
    rerouted: bool = False
    reattached: int = 0
    unreachable: int = 0
    halted: bool = False
    why: str = ""
    rpc: dict[str, Counter[str]] = field(default_factory=dict)
    """Sums over the connections that told theirs; one that its daemon's death ended told none."""

    @property
    def thread_id(self) -> str:
        return self.thread_ids[-1] if self.thread_ids else ""


def add_up(entries: Iterable[LogEntry]) -> Account:
    """:raises ReceiptInvalid: names the entry and its field."""
    work = _Sum()
    for entry in entries:
        work.take(entry)
    return work.end()


class _Sum:
    def __init__(self) -> None:
        self.made = Account()
        self._changes: list[tuple[LogEntry, _Goal, str]] = []
        """Goal changes with a cause, or with the turn whose end tells it."""
        self._setting = ""
        self._in_flight = self._last = ""
        self._ends: dict[str, str] = {}

    def take(self, entry: LogEntry) -> None:
        made, detail = self.made, read(entry.seq, entry.kind, entry.detail)
        match detail:
            case _Prepared():
                made.config_sha256, made.base_url, made.untrusted = detail.config_sha256, detail.base_url, tuple(detail.untrusted)
                made.loopx.set_up = detail.loopx
            case _Thread():
                made.thread_ids.append(detail.thread_id)
                made.model, made.effort = detail.model, detail.effort or ""
            case _GoalSet():
                made.objective, made.token_budget, self._setting = detail.objective, detail.token_budget, "arm"
            case _Intended() if entry.kind == "turn_intended":
                made.retries += detail.cause == "retry"
            case _Intended():
                made.unblocks[detail.cause] += 1
                self._setting = {"model": "operator", "gate": "operator", "infra": "retry"}.get(detail.cause, "stalled")
            case WakeIntended() | Gates() | Quota() | Replayed() | Refused():
                made.retries += isinstance(detail, WakeIntended) and detail.cause == "retry"
                made.loopx.take(entry.kind, detail)
            case _Accepted(mark=mark):
                made.accepted.add(mark)
            case _TurnStarted() if entry.kind == "turn_started":
                made.begun.add(detail.turn_id)
                self._in_flight = detail.turn_id
            case _TurnStarted():
                made.silent += 1
            case _TurnCompleted():
                self._turn_over(detail)
            case _Goal():
                cause = self._cause(detail.status)
                if not self._changes or self._changes[-1][1].status != detail.status:  # said twice after a re-attachment
                    self._changes.append((entry, detail, cause))
            case _Halted(goal=status) if status:
                used = self._changes[-1][1].tokens_used if self._changes else 0
                self._changes.append((entry, _Goal(status=status, tokens_used=used), "harness"))
            case _Warning(text=text) | _Stderr(line=text):
                self._warning(text)
            case _Counts():
                for name in ("requests", "errors", "notifications", "unknown", "refused"):
                    made.rpc.setdefault(name, Counter()).update(getattr(detail, name))
            case _Ended(why=why):
                made.why = why
            case _:
                self._plain(entry.kind)

    def _plain(self, kind: str) -> None:
        made = self.made
        match kind:
            case "no_commands":
                made.no_commands = True
            case "rerouted":
                made.rerouted = True
            case "reattached":
                made.reattached += 1
            case "unreachable":
                made.unreachable += 1
            case "halt":
                made.halted = True
            case _:
                pass

    def _turn_over(self, turn: _TurnCompleted) -> None:
        made = self.made
        if turn.turn_id in made.over:
            return
        made.over.add(turn.turn_id)
        made.begun.add(turn.turn_id)
        made.turns[turn.status] += 1
        made.causes[turn.cause] += 1
        made.commands += turn.commands
        made.acts += turn.acts
        made.said += turn.said
        made.turns_ms += turn.duration_ms or 0
        made.unheard += not turn.heard
        if turn.status == "failed":
            made.errors[turn.info or "none"] += 1
        self._ends[turn.turn_id] = turn.status
        self._last = turn.turn_id
        self._in_flight = "" if self._in_flight == turn.turn_id else self._in_flight

    def _cause(self, status: str) -> str:
        """The cause, or ``turn ID`` where the end of that turn tells it."""
        match status:
            case "active":
                cause, self._setting = self._setting or "container", ""
                return cause
            case "usageLimited":
                return "provider"
            case "budgetLimited":
                return "token budget"
            case "paused" | "cleared":
                return "harness" if self.made.halted else "container"
            case _:
                return f"turn {self._in_flight or self._last}"

    def _warning(self, text: str) -> None:
        if len(self.made.warnings) < WARNINGS_AT_MOST:
            self.made.warnings.append(text[:1000])
        else:
            self.made.warnings_left_out += 1

    def end(self) -> Account:
        made = self.made
        said_by = {"completed": "model", "failed": "infrastructure"}
        for entry, goal, cause in self._changes[:TRANSITIONS_AT_MOST]:
            if cause.startswith("turn "):
                # A turn that never ended: only the model can complete or block a goal within one.
                cause = said_by.get(self._ends.get(cause.removeprefix("turn "), "completed"), "model")
            made.transitions.append(Transition(entry.at_ms, goal.status, cause, goal.tokens_used))
        made.transitions_left_out = max(0, len(self._changes) - TRANSITIONS_AT_MOST)
        return made


def read(seq: int, kind: str, detail: Mapping[str, Any]) -> Detail:
    """:raises ReceiptInvalid:"""
    shape = KINDS.get(kind)
    if shape is None:
        raise ReceiptInvalid(f"entry {seq} of the agent's log: kind {kind[:80]!r} is not known")
    try:
        return shape.model_validate(dict(detail))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ReceiptInvalid(f"entry {seq} of the agent's log ({kind}): {where}: {first['msg']}") from error
