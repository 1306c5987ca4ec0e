"""What a planted trial is made of: arms and tasks of the scratch campaign, requests to a model, a receipt.

Owns plausible values and their shapes; each receipt is validated as a real one is.  Must not know the ledger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from marathond.agents.codex.receipt import SCHEMA, validated
from marathond.core.arms import arm_to_data
from marathond.core.model import Arm, CodexArm, LoopXArm, Mount
from marathond.core.mounts import FACT, WHOLE
from marathond.core.names import AgentKind, Drive
from marathond.core.requests import Begun, Ended, Event, Held, Released, Tokens, Who
from marathond.core.text import iso_utc
from marathond.ledger.verbs.campaigns import ArmRow, TaskRow
from marathond.ledger.verbs.trials import Fact
from marathond.service.treatment import arm_treatment, treatment_hash

ARMS = ("plain", "goal", "heartbeat", "oracle")
"""``plain`` and ``goal`` are codex, ``heartbeat`` is codex with LoopX, ``oracle`` asks no model."""
TASKS = ("archive", "bitmap", "compiler", "decoder", "editor", "filesystem")
REPLICATES = 5
MODEL = "gpt-5.5"
MOUNTED = "/opt/goal"
"""Where ``goal`` mounts a folder."""
LIMIT_MS = 3_600_000
ENDED_BY_DAEMON = frozenset({"deadline", "timer", "money", "turn_cap"})
_CODEX = CodexArm("codex-package", "0.50.0", MODEL, "high")
_LOOPX = LoopXArm("loopx-package", "0.4.0", "sha256:5c0f")


def arm_rows() -> tuple[ArmRow, ...]:
    """One per name of :data:`ARMS`."""
    return tuple(_arm_row(arm) for arm in _arms())


def _arms() -> tuple[Arm, ...]:
    return (
        Arm("plain", AgentKind.CODEX, codex=_CODEX),
        Arm("goal", AgentKind.CODEX, codex=replace(_CODEX, drive=Drive.GOAL, operator=True), mounts=(Mount("/srv/goal", MOUNTED),)),
        Arm("heartbeat", AgentKind.CODEX, codex=replace(_CODEX, drive=Drive.WAKE, operator=True, loopx=_LOOPX)),
        Arm("oracle", AgentKind.ORACLE),
    )


def _arm_row(arm: Arm) -> ArmRow:
    return ArmRow(arm.name, arm.kind.value, treatment_hash(arm_treatment(arm)), json.dumps(arm_to_data(arm), sort_keys=True))


def facts_of(arm: str, held: str = "3c63") -> tuple[Fact, ...]:
    """What is noted of a trial when its agent starts; ``held``: digits that the digest of its mount is made of."""
    return (Fact(f"{FACT}{MOUNTED}", WHOLE + 16 * held, "arm"),) if arm == "goal" else ()


def task_rows() -> tuple[TaskRow, ...]:
    """One per name of :data:`TASKS`; all need a network and have a solution."""
    data: dict[str, object] = {
        "image": None,
        "build_timeout_s": 600.0,
        "agent_timeout_s": LIMIT_MS / 1000,
        "verifier_timeout_s": 600.0,
        "network": "public",
    }
    data |= {"network_origin": "task", "env_names": [], "workdir": None, "has_solution": True, "agent_user": None}
    data |= {"project_files": [], "not_the_benchmarks": [], "warnings": []}
    return tuple(
        TaskRow(name, f"/tasks/{name}", f"sha256:{name}", context_of(name), LIMIT_MS, 1.0, 512, True, json.dumps(data, sort_keys=True))
        for name in TASKS
    )


def context_of(task: str) -> str:
    """The digest of the task's build context."""
    return f"sha256:context-{task}"


def image_of(task: str) -> str:
    return f"sha256:image-{task}"


def is_loopx(arm: str) -> bool:
    return arm == "heartbeat"


def asks_model(arm: str) -> bool:
    return arm != "oracle"


