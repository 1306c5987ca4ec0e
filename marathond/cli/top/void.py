"""The question before a trial is withdrawn: why.

Owns the reason's dialogue.  A void without a reason is refused here as everywhere.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Switch

from marathond.core.names import trial_label


class VoidDialog(ModalScreen[tuple[str, bool] | None]):
    """Gives back the reason and whether the whole block is meant; None: left as it is."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave it")]

    def __init__(self, trial_id: int, what: str) -> None:
        super().__init__()
        self._trial_id, self._what = trial_id, what

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Label(f"void {trial_label(self._trial_id)}: {self._what}", markup=False)
            yield Label("Its cell runs again; rows, score and artifacts are kept. Enter voids, Escape leaves it.", markup=False)
            yield Input(placeholder="why? it is kept with the decision and your name", id="reason", max_length=2000)
            with Horizontal(id="block"):
                yield Switch(id="pair", tooltip="every standing trial of the same task and replicate")
                yield Label("with its whole block", markup=False)
            yield Label("", id="lacks", markup=False)

    def on_mount(self) -> None:
        self.query_one("#reason", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if not event.value.strip():
            self.query_one("#lacks", Label).update("a reason is needed")
            return
        self.dismiss((event.value.strip(), self.query_one("#pair", Switch).value))

    def action_leave(self) -> None:
        self.dismiss(None)
