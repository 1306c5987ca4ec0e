"""What LoopX's own files say of a trial: read as LoopX writes them, and from an agent that writes there itself."""

from __future__ import annotations

import json
from pathlib import Path

from marathond.agents.loopx import left
from marathond.agents.loopx.left import TodoLeft

STATE = """---
status: active
---
## User Todo / Owner Review Reading Queue
<!-- loopx:todo-region-v0 role=user begin -->
<!-- loopx:todo-section-projection-v0 role=user provider_revision=sqlite:c6:4 records_sha256=4f -->

- [ ] [P1] May I go on?
  <!-- loopx:todo todo_id=todo_2 status=open task_class=user_gate claimed_by=codex-main -->
<!-- loopx:todo-region-v0 role=user end -->
## Agent Todo
<!-- loopx:todo-region-v0 role=agent begin -->
- [x] [P0] Do the task.
  <!-- loopx:todo todo_id=todo_1 status=done task_class=advancement_task evidence=tests%20pass -->
<!-- loopx:todo-region-v0 role=agent end -->
## Next Action
- [ ] no todo
  <!-- loopx:todo todo_id=todo_3 status=open -->
"""


def test_todos_of_both_roles() -> None:
    made = left.todos(STATE)
    assert made.rows == [
        TodoLeft("todo_2", "user", "open", "user_gate", "[P1] May I go on?"),
        TodoLeft("todo_1", "agent", "done", "advancement_task", "[P0] Do the task."),
    ]
    assert (made.counts, made.left_out, made.unreadable) == ({"user open": 1, "agent done": 1}, 0, 0)


def test_an_agents_own_writing_there_is_bounded() -> None:
    item = "- [ ] {0}\n  <!-- loopx:todo todo_id={0} status=open task_class=x -->\n"
    many = "".join(item.format(f"{n}{'x' * 5000}") for n in range(300))
    text = f"<!-- loopx:todo-region-v0 role=agent begin -->\n{many}- [ ] y\n  <!-- loopx:todo status=open -->\n"
    made = left.todos(text)
    assert (len(made.rows), made.left_out, made.unreadable) == (left.TODOS_AT_MOST, 100, 1)
    assert max(len(row.text) for row in made.rows) == max(len(row.todo_id) for row in made.rows) == left.TEXT_AT_MOST
    assert left.todos("\x00" * 1000 + "<!-- loopx:todo " * 1000).rows == []


def test_a_file_that_was_not_left(tmp_path: Path) -> None:
    assert left.todos_in(tmp_path / "none.md") is None and left.events(tmp_path / "none.jsonl") is None


def test_events_by_their_kind_and_what_is_none(tmp_path: Path) -> None:
    def event(kind: object) -> str:
        return json.dumps({"schema_version": left.EVENT_SCHEMA, "event_kind": kind})

    odd = ["[]", "not JSON", "[" * 2000, event(7), json.dumps({"schema_version": "another", "event_kind": "todo_add"}), '"x"' * 700_000]
    log = tmp_path / left.EVENTS
    log.write_text("\n".join([*[event("quota_should_run")] * 3, event("todo_add"), *odd, *(event(f"made_up_{n}") for n in range(200))]))
    made = left.events(log)
    assert made is not None and made.whole and made.unreadable >= len(odd)
    assert (made.kinds["quota_should_run"], made.kinds["todo_add"]) == (3, 1)
    assert len(made.kinds) == left.NAMES_AT_MOST + 1 and made.kinds["(others)"] == 200 - (left.NAMES_AT_MOST - 2)
