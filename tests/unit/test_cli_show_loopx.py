"""`show`: what LoopX was to a trial, and its todos while the trial lives, out of a folder where its agent may write."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex.treatment import Told
from marathond.agents.loopx import left, profile
from marathond.cli import show, show_loopx
from marathond.core.names import trial_label
from marathond.ledger.verbs import agentlog
from tests.support import ledgers as have
from tests.unit.test_codex_receipt import Log
from tests.unit.test_codex_treatment import CALL, SET_UP, THREAD, WAKE_1, goal, made, prepared, text, wake
from tests.unit.test_loopx_left import STATE

PLACE = "goals/marathon-task/ACTIVE_GOAL_STATE.md"


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    connection = have.memory_ledger()
    have.fill(connection, have.submission())
    yield connection
    connection.close()


def begun(c: sqlite3.Connection, state: str, **paths: str) -> int:
    """A trial in that state, whose log has LoopX."""
    trial_id = have.bring_to(c, have.cell(c, "zstd", "plain"), state).trial_id
    places = {**SET_UP["state"], "state_file": f"{profile.STATE}/{PLACE}", **paths}
    agentlog.append(c, trial_id, kind="prepared", detail={"loopx": {**SET_UP, "state": places}}, now_ms=have.T0, mono_ms=0)
    return trial_id


def shown(c: sqlite3.Connection, trial_id: int, state_dir: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], Any]:
    found = show.find(c, trial_id)
    show.print_trial(found, state_dir, have.T0)
    return capsys.readouterr().out.splitlines(), show.as_json(found, state_dir)["loopx_now"]


def folder(state_dir: Path, trial_id: int) -> Path:
    made = state_dir / "r" / trial_label(trial_id) / "harness" / "state"
    made.mkdir(parents=True)
    return made


def test_todos_of_a_live_trial(c: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial_id = begun(c, "running")
    at = folder(tmp_path, trial_id) / PLACE
    at.parent.mkdir(parents=True)
    at.write_text(STATE.replace("Do the task.", "Do\x1b[2J the task."))
    lines, now = shown(c, trial_id, tmp_path, capsys)
    assert "  loopx todos now, as its goal state says, where the agent may write:" in lines
    assert any(line.split()[:4] == ["todo_2", "user", "open", "user_gate"] for line in lines)
    assert "\x1b" not in "".join(lines), "its words steer no terminal"
    assert [row["status"] for row in now["rows"]] == ["open", "done"] and now["why"] == ""


@pytest.mark.parametrize("plant", ["link", "folder link", "pipe", "endless", "nothing"])
def test_what_an_agent_put_in_their_place_is_not_followed(
    c: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str], plant: str
) -> None:
    trial_id = begun(c, "running")
    top = folder(tmp_path, trial_id)
    secret = tmp_path / "secret" / "marathon-task" / "ACTIVE_GOAL_STATE.md"
    secret.parent.mkdir(parents=True)
    secret.write_text(STATE.replace("Do the task.", "SECRET"))
    if plant == "folder link":
        (top / "goals").symlink_to(tmp_path / "secret")
    elif plant != "nothing":
        at = top / PLACE
        at.parent.mkdir(parents=True)
        match plant:
            case "link":
                at.symlink_to(secret)
            case "pipe":
                os.mkfifo(at)
            case _:
                with at.open("wb") as stream:
                    stream.truncate(left.STATE_BYTES_AT_MOST * 1000)
    lines, now = shown(c, trial_id, tmp_path, capsys)
    assert any(line.startswith("  loopx: todos unknown: ") for line in lines) and "SECRET" not in "".join(lines)
    assert now["rows"] == () and now["why"]


def test_todos_in_the_tasks_tree_are_elsewhere(c: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial_id = begun(c, "running", state_file="/app/.loopx/goals/g/ACTIVE_GOAL_STATE.md")
    lines, _ = shown(c, trial_id, tmp_path, capsys)
    assert "  loopx: todos unknown: they lie in the task's tree: marathonctl exec" in lines


def test_a_receipt_tells_of_a_trial_at_rest(c: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial_id = begun(c, "scored")
    part, _ = made(tmp_path, prepared(), THREAD, *goal())
    data = {**part.model_dump(mode="json"), "state": {"counts": {}, "todos": [], "left_out": 0, "unreadable": 0}}
    agentlog.keep_receipt(c, trial_id, schema=2, data={"loopx": data}, now_ms=have.T0)
    lines, now = shown(c, trial_id, tmp_path, capsys)
    assert "  loopx: codex_app_ssh_goal, state outside the task's tree, delivered yes, used yes" in lines
    assert "    1 call in 1 of 1 command, first in number 1: 1 quota should-run; unknown by LoopX's own log" in lines
    assert "  loopx: no todos at the end" in lines and now is None


def test_a13_what_was_missing_is_said(c: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial_id = begun(c, "scored")
    log: Log = [prepared(), THREAD, *wake(1, WAKE_1, "first"), ("unblock", {"n": 1, "cause": "gate"}), *wake(2, "another")]
    part, _ = made(tmp_path, *log, told=Told([CALL], {"m1": text(WAKE_1), "m2": "Continue."}), wakes=True)
    agentlog.keep_receipt(c, trial_id, schema=2, data={"loopx": part.model_dump(mode="json")}, now_ms=have.T0)
    lines, _ = shown(c, trial_id, tmp_path, capsys)
    assert any("delivered no, without a body in 1 of 2 wakes, used yes" in line for line in lines)
    assert "    2 wakes, 0 replayed, pauses 6m00s, the longest 3m00s" in lines and "    set going again: 1 gate" in lines


def test_an_arm_without_loopx_has_no_such_part(c: sqlite3.Connection, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial_id = have.bring_to(c, have.cell(c, "zstd", "plain"), "running").trial_id
    lines, now = shown(c, trial_id, tmp_path, capsys)
    assert now is None and not any(line.startswith("  loopx") for line in lines)
    assert show_loopx.live_todos(show.find(c, trial_id), tmp_path) is None
