"""A report put together: which sections there are, in which order, and which of them are withheld.

Owns the order.  The same results give the same document, whoever asks where and when.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from marathond.core.compare.result import Comparison
from marathond.core.results import Results
from marathond.report import arms, contrasts, opening
from marathond.report.blocks import Document, Line, Section, Tone, word
from marathond.report.gate import Refusal, refusal
from marathond.report.numbers import instant, many
from marathond.report.plots import progress


@dataclass(frozen=True, slots=True)
class Report:
    """What every form of a report is made from.  ``comparison`` None: it is withheld, and nobody needs to compute it."""

    results: tuple[Results, ...]
    comparison: Comparison | None
    refusal: Refusal | None

    @property
    def withheld(self) -> bool:
        return self.comparison is None


def make(results: Results, comparison: Comparison | None, against: Results | None = None, *, anyway: bool = False) -> Report:
    """:param comparison: may be None where :func:`marathond.report.gate.refusal` withholds it; it is dropped there in any case.

    :raises ValueError: no comparison, although nothing stops it.
    """
    both = (results,) if against is None else (results, against)
    found = refusal(both, anyway=anyway)
    if found is not None and found.withheld:
        return Report(both, None, found)
    if comparison is None:
        raise ValueError("a report without a comparison, which nothing withholds")
    return Report(both, comparison, found)


def title(report: Report) -> str:
    return " against ".join(word(one.campaign) for one in report.results)


def subtitle(report: Report) -> str:
    """Benchmark, size and how much of it is done, per campaign."""
    parts = []
    for one in report.results:
        done = sum(cell.state == "done" for cell in one.cells)
        name = "no benchmark named" if one.benchmark is None else word(one.benchmark)
        size = f"{many(len(one.arms), 'arm')}, {many(len(one.tasks), 'task')}"
        parts.append(f"{name}: {size}, {done} of {many(len(one.cells), 'cell')} done; as of {instant(one.as_of_ms)}")
    return " · ".join(parts)


def banner(report: Report) -> tuple[Line, ...]:
    return () if report.refusal is None else (Line(report.refusal.words(), Tone.ALARM),)


def document(report: Report) -> Document:
    """The whole report."""
    sections = [*_opening(report), *(_numbers(report, report.comparison) if report.comparison else [])]
    for number, one in enumerate(report.results, start=1):
        sections.append(_apart(Section("progress", "Progress and failures over time", tuple(progress(one))), one, number, report))
    return Document(title(report), subtitle(report), banner(report), tuple(sections))


def _opening(report: Report) -> Iterable[Section]:
    for number, one in enumerate(report.results, start=1):
        yield _apart(opening.compared(one), one, number, report)
        yield _apart(opening.missing(one), one, number, report)
    yield opening.findings(report.results)
    for number, one in enumerate(report.results, start=1):
        yield _apart(opening.disclosures(one), one, number, report)


def _numbers(report: Report, comparison: Comparison) -> Iterable[Section]:
    yield from contrasts.sections(comparison)
    for number, one in enumerate(report.results, start=1):
        yield _apart(Section("tasks", "Task by task", tuple(arms.heat_maps(one))), one, number, report)
    yield arms.own(comparison, report.results)
    yield arms.usage(comparison, report.results)


def _apart(section: Section, one: Results, number: int, report: Report) -> Section:
    """With two campaigns each section says whose it is, and links find either."""
    if len(report.results) == 1:
        return section
    return replace(section, key=f"{section.key}-of-{number}", title=f"{section.title}: {word(one.campaign)}")
