"""Every number of a comparison stands in every form of the report, and nothing that ranks arms does while a stop-loss finding is open."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from html import unescape
from itertools import product

import pytest

from marathond.cli.output import Screen
from marathond.cli.report_text import render
from marathond.core.audit.catalogue import meaning_of
from marathond.core.compare import compare
from marathond.core.results import Contrast, FindingResult
from marathond.report import html
from marathond.report.document import Report, document, make
from marathond.report.gate import refusal
from marathond.report.page import page
from marathond.report.tables import COLUMNS, NUMBERS, to_csv, to_json
from tests.support import small_report
from tests.support.some_results import T0, a_campaign, rewards, some_results


def as_text(report: Report) -> str:
    return "\n".join(render(document(report), Screen(None)))


def as_html(report: Report) -> str:
    return html.render(document(report))


# Each is told once in small_report, in digits that occur nowhere else.
NUMBERS_OF_A_CONTRAST = {
    "difference": "+0.3333",
    "interval": "[-0.3839, +1.0506]",
    "p of t": "0.1846",
    "t": "1.9876",
    "standard error": "0.1679",
    "mean": "0.167",
    "bounds": "[+0.1111, +0.4444]",
    "detectable": "0.877",
    "stratified": "exact p 0.0321",
    "Cochran-Mantel-Haenszel": "p 0.0123",
    "odds ratio": "3.083",
    "informative": "2 tasks with both outcomes",
    "McNemar": "exact p 0.1251, mid-p 0.0703",
    "McNemar's counts": "6 solved by goal alone, 1 by plain alone, 3 by both, 2 by neither",
    "without build_failed": "+0.5123",
    "its interval": "[-0.1000, +0.9000]",
    "its p": "0.2121",
    "its exact p": "0.5432",
    "left out": "rust r2",
    "why": "open in goal, parked: task_unsupported in plain",
    "least p, below what is printed": "<.0001",
    "note": "fewer than 6 discordant tasks can never reach .05",
    "estimand": "these tasks: second sentence",
    "family": "correction runs over 1 contrast",
    "declared": "declared 2026-09-21T14:13:20Z, before any score was known",
}
NUMBERS_OF_ARMS = {
    "solved interval": "0.136-0.725",
    "reward": "0.200",
    "partial": "0.475",
    "pass@k": "0.250",
    "pass^k": "0.260",
    "undefined": "undefined",
    "time": "27m30s",
    "tokens": "27.5M",
    "money": "$7.55",
    "money on voids": "$0.75",
    "not compared": "Arms are not compared by this table",
    "absent column": "there is no test rate: own has none",
}
NEVER_WITHHELD = {
    "counts": "all arms",
    "park": "parked, task_unsupported: 1 cell: rust plain r2",
    "void code": "engine_failed",
    "post-score void": "operator: wrong key",
    "its author": "ana 2026-09-21T14:13:20Z",
    "finding": "own_stop",
    "disclosure": "plain, where they are off",
    "treatment": "sha256:" + "a" * 64,
    "progress": "5 scored, 1 void",
}


@pytest.mark.parametrize("what", [*NUMBERS_OF_A_CONTRAST, *NUMBERS_OF_ARMS])
def test_each_number_stands_in_text_and_html(what: str) -> None:
    number = (NUMBERS_OF_A_CONTRAST | NUMBERS_OF_ARMS)[what]
    report = small_report.report()
    assert number in as_text(report)
    assert number.replace("<", "&lt;").replace("'", "&#39;") in as_html(report)


def test_json_holds_the_values_themselves() -> None:
    told = json.loads(to_json(small_report.report()))
    assert told["format"] == 1 and told["withheld"] is None and told["printed_anyway"] is None
    assert told["comparison"] == json.loads(json.dumps(asdict(small_report.comparison())))
    assert told["campaigns"] == [json.loads(json.dumps(asdict(small_report.results())))]


def test_the_known_answers_come_out_as_printed() -> None:
    """The published example of a test paired by task: d .16, SE .074833, t 2.13809, p .099301, CI [-.04777, .36777], sign flips .25."""
    means = {"a": (5, 4, 3, 1, 0), "b": (4, 2, 3, 0, 0)}
    cells = [
        cell
        for task in range(5)
        for cell in rewards(f"task-{task}", {arm: [float(n < solved[task]) for n in range(5)] for arm, solved in means.items()})
    ]
    results = some_results(cells, contrasts=(Contrast("a", "b", T0, 0),))
    report = make(results, compare(results))
    for form in (as_text(report), as_html(report)):
        assert all(text in form for text in ("+0.1600", "[-0.0478, +0.3678]", "0.0993", "0.2500", "0.0748", "2.1381"))


def test_e02_counts_name_their_campaign_and_add_up() -> None:
    results = a_campaign(tasks=6, replicates=3)
    text = as_text(make(results, compare(results)))
    lines = text.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("arm ") and "after score" in line)
    rows = [line.split() for line in lines[head + 1 : head + 7]]
    sums = [sum(int(row[-column]) for row in rows[:5]) for column in range(1, 9)]
    assert rows[5][:2] == ["all", "arms"] and [int(rows[5][-column]) for column in range(1, 9)] == sums
    assert "campaign   some" in lines and sums[-1] == len(results.cells)


def test_csv_has_a_row_per_cell_and_exactly_the_documented_columns() -> None:
    results = a_campaign(tasks=4, replicates=2)
    rows = list(csv.DictReader(io.StringIO(to_csv(make(results, compare(results))))))
    assert len(rows) == len(results.cells) and list(rows[0]) == list(COLUMNS)
    for row, cell in zip(rows, results.cells, strict=True):
        assert (row["task"], row["arm"], int(row["replicate"]), row["state"]) == (cell.task, cell.arm, cell.replicate, cell.state)
        for name in NUMBERS:
            value = getattr(cell, name)
            assert row[name] == ("" if value is None else repr(value))
        assert row["build_failed"] == str(int(cell.build_failed)) and row["withheld"] == ""


# ── refusing to rank ──


@pytest.mark.parametrize("what", [*NUMBERS_OF_A_CONTRAST, *NUMBERS_OF_ARMS])
def test_numbers_that_rank_are_withheld_while_a_stop_loss_is_open(what: str) -> None:
    number = (NUMBERS_OF_A_CONTRAST | NUMBERS_OF_ARMS)[what]
    report = small_report.report(stop=True)
    assert report.withheld
    # Counts by arm and the single post-score void, whose rewards must always be told, hold some of the same digits.
    text = "\n".join(line for line in as_text(report).splitlines() if not line.startswith(("t0007", "money")))
    assert number not in text


@pytest.mark.parametrize("what", NEVER_WITHHELD)
def test_what_does_not_rank_is_always_told(what: str) -> None:
    report = small_report.report(stop=True)
    assert NEVER_WITHHELD[what] in as_html(report)
    if what != "progress":  # text has the same as a table
        assert NEVER_WITHHELD[what] in as_text(report)


def test_a_refusal_names_the_finding_and_what_to_do_in_every_form() -> None:
    report = small_report.report(stop=True)
    for form in (as_text(report), as_html(report), html.render(page(report)), to_json(report)):
        assert "own_stop (goal)" in form and "marathonctl findings" in form and "--anyway" in form
    for row in csv.DictReader(io.StringIO(to_csv(report))):
        assert row["withheld"] == "own_stop (goal)" and not any(row[name] for name in NUMBERS)
    told = json.loads(to_json(report))
    assert told["comparison"] is None and told["campaigns"][0]["spent_usd"] is None
    assert all(cell[name] is None for cell in told["campaigns"][0]["cells"] for name in NUMBERS)
    assert {cell["state"] for cell in told["campaigns"][0]["cells"]} == {"done", "open", "parked"}


def test_what_to_do_is_told_of_every_finding_that_is_known() -> None:
    known = meaning_of("infra_disparity")
    assert known is not None
    results = replace(small_report.results(), findings=(replace(small_report.STOP, code="infra_disparity"),))
    report = make(results, None)
    assert report.refusal is not None and known.todo.rstrip(".") in report.refusal.words()
    for form in (as_text(report), as_html(report), html.render(page(report))):
        assert known.todo.rstrip(".") in unescape(re.sub("</?code>", "`", form))


def test_anyway_prints_the_numbers_under_a_warning_at_the_top() -> None:
    report = small_report.report(stop=True, anyway=True)
    text = as_text(report)
    assert "PRINTED ANYWAY: stop-loss finding is open: own_stop (goal)" in "\n".join(text.splitlines()[:5])
    assert "+0.3333" in text and "PRINTED ANYWAY" in as_html(report).split("<main>")[0]
    assert json.loads(to_json(report))["printed_anyway"].startswith("PRINTED ANYWAY")


@pytest.mark.parametrize(
    ("change", "stops"),
    [
        pytest.param({}, True, id="open"),
        pytest.param({"acked_by": "ana", "ack_reason": "known"}, True, id="acknowledged-is-still-open"),
        pytest.param({"closed_at_ms": T0 + 6}, False, id="closed"),
        pytest.param({"severity": "error"}, False, id="an-error-does-not-stop"),
        pytest.param({"campaign": None}, True, id="of-the-house"),
    ],
)
def test_which_findings_stop_a_ranking(change: dict[str, object], stops: bool) -> None:
    finding = replace(small_report.STOP, **change)  # type: ignore[arg-type]
    results = replace(small_report.results(), findings=(finding,))
    assert (refusal((results,), anyway=False) is not None) is stops


def test_one_of_two_campaigns_is_enough_to_refuse_and_many_findings_are_bounded() -> None:
    stopped = replace(small_report.results(), campaign="other", findings=tuple(_stops(5)))
    found = refusal((small_report.results(), stopped), anyway=False)
    assert found is not None and found.words().count("code_") == 3 and "and 2 more" in found.words()
    assert make(small_report.results(), None, stopped).withheld


def _stops(count: int) -> Iterator[FindingResult]:
    for number in range(count):
        yield replace(small_report.STOP, code=f"code_{number}")


def test_a_report_without_a_comparison_that_nothing_withholds_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="nothing withholds"):
        make(small_report.results(), None)


def test_arms_keep_the_configured_order_whatever_they_scored() -> None:
    for first, second in product((0.0, 1.0), repeat=2):
        results = some_results(rewards("sql", {"zeta": [first], "alpha": [second]}))
        text = as_text(make(results, compare(results)))
        assert 0 < text.index("\nzeta ") < text.index("\nalpha ")


# ── other campaigns ──


def test_an_imported_campaign_says_where_it_was_read_from() -> None:
    results = replace(small_report.results(), origin="import", imported=("10 trials from runs/sep (runs) by ana at 2026-09-21T14:13:20Z",))
    report = make(results, small_report.comparison())
    for form in (as_text(report), as_html(report), "\n".join(render(page(report), Screen(None)))):
        assert "measured elsewhere" in form and "10 trials from runs/sep (runs) by ana" in form
    assert "when voids were is not known" in as_html(report)


def test_two_campaigns_are_told_apart_in_every_section() -> None:
    one = a_campaign(tasks=3, replicates=2)
    other = replace(a_campaign(tasks=3, replicates=2, seed=2), campaign="later", disclosures=())
    report = make(one, compare(one, other), other)
    text = as_text(report)
    for title in ("What was compared", "What is missing, what was withdrawn", "Task by task", "Progress and failures over time"):
        assert f"{title}: some" in text and f"{title}: later" in text
    assert text.splitlines()[0] == "some against later" and "some/plain - later/plain" in text
    assert {row["campaign"] for row in csv.DictReader(io.StringIO(to_csv(report)))} == {"some", "later"}
    assert len(json.loads(to_json(report))["campaigns"]) == 2
    assert "some/plain" in html.render(page(report))
    assert as_html(report).count('class="dot"') > 0  # the strips find the cells of arms that are named campaign/arm


def test_what_was_declared_late_or_dropped_is_said() -> None:
    results = replace(
        small_report.results(), declaration=3, declared_after=7, dropped=(Contrast("plain", "goal", T0, 0), Contrast("x", "y", T0, 2))
    )
    assert "1 declared, in version 3 of the declaration, after 7 scores, dropped since: plain - goal; x - y" in as_text(
        make(results, small_report.comparison())
    )
    late = replace(small_report.comparison().contrasts[0], scores_known=4)
    none = replace(late, declared_at_ms=None, scores_known=None)
    made = replace(small_report.comparison(), contrasts=(late, none))
    text = as_text(make(small_report.results(), made))
    assert "when 4 scores were known" in text and "not declared: nobody said beforehand" in text
