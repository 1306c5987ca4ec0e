"""One arm by itself: counts, means, spreads, endings, the curve over time.

Owns the summary.  Pure.  Its means are over the arm's own done cells; arms are never compared by them (fault a07).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from marathond.core.compare.paired import mean
from marathond.core.compare.rates import all_of, at_least_one, clustered_error, wilson
from marathond.core.compare.result import ArmSummary, AtK, BudgetPoint, ByEnding, Metric, Spread
from marathond.core.names import EndedBy
from marathond.core.results import CellResult, Results

UNKNOWN = "unknown"
K_AT_MOST = 10
"""Of pass@k, however many replicates there are."""


def solved(cell: CellResult) -> bool:
    """Full reward, of a done cell."""
    return cell.state == "done" and cell.reward == 1


def summary(results: Results, arm: str) -> ArmSummary:
    """:param arm: a name that ``results`` holds; without cells its means are None."""
    cells = sorted(results.of_arm(arm), key=lambda cell: (cell.task, cell.replicate))
    done = [cell for cell in cells if cell.state == "done"]
    states = Counter(cell.state for cell in cells)
    tasks: dict[str, list[CellResult]] = {}
    for cell in done:
        tasks.setdefault(cell.task, []).append(cell)
    voids = [void for void in results.voids if void.arm == arm and void.standing]
    rewards = {task: [cell.reward for cell in its if cell.reward is not None] for task, its in tasks.items()}
    return ArmSummary(
        arm=arm,
        cells=len(cells),
        done=len(done),
        review=states["review"],
        parked=states["parked"],
        open=states["open"],
        claimed=states["claimed"],
        tasks=len(tasks),
        solved=sum(map(solved, done)),
        solved_interval=wilson(sum(map(solved, done)), len(done)),
        reward=_mean(done, Metric.REWARD),
        reward_se=clustered_error(rewards),
        partial=_mean(done, Metric.PARTIAL),
        test_rate=_mean(done, Metric.TEST_RATE),
        budget_ended=None if any(cell.budget_ended is None for cell in done) else _mean(done, "budget_ended"),
        build_failed=sum(cell.build_failed for cell in done),
        voids=dict(sorted(Counter(void.code for void in voids).items())),
        post_score_voids=sum(void.score_was_known for void in voids),
        at_k=_at_k(tasks, results.replicates),
        by_ending=_by_ending(done),
        agent_s=spread([cell.agent_s for cell in done]),
        tokens=spread([cell.tokens for cell in done]),
        output_tokens=spread([cell.output_tokens for cell in done]),
        cost_usd=spread([cell.cost_usd for cell in done]),
        budget=_budget(done),
        known=_known(done),
    )


def _mean(cells: Sequence[CellResult], name: str) -> float | None:
    """Of the cells that have it."""
    values = [float(found) for cell in cells if (found := getattr(cell, name)) is not None]
    return mean(values) if values else None


def _at_k(tasks: dict[str, list[CellResult]], most: int) -> tuple[AtK, ...]:
    counts = [(len(cells), sum(map(solved, cells))) for _, cells in sorted(tasks.items())]
    found = []
    most = max(most, max((n for n, _ in counts), default=0)) if counts else 0
    for k in range(1, min(most, K_AT_MOST) + 1):
        one, every = ([rule(n, c, k) for n, c in counts] for rule in (at_least_one, all_of))
        found.append(AtK(k, _whole(one), _whole(every), len(counts)))
    return tuple(found)


def _whole(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


def _by_ending(done: Sequence[CellResult]) -> tuple[ByEnding, ...]:
    """The most frequent one first."""
    endings: dict[str, list[CellResult]] = {}
    for cell in done:
        endings.setdefault(cell.ended_by or UNKNOWN, []).append(cell)
    rows = [
        ByEnding(name, len(cells), _mean(cells, Metric.REWARD), _mean(cells, Metric.PARTIAL), _known(cells), _exits(name, cells))
        for name, cells in endings.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.cells, row.ended_by)))


def _known(cells: Sequence[CellResult]) -> dict[str, int]:
    return {metric.value: sum(getattr(cell, metric.value) is not None for cell in cells) for metric in Metric}


def _exits(ended_by: str, cells: Sequence[CellResult]) -> dict[str, int]:
    """The most frequent one first."""
    found = Counter(cell.exit_code for cell in cells if cell.exit_code) if ended_by == EndedBy.AGENT else Counter[int | None]()
    return {str(status): n for status, n in sorted(found.items(), key=lambda item: (-item[1], item[0] or 0))}


def spread(values: Sequence[float | None]) -> Spread:
    """Quantiles are linear between values (Hyndman and Fan's seventh, numpy's own)."""
    known = sorted(float(value) for value in values if value is not None)
    unknown = len(values) - len(known)
    if not known:
        return Spread(0, unknown)
    p10, median, p90 = (float(each) for each in np.quantile(np.array(known), [0.1, 0.5, 0.9]))
    return Spread(len(known), unknown, mean(known), median, p10, p90, math.fsum(known))


def _budget(done: Sequence[CellResult]) -> tuple[BudgetPoint, ...]:
    """None of an arm that does not tell how long its agents ran.  A solved cell without that time is in no step, but in the share."""
    ends = sorted(cell.agent_s for cell in done if cell.agent_s is not None)
    if not ends:
        return ()
    steps = Counter(cell.agent_s for cell in done if solved(cell) and cell.agent_s is not None)
    points, reached = [BudgetPoint(0.0, 0.0)], 0
    for seconds in sorted(steps):
        reached += steps[seconds]
        points.append(BudgetPoint(seconds, reached / len(done)))
    if ends[-1] > points[-1].seconds:
        points.append(BudgetPoint(ends[-1], reached / len(done)))
    return tuple(points)
