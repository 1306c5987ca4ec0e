"""The comparison: every contrast with its numbers, its intervals, its p's, and what must be said beside them.

Owns these sections.  Computes nothing: what is not in the values is ``-``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from marathond.core.compare.result import Comparison, ContrastResult, Discordance, LeftOut, Metric, MetricContrast, Tasks, TheseTasks
from marathond.report.blocks import TEXT_MAX, Block, Col, Line, Section, Table, Tone, lines, num, prose, word
from marathond.report.numbers import fixed, instant, interval, many, p_value, signed
from marathond.report.plots import contrasts_forest, tasks_forest

NAMES = {Metric.REWARD: "reward", Metric.PARTIAL: "partial", Metric.TEST_RATE: "test rate"}
TESTED = ("diff", "95 % interval", "p (t)", "exact", "Holm", "tasks", "cells")
HOW = "p (t): Student's t over tasks; exact: sign flips over tasks; Holm: the exact p, corrected over the contrasts"
SHOWN_OPEN = 6
"""With more contrasts, each one's own section is folded away in HTML."""
SAMPLED = "~: sign flips were sampled with a fixed seed, for there are too many to try all"
LEFT_OUT_NAMED = 40
"""Cells named per reason; the rest is counted."""


def name_of(contrast: ContrastResult) -> str:
    return f"{word(contrast.a)} - {word(contrast.b)}"


def sections(comparison: Comparison) -> Iterable[Section]:
    """First all contrasts side by side, then each by itself."""
    head: list[Block] = list(lines(word(text, TEXT_MAX) for text in comparison.estimands))
    if comparison.family:
        head.append(Line(word(comparison.family, TEXT_MAX)))
    if comparison.across:
        head.append(Line(f"across two campaigns: {word(comparison.across, TEXT_MAX)}", Tone.WARN))
    head += lines((word(note, TEXT_MAX) for note in comparison.notes), Tone.WARN)
    if not comparison.contrasts:
        yield Section("comparison", "Comparison", (*head, Line("There is no contrast: nothing is compared.", Tone.WARN)))
        return
    head += [side_by_side(comparison.contrasts, metric) for metric in Metric if is_compared(comparison, metric)]
    head.append(Line(how(comparison.contrasts), Tone.QUIET))
    yield Section("comparison", "Comparison", (*head, *contrasts_forest(comparison.contrasts)))
    for number, contrast in enumerate(comparison.contrasts, start=1):
        yield Section(f"contrast-{number}", name_of(contrast), tuple(_one(contrast)), level=3, aside=len(comparison.contrasts) > SHOWN_OPEN)


def how(contrasts: Sequence[ContrastResult]) -> str:
    """What the columns and the signs of :func:`side_by_side` mean."""
    sampled = any(found.tasks and found.tasks.sign_flip_how != "exact" for each in contrasts for found in each.metrics)
    return f"{HOW}; {SAMPLED}" if sampled else HOW


def is_compared(comparison: Comparison, metric: Metric) -> bool:
    """In any contrast."""
    return any((found := each.of(metric)) is not None and found.tasks is not None for each in comparison.contrasts)


def side_by_side(contrasts: Sequence[ContrastResult], metric: Metric) -> Table:
    """One metric over all contrasts."""
    columns = (prose("contrast", 11), *map(num, TESTED))
    rows = [(name_of(each), *_tested(found)) for each in contrasts if (found := each.of(metric)) is not None]
    caption = f"{NAMES[metric].capitalize()}: difference of paired task means, first arm minus second"
    left = max((found.refused for each in contrasts if (found := each.of(metric)) is not None), default=0)
    return Table(columns, tuple(rows), caption + (f"; without up to {many(left, 'pair')} of which a value was refused" if left else ""))


def _tested(found: MetricContrast) -> tuple[str, ...]:
    tasks = found.tasks
    if tasks is None:
        return "-", "-", "-", "-", "-", "0", str(found.cells)
    exact = p_value(tasks.p_sign_flip) + ("" if tasks.sign_flip_how == "exact" or tasks.p_sign_flip is None else "~")
    return (
        signed(tasks.difference),
        interval(tasks.interval),
        p_value(tasks.p_t),
        exact,
        p_value(tasks.p_holm),
        str(tasks.n),
        str(found.cells),
    )


