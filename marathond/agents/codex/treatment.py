"""Whether LoopX reached the agent of an arm that has it, and whether the agent used it (fault a13).  Pure.

Owns how that part of the receipt is put together, and the two findings that it may raise; they stand beside the score and change none.

Two counts of the agent's calls are kept side by side.  One is of the texts of its commands, over all threads, as codex told of them and as
its rollouts do; it knows of every call that stands there, and of none that a script makes.  The other is LoopX's own log without what the
harness asked; it knows of scripts, and not of calls that only read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from marathond.agents.codex.account import Account
from marathond.agents.codex.account_loopx import SetUp, WakeIntended
from marathond.agents.codex.databases import Database
from marathond.agents.codex.rollout import Ran, Rollout, sha256
from marathond.agents.codex.traffic import Commanded
from marathond.agents.loopx import profile
from marathond.agents.loopx.calls import calls
from marathond.agents.loopx.left import Events, Todos
from marathond.core.model import CodexArm, LoopXArm
from marathond.core.names import Drive
from marathond.ports.agent import Finished, Remark

NOT_DELIVERED, UNUSED = "treatment_not_delivered", "treatment_unused"
NAMES_AT_MOST, CLEARED_AT_MOST, TEXTS_AT_MOST = 100, 200, 50
CHARS_AT_MOST = 16 << 20
"""Of commands that may hold a call; reading them is the slowest part."""
WORD = "loopx"
"""Without it there is no call in a text."""
TURN = "LOOPX_TURN"
"""In the place of a wake's id, so that texts of two wakes can be compared."""
GATE = "loopx "
"""How the names of LoopX's gates begin."""
STOPPED = "loopx: "
"""How the reason of an end begins that was LoopX's (``conduct``, ``wake``)."""
SET_UP_EVENTS = {"todo_add": 1, "quota_should_run": 1}
"""What the gates leave in LoopX's log."""


@dataclass(frozen=True, slots=True)
class Told:
    """What else is known of a run: commands as codex told of them, messages by their mark, LoopX's own files.

    ``whole``: the messages' file was not at its bound.  ``events``, ``todos`` None: they were not left.
    """

    commands: Sequence[Commanded] = ()
    sent: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True
    events: Events | None = None
    todos: Todos | None = None
    databases: Sequence[Database] = ()


def part(run: Finished, added: Account, rollouts: Sequence[Rollout], told: Told) -> dict[str, Any] | None:
    """None: the arm has no LoopX."""
    codex = run.arm.codex
    if codex is None or codex.loopx is None:
        return None
    delivered, used = _delivered(run, codex, added, told), _used(added, rollouts, told)
    events = used["events"]
    return {
        "delivered_all": not delivered["missing"],
        "used_any": used["calls"] > 0 or bool(events and events["agent"]),
        "versions": {
            "loopx": codex.loopx.version,
            "source": codex.loopx.source,
            "package": codex.loopx.package,
            **{name: run.gates.get(f"{GATE}{name}", "").partition(",")[0] for name in ("node", "python")},
        },
        "set_up": None if added.loopx.set_up is None else _set_up(run, codex.loopx, added.loopx.set_up),
        "delivered": delivered,
        "used": used,
        "operator": {
            **{cause: added.unblocks[cause] for cause in ("model", "infra", "gate")},
            "cleared": [todo_id[:100] for todo_id in added.loopx.cleared[:CLEARED_AT_MOST]],
        },
        "stopped": added.why.removeprefix(STOPPED)[:500] if added.why.startswith(STOPPED) else "",
        "state": None if told.todos is None else _state(told.todos),
        "databases": [
            {"name": db.name[:200], "bytes": db.size_bytes, "log_bytes": db.log_bytes, "tables": db.tables, "check": db.check}
            for db in told.databases
        ],
    }


def remarks(run: Finished, made: Mapping[str, Any] | None) -> list[Remark]:
    """The findings; none for a trial that is void: it counts nowhere."""
    if made is None or run.void is not None:
        return []
    found = []
    if not made["delivered_all"]:
        missing = "; ".join(made["delivered"]["missing"])
        found.append(Remark(NOT_DELIVERED, f"of LoopX the agent was not given: {missing}; its score is no result of the arm"[:2000]))
    if not made["used_any"]:
        used = made["used"]
        heard = f"{used['commands']}{'' if used['complete'] else ', as far as they were heard'}"
        log = "nor in LoopX's own log" if used["events"] is not None else "and LoopX's own log was not left"
        words = f"no call of LoopX by the agent, neither in its commands ({heard}) {log}: its arm had it, it did not use it"
        found.append(Remark(UNUSED, words))
    return found


# ---- before the start


def _set_up(run: Finished, loopx: LoopXArm, goal: SetUp) -> dict[str, Any]:
    return {
        "goal_id": goal.goal_id,
        "profile": goal.profile,
        "state": "inside" if loopx.state_inside else "outside",
        "registry": goal.state.registry,
        "runtime": goal.state.runtime,
        "state_file": goal.state.state_file,
        "todo_id": goal.todo_id,
        "body": {"sha256": sha256(goal.body), "chars": len(goal.body)},
        "hashes": goal.hashes,
        "skills": sorted(goal.skills),
        "gates": {name.removeprefix(GATE): value for name, value in run.gates.items() if name.startswith(GATE)},
    }


# ---- what the harness delivered


