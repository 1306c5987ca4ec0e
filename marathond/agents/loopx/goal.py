"""A trial's goal in LoopX: how it is set up, what LoopX renders for it, what it says about it, how a person's answer reaches it.

Owns ids, paths and the CLI's words; the gates set it up (gates.py).  Must not know turns: whoever drives decides what to do with an answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from marathond.agents.loopx import profile
from marathond.agents.loopx.commands import Refused, call, calls
from marathond.agents.loopx.quota import Quota, read_quota
from marathond.core.model import LoopXArm
from marathond.core.names import LoopXProfile
from marathond.ports.agent import Environment

GOAL_ID, AGENT_ID = "marathon-task", "codex-main"
INSTRUCTION = "/marathond/inputs/instruction.md"
APPROVED = "Nobody else decides here. Go on by your own best judgement, within the task."
"""What a person's answer to LoopX's gates says."""
PLACEHOLDERS = ("$HOME/.codex/loopx/registry.global.json", "$HOME/.loopx/registry.global.json")
"""A body may name the registry of a whole machine, which is not ours (fault c05)."""
CAPABILITIES = ("--available-capability", "shell", "--available-capability", "filesystem_write")


@dataclass(frozen=True, slots=True)
class Paths:
    """In the container.  ``document``: the whole instruction, as the goal's own document."""

    registry: str
    runtime: str
    state_file: str
    document: str

    @classmethod
    def of(cls, loopx: LoopXArm, cwd: str) -> Paths:
        """Outside the task's tree; or in its ``.loopx``, where LoopX keeps it for a person."""
        root = f"{cwd.rstrip('/')}/.loopx" if loopx.state_inside else profile.STATE
        goal = f"{root}/goals/{GOAL_ID}"
        return cls(f"{root}/registry.json", f"{root}/runtime", f"{goal}/ACTIVE_GOAL_STATE.md", f"{goal}/TASK.md")


@dataclass(frozen=True, slots=True)
class Goal:
    """What later lives need, and nothing else; :meth:`data` is what the log keeps of it (``prepared``, under ``loopx``).

    ``todo_id``: the task's; empty before it was added.  ``hashes``: sha256 of the bodies by profile, as the gates had them rendered.
    ``skills``: upstream's required ids.
    """

    cwd: str
    profile: LoopXProfile
    state: Paths
    goal_id: str = GOAL_ID
    todo_id: str = ""
    body: str = ""
    body_sha256: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict)
    skills: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        return {**asdict(self), "skills": list(self.skills)}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Goal:
        """Of :meth:`data`, after JSON."""
        known = {**data, "profile": LoopXProfile(data["profile"]), "state": Paths(**data["state"]), "skills": tuple(data["skills"])}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Todo:
    """One of LoopX's.  ``role``: ``agent`` or ``user``; ``status``: ``open``, ``done``, …; ``kind``: ``user_gate``, …"""

    todo_id: str
    role: str
    status: str
    kind: str
    text: str

    @property
    def is_gate(self) -> bool:
        """Whether it waits for a person."""
        return self.role == "user" and self.status not in ("done", "deferred")


def _common(state: Paths) -> tuple[str, ...]:
    return ("--registry", state.registry, "--runtime-root", state.runtime, "--format", "json")


def set_up_argvs(goal: Goal) -> tuple[tuple[str, ...], ...]:
    """Bootstrap with the instruction as the goal's document, an agent, and the task as its todo: without that LoopX has a hollow goal, and
    its agent nothing to do (fault c16).  The last one's answer has the todo (:func:`read_todo_id`)."""
    common, ids = _common(goal.state), ("--goal-id", goal.goal_id)
    objective = f"Finish the task that {goal.state.document} describes."
    return (
        (
            *(*common, "bootstrap", *ids, "--project", goal.cwd, "--objective", objective, "--goal-doc", goal.state.document),
            *("--write-scope", "**", "--state-file", goal.state.state_file, "--no-global-sync"),
        ),
        (*common, "configure-goal", *ids, "--registered-agent", AGENT_ID, "--execute"),
        (
            *(*common, "todo", "add", *ids, "--project", goal.cwd, "--role", "agent", "--text", objective, "--priority", "P0"),
            *("--task-class", "advancement_task", "--claimed-by", AGENT_ID),
        ),
    )


def read_todo_id(answer: Mapping[str, Any]) -> str:
    """Raises Refused."""
    todo_id = answer.get("todo_id")
    if not isinstance(todo_id, str) or not todo_id:
        raise Refused("silent", f"loopx todo add: no todo_id but {todo_id!r}")
    return todo_id


