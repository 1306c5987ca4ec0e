"""How things look: columns, durations, times, colours.

Owns the last step before a terminal: everything that an agent, a task or another program may have written passes through
:func:`clean`.  Plain text without wrapping off a terminal; colours only on one, and never with NO_COLOR.  Must stay light: ``status``
has no time for rich.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, TextIO

FALLBACK_COLUMNS = 120

_HALF = re.compile("[\ud800-\udfff]")

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


@dataclass(frozen=True, slots=True)
class Screen:
    """Where the output goes.  ``width`` None: no limit (a pipe, a file)."""

    width: int | None = None
    colour: bool = False

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.colour and text else text

    def fit(self, line: str) -> str:
        """Cut at the right edge of a terminal; whole elsewhere."""
        return line if self.width is None else cut(line, self.width)


def screen(stream: TextIO | None = None, environ: Mapping[str, str] | None = None) -> Screen:
    """What ``stream`` (stdout) can show.  NO_COLOR (any value but empty) and TERM=dumb turn colours off."""
    stream = sys.stdout if stream is None else stream
    environ = os.environ if environ is None else environ
    if not stream.isatty():
        return Screen()
    colour = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Screen(_columns(stream, environ), colour)


def _columns(stream: TextIO, environ: Mapping[str, str]) -> int:
    """Of the terminal; COLUMNS overrides, as everywhere.  (shutil's function costs 10 ms of imports.)"""
    given = environ.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or FALLBACK_COLUMNS
    except (OSError, ValueError):
        return FALLBACK_COLUMNS


def say(text: str = "") -> None:
    """A line of data."""
    print(text)


def note(text: str) -> None:
    """A line for the person beside the data: stderr."""
    print(text, file=sys.stderr)


def print_json(value: object) -> None:
    """A document on several lines.  What its values look like: :func:`json_text`."""
    print(json_text(value, indent=2))


def print_json_line(value: object) -> None:
    """One document of a stream: a line, seen at once by whoever reads along."""
    print(json_text(value), flush=True)


def json_text(value: object, indent: int | None = None) -> str:
    """JSON that every reader takes.  A dataclass is an object, a path a text, bytes are hexadecimal digits, a set is a sorted list; NaN and
    infinities are null; half a surrogate pair (of a file's name that is no UTF-8) is U+FFFD.

    :raises TypeError: a value of any other type.
    """
    try:
        text = json.dumps(value, ensure_ascii=True, indent=indent, allow_nan=False, default=_jsonable)
        if "\\ud" not in text:
            return text
    except ValueError:
        pass  # a number that JSON does not know: looked for below, for it is rare
    return json.dumps(_mended(value), ensure_ascii=True, indent=indent, allow_nan=False)


def _jsonable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_mended(key): _mended(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(each) for each in value]
    return _mended(_jsonable(value))


def flat(*parts: Any) -> dict[str, Any]:
    """The fields of several dataclasses (or the keys of mappings) as one object, in this order; no name may stand in two of them."""
    found: dict[str, Any] = {}
    for part in parts:
        values = part if isinstance(part, Mapping) else asdict(part)
        if twice := found.keys() & values.keys():
            raise TypeError(f"{', '.join(sorted(twice))}: in two parts of one object")
        found |= values
    return found


def flow(parts: Sequence[str], where: Screen, gap: str = "   ", *, most: int | None = None) -> list[str]:
    """``parts`` side by side; on a terminal that is too narrow, one goes on in the next line, indented, and none is cut before that.

    :param most: columns of a line wherever it goes, off a terminal, too, where nothing is cut; None: no limit but the terminal's.
    """
    room = min((width for width in (where.width, most) if width is not None), default=None)
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and (room is None or display_width(lines[-1] + gap + part) <= room):
            lines[-1] += gap + part
        else:
            lines.append(f"  {part}" if lines else part)
    return [part for line in lines for part in told(line, where)]


_TO_TYPE = re.compile(r"\b(marathonctl|kill) [a-z-]")


def told(line: str, where: Screen) -> list[str]:
    """``line`` cut at the right edge, but for one with a command to type: half of a command is none, so that such a line is wrapped."""
    return wrapped(line, where) if _TO_TYPE.search(line) else [where.fit(line)]


def wrapped(line: str, where: Screen) -> list[str]:
    """``line`` on as many lines as it takes, broken at blanks and indented below itself: for what must not be cut.  One off a terminal."""
    if where.width is None or display_width(line) <= where.width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return _wrap(line, where.width, indent)


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """By columns of the terminal, not by characters as textwrap counts; a word that is too long for any line is broken."""
    lines, line, used = list[str](), "", 0
    room = width = max(width, len(indent) + 10)
    parts = re.split("( +)", text)[::-1]
    while parts:
        part = parts.pop()
        wide = display_width(part)
        if used + wide <= room:
            if line.strip() or part.strip() or not lines:
                line, used = line + part, used + wide
            continue
        if wide > room and part.strip():
            head = _head(part, room - used) or ("" if line else part[0])
            line, part = line + head, part[len(head) :]
        lines.append((indent if lines else "") + line.rstrip())
        line, used, room = "", 0, width - len(indent)
        parts += [part] if part.strip() else []
    return [*lines, (indent if lines else "") + line.rstrip()] if line.strip() or not lines else lines


def _head(text: str, width: int) -> str:
    """What of ``text`` fits into so many columns."""
    used = 0
    for place, char in enumerate(text):
        used += display_width(char)
        if used > width:
            return text[:place]
    return text


def display_width(text: str) -> int:
    """Terminal columns, escapes of :meth:`Screen.paint` not counted."""
    total, inside = 0, False
    for char in text:
        if inside:
            inside = char != "m"
        elif char == "\x1b":
            inside = True
        elif not unicodedata.combining(char):
            total += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return total


def cut(text: str, width: int) -> str:
    """At most ``width`` columns, the loss shown by ``…``.  A cut line loses its colours, so that none leaks."""
    if display_width(text) <= width:
        return text
    kept, used, inside = "", 0, False
    for char in text:
        if inside:
            inside = char != "m"
            continue
        if char == "\x1b":
            inside = True
            continue
        used += 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used > width - 1:
            break
        kept += char
    return kept.rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Column:
    """``right``: numbers.  ``least``: columns that stay when the terminal is narrow; 0: never shortened.  ``wrap``: what does not fit goes
    on in the next line instead of being cut."""

    title: str
    right: bool = False
    least: int = 0
    wrap: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], where: Screen, *, indent: str = "") -> list[str]:
    """Aligned lines with a header.  Off a terminal nothing is shortened; on one the widest shrinkable columns give way first."""
    body = [list(row) for row in rows]
    widths = [max([len(column.title), *(display_width(row[i]) for row in body)]) for i, column in enumerate(columns)]
    if where.width is not None:
        _shrink(widths, columns, where.width - len(indent) - 2 * (len(columns) - 1))
    lines = [where.paint(where.fit(_row([c.title for c in columns], columns, widths, indent)), "dim")]
    for row in body:
        lines += [where.fit(_row(cells, columns, widths, indent)) for cells in _parts(row, columns, widths)]
    return lines


def _parts(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[tuple[str, ...]]:
    """A row as the lines that it takes."""
    cells = [
        _wrap(text, width) if column.wrap and display_width(text) > width else [text]
        for text, column, width in zip(row, columns, widths, strict=True)
    ]
    return list(zip_longest(*cells, fillvalue=""))


def _shrink(widths: list[int], columns: Sequence[Column], room: int) -> None:
    while sum(widths) > room:
        spare = [(widths[i] - column.least, i) for i, column in enumerate(columns) if column.least and widths[i] > column.least]
        if not spare:
            return
        widths[max(spare)[1]] -= 1


def _row(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], indent: str) -> str:
    parts = []
    for text, column, width in zip(cells, columns, widths, strict=True):
        text = cut(text, width)
        gap = " " * (width - display_width(text))
        parts.append(gap + text if column.right else text + gap)
    return (indent + "  ".join(parts)).rstrip()
