"""What LoopX answers and leaves, out of a container whose user may write there: of its shape, or refused by its field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.agents.loopx import inside, left
from marathond.agents.loopx.calls import CALLS_AT_MOST, calls
from marathond.agents.loopx.commands import Refused, answer_of, told_in
from marathond.agents.loopx.gates import judge_doctor, judge_look
from marathond.agents.loopx.goal import read_todo_id, read_todos
from marathond.agents.loopx.quota import MINUTE_S, NUMBER_BELOW, read_quota
from marathond.core.errors import GateFailed
from marathond.core.model import LoopXArm
from tests.support.fuzzing import dumped, files_of_json, fuzz, refused_by, spoiled, torn

LOCAL = {
    "recommended_interval_minutes": 3, "max_interval_minutes": 10, "unchanged_poll_backoff_multiplier": 2, "unchanged_poll_limit": 3,
}  # fmt: skip
QUOTA: Mapping[str, Any] = {
    "ok": True, "decision": "run", "should_run": True, "effective_action": "normal_run", "waiting_on": "codex",
    "requires_user_action": False, "selected_todo": {"todo_id": "todo_1"}, "heartbeat_receipt": {"status": "committed"},
    "scheduler_hint": {
        "action": "backoff_x", "cadence_class": "active_work", "reason_code": "r", "unchanged_poll": {"local_scheduler": "continue"},
        "cold_path_detail": {"local_scheduler": LOCAL},
    },
}  # fmt: skip
TODOS = {
    "todos": [{"todo_id": "todo_1", "role": "agent", "status": "open", "task_class": "advancement_task", "title": "t"}],
    "todo_id": "todo_1",
}
TOLD = {
    "calls": [{"out": dumped(QUOTA).decode(), "err": "", "exit": 0, "ms": 5}, {"out": '{"ok": false}', "err": "no", "exit": 1, "ms": 5}]
}
LOOK = {
    "sqlite": "", "version": "loopx 2.1.1", "python": "3.11",
    "look": {
        "copies": [], "places": ["/opt/x/loopx", "/opt/x/loopx-2.1.1.dist-info"], "versions": ["2.1.1"], "bare": {"sh": "/opt/x/bin/loopx"},
    },
    "node": {"outcome": "ready", "at": "/opt/lxprofile/node/bin/node", "version": "v22", "least": "v20"},
    "skills": {"required": ["a"], "readback": {"ready": True, "loopx_version": "2.1.1"}}, "skill_delivery": {"status": "ready"},
}  # fmt: skip
ARM = LoopXArm("p", "2.1.1", "s")
STATE = b"""## Agent Todo
<!-- loopx:todo-region-v0 role=agent begin -->
- [x] [P0] Do the task.
  <!-- loopx:todo todo_id=todo_1 status=done task_class=advancement_task evidence=tests%20pass -->
