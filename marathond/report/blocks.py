"""What a report is made of, before anybody knows how it will look: sections of lines, tables and figures.

Owns those shapes.  Every text in them is one bounded line without control characters (:func:`word`), but not yet escaped for any format:
the terminal and the template do that.  A figure holds geometry as numbers, never markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from marathond.core.text import printable

NAME_MAX = 120
"""Characters of a name (task, arm, model, code) of somebody else."""
TEXT_MAX = 1000
"""Characters of a reason, a finding's words, a disclosure."""


def word(value: object, max_len: int = NAME_MAX) -> str:
    """A foreign value as one bounded line; ``-`` for nothing."""
    return printable("" if value is None else str(value), max_len) or "-"


class Tone(StrEnum):
    """How a line is meant.  Its words alone say everything: tone is only an underlining."""

    PLAIN = "plain"
    QUIET = "quiet"
    WARN = "warn"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Col:
    """``right``: numbers.  ``least``: characters that stay on a narrow screen; 0: never shortened.  ``wrap``: goes on in the next line."""

    title: str
    right: bool = False
    least: int = 0
    wrap: bool = False


def num(title: str) -> Col:
    return Col(title, right=True)


def prose(title: str, least: int = 20) -> Col:
    return Col(title, least=least, wrap=True)


@dataclass(frozen=True, slots=True)
class Table:
    """``aside``: long detail; HTML folds it away, and text leaves out a table with ``html_only``."""

    columns: tuple[Col, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    aside: bool = False
    html_only: bool = False


@dataclass(frozen=True, slots=True)
class HeatCell:
    """``share`` 0 to 1, None: nothing to show, and ``text`` says why; ``note`` is the whole in words."""

    text: str
    share: float | None
    note: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Task by arm.  ``legend``: what a cell's text means."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    legend: str


@dataclass(frozen=True, slots=True)
class Tick:
    """``at``: per cent of the axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ForestRow:
    """``at``/``low``/``high``: per cent of the axis; ``low`` None: no interval.  ``clipped``: the interval goes beyond the axis."""

    label: str
    at: float
    low: float | None
    high: float | None
    text: str
    clipped: bool = False


@dataclass(frozen=True, slots=True)
class Forest:
    """Differences beside a line of no difference (``zero``, per cent of the axis).  ``aside``: folded away.

    ``bars``: a row without an interval is a bar from that line.  Elsewhere it is an open mark alone: a bar would look like an interval.
    """

    title: str
    alt: str
    zero: float
    ticks: tuple[Tick, ...]
    rows: tuple[ForestRow, ...]
    legend: str
    aside: bool = False
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    at: float
    lane: int
    """Which of a few heights it has, so that equal values do not hide each other."""


@dataclass(frozen=True, slots=True)
class StripRow:
    """Every value as a dot, a box from the 10th to the 90th percentile, a bar at the median; all in per cent of the axis."""

    label: str
    dots: tuple[Dot, ...]
    low: float | None
    median: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Strips:
    title: str
    alt: str
    ticks: tuple[Tick, ...]
    rows: tuple[StripRow, ...]
    legend: str


@dataclass(frozen=True, slots=True)
class Curve:
    """``path``: points (x, y) in per cent, y from above; ``style`` names a look: ``main``, ``second`` or ``other``."""

    path: tuple[tuple[float, float], ...]
    style: str


@dataclass(frozen=True, slots=True)
class Panel:
    label: str
    text: str
    alt: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Panels:
    """Small plots of one kind, one per arm, with the same axes.  ``numbers``: the same read at the ticks, for who cannot see them."""

    title: str
    panels: tuple[Panel, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_title: str
    legend: str
    numbers: Table


Figure = Forest | Strips | Panels
Block = Line | Table | HeatMap | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """``key``: a short name for links.  ``level`` 2 or 3.  ``aside``: HTML folds it away."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    level: int = 2
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """``banner``: what must be read before anything else."""

    title: str
    subtitle: str
    banner: tuple[Line, ...]
    sections: tuple[Section, ...]
    page: bool = False


def lines(texts: Iterable[str], tone: Tone = Tone.PLAIN) -> tuple[Line, ...]:
    return tuple(Line(text, tone) for text in texts)
