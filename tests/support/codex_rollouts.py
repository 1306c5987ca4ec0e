"""Recorded rollouts of a real codex 0.171 (tests/data/rollouts: instructions shortened, the main agent called /main), and made-up ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marathond.agents.codex.atif import About, Made
from marathond.agents.codex.rollout import Rollout, read
from marathond.agents.codex.rollout_shapes import Tokens

DATA = Path(__file__).parents[1] / "data" / "rollouts"
NAMES = sorted(path.stem for path in DATA.glob("*.jsonl"))
ABOUT = About("goal", "0.171.0", "gpt-5.5", "high", "t0001", 0.25)
AT = "2026-01-01T00:00:00.000Z"
ITEMS: list[dict[str, Any]] = [
    {"type": "userMessage", "id": "u", "content": [{"type": "text", "text": "do it"}, 7]},
    {"type": "commandExecution", "id": "c", "command": "ls", "aggregatedOutput": "a\n", "exitCode": 0},
    {"type": "reasoning", "id": "r"},
    {"type": "agentMessage", "id": "a", "text": "Done."},
    {"type": "commandExecution", "id": None, "command": 7, "exitCode": "x"},
]
"""As on the wire, some of them odd."""


def recorded(name: str) -> Rollout:
    made = read(DATA / f"{name}.jsonl")
    assert made is not None
    return made


def family(name: str) -> tuple[Rollout, list[Rollout]]:
    """A thread, and the sub-agent that it brought forth."""
    both = [recorded(f"{name}-{number}") for number in (0, 1)]
    return next(each for each in both if not each.parent_id), [each for each in both if each.parent_id]


def events(*more: Any, thread_id: str = "thread", parent_id: str = "") -> Rollout:
    return Rollout(thread_id, parent_id, "", "", "0.171.0", "", events=list(more))


def tokens(number: int = 1) -> Tokens:
    kinds = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens", "reasoning_output_tokens")
    return Tokens.model_validate(dict.fromkeys(kinds, number))


def document(made: Made) -> dict[str, Any]:
    assert made.document is not None
    return made.document
