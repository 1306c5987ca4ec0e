"""From what is known of a run to its receipt.  Pure.

Owns how the parts are put together, when two counts of tokens agree, and what people must be told.  Must not know files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from marathond import __version__
from marathond.agents.codex import treatment
from marathond.agents.codex.account import Account
from marathond.agents.codex.atif import Made
from marathond.agents.codex.databases import TOO_LARGE, Database
from marathond.agents.codex.receipt import SCHEMA
from marathond.agents.codex.rollout import Called, Ran, Rollout, TurnBegan, TurnEnded, sha256
from marathond.agents.codex.rollout_shapes import Tokens
from marathond.agents.codex.traffic import Traffic
from marathond.agents.codex.treatment import Told
from marathond.core.model import CodexArm
from marathond.core.names import EndedBy
from marathond.core.text import iso_utc
from marathond.ports.agent import Finished, Remark, Spent

LEFT_OUT_AT_MOST, TOOLS_AT_MOST, SUB_AGENTS_AT_MOST = 200, 500, 500
KINDS = ("input", "cached", "cache_write", "output", "reasoning")
DEADLINE = frozenset({EndedBy.DEADLINE, EndedBy.TIMER})
NOTHING_TOLD = Told()
ZERO = {"answers": 0, **dict.fromkeys(KINDS, 0)}


def receipt(
    run: Finished,
    added: Account,
    heard: Traffic,
    main: Rollout | None,
    others: Sequence[Rollout],
    passed: Sequence[str],
    config_after: str,
    looked: Sequence[Database],
    made: Made,
    source: str,
    told: Told = NOTHING_TOLD,
) -> tuple[dict[str, Any], list[Remark]]:
    """The data, and what people should know.

    :param passed: files among the sessions that were passed over.
    :param source: what ``made``, the trajectory, was made from.
    :param told: what the arm's LoopX is judged by.
    """
    codex = run.arm.codex
    assert codex is not None
    rollouts = [*([] if main is None else [main]), *others]
    tokens = _tokens(run, added, heard, main, others)
    kept = _kept(run, rollouts, passed, looked, made, source)
    data: dict[str, Any] = {
        "receipt": "codex",
        "schema_number": SCHEMA,
        "names": {
            "trial": run.trial,
            "campaign": run.campaign,
            "task": run.task,
            "arm": run.arm.name,
            "replicate": run.replicate,
            "attempt": run.attempt,
            "treatment": _treatment(codex),
        },
        "versions": {
            "marathond": __version__,
            "codex": codex.version,
            "package": codex.package,
            "tree_sha256": run.package_sha256 or None,
            "told": sorted({each.cli_version[:100] for each in rollouts})[:20],
        },
        "given": _given(run, added, main, config_after),
        "end": _end(run, added),
        "time": {
            "started_at": iso_utc(run.started_at_ms),
            "ended_at": None if run.ended_at_ms is None else iso_utc(run.ended_at_ms),
            "ran_ms": run.ran_ms,
            "limit_ms": run.limit_ms,
            "limit_origin": run.limit_origin,
            "held_ms": run.held_ms,
            "turns_ms": added.turns_ms,
        },
        "turns": {
            "by_status": dict(added.turns),
            "by_cause": dict(added.causes),
            "told": {} if main is None else dict(Counter(event.status for event in main.events if isinstance(event, TurnEnded))),
            "open": len(added.begun - added.over),
            "silent": added.silent,
            "unheard": added.unheard,
            "commands": max(added.commands, 0 if main is None else _commands(main)),
            "acts": added.acts,
            "said": added.said,
            "retries": added.retries,
        },
        "goal": _goal(added),
        "unblocks": {cause: added.unblocks[cause] for cause in ("model", "infra", "stalled", "gate")},
        "errors": {"failed": dict(added.errors), "retried": dict(heard.retried)},
        "tokens": tokens,
        "rpc": _rpc(added, heard),
        "thread_id": added.thread_id,
        "sub_agents": _sub_agents(added, heard, others),
        "tools_called": _called(rollouts),
        "warnings": added.warnings,
        "warnings_left_out": added.warnings_left_out,
        "rerouted": added.rerouted,
        "no_commands": added.no_commands,
        "kept": kept,
        "loopx": treatment.part(run, added, rollouts, told),
    }
    remarks = [*_remarks(data), *treatment.remarks(run, data["loopx"])]
    return {**data, "remarks": [remark.code for remark in remarks]}, remarks


def cost_usd(spent: Sequence[Spent]) -> float | None:
    """None: some of it has no price."""
    costs = [each.cost_nusd for each in spent]
    return None if None in costs else sum(cost for cost in costs if cost is not None) / 1e9


def _treatment(codex: CodexArm) -> dict[str, Any]:
    """One level: the rows of an arm are compared key by key."""
    row = {key: value for key, value in asdict(codex).items() if key != "loopx"}
    return row if codex.loopx is None else {**row, **{f"loopx.{key}": value for key, value in asdict(codex.loopx).items()}}


def _text(text: str) -> dict[str, Any]:
    return {"sha256": sha256(text), "chars": len(text)}


def _given(run: Finished, added: Account, main: Rollout | None, config_after: str) -> dict[str, Any]:
    before = added.config_sha256 or None
    tools = list(main.tools[:TOOLS_AT_MOST]) if main is not None and main.tools else None
    return {
        "model": added.model,
        "effort": added.effort,
        "config_before": before,
        "config_after": config_after if before else None,
        "config_same": config_after == before if before else None,
        "instruction": _text(run.instruction),
        "objective": None if added.objective is None else _text(added.objective),
        "base_instructions": None if main is None or not main.instructions else _text(main.instructions),
        "tools": tools,
        "tools_sha256": None if tools is None else sha256(json.dumps(tools)),
        "gates": dict(run.gates),
    }


def _end(run: Finished, added: Account) -> dict[str, Any]:
    return {
        "by": None if run.ended_by is None else run.ended_by.value,
        "why": added.why,
        "deadline": run.ended_by in DEADLINE,
        "halted": added.halted,
        "exit_code": run.exit_code,
        "exit_source": run.exit_source,
        "void": None if run.void is None else run.void[0],
        "void_reason": None if run.void is None else run.void[1][:2000],
    }


def _goal(added: Account) -> dict[str, Any] | None:
    if added.objective is None:
        return None
    changes = [
        {"at": iso_utc(each.at_ms), "status": each.status, "cause": each.cause, "tokens_used": each.tokens_used}
        for each in added.transitions
    ]
    return {
        "objective": added.objective,
        "token_budget": added.token_budget,
        "status": changes[-1]["status"] if changes else "",
        "changes": changes,
        "changes_left_out": added.transitions_left_out,
    }


def _rpc(added: Account, heard: Traffic) -> dict[str, Any]:
    """The transcript may be cut, and a connection that its daemon's death ended told no counts: each is at least, so the larger counts."""
    names = ("requests", "errors", "notifications", "unknown", "refused")
    counts = {name: dict(getattr(heard, name) | added.rpc.get(name, Counter())) for name in names}
    return {
        "complete": heard.whole,
        "connections": heard.connections,
        "reattached": added.reattached,
        "unreachable": added.unreachable,
        **counts,
    }


