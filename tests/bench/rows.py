"""A figure of ``make bench``, and the comparison with the figures that were checked in.

Owns the table's layout and what counts as worse.  Must not measure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

EXPECTED = Path(__file__).with_name("expected.json")
WORSE = 0.2
"""A ratio that grew by more than this share of the checked-in one is a failure."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.  ``key`` names it for ever; ``text`` says what it is; ``value`` in ``unit``.

    ``ratio``: to the floor of the same run that ``floor`` names, smaller is better; with ``kept`` it is compared by ``make bench-check``.
    ``bar``: the most that ``value`` may be.
    """

    key: str
    text: str
    value: float
    unit: str
    ratio: float | None = None
    floor: str = ""
    kept: bool = False
    bar: float | None = None
    note: str = ""


def named(row: Row, part: str) -> Row:
    """With its part's name in front of the key."""
    return replace(row, key=f"{part}/{row.key}")


def shown(value: float) -> str:
    """Three significant digits, thousands with commas."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.3f}"


def table(rows: Sequence[Row]) -> list[str]:
    """One line a row: what, how much, of what it is how many times, and the bar."""
    width = max((len(row.text) for row in rows), default=0)
    return [_line(row, width) for row in rows]


def _line(row: Row, width: int) -> str:
    ratio = "" if row.ratio is None else f"{shown(row.ratio)} x {row.floor}"
    figure = shown if row.unit else "{:.3f}".format
    bar = "" if row.bar is None else f"bar {figure(row.bar)}{'' if row.value <= row.bar else ': MISSED'}"
    more = "; ".join(each for each in (bar, row.note) if each)
    value = figure(row.value)
    return f"{row.text:<{width}}  {value:>9} {row.unit:<6} {ratio:<28} {more}".rstrip()


def kept(rows: Iterable[Row]) -> dict[str, float]:
    """Key → ratio of what is compared.  Raises ValueError for a key that comes twice or a ratio that is not there."""
    found: dict[str, float] = {}
    for row in rows:
        if not row.kept:
            continue
        if row.ratio is None or row.key in found:
            raise ValueError(f"row {row.key}: {'no ratio' if row.ratio is None else 'twice'}")
        found[row.key] = row.ratio
    return found


def compare(expected: Mapping[str, float], found: Mapping[str, float], *, worse: float = WORSE) -> list[str]:
    """What is wrong, in words; empty when nothing is.  A row that is missing or new is wrong, too: nothing is compared with nothing."""
    wrong = []
    for key in sorted(expected.keys() | found.keys()):
        if key not in found:
            wrong.append(f"{key}: is in {EXPECTED.name} and was not measured (dropped or renamed? --update writes the file anew)")
        elif key not in expected:
            wrong.append(f"{key}: measured {shown(found[key])} and is not in {EXPECTED.name} (new? --update writes the file anew)")
        elif not found[key] <= expected[key] * (1 + worse):  # so that NaN is worse
            by = (found[key] / expected[key] - 1) * 100
            wrong.append(f"{key}: {shown(found[key])}, expected {shown(expected[key])}: {by:.0f} % worse, at most {100 * worse:.0f}")
    return wrong


def better(expected: Mapping[str, float], found: Mapping[str, float], *, by: float = WORSE) -> list[str]:
    """What became so much better that the checked-in figure hides a later loss."""
    return [
        f"{key}: {shown(found[key])}, expected {shown(expected[key])}: better; --update makes it the measure"
        for key in sorted(expected.keys() & found.keys())
        if found[key] < expected[key] * (1 - by)
    ]


def read(path: Path = EXPECTED) -> dict[str, float]:
    """Raises RuntimeError when it cannot be read, or holds anything but positive numbers by name."""
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{path.name}: {error}; --update writes it anew") from error
    ratios = told.get("ratios") if isinstance(told, dict) else None
    sound = isinstance(ratios, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf") for value in ratios.values()
    )
    if not sound:
        raise RuntimeError(f"{path.name}: must hold positive numbers by name below `ratios`; --update writes it anew")
    return {str(key): float(value) for key, value in ratios.items()}


def write(found: Mapping[str, float], path: Path = EXPECTED) -> None:
    told = {"about": "ratios of `make bench-check`, smaller is better; written by its --update", "ratios": _rounded(found)}
    path.write_text(json.dumps(told, indent=2) + "\n")


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {key: float(f"{found[key]:.4g}") for key in sorted(found)}
