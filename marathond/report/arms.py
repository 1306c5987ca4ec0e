"""The arms by themselves: counts, means, pass@k, endings, time, tokens, money.

Owns these sections, and says in each that arms are not compared by them: an arm's own mean is over the cells that it happens to have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from marathond.core.columns import Column
from marathond.core.compare.result import ArmSummary, ByEnding, Comparison, Spread
from marathond.core.results import CellResult, Results, refused_words
from marathond.core.text import of_known
from marathond.report.blocks import TEXT_MAX, Block, Col, HeatCell, HeatMap, Line, Section, Table, Tone, num, prose, word
from marathond.report.numbers import count, fixed, many, money, percent, seconds, span
from marathond.report.plots import budget_panels, cells_of, strips

NOT_COMPARED = "Arms are not compared by this table: each mean is over the arm's own done cells, which may be other cells for each arm."
COLUMN_NAMES = {"reward": "reward", "partial": "partial score", "test_rate": "test rate"}
UNDEFINED = "undefined"
EXITS_SHOWN = 5
"""Exit statuses of one arm that are named, the most frequent ones."""

Own = tuple[str, Spread | None]


def own_table(comparison: Comparison, results: Sequence[Results]) -> Table:
    """One row per arm; a column that the benchmark does not have is not there (fault d11)."""
    there = {column.name for one in results for column in one.columns if column.exists}
    shown: list[tuple[Col, Callable[[ArmSummary], str], bool]] = [
        (prose("arm", 10), lambda a: word(a.arm), True),
        (num("done"), lambda a: f"{a.done}/{a.cells}", True),
        (num("solved"), lambda a: str(a.solved), "reward" in there),
        (num("95 %"), lambda a: span(a.solved_interval), "reward" in there),
        (num("reward"), lambda a: fixed(a.reward), "reward" in there),
        (num("partial"), lambda a: _mean(a, "partial"), "partial" in there),
        (num("tests"), lambda a: _mean(a, "test_rate"), "test_rate" in there),
        (num("budget"), lambda a: _budget(a, results), True),
        (num("build"), lambda a: str(a.build_failed), True),
    ]
    kept = [(col, text) for col, text, keep in shown if keep]
    rows = tuple(tuple(text(arm) for _, text in kept) for arm in comparison.arms)
    caption = "Own means of each arm (95 %: Wilson's, of the solved share; budget: share that a budget ended; build: flagged build_failed"
    fewer = any(0 < arm.known.get(name, arm.done) < arm.done for arm in comparison.arms for name in there & {"partial", "test_rate"})
    caption += "; of n: over the n done cells that have this number)" if fewer else ")"
    return Table(tuple(col for col, _ in kept), rows, caption)


def _mean(arm: ArmSummary, name: str) -> str:
    return of_known(fixed(getattr(arm, name)), arm.known.get(name, arm.done), arm.done)


def _budget(arm: ArmSummary, results: Sequence[Results]) -> str:
    """The share, and of how many cells where it is not known of all that are done."""
    known = sum(cell.state == "done" and cell.budget_ended is not None for cell in cells_of(arm.arm, results))
    return of_known(percent(arm.budget_ended), known, arm.done)


def absent(results: Sequence[Results], said: Sequence[str] = ()) -> Iterable[Line]:
    """Columns that do not exist, each with its reason, but for those that the comparison's notes name; and what must be known of others."""
    for one in results:
        where = f"{word(one.campaign)}: " if len(results) > 1 else ""
        for column in one.columns:
            if not column.exists and f"no column {column.name}: {column.why}" in said:
                continue
            if not column.exists:
                yield Line(f"{where}there is no {_called(column)}: {word(column.why, TEXT_MAX)}", Tone.WARN)
            elif column.why:
                yield Line(f"{where}{_called(column)}: {word(column.why, TEXT_MAX)}", Tone.QUIET)