@dataclass(frozen=True, slots=True)
class Usage:
    """What one account of a trial asked its model.  Tokens and milliseconds are of one request.

    ``statuses``: one request for each, as the client saw it, instead of ``requests`` times 200; 0 is a request that was cut.
    ``last_ms``: when the last of them ended, by the wall; None: near the agent's end, or just now.  ``open``: so many more have not ended.
    """

    requests: int = 4
    statuses: tuple[int, ...] = ()
    input_tokens: int = 20_000
    cached_tokens: int = 12_000
    output_tokens: int = 900
    first_byte_ms: int = 1_200
    total_ms: int = 9_000
    held_ms: int = 0
    rate_limited: int = 0
    model: str = MODEL
    asked: str = MODEL
    error_type: str = "invalid_request_error"
    account: str = "agent"
    last_ms: int | None = None
    open: int = 0

    def all_statuses(self) -> tuple[int, ...]:
        return self.statuses or (200,) * self.requests


def requests(usage: Usage, trial_id: int, first_seq: int, *, from_ms: int, until_ms: int, mono_ms: int) -> Iterator[tuple[int, Event]]:
    """The journal's records of it, numbered from ``first_seq``, spread between the two times.

    :param mono_ms: what is added to a wall-clock time to have the monotonic one.
    """
    seq = first_seq
    statuses = usage.all_statuses()
    last_ms = until_ms if usage.last_ms is None else usage.last_ms
    for number, status in enumerate(statuses, start=1):
        ended_ms = from_ms + (last_ms - from_ms) * number // len(statuses)
        begun_ms = ended_ms - usage.total_ms - usage.held_ms
        who, begin = Who(trial_id, usage.account, number), seq
        yield seq, Begun(who, begun_ms, begun_ms + mono_ms)
        if usage.held_ms:
            yield seq + 1, Held(begin, begun_ms + mono_ms)
            yield seq + 2, Released(begin, begun_ms + usage.held_ms + mono_ms)
            seq += 2
        yield seq + 1, _ended(usage, who, begin, status, ended_ms, mono_ms, begun_ms)
        seq += 2
    for number in range(len(statuses) + 1, len(statuses) + 1 + usage.open):
        yield seq, Begun(Who(trial_id, usage.account, number), last_ms, last_ms + mono_ms)
        seq += 1


