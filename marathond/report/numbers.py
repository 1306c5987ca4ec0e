"""How numbers look in a report: fixed digits, no locale, and ``-`` for what is not known.

Owns the formats, so that text and HTML print the same digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from marathond.core.compare.result import Interval
from marathond.core.text import duration, iso_utc

NOTHING = "-"
LEAST_P = 0.0001


def fixed(value: float | None, digits: int = 3) -> str:
    """``0.711``; never ``-0.000``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    text = f"{float(f'{value:.12g}'):.{digits}f}"  # two ways to the same number must not print two: .0325 and .032500000000000001
    return text.lstrip("-") if float(text) == 0 else text


def signed(value: float | None, digits: int = 4) -> str:
    """``+0.1000``; zero has no sign."""
    text = fixed(value, digits)
    return text if text[0] in "-" or float(text) == 0 else f"+{text}"


def p_value(value: float | None) -> str:
    """Four digits; below that ``<.0001``, never 0."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return "<.0001" if value < LEAST_P else fixed(value, 4)


def interval(value: Interval | None) -> str:
    """Of a difference."""
    return NOTHING if value is None else f"[{signed(value.low)}, {signed(value.high)}]"


def span(value: Interval | None) -> str:
    """Of a share."""
    return NOTHING if value is None else f"{fixed(value.low)}-{fixed(value.high)}"


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.0f} %"


def seconds(value: float | None) -> str:
    return NOTHING if value is None else duration(value)


def short_time(value: float) -> str:
    """Of a round number: ``30m``, ``2h``, ``0``."""
    text = duration(value)
    for tail in ("00s", "00m", "00h"):
        text = text.removesuffix(tail) if len(text) > len(tail) else text
    return "0" if value == 0 else text


def count(value: float | None) -> str:
    """Tokens: ``812``, ``4.1k``, ``12.4M``, ``1.3G``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}{letter}"
    return f"{value:.0f}"


def money(value: float | None) -> str:
    """``$4,112.00``: thousands by comma, whatever the locale."""
    return NOTHING if value is None or not math.isfinite(value) else f"${value:,.2f}"


def instant(at_ms: int | None) -> str:
    return NOTHING if at_ms is None else f"{iso_utc(at_ms)[:19]}Z"


def many(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def tally(counts: Mapping[str, int]) -> str:
    """``3 provider, 1 model_failed``: most first, then by name."""
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if number)
