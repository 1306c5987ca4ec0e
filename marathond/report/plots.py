"""Figures as geometry: forests of differences, strips of every value, step curves over time and budget.

Owns what is drawn where.  Must not know markup.  Each figure repeats in words or a table beside it what it shows, and never tells by colour
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from marathond.core.compare.result import Comparison, ContrastResult, Interval, Metric, Spread
from marathond.core.results import CellResult, Results
from marathond.core.text import plural
from marathond.report.blocks import (
    Curve,
    Dot,
    Forest,
    ForestRow,
    Line,
    Panel,
    Panels,
    StripRow,
    Strips,
    Table,
    Tick,
    Tone,
    num,
    prose,
    word,
)
from marathond.report.numbers import count, fixed, interval, many, percent, seconds, short_time, signed
from marathond.report.scale import TIMES, Scale, nice_above, of_values, ticks

LANES = 5
DOTS_AT_MOST = 500
STEPS_AT_MOST = 400
OTHERS_AT_MOST = 12
"""More arms than this, and a panel shows its own curve alone."""
HOUR_MS = 3_600_000
NO_BREAK = "\u00a0"

Row = tuple[str, float, Interval | None, str]


def contrasts_forest(contrasts: Sequence[ContrastResult]) -> Iterable[Forest]:
    """One forest per metric, one row per contrast; all on one scale, for reward and partial are both shares."""
    of: dict[Metric, list[Row]] = {}
    for metric in (Metric.REWARD, Metric.PARTIAL):
        rows: list[Row] = []
        for each in contrasts:
            found = each.of(metric)
            if found is not None and found.tasks is not None:
                span = found.tasks.interval
                # No-break: a narrow column parts the number from its interval, never the interval.
                beside = "no interval" if span is None else interval(span).replace(" ", NO_BREAK)
                text = f"{signed(found.tasks.difference)} {beside}"
                rows.append((f"{word(each.a)} - {word(each.b)}", found.tasks.difference, found.tasks.interval, text))
        if rows:
            of[metric] = rows
    scale = _common(of.values())
    for metric, rows in of.items():
        side = "right of the line: the first arm is better"
        if any(span is None for _, _, span, _ in rows):
            side += "; open mark: no interval"
        yield _forest(f"Differences in {metric.value.replace('_', ' ')}, with 95 % intervals", rows, side, scale)


def tasks_forest(contrast: ContrastResult) -> Iterable[Forest]:
    """The difference of each task, for reward and partial, on one scale."""
    of: dict[Metric, list[Row]] = {}
    for metric in (Metric.REWARD, Metric.PARTIAL):
        found = contrast.of(metric)
        if found is None or not found.pairs:
            continue
        of[metric] = [(word(pair.task), pair.difference, None, signed(pair.difference, 3)) for pair in found.pairs]
    scale = _common(of.values())
    for metric, rows in of.items():
        title = f"{metric.value.capitalize()} by task: {word(contrast.a)} - {word(contrast.b)}"
        side = f"right of the line: {word(contrast.a)} is better; a bar is the task's difference itself, no interval"
        yield _forest(title, rows, side, scale, aside=metric is not Metric.REWARD, bars=True)


def _common(figures: Iterable[Sequence[Row]]) -> Scale:
    """One scale for figures that are read beside each other, so that the same length is the same difference in all of them."""
    every = [value for rows in figures for _, at, span, _ in rows for value in (at, *((span.low, span.high) if span else ()))]
    limit = min(1.0, nice_above(max([0.05, *map(abs, every)])))
    return Scale(-limit, limit)


def _forest(title: str, rows: Sequence[Row], side: str, scale: Scale, *, aside: bool = False, bars: bool = False) -> Forest:
    limit = scale.high
    made = tuple(
        ForestRow(
            label,
            scale.at(at),
            None if span is None else scale.at(span.low),
            None if span is None else scale.at(span.high),
            text,
            clipped=span is not None and (span.low < -limit or span.high > limit),
        )
        for label, at, span, text in rows
    )
    marks = tuple(Tick(scale.at(value), signed(value, 3) if value else "0") for value in (-limit, -limit / 2, 0.0, limit / 2, limit))
    alt = f"{title}; {side}; {many(len(rows), 'row')}, each with its number beside it"
    return Forest(title, alt, scale.at(0.0), marks, made, side, aside, bars)


def cells_of(arm: str, results: Sequence[Results]) -> list[CellResult]:
    """The cells of an arm of the comparison; over two campaigns it is called ``campaign/arm``, as core/compare names it."""
    if len(results) == 1:
        return list(results[0].of_arm(arm))
    same = results[0].campaign == results[1].campaign
    named = [(f"{one.campaign}@{one.ledger_id}" if same else one.campaign, one) for one in results]
    return [cell for name, one in named for cell in one.cells if f"{name}/{cell.arm}" == arm]


def strips(
    title: str,
    spreads: Sequence[tuple[str, Spread | None]],
    show: Callable[[float | None], str],
    value: Callable[[CellResult], float | None],
    results: Sequence[Results],
) -> Iterable[Strips]:
    """Every done cell as a dot, one row per arm; nothing when there is no value above 0."""
    of = {
        arm: sorted(known for cell in cells_of(arm, results) if cell.state == "done" and (known := value(cell)) is not None)
        for arm, _ in spreads
    }
    every = [known for values in of.values() for known in values]
    if not every or max(every) <= 0:
        return
    scale = of_values(every)
    marks = ticks(scale, short_time, TIMES) if show is seconds else ticks(scale, show)
    rows = tuple(_strip(arm, of[arm], spread, scale, show) for arm, spread in spreads)
    legend = "dot: a cell; box: 10th to 90th percentile; bar: median" + (
        "; the axis goes by powers of ten, what is less stands at its start" if scale.by_ten else ""
    )
    if any(len(values) > DOTS_AT_MOST for values in of.values()):
        legend += f"; of an arm with more than {DOTS_AT_MOST} cells every nth dot is drawn"
    yield Strips(f"{title}, by arm", f"{title} by arm as dots with a box; numbers in the table before it", marks, rows, legend)


def _strip(arm: str, values: Sequence[float], spread: Spread | None, scale: Scale, show: Callable[[float | None], str]) -> StripRow:
    every = -(-len(values) // DOTS_AT_MOST) or 1
    dots = tuple(Dot(scale.at(each), place % LANES) for place, each in enumerate(values[::every]))
    text = "nothing known" if spread is None or spread.median is None else f"median {show(spread.median)}"
    low, median, high = (None if spread is None or each is None else scale.at(each) for each in _marks(spread))
    return StripRow(word(arm), dots, low, median, high, text)


def _marks(spread: Spread | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if spread is None else (spread.p10, spread.median, spread.p90)


def budget_panels(comparison: Comparison, results: Sequence[Results]) -> Iterable[Panels | Line]:
    """Share of an arm's done cells solved within so much time of the agent."""
    with_curve = [arm for arm in comparison.arms if arm.budget]
    if not with_curve:
        yield Line("Score against budget: no solved cell with a known time of its agent.", Tone.QUIET)
        return
    times = [cell.agent_s for one in results for cell in one.cells if cell.state == "done" and cell.agent_s is not None]
    most = max([*times, *(point.seconds for arm in with_curve for point in arm.budget)])
    scale = Scale(0.0, most * 1.02 or 1.0)
    top = Scale(0.0, nice_above(max(point.solved for arm in with_curve for point in arm.budget)))
    paths = {arm.arm: _steps([(p.seconds, p.solved) for p in arm.budget], scale, top) for arm in comparison.arms}
    panels = []
    for arm in comparison.arms:
        others = [Curve(path, "other") for name, path in paths.items() if name != arm.arm] if len(paths) <= OTHERS_AT_MOST else []
        best = max((point.solved for point in arm.budget), default=0.0)
        cells = (cell for one in results for cell in one.of_arm(arm.arm))
        untimed = sum(cell.state == "done" and cell.reward == 1 and cell.agent_s is None for cell in cells)
        text = f"{percent(best)} solved in the end"
        if untimed:  # at their own times, which nobody knows, the curve would be higher
            text += f", and {plural(untimed, 'cell')} more after a time that is not known"
        panels.append(Panel(word(arm.arm), text, f"{word(arm.arm)}: {text}", (*others, Curve(paths[arm.arm], "main"))))
    legend = "share of the arm's done cells that were solved by an agent that had ended by then"
    legend += "; thin lines: the other arms" if len(paths) <= OTHERS_AT_MOST else ""
    marks_y = tuple(Tick(100 - top.at(value), percent(value)) for value in (0.0, top.high / 2, top.high))
    marks_x = ticks(scale, short_time, TIMES)
    curves = {word(arm.arm): [(p.seconds, p.solved) for p in arm.budget] for arm in comparison.arms}
    ends = [*(scale.value(mark.at) for mark in marks_x), most]
    rows = tuple((name, *(percent(_reached(curve, end)) for end in ends)) for name, curve in curves.items())
    caption = "Share solved by an agent that had ended within"
    yield Panels("Score against budget", tuple(panels), marks_x, marks_y, "time of the agent", legend, _numbers(caption, marks_x, rows))


