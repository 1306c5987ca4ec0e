"""The application: head, arms, trials in work, grid, findings and events, looked at again and again.

Owns layout, keys and what a key does.  Foreign words reach the widgets as :class:`rich.text.Text`, never as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import ClassVar, Literal

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Header, Static, TabbedContent, TabPane

from marathond.cli import status as layout
from marathond.cli.client import call
from marathond.cli.mutate import void_words
from marathond.cli.output import Column, Screen
from marathond.cli.top.look import Looked, Place, finding_words, look, square_words
from marathond.cli.top.trial import TrialScreen
from marathond.cli.top.void import VoidDialog
from marathond.core.errors import MarathonError
from marathond.core.names import trial_label
from marathond.core.text import clean, clock
from marathond.service.exits import Exit
from marathond.service.picture.board import MARKS
from marathond.service.picture.status import Status
from marathond.service.picture.words import waiting_words

EVERY_S = 2.0
_SHADES = {"healthy": "green", "degraded": "red", "down": "red", "unknown": "yellow"}


class Trials(DataTable[Text]):
    """Says in the footer what its keys do: a table has the same ones, and keeps them to itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "choose a trial", key_display="↑↓"),
        Binding("enter", "select_cursor", "open it"),
    ]


class Top(App[int]):
    """Ends with the exit status that ``status`` would have had at the last look."""

    TITLE = "marathond"
    CSS = """
    #head { height: auto; max-height: 14; padding: 0 1; }
    #waiting, #legend { height: auto; padding: 0 1; color: $text-muted; }
    #arms { height: auto; max-height: 12; margin-bottom: 1; }
    TabbedContent { height: 1fr; }
    DataTable { height: 1fr; min-height: 4; }
    TabPane { padding: 0 1; }
    #facts-text, #events-text { height: auto; }
    VoidDialog { align: center middle; }
    #dialog { width: 80; max-width: 95%; height: auto; padding: 1 2; border: round $warning; background: $surface; }
    #dialog Label { width: 100%; }
    #block { height: auto; }
    #dialog #block Label { width: 1fr; padding: 1; }
    #lacks { color: $error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "quit"),
        Binding("v", "void", "void the trial"),
        Binding("1", "tab('live')", "live"),
        Binding("2", "tab('grid')", "grid"),
        Binding("3", "tab('events')", "events"),
        Binding("4", "tab('findings')", "findings"),
        Binding("r", "look", "look now"),
    ]

    def __init__(self, place: Place, *, every_s: float = EVERY_S) -> None:
        super().__init__()
        self._place, self._every_s = place, every_s
        self._looking = Lock()
        self.seen: Status | None = None

    def compose(self) -> ComposeResult:
        yield Header(show_clock=True)
        yield Static("", id="head", markup=False)
        with TabbedContent(initial="live"):
            with TabPane("live", id="live"):
                yield DataTable(id="arms", cursor_type="none", zebra_stripes=True)
                yield Trials(id="trials", cursor_type="row")
                yield Static("", id="waiting", markup=False)
            with TabPane("grid", id="grid"):
                yield DataTable(id="grid-table", cursor_type="cell", fixed_columns=1)
                yield Static("", id="legend", markup=False)
            with TabPane("events", id="events"), VerticalScroll(id="events-table"):
                yield Static("", id="events-text", markup=False)
            with TabPane("findings", id="findings"):
                yield DataTable(id="findings-table", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#trials").focus()
        self.action_look()
        self.set_interval(self._every_s, self.action_look)

    # ── looking ──

    @work(thread=True, exit_on_error=False)
    def action_look(self) -> None:
        if not self._looking.acquire(blocking=False):
            return  # the look before is not over: a large ledger on a slow disk is looked at less often
        try:
            self.call_from_thread(self._show, look(self._place))
        finally:
            self._looking.release()

    def _show(self, looked: Looked | str) -> None:
        if isinstance(looked, str):
            self.sub_title = "cannot see"
            self.query_one("#head", Static).update(Text(f"cannot see: {looked}", style="yellow"))
            return
        status = self.seen = looked.board.status
        self.sub_title = f"{clean(status.campaign or 'no campaign yet', 60)}: {status.health}"
        lines = layout.head(status, Screen(max(self.size.width - 2, 60)))
        self.query_one("#head", Static).update(Text("\n").join([Text(lines[0], style=_SHADES[status.health]), *map(Text, lines[1:])]))
        columns, rows, _ = layout.arm_table(status, roomy=self.size.width >= layout.ROOMY)
        _fill(self.query_one("#arms", DataTable), columns, rows)
        columns, rows, _ = layout.live_table(status)
        _fill(self.query_one("#trials", DataTable), columns, rows, [trial_label(trial.trial_id) for trial in status.live])
        self.query_one("#waiting", Static).update(Text("\n".join(waiting_words(status))))
        grid = looked.board.grid
        squares = [[clean(task, 60), *map(square_words, row)] for task, row in grid.rows]
        _fill(self.query_one("#grid-table", DataTable), [Column("task"), *(Column(clean(arm, 30)) for arm in grid.arms)], squares)
        left = f"   {grid.left_out} more tasks: marathonctl sql" if grid.left_out else ""
        self.query_one("#legend", Static).update(Text("  ".join(f"{mark.letter} {mark.word}" for mark in MARKS) + left))
        self.query_one("#events-text", Static).update(Text("\n".join(looked.events)))
        if (scroll := self.query_one("#events-table", VerticalScroll)).max_scroll_y - scroll.scroll_y <= 1:
            scroll.scroll_end(animate=False)  # whoever has scrolled up stays there
        heads = [Column("no", right=True), *map(Column, ("severity", "code", "about", "since", "times", "what"))]
        table = [
            [
                *(str(row.finding_id), row.severity + (" (ack)" if row.acked_at_ms is not None else ""), clean(row.code)),
                *(clean(row.subject, 40), clock(row.opened_at_ms, status.now_ms), str(row.times), finding_words(row)),
            ]
            for row in status.findings
        ]
        _fill(self.query_one("#findings-table", DataTable), heads, table, [str(row.finding_id) for row in status.findings])

    # ── keys ──

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name
        self.query_one("#trials" if name == "live" else f"#{name}-table").focus()

    def action_leave(self) -> None:
        self.exit(int(Exit.BLIND if self.seen is None else self.seen.exit_code))

    def _chosen(self) -> int | None:
        """The trial that is meant: of the open trial's screen, else under the cursor."""
        if isinstance(self.screen, TrialScreen):
            return self.screen.trial_id
        table = self.query_one("#trials", DataTable)
        if not table.row_count:
            return None
        key = table.coordinate_to_cell_key(Coordinate(table.cursor_row, 0)).row_key.value
        return None if key is None else int(key[1:])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.data_table.id == "trials" and event.row_key.value is not None:
            self.push_screen(TrialScreen(self._place, int(event.row_key.value[1:]), self._every_s))

    def action_void(self) -> None:
        trial_id = self._chosen()
        if trial_id is None:
            self.notify("no trial is chosen", severity="warning")
            return
        found = next((trial for trial in (self.seen.live if self.seen else []) if trial.trial_id == trial_id), None)
        what = "at rest" if found is None else f"{clean(found.task, 60)} x {clean(found.arm, 30)}, {found.phase}"
        self.push_screen(VoidDialog(trial_id, what), partial(self._decided, trial_id))

    def _decided(self, trial_id: int, answer: tuple[str, bool] | None) -> None:
        if answer is not None:
            self._void(trial_id, *answer)

    @work(thread=True, exit_on_error=False)
    def _void(self, trial_id: int, reason: str, pair: bool) -> None:
        """The daemon decides and answers; its words are what is shown."""
        args = {"trials": [trial_id], "reason": reason, "code": "operator", **({"pair": True} if pair else {})}
        severity: Literal["information", "error"] = "information"
        waits = partial(self.call_from_thread, self.notify, timeout=10, markup=False)
        try:
            words = list(void_words(call(self._place.paths.control_socket, "void", args, tell=lambda line: waits(clean(line))), args))
        except MarathonError as error:
            words, severity = [clean(error)], "error"
        self.call_from_thread(self.notify, "\n".join(words), severity=severity, timeout=10, markup=False)
        self.call_from_thread(self.action_look)


