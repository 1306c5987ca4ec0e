"""A whole comparison: which contrasts, their tests, Holm's correction over them, and what it all means in words.

Owns the families and the sentences about the whole.  Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from marathond.core.compare.across import merged
from marathond.core.compare.arms import summary
from marathond.core.compare.contrasts import contrast_result
from marathond.core.compare.pairing import by_key
from marathond.core.compare.rates import holm
from marathond.core.compare.result import Comparison, ContrastResult, Metric
from marathond.core.errors import Refused
from marathond.core.results import Contrast, Results

ESTIMANDS = (
    "tasks like these: the difference of task means, a minus b, that further tasks of this kind would show; the task is the unit, so n is "
    "the number of tasks, with Student's t interval and the exact sign-flip test over them",
    "these tasks: whether the two arms' chances differ on these very tasks, by their replicates within each task; it says nothing about "
    "other tasks, and may be significant where the first is not",
    "both are over cells valid in both arms, paired by task and replicate; an arm's means are over all its done cells, and nothing is "
    "compared by them",
)


def compare_within(results: Results, pairs: Sequence[tuple[str, str]] = ()) -> Comparison:
    """See :func:`marathond.core.compare.compare`."""
    names = [arm.name for arm in sorted(results.arms, key=lambda arm: arm.position)]
    if pairs:
        chosen = chosen_contrasts(pairs, names, results.campaign)
        family = _chosen_family(len(chosen), len(names))
        notes = (*_notes(results), *_chosen_notes(results, chosen))
        return replace(_comparison(results, names, chosen, family, notes), chosen=True)
    declared = results.contrasts
    contrasts = declared or tuple(Contrast(later, earlier) for earlier, later in itertools.combinations(names, 2))
    return _comparison(results, names, contrasts, _family(len(contrasts), len(names), bool(declared)), tuple(_notes(results)))


def compare_across(results: Results, against: Results, pairs: Sequence[tuple[str, str]]) -> Comparison:
    """See :func:`marathond.core.compare.compare`."""
    both = merged(results, against, pairs)
    names = [arm.name for arm in both.results.arms]
    count = len(both.contrasts)
    family = (
        f"{_number(count, 'pair')} of arms, one of each campaign: Holm's correction runs over the sign-flip p of all of them, for each "
        "metric by itself; nobody declared them"
    )
    return replace(_comparison(both.results, names, both.contrasts, family, both.notes, without=both.unlike), across=both.names)


def _comparison(
    results: Results,
    names: Sequence[str],
    contrasts: Sequence[Contrast],
    family: str,
    notes: tuple[str, ...],
    *,
    without: Collection[str] = (),
) -> Comparison:
    """:param without: tasks of which no cell is compared; the notes say why."""
    unknown = [name for contrast in contrasts for name in (contrast.a, contrast.b) if name not in names]
    if unknown:
        raise Refused(f"contrast of arm {unknown[0]}: no such arm in {results.campaign}; there are: {', '.join(names)}")
    metrics = [Metric(column.name) for column in results.columns if column.exists and column.name in set(Metric)]
    cells = {name: by_key(cell for cell in results.of_arm(name) if cell.task not in without) for name in names}
    found = tuple(contrast_result(each, cells[each.a], cells[each.b], metrics) for each in contrasts)
    absent = tuple(f"no column {column.name}: {column.why}" for column in results.columns if not column.exists)
    arms = tuple(summary(results, name) for name in names)
    return Comparison(arms, _corrected(found, metrics), ESTIMANDS, family, (*notes, *absent))


def _corrected(contrasts: tuple[ContrastResult, ...], metrics: Sequence[Metric]) -> tuple[ContrastResult, ...]:
    """Each metric is a family of its own.  A contrast without a p counts as one of p 1: it was to be tested, too."""
    adjusted = {}
    for metric in metrics:
        tasks = [found.tasks if (found := each.of(metric)) is not None else None for each in contrasts]
        ps = [1.0 if each is None or each.p_sign_flip is None else each.p_sign_flip for each in tasks]
        adjusted[metric] = holm(ps)
    return tuple(
        replace(
            each,
            metrics=tuple(
                found if found.tasks is None else replace(found, tasks=replace(found.tasks, p_holm=adjusted[found.metric][place]))
                for found in each.metrics
            ),
        )
        for place, each in enumerate(contrasts)
    )


def _family(contrasts: int, arms: int, declared: bool) -> str:
    if not contrasts:
        return "one arm alone: there is nothing to compare"
    apart = (
        "for each metric by itself: reward is the primary one, partial score and test rate have families of their own, and nothing is "
        "corrected over metrics"
    )
    if declared:
        return (
            f"the {_number(contrasts, 'contrast')} that the configuration declares: Holm's correction runs over their sign-flip p, {apart}"
        )
    return (
        f"no contrast is declared, so every pair of the {arms} arms is compared: Holm's correction runs over the sign-flip p of "
        f"{_number(contrasts, 'contrast')}, {apart}"
    )


def chosen_contrasts(pairs: Sequence[tuple[str, str]], names: Sequence[str], campaign: str) -> tuple[Contrast, ...]:
    """What somebody wants to see, as contrasts that nobody declared.

    :raises Refused: an arm that is not there, one against itself, or two of them twice (either way round).
    """
    for number, (a, b) in enumerate(pairs):
        for name in (a, b):
            if name not in names:
                raise Refused(f"no arm {name} in campaign {campaign}; there are: {', '.join(names)}")
        if a == b:
            raise Refused(f"{a} cannot be compared with itself")
        if {a, b} in [set(pair) for pair in pairs[:number]]:
            raise Refused(f"{a} against {b} is named twice")
    return tuple(Contrast(a, b) for a, b in pairs)


def _chosen_family(count: int, arms: int) -> str:
    of = math.comb(arms, 2)
    return (
        f"{count} of the {_number(of, 'pair')} of {arms} arms, chosen when this report was made and counted as not declared: Holm's "
        f"correction runs over the sign-flip p of {'it' if count == 1 else 'these'} alone, for each metric by itself"
    )


def _chosen_notes(results: Results, chosen: Sequence[Contrast]) -> list[str]:
    """What was declared and is not shown is named: silence about it would be a choice by what was seen."""
    scores = sum(cell.state == "done" for cell in results.cells)
    known = "1 score was" if scores == 1 else f"{scores} scores were"
    notes = [f"which arms are compared was chosen when this report was made, and {known} known by then"]
    shown = [{each.a, each.b} for each in chosen]
    left = [f"{each.a} against {each.b}" for each in results.contrasts if {each.a, each.b} not in shown]
    if results.contrasts:
        notes.append(
            f"the configuration declares {_number(len(results.contrasts), 'contrast')}"
            + (f"; not shown here: {', '.join(left)}" if left else ", which are among them")
        )
    return notes


def _notes(results: Results) -> list[str]:
    notes = []
    if results.declaration > 1:
        dropped = "".join(f", without {each.a} against {each.b}" for each in results.dropped)
        known = "1 score was" if results.declared_after == 1 else f"{results.declared_after or 0} scores were"
        notes.append(f"the contrasts were declared anew (version {results.declaration}) when {known} known{dropped}")
    return notes


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