def _delivered(run: Finished, codex: CodexArm, added: Account, told: Told) -> dict[str, Any]:
    goal, waking = added.loopx.set_up, codex.drive is Drive.WAKE
    wakes = _wakes(added, told) if waking else None
    todo = goal is not None and bool(goal.todo_id)
    body = goal is not None and (_woken(wakes) if wakes is not None else _objective(added, goal))
    missing = [
        *(["its set-up, of which the log says nothing"] if goal is None else []),
        *(["the task's todo"] if not todo else []),
        *([_bodiless(wakes)] if not body else []),
    ]
    selected = run.gates.get(f"{GATE}quota", "")
    return {
        "set_up": goal is not None,
        "todo": todo,
        "body": body,
        "missing": missing,
        "selected": selected.rpartition("selects ")[2][:100] if "selects " in selected else "",
        "wakes": wakes,
        "polls": {"n": added.loopx.polls.total(), "by_answer": dict(added.loopx.polls), "refused": added.loopx.refused[:1000]},
    }


def _objective(added: Account, goal: SetUp) -> bool:
    """The goal's objective is the body, and codex took it."""
    return added.objective == goal.body and sha256(goal.body) == goal.body_sha256 and bool(added.transitions)


def _woken(wakes: Mapping[str, Any]) -> bool:
    """There was a wake, and none without a body."""
    return bool(wakes["taken"]) and not wakes["bodiless"]


def _bodiless(wakes: Mapping[str, Any] | None) -> str:
    if wakes is None:
        return "its body, which is not the goal's objective"
    return f"a body in {wakes['bodiless']} of {wakes['taken']} wakes" if wakes["taken"] else "a single wake"


def _wakes(added: Account, told: Told) -> dict[str, Any]:
    every = added.loopx.wakes
    taken = [wake for wake in every if wake.mark in added.accepted]
    texts = [told.sent.get(wake.mark) for wake in taken]
    counts: Counter[str] = Counter()
    for wake, text in zip(taken, texts, strict=True):
        if text is not None:
            digest = sha256(text.replace(wake.turn_id, TURN))
            counts[digest if digest in counts or len(counts) < TEXTS_AT_MOST else "(others)"] += 1
    known = [(wake, text) for wake, text in zip(taken, texts, strict=True) if text is not None or told.whole]
    return {
        "n": len(every),
        "taken": len(taken),
        "by_cause": dict(Counter(wake.cause for wake in every)),
        "ids_sha256": sha256("\n".join(wake.turn_id for wake in every)),
        "distinct": len({wake.turn_id for wake in every}),
        "texts": dict(counts),
        "bodiless": sum(not _has_body(wake, text) for wake, text in known),
        "unseen": len(taken) - len(known),
        "replayed": len(added.loopx.replayed),
        "pause_s_total": float(sum(wake.pause_s for wake in every)),
        "pause_s_most": float(max((wake.pause_s for wake in every), default=0.0)),
    }


def _has_body(wake: WakeIntended, text: str | None) -> bool:
    return text is not None and wake.turn_id in text and profile.CLI in text


# ---- what the agent did with it


def _used(added: Account, rollouts: Sequence[Rollout], told: Told) -> dict[str, Any]:
    every = _commands(rollouts, told.commands)
    names: Counter[str] = Counter()
    first, in_commands, of_others, left = None, 0, 0, CHARS_AT_MOST
    for number, (thread_id, text) in enumerate(every, 1):
        if WORD not in text:
            continue
        left -= len(text)
        found = calls(text) if left >= 0 else []
        if found:
            first = number if first is None else first
            in_commands += 1
            of_others += len(found) if thread_id != added.thread_id else 0
        for name in found:
            names[name if name in names or len(names) < NAMES_AT_MOST else "(others)"] += 1
    return {
        "calls": names.total(),
        "by_name": dict(names),
        "of_sub_agents": of_others,
        "in_commands": in_commands,
        "first": first,
        "commands": len(every),
        "complete": left >= 0 and (told.whole or bool(rollouts)) and not any(each.cut or each.unreadable for each in rollouts),
        "events": None if told.events is None else _events(added, told.events),
    }


def _commands(rollouts: Sequence[Rollout], heard: Sequence[Commanded]) -> list[tuple[str, str]]:
    """(thread, text) of each command once: as codex told of them, in their order; then those that stand in a rollout alone."""
    found = {(each.thread_id, each.item_id): each.command for each in heard}
    for rollout in rollouts:
        for event in rollout.events:
            if isinstance(event, Ran):
                found.setdefault((rollout.thread_id, event.item_id), event.command)
    return [(thread_id, text) for (thread_id, _), text in found.items()]


def _events(added: Account, events: Events) -> dict[str, Any]:
    ours: Counter[str] = Counter(SET_UP_EVENTS if added.loopx.set_up is not None else {})
    ours["quota_should_run"] += added.loopx.polls.total()
    ours["todo_complete"] += len(added.loopx.cleared)
    harness = ours & events.kinds
    return {
        "whole": events.whole,
        "unreadable": events.unreadable,
        "all": dict(events.kinds),
        "harness": dict(harness),
        "agent": dict(events.kinds - harness),
    }


def _state(todos: Todos) -> dict[str, Any]:
    return {
        "counts": todos.counts,
        "todos": [asdict(row) for row in todos.rows],
        "left_out": todos.left_out,
        "unreadable": todos.unreadable,
    }
