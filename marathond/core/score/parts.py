"""What stands beside the columns: gates, stages, words, under names that are the same for every task.

Owns those names.  They are what tells a person why partial 0.0 stands beside 87.7 % of tests green (fault d04): which gates failed, and
which stage overwrote what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from marathond.core.payload import BOOLEANS, MAX_WORDS, not_a_number
from marathond.core.score.counts import Gate
from marathond.core.score.model import Fact, Number, Part, Words
from marathond.core.score.names import METRICS, REWARD_JSON, STAGES
from marathond.core.text import printable

MAX_NAMED = 400
WORDS_MAX = 200

_GATE = "_gate"
_AS_THEY_ARE = ("binary_strict", "gates_passed", "gates_total")
_STAGES = (
    ("correctness_reward", "correctness"),
    ("cua_rubric_score", "cua_rubric"),
    ("unit_tests_score", "unit_tests"),
    ("ux_reward", "ux"),
)
_WORDS = (
    ("partial_score_formula", "partial_score_formula"),
    ("phase", "phase"),
    ("scoring_mode", "scoring_mode"),
    ("setup_error", "setup_error"),
    ("stage", "early_exit"),
)


def named_parts(
    metrics: Mapping[str, Any], rewards: Mapping[str, Any], stages: Mapping[str, Any], gates: Sequence[Gate]
) -> tuple[dict[str, Part], bool]:
    """By name, and whether some had no room.  What is found first keeps its name: metrics.json, reward.json, stages.json, reports."""
    found: dict[str, Part] = {}
    of_gates = (pair for gate in gates for pair in gate.parts())
    for name, part in chain(_of_metrics(metrics), _of_rewards(rewards), _of_stages(stages), of_gates):
        if len(found) >= MAX_NAMED:
            return found, True
        found.setdefault(name, part)
    return found, False


def scalar(value: Any, source: str, key: str) -> Number | Fact | None:
    """A finite number, or a boolean, also one that was written as text; None: anything else."""
    if isinstance(value, str):
        value = BOOLEANS.get(value.strip().lower())
    if isinstance(value, bool):
        return Fact(value, source, key)
    return None if value is None or not_a_number(value) else Number(float(value), source, key)


def _telling(table: Mapping[str, Any]) -> list[str]:
    """Its keys that tell a number or a boolean, sorted.  Asked first: names take time to make, and a million keys may tell nothing."""
    return sorted(key for key, value in table.items() if scalar(value, "", "") is not None)


def words(value: Any, source: str, key: str) -> Words | None:
    """A text that says something."""
    shown = printable(value, WORDS_MAX) if isinstance(value, str) else ""
    return Words(shown, source, key) if shown else None


def _of_metrics(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    for key, name in (*((key, key) for key in _AS_THEY_ARE), *((key, f"stage:{stage}") for key, stage in _STAGES)):
        if (part := scalar(metrics.get(key), METRICS, key)) is not None:
            yield name, part
    for key, name in _WORDS:
        if (said := words(metrics.get(key), METRICS, key)) is not None:
            yield name, said
    for key in _telling({key: metrics[key] for key in metrics if key.endswith(_GATE) and key != _GATE}):
        if (part := scalar(metrics[key], METRICS, _shown(key))) is not None:
            yield f"gate:{_shown(key.removesuffix(_GATE))}", part


def _of_rewards(rewards: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    for key in _telling(rewards):
        if key != "reward" and (part := scalar(rewards[key], REWARD_JSON, _shown(key))) is not None:
            yield f"stage:{_shown(key)}", part


def _of_stages(stages: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    """``{"correctness": {"rewards": {…}}, "ux": {…}}``: a stage's rewards first, then what else it says of itself."""
    for stage in sorted(stages):
        table = stages[stage]
        name = f"stage:{_shown(stage)}"
        if not isinstance(table, dict):
            if (part := scalar(table, STAGES, _shown(stage))) is not None:
                yield name, part
            continue
        rewards = table.get("rewards")
        for prefix, values in ((f"{stage}.rewards", rewards if isinstance(rewards, dict) else {}), (stage, table)):
            for key in sorted(values):
                where = _shown(f"{prefix}.{key}")
                told = scalar(values[key], STAGES, where) or words(values[key], STAGES, where)
                if told is not None:
                    yield name if key == "reward" else f"{name}.{_shown(key)}", told


def _shown(key: str) -> str:
    return printable(key, MAX_WORDS)
