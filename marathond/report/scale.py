"""Axes: which range, linear or by powers of ten, and where the ticks stand.

Owns that arithmetic.  Positions are per cent of the axis, 0 at its start.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marathond.report.blocks import Tick

WIDE = 30.0
"""The largest value over the least: from here on an axis goes by powers of ten."""
DECADES = 4
TICKS_AT_MOST = 6
TIMES = (1, 10, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 36000, 43200, 86400, 172800, 345600, 864000)
_ZEROS = re.compile(r"\.0+(?=\D|$)")
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    low: float
    high: float
    by_ten: bool = False

    def at(self, value: float) -> float:
        if self.by_ten and value <= self.low:
            return 0.0
        low, high, value = (math.log10(v) for v in (self.low, self.high, value)) if self.by_ten else (self.low, self.high, value)
        return min(100.0, max(0.0, 100 * (value - low) / (high - low)))

    def value(self, at: float) -> float:
        """The value at so many per cent of the axis; linear ones only."""
        return self.low + (self.high - self.low) * at / 100


def of_values(values: Sequence[float]) -> Scale:
    """From 0; or, when those above 0 lie far apart, by powers of ten from a round number below the least (or the :data:`DECADES` below the
    most): what is less, and 0, then stands at its start.  ``values``: finite, not negative, not all 0.
    """
    most = max(values)
    least = min(value for value in values if value > 0)
    if most / least <= WIDE:
        return Scale(0.0, nice_above(most))
    high = nice_above(most)
    return Scale(max(1 / nice_above(1 / least), high / 10**DECADES), high, by_ten=True)


def nice_above(value: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is not below ``value``; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in _STEPS if power * step >= value * (1 - 1e-9))


def ticks(scale: Scale, show: Callable[[float], str], candidates: Sequence[float] | None = None) -> tuple[Tick, ...]:
    """Few enough to be read; ``candidates``: the round values of a unit such as time."""
    if scale.by_ten:
        powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
        values = [float(each) for each in candidates] if candidates else [step * 10.0**power for power in powers for step in (1, 3)]
    elif candidates:
        step = next((each for each in candidates if scale.high / each <= TICKS_AT_MOST - 1), candidates[-1])
        values = [step * i for i in range(int(scale.high / step + 1e-9) + 1)]
    else:
        values = [scale.high * i / 4 for i in range(5)]
    inside = [value for value in values if scale.low * (1 - 1e-9) <= value <= scale.high * (1 + 1e-9)]
    every = max(1, math.ceil(len(inside) / TICKS_AT_MOST))
    return tuple(Tick(scale.at(value), _ZEROS.sub("", show(value))) for value in inside[::every])