def _sum(tokens: Iterable[Tokens]) -> dict[str, int]:
    made = dict(ZERO)
    for each in tokens:
        made["answers"] += 1
        for kind in KINDS:
            made[kind] += getattr(each, kind)
    return made


def _added(sums: Iterable[dict[str, int]]) -> dict[str, int]:
    made = dict(ZERO)
    for each in sums:
        made = {key: made[key] + each[key] for key in made}
    return made


def _told(heard: Traffic, thread_id: str) -> dict[str, int]:
    """What the app-server said of a thread, which comes without a count of answers."""
    total = heard.tokens.get(thread_id)
    if total is None:
        return dict(ZERO)
    return {
        "answers": 0,
        "input": total.input_tokens,
        "cached": total.cached_input_tokens,
        "cache_write": total.cache_write_input_tokens,
        "output": total.output_tokens,
        "reasoning": total.reasoning_output_tokens,
    }


def _sub_agents(added: Account, heard: Traffic, others: Sequence[Rollout]) -> list[dict[str, Any]]:
    left = {each.thread_id for each in others}
    made = [
        {
            "thread_id": each.thread_id,
            "parent_id": each.parent_id,
            "path": each.agent_path[:200],
            "rollout": True,
            "commands": _commands(each),
            "tokens": _sum(each.used()),
        }
        for each in others
    ]
    unseen = [thread_id for thread_id in heard.tokens if thread_id not in left and thread_id not in added.thread_ids]
    made += [
        {"thread_id": thread_id[:200], "parent_id": "", "path": "", "rollout": False, "commands": 0, "tokens": _told(heard, thread_id)}
        for thread_id in unseen
    ]
    return made[:SUB_AGENTS_AT_MOST]


def _tokens(run: Finished, added: Account, heard: Traffic, main: Rollout | None, others: Sequence[Rollout]) -> dict[str, Any]:
    client: dict[str, Any] | None = None
    subs = _added(each["tokens"] for each in _sub_agents(added, heard, others))
    if main is not None:
        client = {"source": "rollouts", "main": _sum(main.used()), "sub_agents": subs}
    elif added.thread_id in heard.tokens:
        client = {"source": "app-server", "main": _told(heard, added.thread_id), "sub_agents": subs}
    gateway = None if run.spent is None else _gateway(run.spent, run.answers, run.in_flight)
    difference: dict[str, Any] | None = None
    explained: bool | None = None
    if client is not None and gateway is not None:
        seen = _added([client["main"], client["sub_agents"]])
        total = {**gateway["total"], "answers": gateway["answers"]}
        difference = {key: total[key] - seen[key] for key in ZERO}
        if client["source"] == "app-server":
            difference["answers"] = None
        threads = [each for each in (main, *others) if each is not None]
        explained = _explained(run, added, difference, gateway, client["source"], threads)
    return {"client": client, "gateway": gateway, "difference": difference, "explained": explained}


