"""A document as one HTML file that needs nothing else: no script, no network, no font.

Owns the environment of the templates.  Everything passes through the templates' escaping; nothing is ever marked safe.
"""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from marathond import __version__
from marathond.report.blocks import Block, Document, Section

TEMPLATES = Path(__file__).resolve().parent / "templates"
SHADES = 10
ROWS_OPEN = 12
"""A folded table with at most so many rows is shown open."""


def render(document: Document) -> str:
    """:raises jinja2.TemplateNotFound: this installation is incomplete."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"kind": _kind, "shade": _shade, "pc": _pc, "points": _points, "lean": _lean, "folds": _folds, "runs": runs}
    template = environment.get_template("report.html.j2")
    return template.render(document=document, made_by=__version__, chapters=_chapters(document), shades=SHADES)


def _kind(block: Block) -> str:
    return type(block).__name__


_CODE = re.compile(r"`([^`]+)`")


def runs(text: str) -> list[tuple[str, bool]]:
    """Pieces of a text and whether each is code, which stands between backticks; one without another stays what it is."""
    parts = _CODE.split(text)  # the groups stand between what lies around them
    return [(part, index % 2 == 1) for index, part in enumerate(parts) if part]


def _folds(rows: int) -> bool:
    return rows > ROWS_OPEN


def _shade(share: float) -> int:
    return min(SHADES, max(0, int(share * SHADES + 0.5)))


def _pc(value: float) -> str:
    """Per cent of an axis, two digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _points(path: tuple[tuple[float, float], ...]) -> str:
    return " ".join(f"{_pc(x)},{_pc(y)}" for x, y in path)


def _lean(at: float) -> str:
    """Where a tick's label hangs: labels at the ends of an axis stay inside it."""
    return "start" if at < 4 else "end" if at > 96 else "mid"


def _chapters(document: Document) -> tuple[Section, ...]:
    return tuple(section for section in document.sections if section.level == 2)
