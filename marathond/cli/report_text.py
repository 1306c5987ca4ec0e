"""A report's document on a terminal or in a pipe.

Owns its layout: readable at 80 columns, a wider terminal is used.  Off a terminal nothing is cut and no sentence is broken; but prose in a
table is, for a table has no columns to the eye where a row is as long as its longest sentence.  What does not fit beside each other goes
below each other: no column of a table is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from marathond.cli.output import Column, Screen, display_width, table, wrapped
from marathond.report.blocks import Block, Col, Document, Forest, HeatMap, Line, Panels, Section, Strips, Table, Tone, num

_STYLE = {Tone.QUIET: "dim", Tone.WARN: "yellow", Tone.ALARM: "red"}
_GAP = 2
PIPE_WIDTH = 140
"""Off a terminal, a table with prose in it is no wider, if it can be."""
NAME_FITS = 8
"""Characters of an arm's name that take no more room than a value below it."""


def render(document: Document, where: Screen) -> Iterator[str]:
    """Line by line, without line ends."""
    yield from _painted(document.title, where, "bold")
    yield from wrapped(document.subtitle, where)
    for line in document.banner:
        yield from ("", *_line(line, where))
    for section in document.sections:
        yield from _section(section, where)


def _section(section: Section, where: Screen) -> Iterator[str]:
    yield ""
    yield from _painted(f"{'#' * (section.level - 1)} {section.title}", where, "bold")
    before: Block | None = None
    for place, block in enumerate(section.blocks):
        made = list(_block(block, where))
        if isinstance(block, HeatMap) and not _explained(block, section.blocks[place + 1 :]):
            made += _painted(f"({block.legend})", where, "dim")
        if made and before is not None and not (isinstance(before, Line) and isinstance(block, Line)):
            yield ""
        yield from made
        before = block if made else before


def _explained(block: HeatMap, later: Sequence[Block]) -> bool:
    """The last one of those with the same legend has it."""
    return any(isinstance(each, HeatMap) and each.legend == block.legend for each in later)


def _painted(text: str, where: Screen, style: str) -> list[str]:
    return [where.paint(line, style) for line in wrapped(text, where)]


def _block(block: Block, where: Screen) -> Iterator[str]:
    match block:
        case Line():
            yield from _line(block, where)
        case Table():
            yield from _table(block, where)
        case HeatMap():
            yield from _heat(block, where)
        case Panels():
            yield from _table(block.numbers, where)
            yield from _painted(f"({block.x_title})", where, "dim")
        case Forest() | Strips():
            return  # a table beside it has the numbers


def _line(line: Line, where: Screen) -> list[str]:
    mark = "! " if line.tone in (Tone.WARN, Tone.ALARM) else ""
    texts = wrapped(f"{mark}{line.text}", where)
    return [where.paint(text, _STYLE[line.tone]) for text in texts] if line.tone in _STYLE else texts


def _table(block: Table, where: Screen) -> Iterator[str]:
    if block.html_only or not block.rows:
        return
    if block.caption:
        yield from wrapped(f"{block.caption}:", where)
    if where.width is None:
        block, where = _in_a_pipe(block, where)
    for columns, rows in _parts(block.columns, block.rows, where):
        yield from table([Column(each.title, each.right, each.least, each.wrap) for each in columns], rows, where)


def _in_a_pipe(block: Table, where: Screen) -> tuple[Table, Screen]:
    """Prose gives way down to :data:`PIPE_WIDTH`, nothing else does; a table that is wider even so stays as it is."""
    columns = tuple(column if column.wrap else replace(column, least=0) for column in block.columns)
    least = [_least(column, [row[place] for row in block.rows]) for place, column in enumerate(columns)]
    fits = sum(least) + _GAP * (len(columns) - 1) <= PIPE_WIDTH
    return replace(block, columns=columns), replace(where, width=PIPE_WIDTH) if fits else where


def _heat(block: HeatMap, where: Screen) -> Iterator[str]:
    """Arms by number where their names would not fit beside each other."""
    rows = tuple((task, *(cell.text for cell in cells)) for task, cells in block.rows)
    made = Table((Col("task", least=14), *(num(name) for name in block.columns)), rows, block.title)
    if len(list(_parts(made.columns, made.rows, where))) > 1 and max(map(len, block.columns)) > NAME_FITS:
        keys = [str(number) for number in range(1, len(block.columns) + 1)]
        yield from (line for key, name in zip(keys, block.columns, strict=True) for line in wrapped(f"arm {key}: {name}", where))
        made = replace(made, columns=(made.columns[0], *map(num, keys)))
    yield from _table(made, where)


def _parts(columns: Sequence[Col], rows: Sequence[Sequence[str]], where: Screen) -> Iterator[tuple[Sequence[Col], Sequence[Sequence[str]]]]:
    """The table, or as many as it takes to fit, each with the first column."""
    if where.width is None:
        yield columns, rows
        return
    least = [_least(column, [row[place] for row in rows]) for place, column in enumerate(columns)]
    room = where.width - least[0]
    groups: list[list[int]] = [[]]
    used = 0
    for place in range(1, len(columns)):
        width = least[place] + _GAP
        if groups[-1] and used + width > room:
            groups.append([])
            used = 0
        groups[-1].append(place)
        used += width
    for group in groups:
        kept = [0, *group]
        yield [_bounded(columns[place], where.width) for place in kept], [[row[place] for place in kept] for row in rows]


def _least(column: Col, texts: Sequence[str]) -> int:
    widest = max([display_width(column.title), *map(display_width, texts)])
    return min(widest, max(column.least, display_width(column.title) if column.wrap else 0)) if column.least else widest


def _bounded(column: Col, width: int) -> Col:
    """A column that may not be shortened, on a terminal that is narrower than it is alone, is shortened all the same."""
    return column if column.least else replace(column, least=min(width, 12)) if len(column.title) > width else column