<!-- loopx:todo-region-v0 role=agent end -->
"""
EVENT = {"schema_version": left.EVENT_SCHEMA, "event_kind": "quota_should_run", "at": 1}
SCRIPT = b"""cd x && LX="loopx --registry /r"; $LX todo list
lx() { loopx --format json "$@"; }; lx quota should-run --n 1 2>/dev/null | tee a
bash <<'END'
loopx status; y=`loopx doctor`; echo "$(loopx todo list)" ${LX:-loopx}
END
case $x in a) loopx todo list;; esac; for i in 1 2; do timeout 5 loopx status; done
"""


@fuzz
@given(spoiled(QUOTA))
def test_e03_a_quota_is_of_its_shape_and_its_pauses_are_numbers(answer: Any) -> None:
    quota = refused_by(lambda: read_quota(answer if isinstance(answer, dict) else {}), ValueError)
    if isinstance(quota, ValueError):
        return
    for number in (quota.interval_s, quota.max_interval_s, quota.multiplier):
        assert number is None or (math.isfinite(number) and 0 < number < NUMBER_BELOW * MINUTE_S)
    assert quota.unchanged_at_most is None or (type(quota.unchanged_at_most) is int and quota.unchanged_at_most >= 0)
    assert type(quota.should_run) is bool and quota.should_run is answer["should_run"]


@fuzz
@given(spoiled(TODOS))
def test_e03_todos_are_texts_or_refused(answer: Any) -> None:
    answer = answer if isinstance(answer, dict) else {}
    rows = refused_by(lambda: read_todos(answer), ValueError)
    assert isinstance(rows, ValueError) or all(isinstance(row.todo_id, str) and isinstance(row.text, str) for row in rows)
    assert isinstance(refused_by(lambda: read_todo_id(answer), Refused), str | Refused)


@fuzz
@given(files_of_json(TOLD), st.sampled_from(["", "motd\n", f"\n{inside.MARK}{{}}\n"]), st.integers(1, 3))
def test_a_call_out_of_a_container_is_whole_or_refused(told: bytes, before: str, wanted: int) -> None:
    output = f"{before}\n{inside.MARK}{told.decode('utf-8', 'replace')}\n"
    found = refused_by(lambda: told_in(output, 0, "loopx", wanted), Refused)
    if isinstance(found, Refused):
        return
    assert 0 < len(found["calls"]) <= wanted
    for done in found["calls"]:
        answer = refused_by(lambda done=done: answer_of(("quota", "should-run"), done), Refused)  # type: ignore[misc]
        assert isinstance(answer, Refused) or (isinstance(answer, dict) and done["exit"] == 0 and answer.get("ok") is not False)


@fuzz
@given(spoiled(LOOK))
def test_a_look_around_passes_whole_or_is_a_failed_gate(told: Any) -> None:
    told = told if isinstance(told, dict) else {}
    passed = refused_by(lambda: judge_look(told, ARM), GateFailed)
    assert isinstance(passed, GateFailed) or len(passed) == 4
    doctor = refused_by(lambda: judge_doctor(told), GateFailed)
    assert isinstance(doctor, GateFailed) or told["skill_delivery"]["status"] == "ready"


def test_what_is_whole_passes() -> None:
    assert len(judge_look(LOOK, ARM)) == 4 and read_quota(QUOTA).interval_s == 180.0


@fuzz
@given(torn(STATE * 2, (b"<!-- loopx:todo ", b"todo_id=", b"- [ ] ", b" -->", b"%ff", b"\x85")))
def test_todos_that_were_left_are_bounded(data: bytes) -> None:
    made = left.todos(data.decode("utf-8", "replace"))
    assert len(made.rows) <= left.TODOS_AT_MOST and made.left_out >= 0 <= made.unreadable
    assert all(len(text) <= left.TEXT_AT_MOST for row in made.rows for text in (row.todo_id, row.status, row.kind, row.text))


def test_events_that_were_left_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / left.EVENTS

    @fuzz
    @given(st.lists(spoiled(EVENT), max_size=4), st.data())
    def read(events: list[Any], data: st.DataObject) -> None:
        path.write_bytes(data.draw(torn(b"".join(dumped(event) + b"\n" for event in events), (b"x" * (2 << 20),))))
        made = left.events(path)
        assert made is not None and made.kinds.total() <= path.read_bytes().count(left.EVENT_SCHEMA.encode())
        assert all(len(kind) <= 100 for kind in made.kinds)

    read()


@fuzz
@given(torn(SCRIPT * 2, (b"$(", b"`", b"<<END\n", b"'", b'"', b"${", b"eval ", b"sh -c '", b"\\", "²>".encode(), b"()", b"{")))
def test_calls_in_any_script_are_bounded(script: bytes) -> None:
    found = calls(script.decode("utf-8", "replace"))
    assert len(found) <= CALLS_AT_MOST and all(name and name.isprintable() for name in found)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 10**400, True, 0, -1, "3", 1e9], ids=repr)
@pytest.mark.parametrize("name", ["recommended_interval_minutes", "max_interval_minutes", "unchanged_poll_backoff_multiplier"])
def test_c07_a_pause_that_is_no_number_is_refused_by_its_field(name: str, odd: Any) -> None:
    hint = {**QUOTA["scheduler_hint"], "cold_path_detail": {"local_scheduler": {**LOCAL, name: odd}}}
    with pytest.raises(ValueError, match=name):
        read_quota({**QUOTA, "scheduler_hint": hint})