def _fill(table: DataTable[Text], columns: Sequence[Column], rows: Sequence[Sequence[str]], keys: Sequence[str] | None = None) -> None:
    """Cell by cell where the rows are the same ones: cursor and scroll position stay where the person left them."""
    names = [column.title for column in columns]
    keys = [row[0] for row in rows] if keys is None else keys
    if [column.label.plain for column in table.ordered_columns] != names:
        table.clear(columns=True)
        for name in names:
            table.add_column(name, key=name)
    old = [row.key.value for row in table.ordered_rows]
    if old != list(keys):
        at = old[table.cursor_row] if old and table.cursor_row < len(old) else None
        table.clear()
        for key, row in zip(keys, rows, strict=True):
            table.add_row(*_cells(columns, row), key=key)
        if at in keys:
            table.move_cursor(row=list(keys).index(str(at)))
        return
    for key, row in zip(keys, rows, strict=True):
        for name, cell in zip(names, _cells(columns, row), strict=True):
            if table.get_cell(key, name) != cell:
                table.update_cell(key, name, cell, update_width=True)


def _cells(columns: Sequence[Column], row: Sequence[str]) -> list[Text]:
    return [Text(text, justify="right" if column.right else "left", no_wrap=True) for text, column in zip(row, columns, strict=True)]


def run(place: Place, *, every_s: float = EVERY_S) -> int:
    """Until ``q``; the exit status of the last look."""
    ended = Top(place, every_s=every_s).run()
    return int(Exit.OK) if ended is None else ended
