"""A codex run's receipt: what it adds up from the log, when it is refused (fault e03), and when two counts of tokens agree."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marathond.agents import codex
from marathond.agents.codex import account, receipt, summary
from marathond.agents.codex.account import add_up
from marathond.agents.codex.atif import trajectory
from marathond.agents.codex.databases import Database
from marathond.agents.codex.rollout import Rollout, TurnBegan, Used
from marathond.agents.codex.shapes import Tokens
from marathond.agents.codex.traffic import Traffic
from marathond.core.model import Arm
from marathond.core.names import Drive, EndedBy
from marathond.ports.agent import Finished, Kept, LogEntry, ReceiptInvalid, Remark, RunDir, Spent
from tests.support.codex_rollouts import ABOUT, AT, events, family, recorded, tokens
from tests.support.codex_trial import ListLog, codex_arm

TURN = {"status": "completed", "cause": "first", "info": "", "message": "", "commands": 2, "acts": 2, "said": 1, "duration_ms": 700}
Log = Sequence[tuple[str, Mapping[str, Any]]]


def turn(turn_id: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "turn_completed", {**TURN, "turn_id": turn_id, "heard": True, **more}


def started(turn_id: str) -> tuple[str, dict[str, Any]]:
    return "turn_started", {"turn_id": turn_id}


def goal(status: str, used: int = 0) -> tuple[str, dict[str, Any]]:
    return "goal", {"status": status, "tokens_used": used}


BEGIN: Log = [
    ("prepared", {"uid": 0, "cwd": "/app", "untrusted": ["/app"], "base_url": "http://127.0.0.1:8790/v1", "config_sha256": "ab"}),
    ("server", {"pid": 7}),
    ("thread_intended", {}),
    ("thread", {"thread_id": "thread", "model": "gpt-5.5", "effort": "high", "cwd": "/app", "path": "/x"}),
    ("goal_set", {"objective": "Finish the task.", "token_budget": None}),
    ("turn_intended", {"n": 1, "cause": "first", "mark": "m", "pause_s": 0.0}),
    goal("active"),
    ("turn_accepted", {"mark": "m", "turn_id": "t1"}),
    started("t1"),
]
END: Log = [("ended", {"by": "agent", "why": "goal complete"})]


def entries(*log: tuple[str, Mapping[str, Any]]) -> list[LogEntry]:
    return [LogEntry(number, kind, detail, number * 1000, number * 1000) for number, (kind, detail) in enumerate(log, 1)]


def causes(*log: tuple[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(each.status, each.cause) for each in add_up(entries(*BEGIN, *log)).transitions]


# ---- the log, added up


def test_who_brought_a_goals_changes_about() -> None:
    ended = causes(goal("blocked"), turn("t1"), ("unblock", {"n": 1, "cause": "model", "pause_s": 0.0}), goal("active"), started("t2"))
    assert ended == [("active", "arm"), ("blocked", "model"), ("active", "operator")]
    failed = causes(goal("blocked"), turn("t1", status="failed"), ("unblock", {"n": 1, "cause": "infra", "pause_s": 5.0}), goal("active"))
    assert failed == [("active", "arm"), ("blocked", "infrastructure"), ("active", "retry")]
    assert causes(goal("complete"), turn("t1"))[-1] == ("complete", "model")
    assert causes(goal("complete"))[-1] == ("complete", "model"), "said before its turn's end"
    assert causes(goal("usageLimited"), turn("t1", status="failed"))[-1] == ("usageLimited", "provider")
    assert causes(goal("budgetLimited"), turn("t1"))[-1] == ("budgetLimited", "token budget")
    assert causes(goal("paused"))[-1] == ("paused", "container"), "the agent's shell reaches its own control socket"
    assert causes(("halt", {}), ("halted", {"goal": "paused", "turn": "t1", "ms": 20}))[-1] == ("paused", "harness")
    assert causes(goal("active"), goal("active")) == [("active", "arm")], "said again after a re-attachment"


def test_turns_are_counted_once_by_status_and_cause() -> None:
    log = [
        turn("t1"),
        turn("t1"),
        started("t2"),
        turn("t2", status="failed", info="serverOverloaded", heard=False, cause="goal"),
        started("t3"),
    ]
    made = add_up(entries(*BEGIN, *log, ("silent_turn", {"turn_id": "t1"}), ("reattached", {"running": "t3"})))
    assert (made.turns, made.causes) == ({"completed": 1, "failed": 1}, {"first": 1, "goal": 1})
    assert made.begun - made.over == {"t3"} and (made.unheard, made.silent, made.reattached) == (1, 1, 1)
    assert made.errors == {"serverOverloaded": 1} and made.commands == 4


def test_c06_what_loopx_said_and_what_an_operator_did_for_it_is_counted_apart() -> None:
    quota = {"should_run": True, "decision": "run", "action": "run_now"}
    made = add_up(
        entries(
            *(*BEGIN[:4], ("wake_intended", {"n": 1, "cause": "first", "mark": "m", "pause_s": 0.0, "turn_id": "w1"}), turn("t1")),
            *(("quota", quota), ("loopx_gate", {"ids": ["g1", "g2"]}), ("unblock", {"n": 1, "cause": "gate", "pause_s": 0.0, "mark": ""})),
            *(("gate_cleared", {"ids": ["g1", "g2"]}), ("quota", quota)),
            ("wake_intended", {"n": 2, "cause": "retry", "mark": "m", "pause_s": 0.0, "turn_id": "w2"}),
            *(("replayed", {"turn_id": "w2"}), ("loopx_refused", {"call": "quota should-run", "code": "refused", "detail": "no"})),
        )
    )
    assert ([(wake.cause, wake.turn_id) for wake in made.loopx.wakes], made.retries) == ([("first", "w1"), ("retry", "w2")], 1)
    assert (made.loopx.replayed, made.loopx.polls, made.loopx.cleared) == (["w2"], {"run_now": 2}, ["g1", "g2"])
    assert (made.unblocks, made.loopx.refused) == ({"gate": 1}, "quota should-run: no")
    assert causes(goal("blocked"), turn("t1"), ("unblock", {"n": 1, "cause": "gate"}), goal("active"))[-1] == ("active", "operator")
    with pytest.raises(ReceiptInvalid, match=r"\(quota\): action: Field required"):
        add_up(entries(("quota", {"should_run": True, "decision": "run"})))


def test_long_logs_are_cut_and_say_so() -> None:
    made = add_up(entries(*BEGIN, *(goal("blocked" if n % 2 else "active") for n in range(3000)), *[("warning", {"text": "x"})] * 80))
    assert len(made.transitions) == 1000 and made.transitions_left_out == 2000
    assert len(made.warnings) == 50 and made.warnings_left_out == 30


def test_e03_a_renamed_field_of_the_log_is_an_error_by_name() -> None:
    kind, detail = turn("t1")
    renamed = {**detail, "command_count": detail["commands"]}
    del renamed["commands"]
    with pytest.raises(ReceiptInvalid, match=r"entry 10 of the agent's log \(turn_completed\): commands: Field required"):
        add_up(entries(*BEGIN, (kind, renamed)))
    with pytest.raises(ReceiptInvalid, match="turn_completed\\): commands: Input should be a valid integer"):
        add_up(entries(*BEGIN, (kind, {**detail, "commands": "2"})))


def test_e03_a_renamed_kind_of_the_log_is_an_error_by_name() -> None:
    with pytest.raises(ReceiptInvalid, match="entry 10 of the agent's log: kind 'turn_done' is not known"):
        add_up(entries(*BEGIN, ("turn_done", {})))


def test_e03_every_kind_that_the_driver_writes_is_known() -> None:
    """Its names stand in calls of ``note`` and ``log.append``."""
    folder = Path(codex.__file__).parent
    written = {kind for path in folder.glob("*.py") for kind in re.findall(r'(?:\.note|log\.append)\(\s*"(\w+)"', path.read_text())}
    assert {"turn_completed", "prepared", "ended"} <= written <= set(account.KINDS)


# ---- the receipt

SPENT = Spent("gpt-5.5", 6, 1, 0, 5000, 2000, 0, 250, 100, 12_000_000)


def finished(tmp_path: Path, log: Sequence[LogEntry], arm: Arm, **known: Any) -> Finished:
    facts: dict[str, Any] = {
        **{"trial": "t0001", "campaign": "test", "task": "task", "replicate": 1, "attempt": 1, "gates": {"skills": "none"}},
        **{
            "kept": (Kept("sessions/a.jsonl", 10),),
            "package_sha256": "cd",
            "started_at_ms": 1_000,
            "ended_at_ms": 61_000,
            "ran_ms": 60_000,
        },
        **{"limit_ms": 90_000, "limit_origin": "own", "held_ms": 5, "ended_by": EndedBy.AGENT, "exit_code": None, "exit_source": "driver"},
        **{"void": None, "spent": (SPENT,), "answers": 5, "in_flight": 0},
        **known,
    }
    return Finished(run_dir=RunDir(tmp_path), arm=arm, log=ListLog(list(log)), instruction="Do it.\n", **facts)


def made(
    tmp_path: Path,
    *log: tuple[str, Mapping[str, Any]],
    main: Rollout | None = None,
    others: Sequence[Rollout] = (),
    heard: Traffic | None = None,
    after: str = "ab",
    looked: Sequence[Database] = (),
    **known: Any,
) -> tuple[receipt.CodexReceipt, list[Remark]]:
    told = entries(*BEGIN, *log)
    run, added = finished(tmp_path, told, codex_arm(Drive.GOAL), **known), add_up(told)
    drawn = trajectory(ABOUT, main, others) if main is not None else trajectory(ABOUT, events())
    data, remarks = summary.receipt(run, added, heard or Traffic(), main, others, (), after, looked, drawn, "rollouts")
    return receipt.validated(data), remarks


def test_a_receipt_of_a_recorded_run(tmp_path: Path) -> None:
    one, remarks = made(tmp_path, turn("t1"), goal("complete"), *END, main=recorded("direct"))
    assert remarks == [] and one.tokens.explained is True and one.tokens.difference is not None
    assert one.tokens.client is not None and one.tokens.client.main.model_dump() == {
        **{"input": 5000, "cached": 2000, "cache_write": 0, "output": 250, "reasoning": 100, "answers": 5}
    }
    assert one.tokens.gateway is not None and one.tokens.gateway.total.cost_usd == 0.012
    assert one.given.config_same is True and one.given.instruction.chars == 7 and one.given.gates == {"skills": "none"}
    assert one.names.treatment["objective"] == "Finish the task." and one.versions.told == ["0.171.0"]
    assert one.tools_called == {"exec_command": 3, "apply_patch": 1} and one.turns.told == {"completed": 1} and one.turns.commands == 3
    assert one.kept.trajectory is not None and one.kept.trajectory.steps == 8
    assert (one.end.by, one.end.why, one.end.deadline) == ("agent", "goal complete", False)


def test_sub_agents_are_told_apart(tmp_path: Path) -> None:
    root, others = family("sub-agent")
    one, _ = made(tmp_path, turn("t1"), main=root, others=others)
    assert one.tokens.client is not None and one.tokens.client.main.answers > 0
    assert [(each.path, each.rollout, each.commands, each.tokens.answers) for each in one.sub_agents] == [
        ("/main/kid", True, 1, one.tokens.client.sub_agents.answers)
    ]


def test_what_is_not_as_it_should_be_is_said(tmp_path: Path) -> None:
    broken = recorded("direct")
    broken.unreadable, broken.first_unreadable = 2, "CommandItem: exit_code: Field required"
    _, remarks = made(
        tmp_path,
        turn("t1"),
        main=broken,
        after="xy",
        looked=[Database("state_5.sqlite", 10, 0, 0, "DatabaseError: file is not a database")],
        kept=(Kept("sessions/huge.jsonl", 1 << 40, "too large"),),
    )
    said = {remark.code: remark.detail for remark in remarks}
    assert set(said) == {"config_changed", "receipt_incomplete"}
    for words in ("huge.jsonl: too large", "2 lines of rollouts are unreadable, the first: CommandItem: exit_code", "state_5.sqlite: Dat"):
        assert words in said["receipt_incomplete"]


def less(**fewer: int) -> Spent:
    return replace(SPENT, **{kind: getattr(SPENT, kind) - by for kind, by in fewer.items()})


ONE = {"input": 1000, "cached": 400, "output": 50, "reasoning": 20}
ONE_MORE = {"spent": (less(**{kind: -tokens for kind, tokens in ONE.items()}),), "answers": 6}
OPEN = (TurnBegan(AT, "t9", ""), Used(AT, "r", tokens(1000)))


@pytest.mark.parametrize(
    ("known", "explained"),
    [
        pytest.param({}, True, id="the-same"),
        pytest.param({"spent": (less(**ONE),), "answers": 4}, False, id="the-client-saw-one-more"),
        pytest.param({"spent": (replace(less(**ONE), unknown=1),), "answers": 4}, True, id="one-was-cut"),
        pytest.param({"spent": (less(**ONE),), "answers": 4, "in_flight": 1}, True, id="one-is-not-told-yet"),
        pytest.param({"spent": (less(input=1),)}, False, id="as-many-answers-of-other-sizes"),
        pytest.param({**ONE_MORE, "ended_by": None, "void": ("x", "y")}, True, id="one-was-not-written-for-the-trial-was-void"),
        pytest.param({"spent": None, "answers": 0}, None, id="nobody-counted"),
    ],
)
def test_when_two_counts_agree(tmp_path: Path, known: dict[str, Any], explained: bool | None) -> None:
    one, remarks = made(tmp_path, turn("t1"), main=recorded("direct"), **known)
    assert one.tokens.explained is explained
    assert [remark.code for remark in remarks] == (["usage_differs"] if explained is False else [])


def test_the_last_answer_of_a_sub_agent_that_was_killed_may_be_missing(tmp_path: Path) -> None:
    kid = events(*OPEN, thread_id="kid", parent_id="thread")
    counted = replace(SPENT, input=7000, cached=4000, cache_write=2000, output=2250, reasoning=2100)
    one, _ = made(tmp_path, turn("t1"), main=recorded("direct"), others=[kid], spent=(counted,), answers=7)
    assert one.tokens.difference is not None and one.tokens.difference.answers == 1 and one.tokens.explained is True


def test_without_a_rollout_what_the_app_server_told_is_taken(tmp_path: Path) -> None:
    kinds = {"inputTokens": 5000, "cachedInputTokens": 2000, "cacheWriteInputTokens": 0, "outputTokens": 250, "reasoningOutputTokens": 100}
    totals = Tokens.model_validate({**kinds, "totalTokens": 5250})
    one, remarks = made(tmp_path, turn("t1"), heard=Traffic(tokens={"thread": totals}))
    assert one.tokens.client is not None and one.tokens.client.source == "app-server" and one.tokens.explained is True
    assert [remark.code for remark in remarks] == ["receipt_incomplete"] and "no rollout was left" in remarks[0].detail


def test_counts_of_two_sources_are_at_least_so_many(tmp_path: Path) -> None:
    counts = {"requests": {"turn/start": 3}, "errors": {}, "notifications": {}, "unknown": {}, "refused": {}, "sub_acts": {}}
    heard = Traffic()
    heard.requests.update({"turn/start": 2, "initialize": 4})
    one, _ = made(tmp_path, turn("t1"), ("rpc_counts", counts), heard=heard, main=recorded("direct"))
    assert one.rpc.requests == {"turn/start": 3, "initialize": 4} and one.rpc.complete is False


# ---- its schema


def test_e03_the_schema_is_the_one_that_was_checked_in() -> None:
    """A field that was renamed, added or left out changes it: a new number, and `python -m marathond.agents.codex.receipt`."""
    assert receipt.SCHEMA_FILE.read_text(encoding="utf-8") == receipt.json_schema()
    assert json.loads(receipt.json_schema())["properties"]["schema_number"]["const"] == receipt.SCHEMA


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["turns"].update(comands=data["turns"].pop("commands")), "turns.commands: Field required"),
        (lambda data: data.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda data: data["time"].update(ran_ms="60"), "time.ran_ms: Input should be a valid integer"),
        (lambda data: data.update(schema_number=1), "schema_number"),
    ],
)
def test_e03_a_receipt_with_a_renamed_field_is_refused_by_name(tmp_path: Path, change: Any, said: str) -> None:
    one, _ = made(tmp_path, turn("t1"), main=recorded("direct"))
    data = one.model_dump(mode="json")
    assert receipt.validated(data) == one
    change(data)
    with pytest.raises(ReceiptInvalid, match=re.escape(said)):
        receipt.validated(data)


def test_e03_a_receipt_of_another_schema_is_not_read_as_this_one(tmp_path: Path) -> None:
    one, _ = made(tmp_path, turn("t1"), main=recorded("direct"))
    with pytest.raises(ReceiptInvalid, match="receipt of schema 1: this version reads 2"):
        receipt.validated(one.model_dump(mode="json"), schema=1)