def _ended(usage: Usage, who: Who, begin: int, status: int, ended_ms: int, mono_ms: int, begun_ms: int) -> Ended:
    good = status == 200
    tokens = Tokens(usage.input_tokens, usage.cached_tokens, 0, usage.output_tokens, usage.output_tokens // 3) if good else None
    return Ended(
        who=who,
        begin=begin,
        wall_ms=ended_ms,
        mono_ms=ended_ms + mono_ms,
        end="complete" if status else "cut_by_upstream",
        usage="known" if good else "none" if status else "unknown",
        status=status or None,
        upstream_status=status or None,
        first_byte_ms=usage.first_byte_ms if status else None,
        total_ms=ended_ms - begun_ms,
        held_ms=usage.held_ms,
        held_from_mono_ms=begun_ms + mono_ms if usage.held_ms else None,
        retries=usage.rate_limited,
        rate_limited=usage.rate_limited,
        model_asked=usage.asked,
        model=usage.model if good else None,
        tokens=tokens,
        error_type=None if good else usage.error_type,
        route="main",
    )


@dataclass(frozen=True, slots=True)
class Told:
    """What a codex receipt says that rules ask for.  ``turns``: that came to their end; ``open``: that did not.  ``delivered``,
    ``used``: of LoopX, for the arm that has it."""

    turns: int = 6
    commands: int = 40
    silent: int = 0
    said: int = 6
    delivered: bool = True
    used: bool = True
    open: int = 0


@dataclass(frozen=True, slots=True)
class About:
    """The trial that a receipt is of; ``usage`` None: it asked no model."""

    trial: str
    campaign: str
    task: str
    arm: str
    replicate: int
    attempt: int
    started_ms: int
    ended_ms: int
    ended_by: str
    usage: Usage | None


def receipt(about: About, told: Told) -> tuple[int, dict[str, Any]]:
    """(schema, data), validated.

    :raises ReceiptInvalid: the receipt's form has changed, and this one was left behind.
    """
    sums = _sums(about.usage)
    ran_ms = about.ended_ms - about.started_ms
    data: dict[str, Any] = {
        "receipt": "codex",
        "schema_number": SCHEMA,
        "names": {key: getattr(about, key) for key in ("trial", "campaign", "task", "arm", "replicate", "attempt")} | {"treatment": {}},
        "versions": {"marathond": "scratch", "codex": "0.50.0", "package": "codex-package", "tree_sha256": None, "told": ["0.50.0"]},
        "given": _given(about),
        "end": {"by": about.ended_by, "why": "planted", "deadline": about.ended_by in ("deadline", "timer"), "halted": False}
        | {"exit_code": None, "exit_source": "driver", "void": None, "void_reason": None},
        "time": {"started_at": iso_utc(about.started_ms), "ended_at": iso_utc(about.ended_ms), "ran_ms": ran_ms, "limit_ms": LIMIT_MS}
        | {"limit_origin": "task 3600 x 1.0", "held_ms": 0, "turns_ms": ran_ms * 9 // 10},
        "turns": {
            "by_status": {"completed": told.turns},
            "by_cause": {"first": told.turns},
            "told": {"completed": told.turns},
            "open": told.open,
        }
        | {"silent": told.silent, "unheard": 0, "commands": told.commands, "acts": told.commands, "said": told.said, "retries": 0},
        "goal": None,
        "unblocks": {"model": 0, "infra": 0, "stalled": 0, "gate": 0},
        "errors": {"failed": {}, "retried": {}},
        "tokens": {"client": None, "difference": None, "explained": None}
        | {"gateway": {"models": {MODEL: sums}, "total": sums, "answers": sums["requests"] - sums["failed"], "in_flight": 0}},
        "rpc": {"complete": True, "connections": 1, "reattached": 0, "unreachable": 0, "requests": {}, "errors": {}}
        | {"notifications": {}, "unknown": {}, "refused": {}},
        "thread_id": f"thread-{about.trial}",
        "sub_agents": [],
        "tools_called": {"shell": told.commands},
        "warnings": [],
        "warnings_left_out": 0,
        "rerouted": False,
        "no_commands": told.commands == 0,
        "kept": {"files": 1, "bytes": 1_000, "left_out": [], "rollouts": 1, "unreadable": 0, "first_unreadable": "", "unknown": {}}
        | {"databases": [], "trajectory": None},
        "loopx": _loopx(told) if is_loopx(about.arm) else None,
        "remarks": [],
    }
    return SCHEMA, validated(data).model_dump(mode="json")


def _sums(usage: Usage | None) -> dict[str, Any]:
    statuses = () if usage is None else usage.all_statuses()
    good = statuses.count(200)
    each = Usage() if usage is None else usage
    tokens = {"input": each.input_tokens, "cached": each.cached_tokens, "cache_write": 0, "output": each.output_tokens, "reasoning": 0}
    sums: dict[str, Any] = {kind: count * good for kind, count in tokens.items()}
    return sums | {"requests": len(statuses), "failed": len(statuses) - good, "unknown": statuses.count(0), "cost_usd": None}


def _given(about: About) -> dict[str, Any]:
    text = {"sha256": hashlib.sha256(about.task.encode()).hexdigest(), "chars": 400}
    return {"model": MODEL, "effort": "high", "config_before": "ab", "config_after": "ab", "config_same": True, "instruction": text} | {
        "objective": None,
        "base_instructions": None,
        "tools": None,
        "tools_sha256": None,
        "gates": {},
    }


def _loopx(told: Told) -> dict[str, Any]:
    wakes = {
        "n": told.turns,
        "taken": told.turns,
        "by_cause": {"first": told.turns},
        "ids_sha256": "ab",
        "distinct": told.turns,
        "texts": {},
    }
    wakes |= {"bodiless": 0, "unseen": 0, "replayed": 0, "pause_s_total": 0.0, "pause_s_most": 0.0}
    calls = 3 if told.used else 0
    missing = [] if told.delivered else ["body"]
    return {
        "delivered_all": told.delivered,
        "used_any": told.used,
        "versions": {"loopx": "0.4.0", "source": "sha256:5c0f", "package": "loopx-package", "node": "22", "python": "3.12"},
        "set_up": None,
        "delivered": {
            "set_up": told.delivered,
            "todo": told.delivered,
            "body": told.delivered,
            "missing": missing,
        }
        | {"selected": "todo-1" if told.delivered else "", "wakes": wakes, "polls": {"n": 0, "by_answer": {}, "refused": ""}},
        "used": {"calls": calls, "by_name": {"todo list": calls} if calls else {}, "of_sub_agents": 0, "in_commands": calls}
        | {"first": 1 if calls else None, "commands": told.commands, "complete": True, "events": None},
        "operator": {"model": 0, "infra": 0, "gate": 0, "cleared": []},
        "stopped": "",
        "state": None,
        "databases": [],
    }
