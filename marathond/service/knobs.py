"""The operational knobs: what may change while a campaign runs, each with its range (``marathonctl set KEY=VALUE``).

The one home of their defaults and ranges; the settings' models read them from here.  Nothing here is part of the treatment: turning a
knob changes when a trial runs, never what runs.  Must not import pydantic: the command line starts from here.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass

from marathond.core.errors import ConfigError
from marathond.core.order import Expected, Order

KnobValue = int | float | str


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob.  ``default`` tells the type: int, float or one word of ``choices``.  ``low_open``: ``low`` itself is not allowed."""

    key: str
    default: KnobValue
    effect: str
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    choices: tuple[str, ...] = ()

    def problem(self, value: object) -> str | None:
        """What would have been right, as words that end an error line; None when ``value`` is fine."""
        if self.choices:
            return None if value in self.choices else one_of(self.choices, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "must be a whole number" if isinstance(self.default, int) else "must be a number"
        if isinstance(self.default, int) and not isinstance(value, int):
            return "must be a whole number"
        if isinstance(value, float) and not math.isfinite(value):  # of a whole number beyond floats it cannot be asked
            return "must be a finite number"
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return f"must be greater than {plain(self.low)}" if self.low_open else f"must be at least {plain(self.low)}"
        if self.high is not None and value > self.high:
            return f"must be at most {plain(self.high)}"
        return None


KNOBS: dict[str, Knob] = {
    knob.key: knob
    for knob in (
        Knob("network.cap", 64, "networks of ours at one time", low=1, high=1000),
        Knob("network.margin", 2, "networks left free for others (mode auto)", low=0, high=1000),
        Knob("admission.concurrency", 4, "trials at one time", low=1, high=1000),
        Knob("admission.order", Order.REPLICATE_MAJOR.value, "in which order cells are started", choices=tuple(o.value for o in Order)),
        Knob(
            "admission.expected",
            Expected.LEARNED.value,
            "how long a task is taken to last when a replicate begins",
            choices=tuple(o.value for o in Expected),
        ),
        Knob("admission.seed", 1, "of the order's ties", low=0, high=2**63 - 1),
        Knob("admission.cpu_overcommit", 1.0, "cores promised per core of the host", low=0, high=64, low_open=True),
        Knob("admission.memory_overcommit", 1.0, "memory promised per memory of the host", low=0, high=16, low_open=True),
        Knob("admission.reserve_cpus", 0.0, "cores kept back for verification and builds", low=0, high=4096),
        Knob("admission.reserve_memory_mb", 512, "MiB kept back for verification and builds", low=0, high=2**30),
        Knob("admission.undeclared_cpus", 0.25, "cores counted for a task that declares none", low=0, high=4096),
        Knob("admission.undeclared_memory_mb", 256, "MiB counted for a task that declares none", low=0, high=2**30),
        Knob("admission.disk_floor_percent", 5.0, "percent of a filesystem that must stay free", low=0, high=95),
        Knob("admission.disk_floor_gb", 2.0, "GiB of a filesystem that must stay free", low=0, high=2**20),
        Knob("admission.passes", 3, "attempts at a cell before it is parked", low=1, high=100),
        Knob(
            "admission.breaker_after", 5, "infrastructure voids of one code within breaker_pause_s that close admission", low=1, high=1000
        ),
        Knob(
            "admission.breaker_pause_s",
            300.0,
            "seconds that admission stays closed until one trial is tried, and in which voids are counted",
            low=1,
            high=86400,
        ),
    )
}


def find_knob(key: str) -> Knob:
    """By full (``admission.concurrency``) or short name (``concurrency``).

    :raises ConfigError: there is no such knob; with a hint when the name is close to one.
    """
    for knob in KNOBS.values():
        if key in (knob.key, short_name(knob.key)):
            return knob
    names = [*KNOBS, *map(short_name, KNOBS)]
    raise ConfigError("", key, "not a knob that can be set while running" + did_you_mean(key, names, otherwise=f"; knobs: {_short_list()}"))


def parse_setting(key: str, text: str) -> KnobValue:
    """What a person typed after ``set KEY=`` as the knob's value.

    :raises ConfigError: unknown knob, wrong type or out of range.
    """
    knob = find_knob(key)
    value = number_or_text(text) if not knob.choices else text.strip()
    if isinstance(knob.default, float) and isinstance(value, int):
        value = _float(value)
    if (problem := knob.problem(value)) is not None:
        raise ConfigError("", f"{knob.key} = {text}", problem)
    return value


def _float(value: int) -> float:
    """Infinity where no float is so large: out of every range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def number_or_text(text: str) -> KnobValue:
    """``8`` → int, ``0.5`` → float, anything else unchanged (its reader says what was expected)."""
    for kind in (int, float):
        try:
            return kind(text.strip())
        except ValueError:
            continue
    return text


def plain(value: float) -> str:
    """``31536000``, not ``3.1536e+07``."""
    return str(int(value)) if value == int(value) else str(value)


def short_name(key: str) -> str:
    """``concurrency`` for ``admission.concurrency``."""
    return key.rpartition(".")[2]


def one_of(choices: Iterable[str], value: object) -> str:
    """``must be one of a, b``, with a hint when ``value`` is close to one."""
    names = list(choices)
    return f"must be one of {', '.join(names)}" + (did_you_mean(value, names) if isinstance(value, str) else "")


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """``; did you mean X?`` for the closest known word, else ``otherwise``."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else otherwise


def _short_list() -> str:
    return ", ".join(map(short_name, KNOBS))