def body_argv(goal: Goal, runtime_profile: LoopXProfile, turn_id: str | None = None) -> tuple[str, ...]:
    return (
        *_common(goal.state),
        *("heartbeat-prompt", "--thin", "--goal-id", goal.goal_id, "--agent-id", AGENT_ID, *CAPABILITIES),
        *("--runtime-profile", str(runtime_profile), "--cli-bin", profile.CLI),
        *(() if turn_id is None else ("--turn-instance-id", turn_id)),
    )


def read_body(answer: Mapping[str, Any], goal: Goal) -> str:
    """With its placeholders replaced.  Raises Refused where there is none, or LoopX itself calls it too long."""
    text, budget = answer.get("task_body"), answer.get("interface_budget")
    if not isinstance(text, str) or not text.strip():
        raise Refused("silent", "loopx heartbeat-prompt: no task_body")
    if not isinstance(budget, dict) or budget.get("within_budget") is not True:
        raise Refused("refused", f"loopx heartbeat-prompt: beyond its own budget: {str(budget)[:300]}")
    for placeholder in PLACEHOLDERS:
        text = text.replace(placeholder, goal.state.registry)
    return text


async def body(env: Environment, goal: Goal, runtime_profile: LoopXProfile, turn_id: str | None = None) -> str:
    """What LoopX renders.  ``turn_id`` with ``generic_cli`` only: LoopX refuses it elsewhere.  Raises Refused."""
    return read_body(await call(env, goal.cwd, *body_argv(goal, runtime_profile, turn_id)), goal)


def quota_argv(goal: Goal, runtime_profile: LoopXProfile, turn_id: str | None = None) -> tuple[str, ...]:
    return (
        *_common(goal.state),
        *("quota", "should-run", "--goal-id", goal.goal_id, "--agent-id", AGENT_ID, *CAPABILITIES),
        *("--runtime-profile", str(runtime_profile), "--include-detail", "scheduler"),
        *(() if turn_id is None else ("--turn-instance-id", turn_id)),
    )


async def ask(env: Environment, goal: Goal, runtime_profile: LoopXProfile, turn_id: str | None = None) -> Quota:
    """``quota should-run``.  Raises Refused; ValueError as :func:`read_quota`."""
    return read_quota(await call(env, goal.cwd, *quota_argv(goal, runtime_profile, turn_id)))


async def todos(env: Environment, goal: Goal) -> tuple[Todo, ...]:
    """The agent's and the user's.  Raises Refused; ValueError when they have another shape (fault e03)."""
    argvs = [(*_common(goal.state), "todo", "list", "--goal-id", goal.goal_id, "--role", role) for role in ("agent", "user")]
    answers = await calls(env, goal.cwd, argvs)
    return tuple(todo for answer in answers for todo in read_todos(answer))


def read_todos(answer: Mapping[str, Any]) -> tuple[Todo, ...]:
    rows: Sequence[Any] = answer["todos"] if isinstance(answer.get("todos"), list) else ()
    if not isinstance(answer.get("todos"), list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"todo list: todos is {str(answer.get('todos'))[:80]!r}, expected a list of objects")
    found: list[Todo] = []
    for row in rows:
        values = {name: row.get(key) for name, key in _TODO.items()}
        for name, value in values.items():
            if not isinstance(value, str):
                raise ValueError(f"todo list: {_TODO[name]} is {value!r}, expected str")
        found.append(Todo(**{name: str(value) for name, value in values.items()}))
    return tuple(found)


_TODO = {"todo_id": "todo_id", "role": "role", "status": "status", "kind": "task_class", "text": "title"}


async def clear(env: Environment, goal: Goal) -> tuple[str, ...]:
    """A person's answer: every open todo of the user's is approved, and nobody is waited for.  Ids of those todos.

    :raises Refused, ValueError: as :func:`todos`.

    Asked again after a daemon's death it finds what is still open, and nothing is answered twice.
    """
    waiting = [todo for todo in await todos(env, goal) if todo.is_gate]
    answered = [
        (
            *(*_common(goal.state), "todo", "complete", "--goal-id", goal.goal_id, "--todo-id", todo.todo_id, "--role", "user"),
            *("--agent-id", AGENT_ID, "--decision-outcome", "approve", "--evidence", APPROVED),
        )
        for todo in waiting
    ]
    free = (
        *(*_common(goal.state), "configure-goal", "--goal-id", goal.goal_id, "--clear-waiting-on"),
        *("--agent-work-mode", f"{AGENT_ID}=active", "--execute"),
    )
    await calls(env, goal.cwd, [*answered, free])
    return tuple(todo.todo_id for todo in waiting)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
