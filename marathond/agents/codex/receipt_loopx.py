"""The part of a codex run's receipt that tells of LoopX, for arms that have it (faults a13, e03).

Owns names and kinds, as :mod:`~marathond.agents.codex.receipt` does for the rest.  Pure.

Three things are kept apart: what the arm was given before it began (``set_up``), what the harness delivered while it ran (``delivered``),
and what the agent itself did with LoopX (``used``).  An arm that was given a treatment and never used it is another result than one that
did.
"""

from __future__ import annotations

from typing import Literal

from marathond.agents.codex.receipt_part import Counts, DatabasePart, Part, Text


class LoopXVersions(Part):
    """``source``: a wheel's hash, or a commit.  ``package`` identifies the staged tree.  ``node``, ``python``: as the gates saw
    them."""

    loopx: str
    source: str
    package: str
    node: str
    python: str


class SetUpPart(Part):
    """``state``: whether it lies in the task's tree; the paths are the container's.  ``body``: the arm's own; ``hashes``: of the bodies
    that the gates had rendered, by profile.  ``skills``: upstream's required ids, each of which codex found."""

    goal_id: str
    profile: str
    state: Literal["inside", "outside"]
    registry: str
    runtime: str
    state_file: str
    todo_id: str
    body: Text
    hashes: dict[str, str]
    skills: list[str]
    gates: dict[str, str]


class WakesPart(Part):
    """``n``: intended, ``taken``: that codex took.  ``ids_sha256``: LoopX's ids of them, as one hash; ``distinct`` of them.  ``texts``: how
    often which text was sent, by the hash of it without its id.  ``bodiless``: taken ones whose text is known, and has no body in it.
    ``unseen``: taken ones whose text is not known, for the messages' file is at its bound.  Pauses before them as intended, in seconds."""

    n: int
    taken: int
    by_cause: Counts
    ids_sha256: str
    distinct: int
    texts: Counts
    bodiless: int
    unseen: int
    replayed: int
    pause_s_total: float
    pause_s_most: float


class PollsPart(Part):
    """The driver's questions to LoopX's scheduler between wakes; ``by_answer``: its actions.  ``refused``: the last one that it refused."""

    n: int
    by_answer: Counts
    refused: str


class DeliveredPart(Part):
    """``missing``: what of the treatment did not reach the agent, in words.  ``selected``: the todo that LoopX's quota chose before the
    start.  ``wakes``: of arms that are driven so."""

    set_up: bool
    todo: bool
    body: bool
    missing: list[str]
    selected: str
    wakes: WakesPart | None
    polls: PollsPart


class EventsPart(Part):
    """LoopX's own log: what was asked of it, by its words, whoever asked; ``harness``: of which by us; ``agent``: the rest.  It knows of
    calls out of scripts, and not of those that only read."""

    whole: bool
    unreadable: int
    all: Counts
    harness: Counts
    agent: Counts


class UsedPart(Part):
    """``calls``: of LoopX in the texts of the agent's commands, ``by_name`` by what they ask, ``of_sub_agents`` among them;
    ``in_commands``: how many commands hold one, the first of them is number ``first`` of all ``commands``, from 1.  ``complete``: all
    commands were heard and read.  ``events`` None: LoopX's log was not left."""

    calls: int
    by_name: Counts
    of_sub_agents: int
    in_commands: int
    first: int | None
    commands: int
    complete: bool
    events: EventsPart | None


class OperatorPart(Part):
    """Who took the part of a person: resumptions by cause, and the ids of LoopX's gates that were approved."""

    model: int
    infra: int
    gate: int
    cleared: list[str]


class TodoPart(Part):
    todo_id: str
    role: str
    status: str
    kind: str
    text: str


class StatePart(Part):
    """What LoopX's goal state said at the end; the agent could write there."""

    counts: Counts
    todos: list[TodoPart]
    left_out: int
    unreadable: int


class LoopXPart(Part):
    """``delivered_all``, ``used_any``: the two columns by which arms are compared.  ``stopped``: LoopX's word that ended the run, or empty.
    ``state`` None: its file was not left, or lies in the task's tree."""

    delivered_all: bool
    used_any: bool
    versions: LoopXVersions
    set_up: SetUpPart | None
    delivered: DeliveredPart
    used: UsedPart
    operator: OperatorPart
    stopped: str
    state: StatePart | None
    databases: list[DatabasePart]
