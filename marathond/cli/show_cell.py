"""``marathonctl show CELL`` and ``show BLOCK``: the cells, their trials, why one is parked, and what comes next.

Owns the layout and the words of what comes next.  A trial's own screen is :mod:`marathond.cli.show`'s, what happened ``history``'s.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from marathond.cli.output import Column, Screen, table, wrapped
from marathond.core.names import block_label, cell_label, trial_label
from marathond.core.text import clean, plural, text_of, when
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.reader import number_of

EXPECTED = "a trial such as t0871, a cell such as c0012 or a block such as b0174"
_WHY_MAX = 400


@dataclass(frozen=True, slots=True)
class TrialOf:
    """:param void_code: why it does not count; null: it was not withdrawn."""

    trial: str
    attempt: int
    state: str
    void_code: str | None
    reward: float | None
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class CellShown:
    """:param cell: its id, as it is printed.
    :param state: open, claimed, done, parked or review.
    :param parked: the code and the reason, null: it is not parked.
    :param comes_next: what will happen to it, or what a person can do, in words.
    :param trials: oldest first.
    """

    cell: str
    arm: str
    state: str
    parked: tuple[str, str] | None
    comes_next: str
    trials: list[TrialOf]


@dataclass(frozen=True, slots=True)
class CellsShown:
    """:param asked: the cell or the block, as its id is printed.
    :param cells: of a block all, in the campaign's order of arms.
    """

    asked: str
    campaign: str
    task: str
    replicate: int
    block: str
    cells: list[CellShown]


def is_asked(text: str) -> bool:
    """Whether it is not a trial that is meant."""
    return text[:1].lower() in ("c", "b") and text[1:].isdigit()


def find(c: sqlite3.Connection, text: str) -> CellsShown:
    """:raises CallFailed: exit 2, there is no such cell or block."""
    kind = text[:1].lower()
    column, said, label = ("cell_id", "cell", cell_label) if kind == "c" else ("block_id", "block", block_label)
    number = number_of(text, kind, EXPECTED)
    rows = c.execute(
        f"""SELECT s.cell_id, s.block_id, s.state, s.replicate, campaign.name AS campaign, campaign.origin, task.name AS task,
                arm.name AS arm, park.code, park.detail
            FROM cell_state AS s JOIN campaign ON campaign.campaign_id = s.campaign_id JOIN task ON task.task_id = s.task_id
            JOIN arm ON arm.arm_id = s.arm_id LEFT JOIN park ON park.park_id = s.park_id
            WHERE s.{column} = ? ORDER BY arm.position""",
        (number,),
    ).fetchall()
    if not rows:
        raise CallFailed(f"no {said} {label(number)} in this ledger", Exit.USAGE)
    trials = _trials(c, [row["cell_id"] for row in rows])
    first = rows[0]
    cells = [
        CellShown(
            cell_label(row["cell_id"]),
            row["arm"],
            row["state"],
            None if row["code"] is None else (row["code"], row["detail"] or ""),
            _next(row, trials.get(row["cell_id"], [])),
            trials.get(row["cell_id"], []),
        )
        for row in rows
    ]
    return CellsShown(label(number), first["campaign"], first["task"], first["replicate"], block_label(first["block_id"]), cells)


def _trials(c: sqlite3.Connection, cells: list[int]) -> dict[int, list[TrialOf]]:
    found: dict[int, list[TrialOf]] = {}
    for row in c.execute(
        """SELECT cell_id, trial_id, attempt, state, reward, created_at_ms,
               (SELECT code FROM void WHERE void.trial_id = trial.trial_id AND undone_at_ms IS NULL) AS void_code
           FROM trial WHERE cell_id IN (SELECT value FROM json_each(?)) ORDER BY trial_id""",
        (json.dumps(cells),),
    ):
        one = TrialOf(trial_label(row["trial_id"]), row["attempt"], row["state"], row["void_code"], row["reward"], row["created_at_ms"])
        found.setdefault(row["cell_id"], []).append(one)
    return found


def _next(row: sqlite3.Row, trials: list[TrialOf]) -> str:
    newest = next((one.trial for one in reversed(trials) if one.state != "voided"), "")
    match row["state"]:
        case "open" if row["origin"] == "import":
            return "imported: nothing runs in it"
        case "open":
            return "it runs when its turn comes: marathonctl status says what cells wait for"
        case "claimed":
            return f"{newest} is in work: marathonctl show {newest}"
        case "parked":
            return f"it stays until somebody opens it again: marathonctl unpark {cell_label(row['cell_id'])} --reason …"
        case "review":
            return f"somebody decides: marathonctl review {newest}"
    return f"done: {newest} counts"


def lines(found: CellsShown, where: Screen) -> Iterator[str]:
    """The whole text, line by line."""
    single = found.asked != found.block
    head = f"{found.asked}  {found.cells[0].state}" if single else f"{found.asked}  {plural(len(found.cells), 'cell')}"
    yield where.fit(head)
    arm = f"   arm {clean(found.cells[0].arm)}" if single else ""
    block = f"   block {found.block}" if single else ""
    yield where.fit(f"  campaign {clean(found.campaign)}   task {clean(found.task)}{arm}   replicate {found.replicate}{block}")
    for cell in found.cells:
        if not single:
            yield ""
            yield where.fit(f"  {cell.cell}  {cell.state}   arm {clean(cell.arm)}")
        if cell.parked is not None:
            yield from wrapped(f"  parked: {clean(cell.parked[0])}: {clean(cell.parked[1], _WHY_MAX)}", where)
        yield from wrapped(f"  next: {cell.comes_next}", where)
        if cell.trials:
            yield from table(_COLUMNS, [_row(one) for one in cell.trials], where, indent="  ")
        else:
            yield "  no trial yet"
    yield ""
    yield where.fit(f"  all that happened to it: marathonctl history {found.asked}")


_COLUMNS = (
    *(Column("trial"), Column("attempt", right=True), Column("state"), Column("void"), Column("reward", right=True)),
    Column("at"),
)


def _row(one: TrialOf) -> tuple[str, ...]:
    return (one.trial, str(one.attempt), one.state, text_of(one.void_code), text_of(one.reward), when(one.created_at_ms))
