"""The facts of a screen that stays (the page): the first screen's, the grid of cells, what happened lately, what waits for a person.

Owns how a cell looks at a glance.  Bounded: a campaign with more cells than can be shown one by one is counted instead, by task and arm.
Must stay light, see :mod:`.reader`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from marathond.ledger.verbs import board as verbs
from marathond.service.picture.reader import campaign_id
from marathond.service.picture.status import Status, gather

CELLS_MAX, REPLICATES_MAX = 4_000, 12
"""More are counted, not shown one by one."""
TASKS_MAX, EVENTS_MAX, REVIEWS_MAX = 200, 40, 50


@dataclass(frozen=True, slots=True)
class Mark:
    """How a cell looks: a letter, and the word for it."""

    letter: str
    word: str


RUNNING, PREPARING, VERIFYING = Mark("R", "running"), Mark("P", "preparing"), Mark("V", "verifying")
SCORED, VOIDED, REVIEW = Mark("S", "scored"), Mark("X", "voided, to be tried again"), Mark("?", "in review")
OPEN, PARKED = Mark("·", "open"), Mark("‖", "parked")
MARKS = (RUNNING, PREPARING, VERIFYING, SCORED, VOIDED, REVIEW, OPEN, PARKED)
"""The letters of ux: R P V S X ?; a dot for what was never tried, bars for what cannot run."""

_BY_TRIAL = {
    **{"new": PREPARING, "reserved": PREPARING, "preparing": PREPARING, "running": RUNNING, "verifying": VERIFYING},
    **{"scored": SCORED, "review": REVIEW, "voided": VOIDED},
}


def mark_of(state: str, trial_state: str | None) -> Mark:
    """Of a cell's state and that of the trial that stands in it, or of its last one."""
    if state == "parked":
        return PARKED
    return OPEN if trial_state is None else _BY_TRIAL.get(trial_state, OPEN)


@dataclass(frozen=True, slots=True)
class Square:
    """One task in one arm.  ``marks``: by replicate, or empty where they are counted.  ``counts``: cells by mark, in the order of MARKS.

    ``reward``: the mean over its scored cells; None: none is.
    """

    marks: tuple[tuple[Mark, verbs.CellMark], ...]
    counts: tuple[tuple[Mark, int], ...]
    reward: float | None


@dataclass(frozen=True, slots=True)
class Grid:
    """``rows``: task, and its squares in the arms' order.  ``left_out``: tasks beyond TASKS_MAX."""

    arms: tuple[str, ...] = ()
    rows: tuple[tuple[str, tuple[Square, ...]], ...] = ()
    left_out: int = 0
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that the page's first screen shows, of one instant."""

    status: Status
    grid: Grid
    events: list[verbs.Happened] = field(default_factory=list)
    reviews: list[verbs.OpenReview] = field(default_factory=list)


def gather_board(c: sqlite3.Connection, campaign: str | None, control_socket: Path, now_ms: int, gateway: Path | None = None) -> Board:
    """:raises CallFailed: exit 2, no such campaign."""
    status = gather(c, campaign, control_socket, now_ms, gateway)
    found = campaign_id(c, campaign)
    if found is None:
        return Board(status, Grid())
    key = found[0]
    events = verbs.recent_events(c, key, limit=EVENTS_MAX)
    reviews = verbs.open_reviews(c, key, limit=REVIEWS_MAX) if status.cells.review else []
    return Board(status, grid_of(c, key), events, reviews)


def grid_of(c: sqlite3.Connection, campaign: int) -> Grid:
    size = verbs.extent(c, campaign)
    tasks, arms = verbs.tasks(c, campaign, limit=TASKS_MAX), verbs.arms(c, campaign)
    counted = size.cells > CELLS_MAX or size.replicates > REPLICATES_MAX
    squares = _counted(c, campaign) if counted else _shown(c, campaign)
    nothing = Square((), (), None)
    rows = tuple((task.name, tuple(squares.get((task.id, arm.id), nothing) for arm in arms)) for task in tasks)
    left_out = verbs.task_count(c, campaign) - len(tasks)
    return Grid(tuple(arm.name for arm in arms), rows, left_out, counted)


def _shown(c: sqlite3.Connection, campaign: int) -> dict[tuple[int, int], Square]:
    cells: dict[tuple[int, int], list[verbs.CellMark]] = {}
    for cell in verbs.cell_marks(c, campaign):
        cells.setdefault((cell.task_id, cell.arm_id), []).append(cell)
    return {key: _square(sorted(group, key=lambda cell: cell.replicate)) for key, group in cells.items()}


def _square(cells: list[verbs.CellMark]) -> Square:
    marks = tuple((mark_of(cell.state, cell.trial_state), cell) for cell in cells)
    rewards = [cell.reward for cell in cells if cell.reward is not None]
    counts: dict[Mark, int] = {}
    for mark, _ in marks:
        counts[mark] = counts.get(mark, 0) + 1
    return Square(marks, _some(counts), sum(rewards) / len(rewards) if rewards else None)


def _counted(c: sqlite3.Connection, campaign: int) -> dict[tuple[int, int], Square]:
    counts: dict[tuple[int, int], dict[Mark, int]] = {}
    rewards: dict[tuple[int, int], float] = {}
    for row in verbs.cell_counts(c, campaign):
        key, mark = (row.task_id, row.arm_id), mark_of(row.state, row.trial_state)
        found = counts.setdefault(key, {})
        found[mark] = found.get(mark, 0) + row.cells
        if row.reward is not None:
            rewards[key] = row.reward  # only cells that are done have one, and they look alike
    return {key: Square((), _some(found), rewards.get(key)) for key, found in counts.items()}


def _some(counts: dict[Mark, int]) -> tuple[tuple[Mark, int], ...]:
    return tuple((mark, counts[mark]) for mark in MARKS if counts.get(mark))