def refused(results: Sequence[Results]) -> Iterable[Line]:
    """How many values of each column were refused: what stands beside them is over what was left."""
    for one in results:
        where = f"{word(one.campaign)}: " if len(results) > 1 else ""
        for column in one.columns:
            if words := refused_words(one.cells, column.name):
                yield Line(f"{where}{word(words, TEXT_MAX)}", Tone.WARN)


def _called(column: Column) -> str:
    return COLUMN_NAMES.get(column.name, word(column.name))


def own(comparison: Comparison, results: Sequence[Results]) -> Section:
    blocks: list[Block] = [Line(NOT_COMPARED, Tone.WARN), own_table(comparison, results), *absent(results, comparison.notes)]
    blocks += [*refused(results), *_at_k(comparison), _endings(comparison), *_exits(comparison), *budget_panels(comparison, results)]
    return Section("arms", "The arms by themselves", tuple(blocks))


def _at_k(comparison: Comparison) -> Iterable[Table]:
    ks = sorted({each.k for arm in comparison.arms for each in arm.at_k})
    if not ks:
        return
    ways = (("pass@k: at least one of k trials solves the task", True), ("pass^k: all of k trials solve it", False))
    for caption, first in ways:
        rows = []
        for arm in comparison.arms:
            by_k = {each.k: each.at_least_one if first else each.all_of for each in arm.at_k}
            rows.append((word(arm.arm), *(UNDEFINED if by_k.get(k) is None else fixed(by_k[k]) for k in ks)))
        undefined = f"; {UNDEFINED} where some task has fewer than k trials" if any(UNDEFINED in row for row in rows) else ""
        columns = (prose("arm", 10), *(num(f"k={k}") for k in ks))
        yield Table(columns, tuple(rows), f"{caption}, mean over tasks{undefined}")


def _endings(comparison: Comparison) -> Table:
    rows = tuple(
        (word(arm.arm), word(each.ended_by), str(each.cells), _of(each, "reward"), _of(each, "partial"))
        for arm in comparison.arms
        for each in arm.by_ending
    )
    columns = (prose("arm", 10), Col("ended by", least=8), *map(num, ("cells", "reward", "partial")))
    return Table(columns, rows, "By how the agent ended", aside=len(comparison.arms) > 6)


def _of(ending: ByEnding, name: str) -> str:
    return of_known(fixed(getattr(ending, name)), ending.known.get(name, ending.cells), ending.cells)


def _exits(comparison: Comparison) -> Iterable[Line]:
    """What the table calls an end by the agent may be a crash: the exit status tells."""
    for arm in comparison.arms:
        for each in arm.by_ending:
            if each.exits:
                named = [f"{status}: {n}" for status, n in each.exits.items()][:EXITS_SHOWN]
                more = len(each.exits) - len(named)
                statuses = ", ".join([*named, *([f"{more} more"] if more else [])])
                ends = f"{word(arm.arm)}: {word(each.ended_by)} {each.cells}"
                yield Line(f"{ends}, of them {sum(each.exits.values())} with an exit status other than 0 ({statuses})", Tone.WARN)


def usage(comparison: Comparison, results: Sequence[Results]) -> Section:
    """Time, tokens and money of done cells: what is not known is counted, never 0."""
    blocks: list[Block] = []
    kinds: tuple[
        tuple[str, Callable[[ArmSummary], Spread | None], Callable[[float | None], str], Callable[[CellResult], float | None]], ...
    ]
    kinds = (
        ("Time of the agent", lambda a: a.agent_s, seconds, lambda c: c.agent_s),
        ("Tokens, in and out", lambda a: a.tokens, count, lambda c: c.tokens),
        ("Tokens out", lambda a: a.output_tokens, count, lambda c: c.output_tokens),
        ("Money", lambda a: a.cost_usd, money, lambda c: c.cost_usd),
    )
    for title, of, show, value in kinds:
        spreads = [(arm.arm, of(arm)) for arm in comparison.arms]
        if not any(spread and spread.n for _, spread in spreads):
            blocks.append(Line(f"{title}: not known of any done cell."))
            continue
        blocks += [_spread(title, spreads, show), *strips(title, spreads, show, value, results)]
    blocks += _voided_money(results)
    return Section("usage", "Time, tokens, money", tuple(blocks))


