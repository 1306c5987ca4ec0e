"""The one-page form for colleagues: what was compared, how much of it there is, what must be known, and the numbers that answer.

Owns what is on that page and the bounds that keep it one.  What does not fit is counted and named as left to the whole report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from marathond.core.compare.result import Comparison, Metric
from marathond.core.results import Results
from marathond.report import arms, contrasts, opening
from marathond.report.blocks import TEXT_MAX, Block, Document, Forest, HeatMap, Line, Section, Table, Tone, lines, word
from marathond.report.document import Report, banner, subtitle, title
from marathond.report.numbers import fixed, many
from marathond.report.plots import contrasts_forest

CONTRASTS_AT_MOST, ARMS_AT_MOST, TASKS_AT_MOST = 8, 14, 20
PARTIAL_AT_MOST, FIGURE_AT_MOST = 3, 5
"""With at most so many contrasts, partial stands beside the reward, and there is room for a figure."""
HEAT_ARMS_AT_MOST = 8
LATE_NAMED, FINDINGS_NAMED, NOTES_AT_MOST = 2, 3, 3
PART_MAX, LINE_MAX = 240, 400
TITLE_MAX, NAME_MAX = 80, 32


def page(report: Report) -> Document:
    """One page, A4 or a screen or two of text."""
    sections = [Section(f"known-{n}", _known_title(report, one), tuple(_known(one))) for n, one in enumerate(report.results, start=1)]
    if report.comparison is not None:
        sections += _numbers(report, report.comparison)
    tail = Line("Every number, test, void, finding and disclosure: the whole report (marathonctl report).", Tone.QUIET)
    sections[-1] = replace(sections[-1], blocks=(*sections[-1].blocks, tail))
    kept = tuple(replace(section, blocks=tuple(_brief(block) for block in section.blocks)) for section in sections)
    return Document(word(title(report), TITLE_MAX), word(subtitle(report), LINE_MAX), banner(report), kept, page=True)


def _brief(block: Block) -> Block:
    """Names as long as a page has room for; the whole report has them whole."""
    match block:
        case Line():
            return replace(block, text=word(block.text, LINE_MAX))
        case Table():
            return replace(block, rows=tuple((_name(row[0]), *row[1:]) for row in block.rows))
        case HeatMap():
            rows = tuple((word(task, NAME_MAX), cells) for task, cells in block.rows)
            return replace(block, columns=tuple(word(name, NAME_MAX) for name in block.columns), rows=rows)
        case Forest():
            return replace(block, rows=tuple(replace(row, label=_name(row.label)) for row in block.rows))
        case _:
            return block


def _name(text: str) -> str:
    """An arm, or two of them as a contrast: each is cut by itself, so that neither is lost."""
    return " - ".join(word(part, NAME_MAX) for part in text.split(" - "))


def _known_title(report: Report, one: Results) -> str:
    return "What must be known" if len(report.results) == 1 else f"What must be known: {word(one.campaign)}"


def _known(one: Results) -> Iterable[Block]:
    yield Line(f"Treatment {word(one.treatment_hash)}" + ("" if one.origin == "run" else "; imported, measured elsewhere"))
    for text in one.imported[:1]:
        yield Line(f"Read from {word(text, PART_MAX)}" + (f" and {len(one.imported) - 1} more" if len(one.imported) > 1 else ""))
    states = Counter(cell.state for cell in one.cells)
    waiting = [
        f"{states[state]} {said}" for state, said in (("open", "open"), ("claimed", "running"), ("review", "for review")) if states[state]
    ]
    parked = Counter(word(cell.park_code) for cell in one.cells if cell.state == "parked")
    waiting += [f"{number} parked ({code})" for code, number in sorted(parked.items())]
    yield Line("Missing: " + (", ".join(waiting) if waiting else "no cell") + ".", Tone.WARN if waiting else Tone.PLAIN)
    voids = opening.void_tally(one)
    yield Line(f"Withdrawn (voids, standing): {word(voids, PART_MAX) if voids else 'none'}.")
    yield from _late(one)
    yield _findings(one)
    codes = ", ".join(sorted({word(each.code) for each in one.disclosures}))
    yield Line(f"Disclosures: {many(len(one.disclosures), 'disclosure')}" + (f" ({word(codes, PART_MAX)})." if codes else "."))


def _late(one: Results) -> Iterable[Line]:
    late = sorted((void for void in one.voids if void.score_was_known), key=lambda void: (void.at_ms, void.trial))
    if not late:
        return
    named = "; ".join(
        f"{word(void.trial)} ({word(void.arm)}, {word(void.author)}: {word(void.reason, 80)}; reward {fixed(void.reward)}, "
        f"kept {fixed(void.kept_reward)}{'' if void.standing else ', taken back'})"
        for void in late[:LATE_NAMED]
    )
    more = f" and {len(late) - LATE_NAMED} more" if len(late) > LATE_NAMED else ""
    yield Line(f"Withdrawn after the score was known: {named}{more}.", Tone.WARN)


def _findings(one: Results) -> Line:
    shown = sorted(
        (each for each in one.findings if each.closed_at_ms is None), key=lambda each: (not each.stop_loss, each.code, each.subject)
    )
    if not shown and one.origin == "import":
        return Line(f"Open findings: {opening.nobody_asked(one)}.", Tone.WARN)
    if not shown:
        return Line("Open findings: none.")
    named = [f"{word(each.code)} ({word(each.subject, 60)}{', stop-loss' if each.stop_loss else ''})" for each in shown[:FINDINGS_NAMED]]
    more = f" and {len(shown) - FINDINGS_NAMED} more" if len(shown) > FINDINGS_NAMED else ""
    return Line(f"Open findings: {', '.join(named)}{more}.", Tone.WARN)


def _numbers(report: Report, comparison: Comparison) -> Iterable[Section]:
    shown, left = comparison.contrasts[:CONTRASTS_AT_MOST], len(comparison.contrasts) - CONTRASTS_AT_MOST
    blocks: list[Block] = []
    if not shown:
        blocks.append(Line("There is no contrast: nothing is compared.", Tone.WARN))
    else:
        metrics = (Metric.REWARD, Metric.PARTIAL) if len(shown) <= PARTIAL_AT_MOST else (Metric.REWARD,)
        tables: list[Table] = [contrasts.side_by_side(shown, metric) for metric in metrics if contrasts.is_compared(comparison, metric)]
        blocks += [*tables, *(list(contrasts_forest(shown))[:1] if len(shown) <= FIGURE_AT_MOST else [])]
        blocks += lines([contrasts.how(shown), *(word(text, TEXT_MAX) for text in comparison.estimands[:1])])
    if left > 0:
        blocks.append(Line(f"{many(left, 'contrast')} more in the whole report.", Tone.WARN))
    notes = list(dict.fromkeys([*comparison.notes, *(note for each in shown for note in each.notes)]))
    blocks += lines((word(note, PART_MAX) for note in notes[:NOTES_AT_MOST]), Tone.WARN)
    if len(notes) > NOTES_AT_MOST:
        blocks.append(Line(f"{many(len(notes) - NOTES_AT_MOST, 'note')} more in the whole report.", Tone.WARN))
    yield Section("comparison", "Comparison", tuple(blocks))
    yield Section("arms", "The arms by themselves", tuple(_arms(report, comparison)))
    yield from _tasks(report)


def _arms(report: Report, comparison: Comparison) -> Iterable[Block]:
    yield Line(arms.NOT_COMPARED, Tone.WARN)
    table = arms.own_table(comparison, report.results)
    yield Table(table.columns, table.rows[:ARMS_AT_MOST], table.caption)
    if len(table.rows) > ARMS_AT_MOST:
        yield Line(f"{many(len(table.rows) - ARMS_AT_MOST, 'arm')} more in the whole report.", Tone.WARN)
    yield from arms.absent(report.results)
    yield from arms.refused(report.results)


def _tasks(report: Report) -> Iterable[Section]:
    one = report.results[0]
    if len(report.results) == 1 and len(one.tasks) <= TASKS_AT_MOST and len(one.arms) <= HEAT_ARMS_AT_MOST:
        yield Section("tasks", "Task by task", tuple(arms.heat_maps(one, only=("reward",))))
