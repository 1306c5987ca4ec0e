"""Foreign JSON and what counts as a number in it.

Owns parsing with the known deformities of verifiers' files, and the reasons why a value is no number.  Must not know which keys matter.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from marathond.core.text import printable

MAX_DEPTH = 4
MAX_WORDS = 80
BOOLEANS = {"true": True, "false": False}
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# A string without an end goes to the end of the text, and possessively: if it were no match, or had ways back, each quote of a hostile
# text would be looked at to its end, in quadratic time and with the interpreter held.
_BARE_DECIMAL = re.compile(r'"(?:[^"\\]++|\\[\s\S])*+(?:"|\\?\Z)|(?<![\w.+-])(-?)(\.\d+(?:[eE][+-]?\d+)?)(?![\w.])', re.ASCII)
REPAIRED_AT_MOST = 1 << 20
"""Characters of a text that is repaired; what verifiers write beside a bare decimal is a thousandth of that."""


def parse_json(text: str) -> tuple[Any, bool]:
    """The value, and whether it had to be repaired: a bare ``.674``, which JSON forbids and which means one thing only, reads as 0.674.

    :raises ValueError: no valid JSON, or a key that appears twice in one object.
    :raises RecursionError: nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_no_twins), False
    except json.JSONDecodeError:
        if len(text) > REPAIRED_AT_MOST:
            raise
        repaired = _BARE_DECIMAL.sub(lambda found: found[0] if found[2] is None else f"{found[1]}0{found[2]}", text)
        if repaired == text:
            raise
        return json.loads(repaired, object_pairs_hook=_no_twins), True


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key} appears twice")
        table[key] = value
    return table


def leaves(table: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Every value that is no table, under its dotted key, in the keys' order; ``"true"``, ``"false"`` as booleans, other text left out."""
    for key, value in sorted(table.items(), key=lambda item: item[0]):
        # Names are made of what is yielded only: of a million empty tables they would take half a minute.
        if isinstance(value, dict):
            if value and depth < MAX_DEPTH:
                yield from leaves(value, f"{printable(f'{prefix}{key}', MAX_WORDS)}.", depth + 1)
        elif isinstance(value, str):
            if value.strip().lower() in BOOLEANS:
                yield printable(f"{prefix}{key}", MAX_WORDS), BOOLEANS[value.strip().lower()]
        else:
            yield printable(f"{prefix}{key}", MAX_WORDS), value


def not_a_number(value: object) -> str:
    """Why ``value`` is no number, or an empty text."""
    match value:
        case bool():
            return "a boolean is not a number"
        case str():
            words = value.strip().lower()
            if words.lstrip("+-") in ("nan", "inf", "infinity"):
                return "not finite"
            return f"text, not a number: {printable(value, MAX_WORDS)!r}" if words else "empty"
        case int() | float():
            return "" if _finite(value) else "not finite"
        case None:
            return "null, not a number"
        case _:
            return "not a number"


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond what a float holds
        return False


def outside_unit(value: Any) -> str:
    """Why a finite ``value`` is no share, or an empty text."""
    if value < 0:
        return f"below 0: {value:g}"
    return f"above 1: {value:g}" if value > 1 else ""