def _spread(title: str, spreads: Sequence[Own], show: Callable[[float | None], str]) -> Table:
    columns = (prose("arm", 10), *map(num, ("known", "unknown", "p10", "median", "p90", "mean", "total")))
    rows: list[tuple[str, ...]] = []
    for arm, found in spreads:
        if found is None:
            rows.append((word(arm), *("-",) * 7))
        else:
            values = (found.p10, found.median, found.p90, found.mean, found.total)
            rows.append((word(arm), str(found.n), str(found.unknown), *map(show, values)))
    return Table(columns, tuple(rows), f"{title}, over done cells")


def _voided_money(results: Sequence[Results]) -> Iterable[Block]:
    """What was paid by arm, done or not: judges' money and voided trials are in it, and the part that no price is known of is counted."""
    for one in results:
        paid = [arm.name for arm in one.arms if arm.name in one.spent_usd or arm.name in one.voids_usd or arm.name in one.unpriced]
        if paid:
            rows = tuple(
                (word(arm), money(one.spent_usd.get(arm)), money(one.voids_usd.get(arm)), str(one.unpriced.get(arm, 0))) for arm in paid
            )
            where = f" ({word(one.campaign)})" if len(results) > 1 else ""
            columns = (prose("arm", 10), *map(num, ("on trials that stand", "on voided trials", "trials not wholly priced")))
            yield Table(columns, rows, f"Money by arm{where}, judges included")


def heat_maps(results: Results, only: Sequence[str] = ("reward", "partial")) -> Iterable[HeatMap | Line]:
    """Task by arm: the mean over the done cells, with how many there are where some are missing."""
    for column in results.columns:
        if column.name not in only:
            continue
        if not column.exists:
            yield Line(f"there is no {_called(column)}: {word(column.why, TEXT_MAX)}", Tone.WARN)
            continue
        yield _heat_map(results, column.name)


def _heat_map(results: Results, name: str) -> HeatMap:
    of: dict[tuple[str, str], list[CellResult]] = {}
    for cell in results.cells:
        of.setdefault((cell.task, cell.arm), []).append(cell)
    rows = tuple(
        (word(task), tuple(_heat(task, arm.name, of.get((task, arm.name), []), name) for arm in results.arms)) for task in results.tasks
    )
    legend = (
        "mean over done cells, with a count where not all are done (2/5: two of five); where none is: open, run (running), park (parked), "
        "rev (for review), none (of several kinds); -: no such cell, or none with this number"
    )
    return HeatMap(f"{COLUMN_NAMES[name].capitalize()}, task by arm", tuple(word(arm.name) for arm in results.arms), rows, legend)


_STATES = {"open": "open", "claimed": "run", "parked": "park", "review": "rev"}


def _heat(task: str, arm: str, cells: Sequence[CellResult], name: str) -> HeatCell:
    values = [value for cell in cells if cell.state == "done" and (value := getattr(cell, name)) is not None]
    where = f"{word(task)}, {word(arm)}"
    if values:
        mean = sum(values) / len(values)
        part = "" if len(values) == len(cells) else f" {len(values)}/{len(cells)}"
        return HeatCell(
            fixed(mean, 2) + part, min(1.0, max(0.0, mean)), f"{where}: {fixed(mean)} over {len(values)} of {many(len(cells), 'cell')}"
        )
    states = {cell.state for cell in cells}
    text = next((short for state, short in _STATES.items() if states == {state}), "-")
    if text == "-" and states - {"done"}:
        text = "none"
    said = ", ".join(f"{sum(cell.state == state for cell in cells)} {state}" for state in sorted(states))
    return HeatCell(text, None, f"{where}: {said or 'no cell'}")
