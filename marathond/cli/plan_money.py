"""What a campaign will cost, for ``marathonctl plan``: the same forecast and the same rule of whole blocks as the daemon's.

Owns the bridge from names to the forecast's numbers.  Reads the ledger when there is one: what has ended is the best ground to go by, and
what was spent is gone.  Records nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marathond.core.errors import LedgerRefused
from marathond.core.money import MODEL_KINDS, Forecast, Rules, Sample, Spent, Work, dollars, whole_blocks
from marathond.core.order import CellKey
from marathond.core.text import UNKNOWN, clean, plural
from marathond.ledger.verbs.money import ended_costs, spent
from marathond.service.effective import money_rules
from marathond.service.picture.money_words import cut_words, unpriced_words
from marathond.service.picture.reader import reading
from marathond.service.settings import Settings

Cell = tuple[str, str, int]
"""Task, arm, replicate."""


@dataclass(frozen=True, slots=True)
class History:
    """What the ledger knows of the campaign.  ``costs``: (task, arm, nano-dollars) of ended trials; ``settled``: cells that need nothing
    more; ``begun``: blocks (task, replicate) with a trial."""

    costs: Sequence[tuple[str, str, int]] = ()
    spent: Spent = field(default_factory=Spent)
    settled: Collection[Cell] = frozenset()
    begun: Collection[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class MoneyPlan:
    """Nano-dollars.  ``expected_nusd``: of all that is still to run, None: unknown; ``begun_nusd`` is the part of blocks that have begun.

    ``new_blocks``: those that have not; ``fitting`` of them begin below the cap, None: no cap, or it cannot be told.
    """

    spent_nusd: int
    cut: int
    cut_nusd: int | None
    unpriced: Mapping[str, int]
    expected_nusd: int | None
    begun_nusd: int | None
    basis: str
    cap_nusd: int | None
    new_blocks: int
    fitting: int | None


def money_plan(settings: Settings, cells: Sequence[CellKey], ledger: Path) -> MoneyPlan | None:
    """None: the configuration says nothing of money.  ``cells``: those that will run, in their order."""
    rules = money_rules(settings)
    if not rules.prices and rules.campaign_cap_nusd is None and rules.expected_trial_nusd is None:
        return None
    model_arms = [name for name in settings.arm_names if settings.arms[name].kind in MODEL_KINDS]
    return forecast_of(cells, rules, model_arms, _history(ledger, settings.campaign.name))


def forecast_of(cells: Sequence[CellKey], rules: Rules, model_arms: Collection[str], known: History) -> MoneyPlan:
    """The forecast; pure."""
    tasks, arms = _Numbers(), _Numbers()
    samples = [Sample(tasks[task], arms[arm], cost) for task, arm, cost in known.costs]
    forecast = Forecast(samples, rules, [arms[name] for name in model_arms])
    blocks: dict[tuple[str, int], list[Work]] = {}
    for cell in cells:
        if (cell.task, cell.arm, cell.replicate) not in known.settled:
            blocks.setdefault((cell.task, cell.replicate), []).append(Work(tasks[cell.task], arms[cell.arm], 1))
    new = [works for block, works in blocks.items() if block not in known.begun]
    begun = forecast.of([work for block, works in blocks.items() if block in known.begun for work in works])
    everything = forecast.of([work for works in blocks.values() for work in works])
    gone = None if known.spent.unpriced or known.spent.cut_nusd is None else known.spent.known_nusd + known.spent.cut_nusd
    fitting = None
    if rules.campaign_cap_nusd is not None and gone is not None and begun.nusd is not None:
        fitting = whole_blocks(rules.campaign_cap_nusd, gone + begun.nusd, [forecast.of(works).nusd for works in new])
    return MoneyPlan(
        spent_nusd=known.spent.known_nusd,
        cut=known.spent.cut,
        cut_nusd=known.spent.cut_nusd,
        unpriced=known.spent.unpriced,
        expected_nusd=everything.nusd,
        begun_nusd=begun.nusd,
        basis=everything.basis,
        cap_nusd=rules.campaign_cap_nusd,
        new_blocks=len(new),
        fitting=fitting,
    )


class _Numbers(dict[str, int]):
    """A number for each name, by order of appearance."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def _history(ledger: Path, campaign: str) -> History:
    """Empty where there is no ledger yet, or none of this version, or another campaign in it."""
    try:
        with reading(ledger) as c:
            row = c.execute("SELECT campaign_id FROM campaign WHERE name = ?", (campaign,)).fetchone()
            return History() if row is None else _read(c, row[0], campaign)
    except LedgerRefused:
        return History()


def _read(c: sqlite3.Connection, campaign_id: int, campaign: str) -> History:
    settled = "SELECT task, arm, replicate FROM v_cell WHERE campaign = ? AND state IN ('done', 'review')"
    begun = """SELECT DISTINCT task.name, cell.replicate FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id)
               WHERE cell.campaign_id = ?"""
    return History(
        costs=ended_costs(c, campaign_id),
        spent=spent(c, campaign_id),
        settled={(row[0], row[1], row[2]) for row in c.execute(settled, (campaign,)).fetchall()},
        begun={(row[0], row[1]) for row in c.execute(begun, (campaign_id,)).fetchall()},
    )


def money_words(plan: MoneyPlan) -> list[str]:
    """Two lines at most: what it will cost and on what ground, and how far the cap goes."""
    gone = ""
    if plan.spent_nusd or plan.cut or plan.unpriced:
        gone = f"{dollars(plan.spent_nusd)} spent{cut_words(plan.cut, plan.cut_nusd)}{unpriced_words(dict(plan.unpriced))} + "
    lines = [f"money {gone}{_amount(plan.expected_nusd)} expected ({clean(plan.basis)})"]
    if plan.cap_nusd is not None:
        lines.append(f"cap {dollars(plan.cap_nusd)}: {_reach(plan)}")
    return lines


def _reach(plan: MoneyPlan) -> str:
    begun = f"{_amount(plan.begun_nusd)} of it for blocks that have begun; " if plan.begun_nusd or plan.begun_nusd is None else ""
    if plan.fitting is None:
        return f"{begun}{UNKNOWN} for how many of {plural(plan.new_blocks, 'new block')} it is enough"
    if plan.fitting == plan.new_blocks:
        return f"{begun}enough for all {plural(plan.new_blocks, 'new block')}"
    return f"{begun}enough for {plan.fitting} of {plural(plan.new_blocks, 'new block')}; the others do not begin"


def _amount(nusd: int | None) -> str:
    return UNKNOWN if nusd is None else dollars(nusd)
