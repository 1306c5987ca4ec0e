"""LoopX's state as a record: what varies from trial to trial is replaced, what does not is kept; on files as LoopX 2.1.1 writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marathond.agents.loopx.goal import Goal, Paths
from marathond.agents.loopx.left_record import Left, record
from marathond.core.contract import differences
from marathond.core.model import LoopXArm
from marathond.core.names import LoopXProfile

TASK = "Do it.\n"


def left(cwd: str = "/app", digit: str = "1", more: dict[str, bytes] | None = None, text: str = TASK, **entry: Any) -> Left:
    """Of a trial whose ids are made of ``digit``."""
    todo, made, at = f"todo_{digit * 24}", f"goal-create:{digit * 32}", f"2026-01-0{digit}T10:00:00"
    goal = Goal(cwd, LoopXProfile.SSH_GOAL, Paths.of(LoopXArm("p", "v", "s"), cwd), todo_id=todo, body="long", body_sha256="b")
    registered = {"id": "marathon-task", "repo": cwd, "probe": f"check {cwd}", "creation_operation_id": made, **entry}
    state = f"updated_at: {at}+00:00\nsqlite:{digit * 32}:2 records_sha256={digit * 64}\n- todo_id={todo} updated_at={at}Z\n{cwd}lication\n"
    event = {"event_kind": "todo_add", "event_id": digit * 16, "recorded_at": f"{at}.123456Z", "summary": f"added {todo}"}
    files = {
        "registry.json": json.dumps({"updated_at": f"{at}+00:00", "goals": [registered]}).encode(),
        "registry.json.lock": digit.encode(),
        "goals/marathon-task/ACTIVE_GOAL_STATE.md": state.encode(),
        "goals/marathon-task/TASK.md": text.encode(),
        "runtime/goals/marathon-task/rollout-event-log.jsonl": json.dumps(event).encode() + b"\n",
    }
    return Left(goal, {**files, **(more or {})})


def made(given: Left) -> dict[str, Any]:
    return record(given, cwd=given.goal.cwd, instruction=TASK)


def test_a14_two_trials_of_one_arm_leave_the_same() -> None:
    one = made(left())
    assert one == made(left(digit="2", more={"runtime/x.sqlite-wal": b"", "a.guard.lock": b""}))
    assert one["goal"].splitlines()[:3] == [
        "updated_at: {time}",
        "sqlite:{store}:2 records_sha256={store}",
        "- todo_id=todo_{todo} updated_at={time}",
    ]
    assert one["registry"]["goals"][0]["probe"] == "check {cwd}" and one["goal"].endswith("/application\n")
    assert one["document"] == "{instruction}" and "body" not in one["set_up"] and one["set_up"]["todo_id"] == "todo_{todo}"
    assert made(left(cwd="/srv/x"))["registry"] == one["registry"]


def test_a14_what_set_up_left_otherwise_is_named() -> None:
    changed = made(left(digit="2", text="Do less.\n", more={"runtime/notes.md": b""}, status="paused"))
    assert {each.where for each in differences(made(left()), changed)} == {"registry.goals", "document", "files.runtime/notes.md"}


def test_a_file_that_is_missing_is_named() -> None:
    given = left()
    with pytest.raises(KeyError, match=r"registry\.json"):
        made(Left(given.goal, {name: text for name, text in given.files.items() if name != "registry.json"}))