def _one(contrast: ContrastResult) -> Iterable[Block]:
    yield Line(declared(contrast), Tone.QUIET)
    shown = [each for each in contrast.metrics if each.tasks is not None]
    below = {each.these_tasks.why for each in shown if each.these_tasks is not None and each.these_tasks.why}
    kept = (note for note in contrast.notes if note.partition(", these tasks: ")[2] not in below)
    yield from lines((word(note, TEXT_MAX) for note in kept), Tone.WARN)
    for each in contrast.metrics:
        if each.tasks is None:
            yield Line(f"{NAMES[each.metric]}: nothing to compare: {word(each.why, TEXT_MAX)}", Tone.WARN)
    if shown:
        yield _tests(shown)
        yield _means(contrast, shown)
        yield _signs(contrast, shown)
    for each in shown:
        if each.these_tasks is not None:
            tone = Tone.WARN if each.these_tasks.why else Tone.PLAIN
            yield Line(f"These tasks, {NAMES[each.metric]}: {_stratified(each.these_tasks)}", tone)
        if each.mcnemar is not None:
            yield Line(f"Single replicates, {NAMES[each.metric]}: {_mcnemar(contrast, each.mcnemar)}")
    yield from _without_build_failed(shown)
    yield from tasks_forest(contrast)
    for each in shown:
        yield _by_task(contrast, each)
    yield from _left_out(contrast)


def declared(contrast: ContrastResult) -> str:
    if contrast.declared_at_ms is None:
        return "not declared: nobody said beforehand that these two arms would be compared"
    known = contrast.scores_known or 0
    how = f"when {many(known, 'score')} {'was' if known == 1 else 'were'} known" if known else "before any score was known"
    return f"declared {instant(contrast.declared_at_ms)}, {how}"


def _tests(shown: Sequence[MetricContrast]) -> Table:
    """The rows of :func:`side_by_side` of this contrast, for who has come to it by a link; text has them a few lines above."""
    rows = tuple((NAMES[each.metric], *_tested(each)) for each in shown)
    return Table((Col(""), *map(num, TESTED)), rows, "Tasks like these: the task is the unit", html_only=True)


def _means(contrast: ContrastResult, shown: Sequence[MetricContrast]) -> Table:
    columns = (
        Col(""),
        Col(word(contrast.a), right=True, least=8),
        Col(word(contrast.b), right=True, least=8),
        *map(num, ("std. error", "bounds", "detectable")),
    )
    rows = []
    for each in shown:
        tasks = _tasks(each)
        means = (fixed(tasks.mean_a), fixed(tasks.mean_b), fixed(tasks.se, 4), interval(each.bounds), fixed(tasks.mde))
        rows.append((NAMES[each.metric], *means))
    caption = "Paired means; bounds of the difference were all missing cells at worst and at best; difference detectable at 80 % power"
    return Table(columns, tuple(rows), caption)


def _signs(contrast: ContrastResult, shown: Sequence[MetricContrast]) -> Table:
    columns = (Col(""), *map(num, ("t", "sign test", "Wilcoxon", "differ", "first up", "second up", "least p")))
    rows = []
    for each in shown:
        tasks = _tasks(each)
        least = p_value(tasks.smallest_p)
        signs = (str(tasks.discordant), str(tasks.wins), str(tasks.losses))
        rows.append((NAMES[each.metric], fixed(tasks.t, 4), p_value(tasks.p_sign_test), p_value(tasks.p_wilcoxon), *signs, least))
    return Table(columns, tuple(rows), f"Tasks that differ, by who is up ({name_of(contrast)}), and the least p that so many can give")


def _tasks(each: MetricContrast) -> Tasks:
    assert each.tasks is not None
    return each.tasks


