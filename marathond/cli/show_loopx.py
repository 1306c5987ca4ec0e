"""LoopX in one trial, for ``marathonctl show``: whether it was delivered, whether the agent used it, and its todos, of a live trial as they
are now.

Owns the layout of that part, and the look into a live trial's goal state: bounded, without following a link, for the agent may write there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.agents.loopx import left, profile
from marathond.agents.loopx.left import TodoLeft
from marathond.cli.output import Column, Screen, table
from marathond.core.errors import ArtifactError
from marathond.core.names import LIVE_STATES, trial_label
from marathond.core.text import UNKNOWN, clean, plural, span
from marathond.ledger.verbs.show import TrialShown
from marathond.ports.agent import RunDir
from marathond.tasks.artifacts import read_bounded

TODOS_SHOWN = 30
TEXT_MAX = 160


@dataclass(frozen=True, slots=True)
class LiveTodos:
    """``why``: in words, why they cannot be seen; empty: they can."""

    rows: tuple[TodoLeft, ...] = ()
    left_out: int = 0
    why: str = ""


def live_todos(trial: TrialShown, state_dir: Path) -> LiveTodos | None:
    """None: no trial with LoopX, or it is at rest, and what became of its todos stands in its receipt."""
    prepared = next((entry.detail for entry in reversed(trial.log) if entry.kind == "prepared"), {})
    loopx = prepared.get("loopx")
    if trial.receipt is not None or not isinstance(loopx, Mapping) or trial.context.state not in LIVE_STATES:
        return None
    place = profile.below_state(str(loopx.get("state", {}).get("state_file", "")))
    if place is None:
        return LiveTodos(why="they lie in the task's tree: marathonctl exec")
    folder = RunDir(state_dir / "r" / trial_label(trial.context.trial_id)).harness / "state"
    try:
        data = read_bounded(folder, place, left.STATE_BYTES_AT_MOST)
    except (ArtifactError, OSError) as error:
        return LiveTodos(why=str(error))
    if data is None:
        return LiveTodos(why="the goal's state file is not there")
    found = left.todos(data.decode("utf-8", "replace"))
    return LiveTodos(tuple(found.rows), found.left_out)


def section(trial: TrialShown, state_dir: Path, where: Screen) -> Iterator[str]:
    part = None if trial.receipt is None else trial.receipt.data.get("loopx")
    if isinstance(part, Mapping):
        yield ""
        yield from _lines(part)
        state = part["state"]
        if state is not None:
            rows = [TodoLeft(**row) for row in state["todos"]]
            yield from _todos("todos at the end", rows, state["left_out"], where)
    elif (live := live_todos(trial, state_dir)) is not None:
        yield ""
        if live.why:
            yield f"  loopx: todos {UNKNOWN}: {clean(live.why, TEXT_MAX)}"
        else:
            yield from _todos("todos now", live.rows, live.left_out, where)


def _lines(part: Mapping[str, Any]) -> Iterator[str]:
    """Of the receipt."""
    set_up, delivered, used = part["set_up"], part["delivered"], part["used"]
    missing = "" if part["delivered_all"] else f", without {clean('; '.join(delivered['missing']), TEXT_MAX)}"
    words = "" if set_up is None else f" {clean(set_up['profile'])}, state {set_up['state']} the task's tree,"
    yield f"  loopx:{words} delivered {_yes(part['delivered_all'])}{missing}, used {_yes(part['used_any'])}"
    names = ", ".join(f"{count} {clean(name)}" for name, count in used["by_name"].items())
    first = "" if used["first"] is None else f", first in number {used['first']}"
    calls = f"{plural(used['calls'], 'call')} in {used['in_commands']} of {plural(used['commands'], 'command')}{first}"
    logged = UNKNOWN if used["events"] is None else str(sum(used["events"]["agent"].values()))
    yield f"    {calls}{f': {names}' if names else ''}; {logged} by LoopX's own log"
    if (wakes := delivered["wakes"]) is not None:
        pauses = f"pauses {span(int(wakes['pause_s_total'] * 1000))}, the longest {span(int(wakes['pause_s_most'] * 1000))}"
        polls = ", ".join(f"{count} {clean(name)}" for name, count in delivered["polls"]["by_answer"].items())
        yield f"    {plural(wakes['taken'], 'wake')}, {wakes['replayed']} replayed, {pauses}{f'; polls {polls}' if polls else ''}"
    causes = [f"{part['operator'][cause]} {cause}" for cause in ("model", "infra", "gate") if part["operator"][cause]]
    if causes:
        yield f"    set going again: {', '.join(causes)}"
    if part["stopped"]:
        yield f"    ended by its word: {clean(part['stopped'], TEXT_MAX)}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _todos(title: str, rows: list[TodoLeft] | tuple[TodoLeft, ...], left_out: int, where: Screen) -> Iterator[str]:
    if not rows:
        yield f"  loopx: no {title}"
        return
    yield f"  loopx {title}, as its goal state says, where the agent may write:"
    columns = (Column("todo"), Column("role"), Column("status"), Column("kind"), Column("text", least=12))
    shown = rows[:TODOS_SHOWN]
    cells = [[clean(value, TEXT_MAX) for value in (row.todo_id, row.role, row.status, row.kind, row.text)] for row in shown]
    yield from table(columns, cells, where, indent="  ")
    if more := len(rows) - len(shown) + left_out:
        yield f"  … {more} more (--json shows them)"
