"""``marathonctl verify-envs``: every task with every arm, up to the moment before the first token, and down again.

Owns the table and the exit code.  What is passed are the daemon's own gates, on the campaign's own images, in a ledger on the side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marathond.cli.output import Column, Screen, print_json, say, screen, table
from marathond.cli.rehearse import ran
from marathond.core.text import clean, plural
from marathond.flow.trial import ACCEPTED
from marathond.service.exits import CallFailed, Exit
from marathond.service.knobs import did_you_mean
from marathond.service.rehearsal import NOBODY, Ground
from marathond.service.settings import Settings
from marathond.service.taskpaths import task_folders

_CELLS = """
SELECT c.task, c.arm, c.park_code, c.park_detail, t.trial, t.elapsed_s, t.state, v.code, v.reason
FROM v_cell AS c
LEFT JOIN v_trial AS t ON t.cell = c.cell
LEFT JOIN void AS v ON t.trial = printf('t%04d', v.trial_id) AND v.undone_at_ms IS NULL
ORDER BY c.task, c.ordinal"""
_ASKED = "SELECT coalesce(sum(requests), 0) AS n FROM model_usage WHERE account <> 'gate'"


@dataclass(frozen=True, slots=True)
class Cell:
    """``outcome``: ``ok``, or the code of the void or park; ``detail``: the gates and what they saw, or what was wrong."""

    task: str
    arm: str
    outcome: str
    seconds: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Accepted:
    cells: tuple[Cell, ...]
    asked: int
    """Requests that went past the gates' own script: none may."""

    @property
    def bad(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.outcome != "ok")


@dataclass(frozen=True, slots=True)
class Shown:
    """:param requests: that went past the gates' own script: none may."""

    cells: tuple[Cell, ...]
    requests: int


def run(settings: Settings, *, tasks: Sequence[str], arms: Sequence[str], keep: bool, as_json: bool) -> int:
    """Run it and print the table; the exit code: 1 when a cell is not ok or a token was asked for.

    :raises CallFailed: no such task or arm, or interrupted.  :raises MarathonError: as for a daemon.
    """
    names = [folder.name for folder in task_folders(settings)]
    for name in tasks:
        if name not in names:
            raise CallFailed(f"--task {name}: no such task in campaign {settings.campaign.name}{did_you_mean(name, names)}", Exit.USAGE)
    for name in arms:
        if name not in settings.arm_names:
            raise CallFailed(f"--arm {name}: no such arm in the campaign{did_you_mean(name, settings.arm_names)}", Exit.USAGE)
    overrides: dict[str, object] = {}
    if tasks:
        overrides["campaign.include"] = list(tasks)
    if arms:
        overrides["campaign.arms"] = list(arms)
        overrides["comparison.contrasts"] = []  # nothing is compared, and a contrast of an arm that is left out would be refused
    found = ran(settings, "verify-envs", overrides, read, provider=NOBODY, gates_only=True, keep=keep)
    if as_json:
        print_json(Shown(found.cells, found.asked))
    else:
        show(found, screen())
    return Exit.FAILED if found.bad or found.asked or not found.cells else Exit.OK


def read(ground: Ground) -> Accepted:
    """From the rehearsal's ledger."""
    cells = []
    for row in ground.rows(_CELLS):
        if row["code"] == ACCEPTED:
            outcome, detail = "ok", row["reason"]
        elif row["trial"] is not None:
            outcome, detail = row["code"] or row["state"], row["reason"] or ""
        else:
            outcome, detail = row["park_code"] or "not tried", row["park_detail"] or ""
        cells.append(Cell(row["task"], row["arm"], outcome, row["elapsed_s"], detail))
    return Accepted(tuple(cells), ground.rows(_ASKED)[0]["n"])


def show(found: Accepted, where: Screen) -> None:
    """One line per task, one column per arm; below it what is wrong, in full."""
    arms = list(dict.fromkeys(cell.arm for cell in found.cells))
    rows: dict[str, dict[str, str]] = {}
    for cell in found.cells:
        rows.setdefault(cell.task, {})[cell.arm] = f"ok {cell.seconds:.0f} s" if cell.outcome == "ok" and cell.seconds else cell.outcome
    columns = (Column("task", least=12), *(Column(clean(arm, 40)) for arm in arms))
    for line in table(columns, [(clean(task), *(row.get(arm, "-") for arm in arms)) for task, row in rows.items()], where):
        say(line)
    for cell in found.bad:
        say(f"{clean(cell.task)} {clean(cell.arm)}: {cell.outcome}: {clean(cell.detail, 2000)}")
    good = len(found.cells) - len(found.bad)
    asked = "not a token was asked for" if not found.asked else f"{plural(found.asked, 'request')} went to the provider: a fault, tell us"
    say(f"{good} of {plural(len(found.cells), 'environment')} ok; {asked}")