def _stratified(found: TheseTasks) -> str:
    if found.p_exact is None:
        return f"no stratified test: {word(found.why or 'it is undefined', TEXT_MAX)}"
    parts = [f"stratified within task, exact p {p_value(found.p_exact)}", f"Cochran-Mantel-Haenszel p {p_value(found.p_cmh)}"]
    if found.odds_ratio is not None or not (found.why and found.informative):  # else its own words tell why it is none
        parts.append("common odds ratio " + ("undefined" if found.odds_ratio is None else fixed(found.odds_ratio)))
    return f"{', '.join(parts)}; {many(found.informative, 'task')} with both outcomes" + (
        f"; {word(found.why, TEXT_MAX)}" if found.why else ""
    )


def _mcnemar(contrast: ContrastResult, found: Discordance) -> str:
    solved = f"{found.only_a} solved by {word(contrast.a)} alone, {found.only_b} by {word(contrast.b)} alone"
    solved += f", {found.both} by both, {found.neither} by neither"
    return f"{solved}; McNemar exact p {p_value(found.p_exact)}, mid-p {p_value(found.p_mid)}"


def _without_build_failed(shown: Sequence[MetricContrast]) -> Iterable[Block]:
    failed = [each for each in shown if each.build_failed]
    if not failed:
        yield Line("No paired cell is flagged build_failed: with and without are the same.", Tone.QUIET)
        return
    columns = (Col(""), *map(num, ("flagged", "diff", "95 % interval", "p (t)", "exact", "tasks")))
    rows = []
    for each in failed:
        left = each.without_build_failed
        if left is None:
            rows.append((NAMES[each.metric], str(each.build_failed), "-", "-", "-", "-", "0"))
        else:
            tested = (signed(left.difference), interval(left.interval), p_value(left.p_t), p_value(left.p_sign_flip), str(left.n))
            rows.append((NAMES[each.metric], str(each.build_failed), *tested))
    yield Table(columns, tuple(rows), "The same without cells flagged build_failed")


def _by_task(contrast: ContrastResult, each: MetricContrast) -> Table:
    columns = (
        Col("task", least=12),
        Col(word(contrast.a), right=True, least=7),
        Col(word(contrast.b), right=True, least=7),
        num("difference"),
        num("replicates"),
    )
    rows = tuple(
        (word(pair.task), fixed(pair.mean_a), fixed(pair.mean_b), signed(pair.difference, 3), str(pair.replicates)) for pair in each.pairs
    )
    caption = f"{NAMES[each.metric].capitalize()} by task"
    if each.refused:
        caption += f", over what was left: of {many(each.refused, 'pair')} a value was refused"
    return Table(columns, rows, caption, aside=True, html_only=each.metric is not Metric.REWARD)


def _left_out(contrast: ContrastResult) -> Iterable[Block]:
    """Cells that were not paired, by reason; a reason that all metrics share is said once."""
    of: dict[str, dict[str, list[LeftOut]]] = {}
    for each in contrast.metrics:
        for left in each.left_out:
            of.setdefault(left.why, {}).setdefault(NAMES[each.metric], []).append(left)
    if not of:
        yield Line("No cell was left out.", Tone.QUIET)
        return
    rows = []
    for why, by_metric in of.items():
        seen: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for metric, cells in by_metric.items():
            seen.setdefault(tuple((left.task, left.replicate) for left in cells), []).append(metric)
        rows += [(", ".join(metrics), word(why), str(len(cells)), _which(cells)) for cells, metrics in seen.items()]
    yield Table((prose("of", 9), prose("why", 14), num("pairs"), prose("which", 24)), tuple(rows), "Left out", aside=True)


def _which(cells: Sequence[tuple[str, int]]) -> str:
    of: dict[str, list[int]] = {}
    for task, replicate in cells[:LEFT_OUT_NAMED]:
        of.setdefault(task, []).append(replicate)
    named = ", ".join(f"{word(task)} {' '.join(f'r{n}' for n in sorted(numbers))}" for task, numbers in of.items())
    return named + (f" and {len(cells) - LEFT_OUT_NAMED} more" if len(cells) > LEFT_OUT_NAMED else "")
