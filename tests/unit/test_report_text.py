"""The report on a terminal: its golden text, its width, and every number of the comparison in it.

``python -m tests.unit.test_report_text`` writes the golden files anew, to be looked at before they are committed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.cli.output import Screen, display_width
from marathond.cli.report_text import render
from marathond.core.compare import compare
from marathond.core.results import Contrast, DisclosureResult, FindingResult
from marathond.report.blocks import Col, Document, Section, Table, num
from marathond.report.document import document, make
from marathond.report.page import page
from tests.support import small_report
from tests.support.some_results import T0, a_campaign, a_cell, some_results

GOLDEN = Path(__file__).resolve().parents[1] / "data"
SHOWN = {
    "report-small.txt": lambda: document(small_report.report()),
    "report-small-page.txt": lambda: page(small_report.report()),
    "report-small-withheld.txt": lambda: document(small_report.report(stop=True)),
}


def text_of(name: str, width: int | None = 80) -> str:
    return "\n".join(render(SHOWN[name](), Screen(width))) + "\n"


@pytest.mark.parametrize("name", SHOWN)
def test_a_small_campaign_reads_as_it_was_looked_at(name: str) -> None:
    assert text_of(name) == (GOLDEN / name).read_text()


@pytest.mark.parametrize("form", [document, page], ids=["whole", "page"])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_nothing_is_wider_than_the_terminal_and_nothing_is_cut(form: object, width: int) -> None:
    results = a_campaign()
    assert callable(form)
    lines = list(render(form(make(results, compare(results))), Screen(width)))
    assert [line for line in lines if display_width(line) > width] == []
    assert [line for line in lines if line.endswith("…")] == []


def test_off_a_terminal_no_line_is_broken() -> None:
    results = a_campaign()
    made = make(results, compare(results))
    text = "\n".join(render(document(made), Screen(None)))
    assert all(sentence in text for sentence in made.comparison.estimands) if made.comparison else pytest.fail("withheld")


def test_off_a_terminal_a_table_s_prose_goes_on_in_the_next_line_and_nothing_is_cut() -> None:
    detail = " ".join(f"word-{n}" for n in range(60))
    found = FindingResult("disk_low", "error", "disk:/", detail, T0, None, "ana", "a bigger disk comes on Monday", None)
    results = replace(a_campaign(), findings=(found,), disclosures=(DisclosureResult("goals_on", "goal", detail, detail),))
    made = make(results, compare(results))
    lines = list(render(document(made), Screen(None)))
    start = lines.index("# Open findings")
    tables = lines[start : lines.index("# Comparison")]
    assert max(map(display_width, tables)) <= 140 and not any("…" in line for line in lines)
    words = {word for line in tables for word in line.split()}
    assert {f"word-{n}" for n in range(60)} <= words and {"disk_low", "Monday"} <= words
    wide = Table((Col("x"), *(num(f"arm-{n:03d}") for n in range(40))), (("a", *("1.000",) * 40),))
    assert len(list(render(Document("t", "s", (), (Section("k", "T", (wide,)),)), Screen(None)))) == 6  # never parted off a terminal


def test_two_arms_on_two_tasks_are_told_once() -> None:
    scores = {"goal": (1.0, 1.0), "plain": (0.0, 0.5)}
    cells = [a_cell(task, arm, 1, reward, partial=partial) for task in ("sql", "zip") for arm, (reward, partial) in scores.items()]
    results = some_results(cells, contrasts=(Contrast("goal", "plain", T0, 0),))
    lines = list(render(document(make(results, compare(results))), Screen(None)))
    text = "\n".join(lines)
    assert [line.split()[-7] for line in lines if line.endswith("0.5000  0.5000      2      2")] == ["+1.0000", "+0.5000"]
    for once in ("the odds ratio is infinite", "odds ratio", "(mean over done cells", "none of 4 done cells has a test rate"):
        assert text.count(once) == 1, once
    assert next(line for line in lines if "odds ratio" in line).startswith("! These tasks, reward: stratified")


def test_what_a_tilde_means_is_said_once_beside_the_p_values() -> None:
    reward = replace(small_report.REWARD, tasks=replace(small_report.REWARD.tasks or pytest.fail("no tasks"), sign_flip_how="sampled"))
    known = small_report.comparison()
    sampled = replace(known, contrasts=(replace(known.contrasts[0], metrics=(reward, *known.contrasts[0].metrics[1:])),))
    made = make(small_report.results(), sampled)
    for form in (document, page):
        text = "\n".join(render(form(made), Screen(None)))
        assert re.search(r"\d~ ", text) and text.count("~: sign flips were sampled") == 1
    assert "~" not in text_of("report-small.txt")


def test_thirteen_long_names_are_numbered_where_they_do_not_fit() -> None:
    arms = [f"Some Harness {n} / Some Model {n}" for n in range(1, 14)]
    results = a_campaign(tasks=3, arms=arms, replicates=2)
    lines = list(render(document(make(results, compare(results))), Screen(80)))
    assert "arm 13: Some Harness 13 / Some Model 13" in lines
    assert [line for line in lines if display_width(line) > 80] == []
    assert sum(line.startswith("Some Harness 13") for line in lines) > 3  # first columns wrap, they are not cut to look alike


def test_colours_only_where_they_can_be_shown() -> None:
    shown = document(small_report.report(stop=True))
    assert not any("\x1b" in line for line in render(shown, Screen(80)))
    assert any("\x1b[31m" in line for line in render(shown, Screen(80, colour=True)))


def test_a_campaign_of_nothing_and_one_of_one_arm_say_so() -> None:
    empty = some_results([])
    lines = list(render(document(make(empty, compare(empty))), Screen(80)))
    assert "There is no contrast: nothing is compared." in "\n".join(lines)
    assert any(line.startswith("cells") and "0 tasks x 0 arms" in line for line in lines)
    one = a_campaign(tasks=2, arms=("plain",), replicates=2, whole=True)
    text = "\n".join(render(document(make(one, compare(one))), Screen(80)))
    assert "There is no contrast: nothing is compared." in text and "No trial is voided." in text
    assert re.search(r"^plain +4/4 +\d ", text, re.MULTILINE)


if __name__ == "__main__":
    for each in SHOWN:
        (GOLDEN / each).write_text(text_of(each))
