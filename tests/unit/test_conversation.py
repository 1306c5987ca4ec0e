"""A codex conversation as lines."""

from __future__ import annotations

import json
from typing import Any

from marathond.service.picture.conversation import OUTPUT_LINES, lines


def heard(method: str, **params: Any) -> str:
    return json.dumps({"at_ms": 1, "way": "in", "message": {"method": method, "params": params}})


def item(number: str, kind: str, **fields: Any) -> str:
    return heard("item/completed", threadId="t", turnId="u", item={"id": number, "type": kind, **fields})


START = {"id": 3, "method": "turn/start", "params": {"input": [{"text": "a\nb\nc\nd\ne"}]}}
ASKED = json.dumps({"at_ms": 1, "way": "out", "message": START})


def test_who_said_and_did_what() -> None:
    goal = heard("thread/goal/updated", threadId="t", goal={"status": "active"})
    told = [
        ASKED,
        goal,
        goal,
        item("1", "agentMessage", text="I look."),
        item("2", "commandExecution", command="ls", status="completed", exitCode=0, aggregatedOutput="greet\n"),
        item("2", "commandExecution", command="ls", status="completed", exitCode=0, aggregatedOutput="greet\n"),
        item("3", "commandExecution", command="false", status="failed", exitCode=1, aggregatedOutput=None),
        item("4", "fileChange", status="completed"),
        heard("turn/completed", threadId="t", turn={"id": "u", "status": "failed", "error": {"message": "HTTP 500"}}),
    ]
    assert list(lines(told)) == [
        *("> a", "> b", "> c", "> ... 2 more lines"),
        *("-- goal active", "I look.", "$ ls", "  greet", "$ false", "  (exit 1)", "* fileChange completed"),
        "-- turn failed: HTTP 500",
    ]


def test_of_a_long_output_the_end_is_told() -> None:
    output = "\n".join(map(str, range(OUTPUT_LINES + 5)))
    said = list(lines([item("1", "commandExecution", command="seq", exitCode=0, aggregatedOutput=output)]))
    assert said[:3] == ["$ seq", "  ... 5 lines before", "  5"] and said[-1] == f"  {OUTPUT_LINES + 4}"


def test_half_a_line_and_messages_of_another_shape_are_passed_over() -> None:
    assert list(lines(['{"way": "in", "mess', "[]", heard("item/completed"), heard("turn/completed", turn=None), "", ASKED])) != []
    assert list(lines(['{"way": "in", "mess', "[]", heard("item/completed"), heard("turn/completed", turn=None), ""])) == []