def _gateway(spent: Sequence[Spent], answers: int, in_flight: int) -> dict[str, Any]:
    models = {each.model[:200]: _model(each) for each in spent}
    total = {key: sum(each[key] for each in models.values()) for key in (*KINDS, "requests", "failed", "unknown")}
    return {"models": models, "total": {**total, "cost_usd": cost_usd(spent)}, "answers": answers, "in_flight": in_flight}


def _model(spent: Spent) -> dict[str, Any]:
    sums = {kind: getattr(spent, kind) for kind in KINDS}
    counts = {"requests": spent.requests, "failed": spent.failed, "unknown": spent.unknown}
    cost = None if spent.cost_nusd is None else spent.cost_nusd / 1e9
    return {**sums, **counts, "cost_usd": cost}


def _explained(
    run: Finished, added: Account, difference: dict[str, Any], gateway: dict[str, Any], source: str, threads: Sequence[Rollout]
) -> bool:
    """Whether both counted the same, but for answers of which one of them cannot know.

    The gateway does not know the tokens of a request that was cut or not told yet; codex may not have written down the last answer of a
    thread that was stopped in the middle of a turn.
    """
    if source == "app-server":
        return not any(difference[kind] for kind in KINDS)
    if not any(difference.values()):
        return True
    cut = int(gateway["total"]["unknown"] + gateway["in_flight"])
    answers: int = difference["answers"]
    if answers < 0:
        return -answers <= cut
    stopped = added.halted or run.void is not None or run.ended_by is None
    return 0 < answers <= cut + sum(stopped or _open(each) for each in threads)


def _commands(rollout: Rollout) -> int:
    return sum(isinstance(event, Ran) for event in rollout.events)


def _open(rollout: Rollout) -> bool:
    """Whether its last turn has no end."""
    last = next((event for event in reversed(rollout.events) if isinstance(event, TurnBegan | TurnEnded)), None)
    return isinstance(last, TurnBegan)


def _called(rollouts: Iterable[Rollout]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for each in rollouts:
        for event in each.events:
            if isinstance(event, Called):
                name = event.name[:100]
                counts[name if name in counts or len(counts) < TOOLS_AT_MOST else "(others)"] += 1
    return dict(counts)


def _kept(
    run: Finished, rollouts: Sequence[Rollout], passed: Sequence[str], looked: Sequence[Database], made: Made, source: str
) -> dict[str, Any]:
    left_out = [{"path": each.path[:300], "why": each.why[:300]} for each in run.kept if each.why]
    left_out += [{"path": "sessions", "why": why[:300]} for why in passed]
    left_out += [{"path": f"sessions: {each.thread_id}", "why": "too large to be read to its end"} for each in rollouts if each.cut]
    unknown: Counter[str] = Counter()
    for each in rollouts:
        unknown.update(each.unknown)
    there = [each for each in run.kept if not each.why]
    told = {"source": source, "steps": made.steps, "cut": made.cut, "left_out": made.left_out}
    return {
        "files": len(there),
        "bytes": sum(each.size_bytes for each in there),
        "left_out": left_out[:LEFT_OUT_AT_MOST],
        "rollouts": len(rollouts),
        "unreadable": sum(each.unreadable for each in rollouts),
        "first_unreadable": next((each.first_unreadable for each in rollouts if each.first_unreadable), ""),
        "unknown": dict(unknown),
        "databases": [
            {"name": db.name[:200], "bytes": db.size_bytes, "log_bytes": db.log_bytes, "tables": db.tables, "check": db.check}
            for db in looked
        ],
        "trajectory": None if made.document is None else told,
    }


def _remarks(data: dict[str, Any]) -> list[Remark]:
    """What becomes a finding on the trial; what its log alone tells is found elsewhere (core/agent_rules.py)."""
    remarks: list[Remark] = []
    turns, tokens, kept, given = data["turns"], data["tokens"], data["kept"], data["given"]
    if given["config_same"] is False:
        remarks.append(Remark("config_changed", f"config.toml was {given['config_before']}, and is {given['config_after']} after the run"))
    if tokens["explained"] is False:
        differ = ", ".join(f"{key} {value:+d}" for key, value in tokens["difference"].items() if value)
        remarks.append(Remark("usage_differs", f"the gateway counted other tokens than codex ({differ}); the gateway's count"))
    incomplete = [f"{each['path']}: {each['why']}" for each in kept["left_out"]]
    if kept["unreadable"]:
        incomplete.append(f"{kept['unreadable']} lines of rollouts are unreadable, the first: {kept['first_unreadable']}")
    databases = [*kept["databases"], *(data["loopx"] or {}).get("databases", ())]
    incomplete += [f"{each['name']}: {each['check']}" for each in databases if each["check"] not in ("ok", TOO_LARGE)]
    if data["thread_id"] and turns["by_status"] and not kept["rollouts"]:
        incomplete.append("no rollout was left")
    if incomplete:
        remarks.append(Remark("receipt_incomplete", "; ".join(incomplete)[:2000]))
    return remarks
