"""Rollouts that a real codex 0.171 wrote, and hostile ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex import rollout
from marathond.agents.codex.rollout import Called, Changed, Compacted, Ran, Returned, Said, Spawned, TurnEnded, Used, read, read_all
from tests.support.codex_rollouts import DATA, NAMES, recorded


def of(made: rollout.Rollout, *kinds: type) -> list[Any]:
    return [event for event in made.events if isinstance(event, kinds)]


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_a_real_rollout_is_understood(name: str) -> None:
    made = recorded(name)
    assert (made.unreadable, dict(made.unknown), made.cut, made.torn) == (0, {}, False, False)
    assert made.cli_version == "0.171.0" and made.instructions == "You are a coding agent."
    assert all(event.at.endswith("Z") and len(event.at) == 24 for event in made.events)


def test_a_turn_in_the_direct_surface() -> None:
    made = recorded("direct")
    calls = [(call.name, call.arguments) for call in of(made, Called)]
    assert calls[0] == ("exec_command", {"cmd": "echo one", "yield_time_ms": 25000})
    assert calls[1][0] == "apply_patch" and calls[1][1]["input"].startswith("*** Begin Patch\n")
    assert [(run.command, run.status, run.exit_code) for run in of(made, Ran)] == [
        ("echo one", "completed", 0),
        ("exit 3", "failed", 3),
        ("cat patched", "completed", 0),
    ]
    assert [change.files for change in of(made, Changed)] == [{"/app/patched": "add"}]
    assert [said.text for said in of(made, Said) if said.by == "agent"] == ["Looking.", "All done."]
    assert [said.text for said in of(made, Said) if said.by == "user"] == ["do it"]
    assert [tokens.input for tokens in made.used()] == [1000] * 5 and made.tools == ()


def test_code_mode_tells_its_tools_and_its_scripts_commands() -> None:
    made = recorded("goal")
    assert {"functions.exec", "collaboration.spawn_agent"} <= set(made.tools)
    assert {call.name for call in of(made, Called)} == {"exec"}
    assert [run.command for run in of(made, Ran)] == ["echo one >>/ran", "exit 3"]
    outputs = [output for output in of(made, Returned) if not output.call_id]
    assert {output.name for output in outputs} == {"goal_objective"} and {output.text for output in outputs} == {"Finish the task."}


@pytest.mark.parametrize(("name", "status"), [("interrupted", "interrupted"), ("failed", "failed"), ("direct", "completed")])
def test_how_turns_ended(name: str, status: str) -> None:
    assert {ended.status for ended in of(recorded(name), TurnEnded)} == {status}


def test_a_compaction_is_an_answer_too() -> None:
    made = recorded("compacted")
    assert len(of(made, Compacted)) == 1 and len(of(made, Used)) == 4


@pytest.mark.parametrize("name", ["sub-agent", "sub-agent-v1"])
def test_a_sub_agents_own_part_is_told_apart_from_what_it_inherited(name: str) -> None:
    made, passed = read_all(DATA)
    assert passed == []
    pair = [recorded(f"{name}-{number}") for number in (0, 1)]
    (parent,) = [each for each in pair if not each.parent_id]
    (child,) = [each for each in pair if each.parent_id]
    assert child.parent_id == parent.thread_id and {each.thread_id for each in made} >= {child.thread_id, parent.thread_id}
    assert [spawned.thread_id for spawned in of(parent, Spawned)] == [child.thread_id]
    ids = [{used.response_id for used in of(each, Used)} for each in pair]
    assert ids[0] and ids[1] and not ids[0] & ids[1]
    assert not any(said.text.startswith("TASK-") for said in of(child, Said))


# ---- fault e03: a field that is renamed


def renamed(name: str, old: str, new: str, tmp_path: Path) -> rollout.Rollout:
    path = tmp_path / f"{name}.jsonl"
    path.write_text((DATA / f"{name}.jsonl").read_text().replace(f'"{old}":', f'"{new}":'))
    made = read(path)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("name", "field", "said"),
    [
        ("direct", "exit_code", "CommandItem: exit_code"),
        ("direct", "cached_input_tokens", "cached_input_tokens"),
        ("direct", "arguments", "FunctionCallLine: arguments"),
        ("goal", "turn_trigger", "turn_trigger"),
        ("sub-agent-0", "agent_thread_id", "ActivityItem: agent_thread_id"),
    ],
)
def test_e03_a_renamed_field_is_counted_and_named(tmp_path: Path, name: str, field: str, said: str) -> None:
    made = renamed(name, field, f"{field}_v2", tmp_path)
    assert made.unreadable > 0 and said in made.first_unreadable


def test_e03_a_renamed_kind_of_line_is_counted_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text((DATA / "direct.jsonl").read_text().replace('"token_usage_record"', '"usage_record_2"'))
    made = read(path)
    assert made is not None and made.unknown["usage_record_2"] == 5 and list(made.used()) == []


# ---- what an agent may have written there


def lines(*lines: bytes) -> bytes:
    head = (DATA / "direct.jsonl").read_bytes().splitlines()[0]
    return b"\n".join([head, *lines]) + b"\n"


def line(kind: str, payload: Any, at: str = "2026-01-01T00:00:00Z", **more: Any) -> bytes:
    return json.dumps({"timestamp": at, "type": kind, "payload": payload, **more}).encode()


GOOD = line("compacted", {"message": "still here"})
CALL = {"type": "function_call", "name": "n", "arguments": "{}", "call_id": "x" * 1000}
STRANGE: dict[str, Callable[[], bytes]] = {
    "not-json": lambda: b"\xff\xfe nothing",
    "a-list": lambda: b"[]",
    "deep": lambda: line("x", {}).replace(b"{}", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "huge-number": lambda: line("x", {}, ordinal=7).replace(b"7", b"9" * 5000),
    "odd-time": lambda: line("event_msg", {"type": "task_started", "turn_id": "t"}, at="tomorrow"),
    "wrong-kinds": lambda: line("response_item", {"type": "message", "role": 7, "content": "x"}),
    "an-item-that-is-none": lambda: line("event_msg", {"type": "item_completed", "item": [1]}),
    "long-id": lambda: line("response_item", CALL),
}


@pytest.mark.parametrize("how", STRANGE)
def test_a_strange_line_is_counted_and_the_next_is_read(tmp_path: Path, how: str) -> None:
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(lines(STRANGE[how](), GOOD))
    made = read(path)
    assert made is not None and made.unreadable == 1 and made.first_unreadable
    assert [event.summary for event in of(made, Compacted)] == ["still here"]


def test_lines_and_files_are_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "LINE_BYTES_AT_MOST", 4096)
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(lines(b"x" * 3_000_000, GOOD, b"x" * 4096) + b'{"timestamp":"2026')
    made = read(path)
    assert made is not None and (made.unreadable, made.torn, made.cut) == (2, True, False)
    assert len(made.events) == 1
    short = read(path, bytes_at_most=2000)
    assert short is not None and short.cut and short.events == []


def test_what_is_no_rollout_is_passed_over_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"nothing\n")
    (tmp_path / "b.jsonl").write_bytes(b"")
    for name in ("c", "d"):
        (tmp_path / f"{name}.jsonl").write_bytes((DATA / "direct.jsonl").read_bytes())
    made, passed = read_all(tmp_path)
    assert len(made) == 1
    assert [said.partition(": ")[2][:17] for said in passed] == ["is no rollout", "is no rollout", "a second rollout "]


def test_no_rollout_however_damaged_raises(tmp_path: Path) -> None:
    """Bytes of real ones exchanged, cut and doubled."""
    path = tmp_path / "rollout.jsonl"
    for seed in range(300):
        dice = random.Random(seed)
        raw = bytearray((DATA / f"{dice.choice(NAMES)}.jsonl").read_bytes())
        for _ in range(dice.randint(1, 60)):
            at = dice.randrange(len(raw))
            match dice.randrange(3):
                case 0:
                    raw[at] = dice.randrange(256)
                case 1:
                    del raw[at : at + dice.randint(1, 200)]
                case _:
                    raw[at:at] = raw[at : at + dice.randint(1, 200)]
        path.write_bytes(bytes(raw))
        read(path)


def test_types_of_values_exchanged_are_no_surprise(tmp_path: Path) -> None:
    """Each value of each line in turn another kind of value: read, or counted, never an exception."""
    path = tmp_path / "rollout.jsonl"
    for name in NAMES:
        for raw in (DATA / f"{name}.jsonl").read_text().splitlines()[1:]:
            told = json.loads(raw)
            values: list[Any] = [None, 7, "x", [], {}, [{}], {"text": 1}]
            changed = [{**told, "payload": {**told["payload"], key: value}} for key in told["payload"] for value in values]
            path.write_bytes(lines(*(json.dumps(each).encode() for each in changed)))
            assert read(path) is not None
