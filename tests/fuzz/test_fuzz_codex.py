"""What codex says and leaves: frames, rollouts, transcripts, databases, the log.  Read or refused by name; what is left is a receipt."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.agents.codex import atif, databases, rollout, summary, traffic, wire
from marathond.agents.codex.account import add_up
from marathond.agents.codex.client import Event
from marathond.agents.codex.errors import ProtocolDrift
from marathond.agents.codex.gates import read_survey
from marathond.agents.codex.messages import ConfigInForce, FeaturesPage, GoalMayBe, ItemsPage, SkillsFound, ThreadReady, TurnsPage
from marathond.agents.codex.notices import NOTIFICATIONS
from marathond.agents.codex.receipt import validated
from marathond.agents.codex.rollout import Rollout, Used
from marathond.agents.codex.shapes import Wire, parse
from marathond.agents.codex.story import Story
from marathond.core.names import EndedBy
from marathond.ports.agent import Finished, LogEntry, ReceiptInvalid, RunDir
from tests.support.codex_rollouts import ABOUT, DATA, NAMES, recorded
from tests.support.codex_trial import ListLog, codex_arm
from tests.support.fuzzing import dumped, few, fuzz, places, refused_by, spoiled, torn

ITEM = {
    "id": "i1",
    "type": "commandExecution",
    "status": "completed",
    "command": "ls",
    "exitCode": 0,
    "durationMs": 5,
    "aggregatedOutput": "a",
}
TURN = {
    "id": "t1", "status": "failed", "items": [], "itemsView": "notLoaded", "startedAt": 1, "completedAt": 2, "durationMs": 1000,
    "error": {"message": "no", "codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 500}}, "additionalDetails": None},
}  # fmt: skip
THREAD = {
    "id": "th", "status": {"type": "idle"}, "path": "/x", "cwd": "/app", "modelProvider": "m", "cliVersion": "0.171.0",
    "parentThreadId": None, "source": "appServer", "preview": "",
}  # fmt: skip
GOAL = {
    "threadId": "th", "objective": "o", "status": "active", "tokensUsed": 5, "tokenBudget": None, "timeUsedSeconds": 1, "createdAt": 1,
    "updatedAt": 2,
}  # fmt: skip
TOKENS = {
    "inputTokens": 10, "cachedInputTokens": 4, "cacheWriteInputTokens": 0, "outputTokens": 2, "reasoningOutputTokens": 1, "totalTokens": 12,
}  # fmt: skip
SKILL = {"name": "n", "description": "d", "path": "/p", "scope": "user", "enabled": True}
ON = {"threadId": "th", "turnId": "t1"}
HEARD: Mapping[str, Mapping[str, Any]] = {
    "thread/started": {"thread": THREAD},
    "thread/status/changed": {**ON, "status": {"type": "active"}},
    "turn/started": {**ON, "turn": {**TURN, "status": "inProgress"}},
    "turn/completed": {**ON, "turn": TURN},
    "item/started": {**ON, "item": ITEM, "startedAtMs": 1},
    "item/completed": {**ON, "item": ITEM, "completedAtMs": 2},
    "thread/goal/updated": {**ON, "goal": GOAL},
    "thread/goal/cleared": ON,
    "thread/tokenUsage/updated": {**ON, "tokenUsage": {"total": TOKENS, "last": TOKENS, "modelContextWindow": 1000}},
    "error": {**ON, "willRetry": True, "error": TURN["error"]},
    "warning": {"message": "m", "threadId": None},
    "configWarning": {"summary": "s", "details": None},
    "model/rerouted": {**ON, "fromModel": "a", "toModel": "b"},
    "thread/closed": ON,
}
ANSWERS: Mapping[type[Wire], Mapping[str, Any]] = {
    TurnsPage: {"data": [TURN], "nextCursor": None},
    ItemsPage: {"data": [{"turnId": "t1", "item": ITEM}], "nextCursor": "c"},
    GoalMayBe: {"goal": GOAL},
    FeaturesPage: {"data": [{"name": "goals", "enabled": True}], "nextCursor": None},
    ConfigInForce: {"config": {"model": "m"}, "origins": {}},
    SkillsFound: {"data": [{"cwd": "/app", "skills": [SKILL], "errors": []}]},
    ThreadReady: {
        "thread": THREAD, "model": "m", "modelProvider": "p", "approvalPolicy": "never", "sandbox": {"type": "dangerFullAccess"},
        "reasoningEffort": "high", "cwd": "/app", "instructionSources": [],
    },
}  # fmt: skip
FRAMES: list[Any] = [
    *({"method": method, "params": params} for method, params in HEARD.items()),
    {"id": 3, "result": ANSWERS[TurnsPage]},
    {"id": 4, "error": {"code": -32600, "message": "no", "data": {"a": 1}}},
    {"id": "s1", "method": "item/commandExecution/requestApproval", "params": ON},
]
LOG: list[Any] = [
    ["prepared", {"uid": 0, "cwd": "/app", "untrusted": ["/app"], "base_url": "http://127.0.0.1:8790/v1", "config_sha256": "ab"}],
    ["thread", {"thread_id": "thread", "model": "gpt-5.5", "effort": "high", "cwd": "/app", "path": "/x"}],
    ["goal_set", {"objective": "Finish the task.", "token_budget": None}],
    ["turn_intended", {"n": 1, "cause": "first", "mark": "m", "pause_s": 0.0}],
    ["goal", {"status": "active", "tokens_used": 0}],
    ["turn_accepted", {"mark": "m", "turn_id": "t1"}],
    ["turn_started", {"turn_id": "t1"}],
    ["warning", {"text": "w"}],
    ["turn_completed", {"turn_id": "t1", "status": "failed", "cause": "first", "info": "x", "message": "", "commands": 2, "acts": 2,
                        "said": 1, "duration_ms": 700, "heard": True}],
    ["unblock", {"n": 1, "cause": "infra", "pause_s": 5.0}],
    ["rpc_counts", {"requests": {"a": 1}, "errors": {}, "notifications": {}, "unknown": {}, "refused": {}}],
    ["ended", {"by": "agent", "why": "goal complete"}],
]  # fmt: skip
LINES = {name: [json.loads(line) for line in (DATA / f"{name}.jsonl").read_bytes().splitlines()] for name in NAMES}


def test_every_kind_of_notification_is_among_the_samples() -> None:
    assert HEARD.keys() == NOTIFICATIONS.keys()
    assert all(parse(method, NOTIFICATIONS[method], params) for method, params in HEARD.items())
    assert all(parse("answer", kind, document) for kind, document in ANSWERS.items())


# ---- frames


@fuzz
@given(st.sampled_from(FRAMES).flatmap(spoiled), st.data())
def test_e03_a_frame_is_a_message_or_drift_and_never_half_a_character(raw: Any, data: st.DataObject) -> None:
    whole = dumped(raw)
    text = (data.draw(torn(whole)) if data.draw(st.booleans()) else whole).decode("utf-8", "replace")
    message = refused_by(lambda: wire.read(wire.load(text)), ProtocolDrift)
    if isinstance(message, ProtocolDrift):
        return
    assert json.dumps(wire.load(text), ensure_ascii=False).encode()
    if isinstance(message, wire.Asked):
        assert not isinstance(message.id, bool) and wire.encode(wire.refusal(message)).encode()
    if isinstance(message, wire.Answer | wire.Failure):
        assert type(message.id) is int
    if isinstance(message, wire.Heard) and message.method in NOTIFICATIONS:
        body = refused_by(lambda: parse(message.method, NOTIFICATIONS[message.method], message.params), ProtocolDrift)
        if not isinstance(body, ProtocolDrift):
            story = Story("th")
            story.hear(Event(1, message.method, message.params, body, "th"))
            assert story.tokens is None or type(story.tokens.total.total_tokens) is int
            assert story.commands() >= 0 and story.ended().total() <= 1


@fuzz
@given(st.sampled_from(sorted(ANSWERS, key=str)).flatmap(lambda kind: spoiled(ANSWERS[kind]).map(lambda raw: (kind, raw))))
def test_e03_an_answer_is_of_its_shape_or_drift(case: tuple[type[Wire], Any]) -> None:
    kind, answer = case
    raw = refused_by(lambda: wire.load(dumped({"result": answer}).decode())["result"], ProtocolDrift)
    made = refused_by(lambda: parse("answer", kind, raw), ProtocolDrift)
    if not isinstance(made, ProtocolDrift):
        assert parse("answer", kind, json.loads(made.model_dump_json())) == made


@fuzz
@given(torn(b"uid 1000\ncwd /app\nlogical /app\nroot /\n", (b"uid ", "uid ²\n".encode(), b"uid -1\n", b"cwd \xff\n")))
def test_a_survey_is_a_uid_and_a_folder_or_refused(text: bytes) -> None:
    place = refused_by(lambda: read_survey(text.decode("utf-8", "replace")), ValueError)
    assert isinstance(place, ValueError) or (place.uid >= 0 and place.cwd)


# ---- rollouts


def finished(folder: Path, entries: list[LogEntry]) -> Finished:
    return Finished(
        run_dir=RunDir(folder), arm=codex_arm(), log=ListLog(entries), instruction="Do it.\n", trial="t0001", campaign="test", task="task",
        replicate=1, attempt=1, gates={}, kept=(), package_sha256="cd", started_at_ms=1_000, ended_at_ms=61_000, ran_ms=60_000,
        limit_ms=90_000, limit_origin="own", held_ms=5, ended_by=EndedBy.AGENT, exit_code=None, exit_source="driver", void=None, spent=(),
        answers=5, in_flight=0,
    )  # fmt: skip


def receipt_of(folder: Path, threads: list[Rollout], passed: list[str], heard: traffic.Traffic, looked: list[databases.Database]) -> None:
    """Whatever was left: a receipt and a trajectory are made of it, and both can be stored."""
    entries = [LogEntry(number, kind, detail, number * 1000, number * 1000) for number, (kind, detail) in enumerate(LOG, 1)]
    run, main = finished(folder, entries), threads[0] if threads else None
    drawn = atif.trajectory(ABOUT, main, threads[1:]) if main is not None else atif.Made(None)
    assert drawn.document is None or json.dumps(drawn.document, allow_nan=False)
    data, _ = summary.receipt(run, add_up(entries), heard, main, threads[1:], passed, "ab", looked, drawn, "rollouts")
    assert json.dumps(validated(data).model_dump(mode="json"), ensure_ascii=False).encode()


@st.composite
def rollout_files(draw: st.DrawFn) -> bytes:
    """A recorded rollout in which up to four lines are spoiled, and now and then the file."""
    lines = list(LINES[draw(st.sampled_from(NAMES))])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = draw(spoiled(lines[at]))
    whole = b"".join(dumped(line) + b"\n" for line in lines)
    return draw(torn(whole)) if draw(st.integers(0, 2)) == 0 else whole


def test_a_rollout_is_events_and_counts_of_what_was_unreadable(tmp_path: Path) -> None:
    hurt = os.fsencode(tmp_path) + b"/\xff.jsonl"

    @fuzz
    @given(rollout_files(), rollout_files())
    def read(one: bytes, other: bytes) -> None:
        (tmp_path / "a.jsonl").write_bytes(one)
        Path(os.fsdecode(hurt)).write_bytes(other)
        threads, passed = rollout.read_all(tmp_path)
        assert len(threads) + len(passed) == 2
        for event in (event for each in threads for event in each.events if isinstance(event, Used)):
            assert event.tokens.input == 0 or str(event.tokens.input).encode() in one + other
        receipt_of(tmp_path, threads, passed, traffic.Traffic(), [])

    read()


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01", "x" * 65, "²"])
def test_an_instant_that_no_calendar_has_makes_its_line_unreadable(tmp_path: Path, at: str) -> None:
    lines = [dict(line) for line in LINES["direct"]]
    lines[3]["timestamp"] = at
    (tmp_path / "a.jsonl").write_bytes(b"".join(dumped(line) + b"\n" for line in lines))
    made = rollout.read(tmp_path / "a.jsonl")
    assert made is not None and made.unreadable == (0 if at == "2026-01-01" else 1)


# ---- the transcript and what lies beside it

SAID = [
    {"way": "out", "message": {"id": 1, "method": "initialize", "params": {}}},
    {
        "way": "out",
        "message": {"id": 3, "method": "turn/start", "params": {"input": [{"type": "text", "text": "Do it."}], "clientUserMessageId": "m"}},
    },
    *({"way": "in", "message": frame} for frame in FRAMES),
    {"way": "in", "message": {"id": 3, "result": ANSWERS[ItemsPage]}},
]


def test_a_transcript_is_counted_whatever_stands_in_it(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"

    @fuzz
    @given(spoiled(SAID), st.data())
    def read(entries: Any, data: st.DataObject) -> None:
        whole = b"".join(dumped(entry) + b"\n" for entry in entries) if isinstance(entries, list) else dumped(entries)
        path.write_bytes(data.draw(torn(whole, (b'"method"', b"\n"))) if data.draw(st.booleans()) else whole)
        heard = traffic.count(path)
        assert all(type(count) is int and count > 0 for counts in (heard.requests, heard.notifications) for count in counts.values())
        traffic.commands(path, "th"), traffic.sent(path)
        made = atif.from_items(ABOUT, "th", traffic.items(path, "th"))
        assert made.document is None or json.dumps(made.document, allow_nan=False)
        receipt_of(tmp_path, [], [], heard, [])

    read()


def test_e03_a_log_adds_up_or_names_what_it_does_not_know() -> None:
    @fuzz
    @given(spoiled(LOG))
    def added(log: Any) -> None:
        if not isinstance(log, list) or not all(isinstance(each, list) and len(each) == 2 and isinstance(each[1], dict) for each in log):
            return
        entries = [LogEntry(number, str(kind), detail, number, number) for number, (kind, detail) in enumerate(log, 1)]
        made = refused_by(lambda: add_up(entries), ReceiptInvalid)
        if not isinstance(made, ReceiptInvalid):
            assert made.turns.total() <= len(log) and made.retries >= 0

    added()


def test_e03_a_stored_receipt_is_whole_or_refused(tmp_path: Path) -> None:
    entries = [LogEntry(number, kind, detail, number, number) for number, (kind, detail) in enumerate(LOG, 1)]
    main = recorded("goal")
    data, _ = summary.receipt(
        finished(tmp_path, entries),
        add_up(entries),
        traffic.Traffic(requests=Counter(a=1)),
        main,
        (),
        (),
        "ab",
        [],
        atif.Made(None),
        "rollouts",
    )
    assert len(list(places(data))) > 100

    @fuzz
    @given(spoiled(data))
    def read(stored: Any) -> None:
        made = refused_by(lambda: validated(stored), ReceiptInvalid)
        assert isinstance(made, ReceiptInvalid) or made.receipt == "codex"

    read()


def test_a_database_is_looked_into_and_never_changed(tmp_path: Path) -> None:
    folder, source = tmp_path / "home", tmp_path / "source.sqlite"
    folder.mkdir()
    with sqlite3.connect(source) as connection:
        connection.executescript("CREATE TABLE a (b TEXT); INSERT INTO a VALUES ('x'); CREATE INDEX c ON a (b);")
    connection.close()
    whole = source.read_bytes()
    named = Path(os.fsdecode(os.fsencode(folder) + b"/\xff.sqlite"))

    @few
    @given(torn(whole, (b"SQLite format 3\0", b"\0" * 4096)))
    def look(data: bytes) -> None:
        named.write_bytes(data)
        (found,) = databases.look(folder, tmp_path / "scratch")
        assert named.read_bytes() == data and found.check and found.tables >= 0
        receipt_of(tmp_path, [], [], traffic.Traffic(), [found])

    look()
    shutil.rmtree(folder)
    assert databases.look(folder, tmp_path / "scratch") == []