def _numbers(caption: str, marks: Sequence[Tick], rows: tuple[tuple[str, ...], ...]) -> Table:
    return Table((prose("arm", 10), *(num(mark.text) for mark in marks), num("in all")), rows, caption, aside=True)


def _reached(points: Sequence[tuple[float, float]], at: float) -> float:
    """How high a staircase is there."""
    return max((high for across, high in points if across <= at * (1 + 1e-9)), default=0.0)


def progress(results: Results) -> Iterable[Panels | Line]:
    """Cumulative scored cells and voids by arm, in hours since the first of either."""
    scored = {
        arm.name: sorted(cell.scored_at_ms for cell in results.of_arm(arm.name) if cell.state == "done" and cell.scored_at_ms is not None)
        for arm in results.arms
    }
    voids = {arm.name: sorted(void.at_ms for void in results.voids if void.standing and void.arm == arm.name) for arm in results.arms}
    every = [at for of in (scored, *([voids] if results.origin == "run" else [])) for values in of.values() for at in values]
    if len(every) < 2:
        yield Line("Progress over time: nothing was scored yet, or it is not known when.", Tone.QUIET)
        return
    if results.origin != "run":
        voids = {arm: [] for arm in voids}
    start, end = min(every), max(every)
    scale = Scale(0.0, max((end - start) / HOUR_MS, 1e-3) * 1.02)
    most = max(max(len(results.of_arm(arm.name)), len(voids[arm.name])) for arm in results.arms)
    top = Scale(0.0, float(max(most, 1)))
    panels = []
    for arm in results.arms:
        own = [Curve(_counted(scored[arm.name], start, scale, top), "main"), Curve(_counted(voids[arm.name], start, scale, top), "second")]
        text = f"{len(scored[arm.name])} scored, {many(len(voids[arm.name]), 'void')}"
        panels.append(Panel(word(arm.name), text, f"{word(arm.name)}: {text}", tuple(own)))
    legend = (
        "thick line: cells scored; dashed line: standing voids" if results.origin == "run" else "cells scored; when voids were is not known"
    )
    marks_x = ticks(Scale(0.0, scale.high), lambda value: f"{fixed(value, 0 if scale.high >= 4 else 2)} h", _hours(scale.high))
    marks_y = tuple(Tick(100 - top.at(value), count(value)) for value in (0.0, top.high))
    edges = [*(start + scale.value(mark.at) * HOUR_MS for mark in marks_x), end]
    counts = {name: [(_until(scored[name], edge), _until(voids[name], edge)) for edge in edges] for name in scored}
    rows = tuple((word(name), *(f"{done}/{void}" for done, void in pairs)) for name, pairs in counts.items())
    numbers = _numbers("Cells scored / standing voids within", marks_x, rows)
    yield Panels("Cells scored and voids, by arm", tuple(panels), marks_x, marks_y, "hours since the first score or void", legend, numbers)


def _until(instants: Sequence[int], edge: float) -> int:
    return sum(at <= edge + 1 for at in instants)


def _hours(high: float) -> tuple[float, ...]:
    return (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 6, 12, 24, 48, 96, 168, 336, 720, 1440, nice_above(high))


def _counted(instants: Sequence[int], start: int, x: Scale, y: Scale) -> tuple[tuple[float, float], ...]:
    return _steps([((at - start) / HOUR_MS, float(number)) for number, at in enumerate(instants, start=1)], x, y)


def _steps(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> tuple[tuple[float, float], ...]:
    """A staircase from nothing to the right edge; long ones are thinned, their last step kept."""
    every = -(-len(points) // STEPS_AT_MOST) or 1
    kept = [point for place, point in enumerate(points, start=1) if place % every == 0 or place == len(points)]
    path, level = [(0.0, 100.0)], 100.0
    for across, up in kept:
        path.append((x.at(across), level))
        level = 100.0 - y.at(up)
        path.append((x.at(across), level))
    return (*path, (100.0, level))
