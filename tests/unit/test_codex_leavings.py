"""What a run left, copied and looked into: hostile folders, the transcript's counts, databases with their write-ahead logs."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex import databases, traffic, transcript
from marathond.agents.codex.leavings import KEEPS
from marathond.flow import collecting
from marathond.ports.agent import RunDir

TOTAL = {
    "inputTokens": 5,
    "cachedInputTokens": 2,
    "cacheWriteInputTokens": 0,
    "outputTokens": 3,
    "reasoningOutputTokens": 1,
    "totalTokens": 8,
}


def written(path: Path, *said: tuple[str, dict[str, Any]]) -> Path:
    kept = transcript.Transcript(path)
    for way, message in said:
        kept.write({"way": way, "message": message})
    return path


def usage(thread_id: str, **more: int) -> dict[str, Any]:
    told = {"total": {**TOTAL, **more}, "last": TOTAL, "modelContextWindow": None}
    return {"method": "thread/tokenUsage/updated", "params": {"threadId": thread_id, "turnId": "t", "tokenUsage": told}}


def error(*, will_retry: bool) -> dict[str, Any]:
    told = {"message": "m", "codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 503}}}
    return {"method": "error", "params": {"threadId": "main", "turnId": "t", "willRetry": will_retry, "error": told}}


def test_traffic_is_counted_over_connections(tmp_path: Path) -> None:
    path = written(
        tmp_path / "m.jsonl",
        ("out", {"id": 1, "method": "initialize", "params": {}}),
        ("in", {"id": 1, "result": {}}),
        ("out", {"method": "initialized"}),
        ("out", {"id": 2, "method": "turn/start", "params": {}}),
        ("in", {"id": 2, "error": {"code": -32600, "message": "no"}}),
        ("in", {"id": 9, "method": "item/commandExecution/requestApproval", "params": {}}),
        ("in", {"method": "new/thing", "params": {}}),
        ("in", usage("main")),
        ("in", usage("kid")),
        ("in", usage("main", inputTokens=9)),
        ("in", error(will_retry=True)),
        ("in", error(will_retry=False)),
        ("out", {"id": 1, "method": "initialize", "params": {}}),
        ("in", {"id": 2, "error": {"code": 1, "message": "of nothing that was asked in this connection"}}),
    )
    heard = traffic.count(path)
    assert heard.connections == 2 and heard.whole
    assert heard.requests == {"initialize": 2, "turn/start": 1} and heard.errors == {"turn/start": 1, "?": 1}
    assert heard.refused == {"item/commandExecution/requestApproval": 1} and heard.unknown == {"new/thing": 1}
    assert heard.retried == {"httpConnectionFailed 503": 1}
    assert {thread: tokens.input_tokens for thread, tokens in heard.tokens.items()} == {"main": 9, "kid": 5}


def test_a_transcript_that_was_cut_or_is_strange_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", ("out", {"id": 1, "method": "initialize"}), ("in", usage("main", inputTokens=-1)))
    with path.open("ab") as stream:
        stream.write(
            b"\xff\n[]\n{}\n" + b'{"way":"in","message":7}\n' + b'{"way":"in","message":{"method":"x","params":[]}}\n' + b'{"way":"o'
        )
    heard = traffic.count(path)
    assert heard.requests == {"initialize": 1} and heard.notifications["x"] == 1
    assert traffic.count(tmp_path / "none.jsonl").whole is False


def test_items_are_told_once_in_their_order(tmp_path: Path) -> None:
    one, two = ({"type": "agentMessage", "id": name, "text": name} for name in ("one", "two"))
    completed = [{"threadId": thread, "turnId": "t", "item": item, "completedAtMs": 1} for thread, item in (("main", one), ("kid", two))]
    entries = [{"turnId": "t", "item": one}, {"turnId": "t", "item": two}, {"turnId": 7}]
    path = written(
        tmp_path / "m.jsonl",
        *(("in", {"method": "item/completed", "params": params}) for params in completed),
        ("in", {"id": 4, "result": {"data": entries, "nextCursor": None}}),
    )
    assert [item["id"] for item in traffic.items(path, "main")] == ["one", "two"]


def test_commands_of_all_threads_are_told_once_also_those_that_never_ended(tmp_path: Path) -> None:
    def item(name: str, command: object = "ls") -> dict[str, Any]:
        return {"type": "commandExecution", "id": name, "command": command}

    heard = [
        ("item/started", "main", item("one")),
        ("item/started", "kid", item("one", "loopx status")),
        ("item/completed", "main", item("one")),
        ("item/completed", "main", item("two")),
        ("item/started", "main", item("three", "sleep 1000")),
        ("item/started", "main", item("odd", 7)),
        ("item/completed", "main", {"type": "agentMessage", "id": "a", "text": "ls"}),
    ]
    history = [{"turnId": "t", "item": item("one")}, {"turnId": "t", "item": item("unheard")}]
    path = written(
        tmp_path / "m.jsonl",
        *(("in", {"method": method, "params": {"threadId": thread, "turnId": "t", "item": it}}) for method, thread, it in heard),
        ("in", {"id": 4, "result": {"data": history, "nextCursor": None}}),
    )
    told = [(each.thread_id, each.item_id, each.command) for each in traffic.commands(path, "main")]
    assert told == [
        *(("main", "one", "ls"), ("kid", "one", "loopx status"), ("main", "two", "ls")),
        *(("main", "three", "sleep 1000"), ("main", "unheard", "ls")),
    ]


def test_what_was_sent_is_told_by_its_mark(tmp_path: Path) -> None:
    def start(mark: str, *parts: object) -> tuple[str, dict[str, Any]]:
        return "out", {"id": 1, "method": "turn/start", "params": {"clientUserMessageId": mark, "input": list(parts)}}

    text = {"type": "text", "text": "Do it. "}
    path = written(tmp_path / "m.jsonl", start("m1", text, text), start("m2", {"type": "image"}, 7), ("in", {"method": "turn/start"}))
    assert traffic.sent(path) == {"m1": "Do it. Do it. ", "m2": ""}


# ---- databases


def abandoned(path: Path, rows: Iterable[int]) -> None:
    """A database whose rows stand in its write-ahead log alone, as a kill leaves it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE row (number INTEGER)")
        connection.executemany("INSERT INTO row VALUES (?)", [(number,) for number in rows])
        connection.commit()
        for name in (path.name, f"{path.name}-wal"):
            (path.parent / name).with_name(f"left-{name}").write_bytes((path.parent / name).read_bytes())
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        (path.parent / name).unlink(missing_ok=True)


