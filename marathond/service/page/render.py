"""Pages from pictures: templates, and versions by which a browser says what it has.

Owns the environment of the templates.  Everything passes through their escaping, and before it through :func:`.words.shown`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from marathond import __version__
from marathond.core.names import trial_label
from marathond.core.text import clean, clock, plural, span, when
from marathond.service.page import words
from marathond.service.page.trial import TrialView
from marathond.service.picture.board import MARKS, Board
from marathond.service.picture.words import park_words, reviews_words, waiting_words

HERE = Path(__file__).resolve().parent
STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}

NAMES = {**{letter: letter for letter in "RPVSX"}, "?": "Q", "·": "O", "‖": "K"}
"""Of a mark's letter in the style sheet."""

BOARD_PARTS = {"head": "Health", "todo": "To do", "live": "In work", "arms": "Arms", "grid": "Grid", "events": "Events"}
TRIAL_PARTS = {
    **{"head": "State", "scores": "Score", "timeline": "Timeline", "agent": "Agent's log", "verifier": "Verifier's log"},
    **{"facts": "Facts", "receipt": "Model"},
}


@dataclass(frozen=True, slots=True)
class Screen:
    """A finished picture.  ``parts``: HTML by name; ``version`` names all of them together; ``hashes`` each."""

    title: str
    at: str
    kind: str
    parts: Mapping[str, str]
    hashes: Mapping[str, str]
    version: str


def static(name: str) -> bytes:
    """:raises FileNotFoundError: this installation is incomplete."""
    return (HERE / "static" / name).read_bytes()


@cache
def build() -> str:
    """Changes when a static file does, so that a browser never shows new words with an old style."""
    return _hash("".join(hashlib.blake2b(static(name)).hexdigest() for name in STATIC))


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=words.shown,
        auto_reload=False,
    )
    found.globals |= {
        name: getattr(words, name) for name in ("health_words", "life_words", "engine_words", "tiles", "shares", "alerts", "live_rows")
    }
    found.globals |= {"arm_columns": words.arm_columns, "absent_columns": words.absent_columns, "live_max": words.LIVE_MAX}
    found.globals |= {"label": trial_label, "clean": clean, "clock": clock, "plural": plural, "span": span, "signs": words.SIGNS}
    found.globals |= {"park_words": park_words, "reviews_words": reviews_words, "marks": MARKS, "names": NAMES}
    return found


def warm() -> None:
    """Compiles the templates: the first look is then as quick as the others."""
    for name in _environment().list_templates():
        _environment().get_template(name)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _render(name: str, **context: Any) -> str:
    return _environment().get_template(f"{name}.html.j2").render(**context)


def _screen(title: str, at_ms: int, kind: str, parts: dict[str, str]) -> Screen:
    hashes = {name: _hash(html) for name, html in parts.items()}
    return Screen(title, when(at_ms), kind, parts, hashes, _hash("".join(hashes.values())))


def board(picture: Board, now_ms: int, problem: str = "", *, grid: str | None = None) -> Screen:
    """:param problem: why the ledger cannot be read now, when ``picture`` is an older one.

    :param grid: the grid's HTML, when it is known: the largest part changes the least.
    """
    status = picture.status
    shared = {"status": status, "problem": problem, "now_ms": now_ms, "reviews": picture.reviews, "grid": picture.grid}
    shared |= {"waiting": waiting_words(status), "events": words.event_rows(picture), "no_events": words.no_events(picture)}
    known = {} if grid is None else {"grid": grid}
    parts = {name: known[name] if name in known else _render(f"board_{name}", **shared) for name in BOARD_PARTS}
    state = "unknown" if problem else status.health
    return _screen(f"{words.SIGNS[state]} {state} – {clean(status.campaign or 'marathond', 80)}", now_ms, "board", parts)


def trial(view: TrialView) -> Screen:
    parts = {name: _render(f"trial_{name}", t=view) for name in ("head", "scores", "timeline", "facts", "receipt")}
    parts |= {log.name: _render("trial_log", t=view, log=log) for log in view.logs}
    return _screen(
        f"{view.label} {view.state} – marathond", view.now_ms, "trial", {name: parts[name] for name in TRIAL_PARTS if name in parts}
    )


def problem(title: str, text: str, at_ms: int, root: str) -> Screen:
    """A page that says why there is nothing to show."""
    return _screen(title, at_ms, "problem", {"head": _render("problem", title=title, words=text, root=root)})


def page(screen: Screen, *, root: str, parts_at: str) -> bytes:
    """The whole document.

    :param root: the way from its address to the first screen's folder.  :param parts_at: where to ask for its changes; empty: nowhere.
    """
    chapters = {**BOARD_PARTS, **TRIAL_PARTS} if screen.kind != "board" else BOARD_PARTS
    text = _render(
        "page",
        version=screen.version,
        parts=parts_at,
        at=screen.at,
        title=screen.title,
        root=root,
        build=build(),
        kind=screen.kind,
        made_by=__version__,
        chapters=[(name, chapters[name]) for name in screen.parts],
        sections=[(name, Markup(html)) for name, html in screen.parts.items()],  # rendered, and so escaped, by the templates above
    )
    return text.encode("utf-8", "replace")
