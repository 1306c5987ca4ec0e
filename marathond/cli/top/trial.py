"""One trial: everything that ``show`` prints, and its logs as they grow.

Owns the layout of that screen.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Header, RichLog, Static, TabbedContent, TabPane

from marathond.cli.top.look import Log, Place, trial_lines
from marathond.core.names import trial_label

LOG_LINES = 5000
"""Kept of a log; what is older is in ``marathonctl logs``."""


class TrialScreen(Screen[None]):
    """``v`` is the application's: it asks for a reason and sends it to the daemon."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", "back"),
        Binding("v", "app.void", "void"),
        Binding("1", "tab('facts')", "facts"),
        Binding("2", "tab('agent')", "agent"),
        Binding("3", "tab('verifier')", "verifier"),
    ]

    def __init__(self, place: Place, trial_id: int, every_s: float) -> None:
        super().__init__()
        self.trial_id = trial_id
        self._place, self._every_s = place, every_s
        self._logs = {name: Log(place, trial_id, verifier=name == "verifier") for name in ("agent", "verifier")}
        self._looking = Lock()
        self._told: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Header(show_clock=False)
        with TabbedContent(initial="facts"):
            with TabPane("facts", id="facts"), VerticalScroll(id="facts-scroll"):
                yield Static("", id="facts-text", markup=False)
            for name in self._logs:
                with TabPane(name, id=name):
                    yield RichLog(id=f"{name}-log", max_lines=LOG_LINES, markup=False, highlight=False, wrap=True)
        yield Footer()

    def on_mount(self) -> None:
        self.title = trial_label(self.trial_id)
        self.query_one("#facts-scroll").focus()
        self._look()
        self.set_interval(self._every_s, self._look)

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name
        self.query_one("#facts-scroll" if name == "facts" else f"#{name}-log").focus()

    @work(thread=True, exit_on_error=False)
    def _look(self) -> None:
        if not self._looking.acquire(blocking=False):
            return  # a look that takes longer than the interval is followed by the next: a reading position is one thread's
        try:
            lines, live = trial_lines(self._place, self.trial_id, max(self.size.width - 4, 60))
            pieces = {name: log.more() for name, log in self._logs.items()}
            self.app.call_from_thread(partial(self._show, lines, live=live, pieces=pieces))
        finally:
            self._looking.release()

    def _show(self, lines: list[str], *, live: bool, pieces: dict[str, list[str]]) -> None:
        if not self.is_mounted:
            return
        self.sub_title = "" if live else "at rest"
        self.query_one("#facts-text", Static).update(Text("\n".join(lines)))
        for name, piece in pieces.items():
            if len(piece) == 1 and piece[0].startswith("(") and self._told.get(name) == piece[0]:
                continue  # "nothing yet" once
            if piece:
                self._told[name] = piece[0]
                self.query_one(f"#{name}-log", RichLog).write(Text("\n".join(piece)))