def test_a_database_is_opened_with_its_log_and_nothing_of_it_changes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    abandoned(home / "x.sqlite", range(500))
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    assert set(before) == {"left-x.sqlite", "left-x.sqlite-wal"} and len(before["left-x.sqlite"]) <= 4096
    (found,) = databases.look(home, tmp_path / "scratch")
    assert (found.name, found.check, found.tables) == ("left-x.sqlite", "ok", 1) and found.log_bytes > 4096
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before and not (tmp_path / "scratch").exists()
    (home / "left-x.sqlite-wal").unlink()
    assert databases.look(home, tmp_path / "scratch")[0].tables == 0, "without its log the table is not there"


@pytest.mark.parametrize("content", [b"no database", b"", b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_no_database_is_said_in_sqlites_words(tmp_path: Path, content: bytes) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "x.sqlite").write_bytes(content)
    (found,) = databases.look(home, tmp_path / "scratch")
    assert (found.check == "ok") is (content == b"") and found.tables == 0


def test_a_databases_name_chooses_nothing(tmp_path: Path) -> None:
    """It could be a URI that leads elsewhere, with another mode."""
    home = tmp_path / "home"
    home.mkdir()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        ledger.execute("CREATE TABLE secret (x)")
    odd = ["%2e%2e%2fledger.db?mode=rw&x=.sqlite", "new?mode=rwc&x=.sqlite", "a#b.sqlite"]
    for name in odd:
        (home / name).write_bytes(b"no database")
    found = databases.look(home, tmp_path / "scratch")
    assert sorted(each.name for each in found) == sorted(odd)
    assert {(each.tables, each.check) for each in found} == {(0, "DatabaseError: file is not a database")}


def test_a_look_is_bounded_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    abandoned(home / "x.sqlite", range(200_000))
    monkeypatch.setattr(databases, "LOOKS_S", 0.0)
    monkeypatch.setattr(databases, "_STEPS", 1)
    assert [each.check for each in databases.look(home, tmp_path / "scratch")] == [databases.TOO_LARGE]


# ---- copies


def test_only_what_is_worth_keeping_is_copied_and_no_trick_is_followed(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    home = run.home
    (home / "sessions" / "2026").mkdir(parents=True)
    (home / "tmp").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("sk-secret")
    for name in ("auth.json", "tmp/x.sqlite", "notes.txt", "sessions/notes.txt"):
        (home / name).write_text("sk-secret")
    for name in ("config.toml", "a.sqlite", "a.sqlite-wal", "sessions/2026/rollout-a.jsonl"):
        (home / name).write_text("kept")
    (home / "link.sqlite").symlink_to(secret)
    (home / "sessions" / "up").symlink_to(tmp_path)
    os.mkfifo(home / "pipe.sqlite")
    os.mkfifo(home / "sessions" / "pipe.jsonl")
    with (home / "huge.sqlite").open("wb") as stream:
        stream.truncate(1 << 40)
    goal = run.harness / "state" / "runtime" / "goals" / "g"
    goal.mkdir(parents=True)
    for name in ("rollout-event-log.jsonl", "rollout-event-log.jsonl.lock", "key.pem"):
        (goal / name).write_text("kept" if name.endswith(".jsonl") else "sk-secret")
    (goal / "link.json").symlink_to(secret)
    os.mkfifo(goal / "pipe.md")
    kept = collecting.copy_kept(run, KEEPS, max_bytes=1 << 20, max_files=1000)
    there = sorted(str(path.relative_to(run.kept)) for path in run.kept.rglob("*") if path.is_file())
    loopx = "loopx/runtime/goals/g"
    assert there == [
        *("codex-home/a.sqlite", "codex-home/a.sqlite-wal", "codex-home/config.toml"),
        *(f"{loopx}/rollout-event-log.jsonl", "sessions/2026/rollout-a.jsonl"),
    ]
    why = {each.path: each.why for each in kept if each.why}
    assert set(why) == {
        *("codex-home/link.sqlite", "codex-home/pipe.sqlite", "codex-home/huge.sqlite", "sessions/pipe.jsonl"),
        *(f"{loopx}/link.json", f"{loopx}/pipe.md"),
    }
    assert why["codex-home/link.sqlite"] == "symbolic link" and why["codex-home/huge.sqlite"].startswith("too large")
    assert not any("sk-secret" in path.read_text() for path in run.kept.rglob("*") if path.is_file())


def test_copied_again_it_is_the_newer_one(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    run.home.mkdir(parents=True)
    (run.harness / "state").mkdir(parents=True)
    (run.home / "config.toml").write_text("one")
    collecting.copy_kept(run, KEEPS, max_bytes=1000, max_files=10)
    (run.home / "config.toml").write_text("two")
    (run.kept / "receipt.json").write_text("{}")
    kept = collecting.copy_kept(run, KEEPS, max_bytes=1000, max_files=10)
    assert json.dumps([each.why for each in kept]) == '["the folder is gone", ""]'
    assert (run.kept / "codex-home" / "config.toml").read_text() == "two" and not (run.kept / "receipt.json").exists()
