"""A mean over what was left of refused values says so: in the comparison, at the arms' own table, in every form of the report."""

from __future__ import annotations

import json

import pytest

from marathond.cli.output import Screen
from marathond.cli.report_text import render
from marathond.core.compare import compare
from marathond.core.compare.result import Metric, MetricContrast
from marathond.core.results import CellResult, Contrast, FindingResult, Results, refused_words
from marathond.core.score import RefusedValue
from marathond.report import html
from marathond.report.document import Report, document, make
from marathond.report.page import page
from marathond.report.tables import to_json
from tests.support.some_results import T0, a_cell, some_results

PERCENT = RefusedValue("partial", "metrics.json:partial_score", "above 1: 50", ("partial",))
SAID = "partial refused in 6 of 18 trials of 1 task (above 1: 50): the mean is over what was left"


def cells(*, refused: int = 6, task: str = "percent") -> list[CellResult]:
    """18 trials of three arms: the last ``refused`` replicates' values were in percent, the others are zeros."""
    made = [(replicate, arm) for replicate in range(1, 7) for arm in ("goal", "plain", "wake")]
    return [
        a_cell(task, arm, replicate, 0.0, **({"refused": (PERCENT,)} if n >= len(made) - refused else {"partial": 0.0}))
        for n, (replicate, arm) in enumerate(made)
    ]


def sound(task: str = "sound") -> list[CellResult]:
    return [a_cell(task, arm, n, 0.0, partial=0.5) for arm in ("goal", "plain", "wake") for n in range(1, 7)]


def results(*more: CellResult) -> Results:
    return some_results([*cells(), *sound(), *more], contrasts=(Contrast("goal", "plain"), Contrast("wake", "plain")))


def partial(of: Results) -> MetricContrast:
    found = compare(of).contrasts[0].of(Metric.PARTIAL)
    assert found is not None
    return found


def report(of: Results) -> Report:
    return make(of, compare(of))


def plain(text: str) -> str:
    return " ".join(text.replace("\n", " ").split())


def test_d09_the_words_count_trials_and_tasks_that_have_refused_values() -> None:
    assert refused_words(results().cells, "partial") == SAID
    assert refused_words(results().cells, "test_rate") == refused_words(sound(), "partial") == ""
    assert refused_words(cells(refused=18), "partial").endswith("18 of 18 trials of 1 task (above 1: 50): none of them has one")
    two = [*cells(), *cells(task="other", refused=3)]
    assert refused_words(two, "partial").startswith("partial refused in 9 of 36 trials of 2 tasks (above 1: 50)")


def test_d09_a_pair_that_was_left_out_for_a_refused_value_is_no_missing_partial() -> None:
    found = partial(results())
    assert found.refused == 2
    assert {left.why for left in found.left_out} == {"partial refused in goal and plain"}
    (note,) = [note for note in compare(results()).contrasts[0].notes if "refused" in note]
    assert note.startswith("partial refused in 4 of 12 trials of 1 task (above 1: 50): the mean is over what was left")


@pytest.mark.parametrize("form", ["text", "html", "page"])
def test_d09_the_words_stand_at_the_tables(form: str) -> None:
    told = report(results())
    shown = document(told) if form != "page" else page(told)
    text = plain("\n".join(render(shown, Screen(None))) if form == "text" else html.render(shown))
    assert SAID in text
    assert "first arm minus second; without up to 2 pairs of which a value was refused" in text
    assert "refused" not in plain("\n".join(render(document(report(some_results(sound()))), Screen(None))))


def test_d09_what_is_withheld_tells_no_refused_value() -> None:
    stopped = some_results(
        [*cells(), *sound()], findings=(FindingResult("infra_disparity", "stop_loss", "goal", "7 of 12", T0, None, None, None, "some"),)
    )
    assert "above 1" in to_json(report(results()))
    told = json.loads(to_json(report(stopped)))
    assert told["withheld"] and all(cell["refused"] == [] for cell in told["campaigns"][0]["cells"])


# ── bounds ──


def test_a_task_without_this_number_is_not_missing_from_the_bounds() -> None:
    none = [a_cell("reward-only", arm, n, 0.0) for arm in ("goal", "plain", "wake") for n in (1, 2)]
    found = partial(some_results([*sound(), *none], contrasts=(Contrast("goal", "plain"),)))
    assert found.bounds is not None and (found.bounds.low, found.bounds.high) == (0.0, 0.0)


def test_refused_and_unbuilt_values_are_missing_from_the_bounds() -> None:
    gone = [a_cell("t", arm, n, 0.0, refused=(PERCENT,)) for arm in ("goal", "plain") for n in (1, 2)]
    unbuilt = [a_cell("t", arm, n, 0.0, flags=("build_failed",)) for arm in ("goal", "plain") for n in (1, 2)]
    for of in (gone, unbuilt):
        found = partial(some_results([*sound(), *of], contrasts=(Contrast("goal", "plain"),)))
        assert found.bounds is not None and (found.bounds.low, found.bounds.high) == (-0.5, 0.5)
