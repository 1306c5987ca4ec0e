"""From a reading to the ledger's row, to the columns that a campaign has, to what a person sees."""

from __future__ import annotations

import json
from typing import Any

from marathond.cli import show_scores
from marathond.cli.output import Screen
from marathond.core.columns import Column, counted, expected
from marathond.core.score import EXTRACTOR, parse, read_score
from marathond.flow.score_row import score_row
from marathond.ledger.verbs.show import ScoreShown
from marathond.ledger.verbs.trials import ScoreRow

PLAIN = Screen()


def row_of(metrics: Any, rules: dict[str, str] | None = None, **files: Any) -> ScoreRow:
    payload = {"reward.txt": b"0", **{f"{name}.json": json.dumps(content).encode() for name, content in files.items()}}
    payload["metrics.json"] = json.dumps(metrics).encode()
    reading = read_score(payload, verifier_exited=True, overrides={key: parse(text) for key, text in (rules or {}).items()})
    assert reading.reward is not None
    return score_row(reading, reading.reward)


def shown(row: ScoreRow) -> ScoreShown:
    parts = tuple(sorted(row.parts))
    return ScoreShown(
        1,
        EXTRACTOR,
        row.reward,
        row.reward_source,
        row.partial,
        row.tests_passed,
        row.tests_total,
        list(row.flags),
        0,
        parts,
        row.test_rate,
    )


def lines(row: ScoreRow, columns: tuple[Column, ...] = ()) -> str:
    return "\n".join(show_scores.section([shown(row)], columns, PLAIN))


def test_the_rate_of_a_row_says_whether_it_was_stated_or_counted() -> None:
    counted_row, stated = row_of({"passed": 3, "total": 4}), row_of({"pass_rate": 0.5})
    assert (counted_row.extractor, counted_row.test_rate, stated.test_rate) == (EXTRACTOR, 0.75, 0.5)
    assert ("test_rate", "0.75", "metrics.json:passed/total") in counted_row.parts
    assert ("test_rate", "0.5", "metrics.json:pass_rate") in stated.parts
    assert row_of({"passed": 0, "total": 0}).test_rate is None


def test_each_number_stands_once_under_its_stable_name() -> None:
    row = row_of({"login_gate": False, "gates_passed": 0, "gates_total": 1, "pytest": {"login": {"passed": 1, "failed": 1}}, "seed": 7})
    assert {name: source for name, _, source in row.parts} == {
        "tests_passed": "metrics.json:pytest.*.passed",
        "tests_total": "metrics.json:pytest.*.passed+pytest.*.failed",
        "test_rate": "metrics.json:pytest.*.passed/pytest.*.passed+pytest.*.failed",
        "gates_passed": "metrics.json:gates_passed",
        "gates_total": "metrics.json:gates_total",
        "gate:login": "metrics.json:login_gate",
        "tests:login.passed": "metrics.json:pytest.login.passed",
        "tests:login.total": "metrics.json:pytest.login.passed+pytest.login.failed",
        "tests:login.failed": "metrics.json:pytest.login.failed",
        "metrics.json:seed": "metrics.json:seed",
    }


def test_counts_beyond_any_integer_are_parts_alone() -> None:
    row = row_of({"passed": 1e300, "total": 1e300})
    assert (row.tests_passed, row.tests_total, row.test_rate, row.flags) == (None, None, None, ("counts_too_large",))
    assert {name: value for name, value, _ in row.parts}["tests_passed"] == "1e+300"


def test_counts_that_a_float_cannot_hold_are_no_column() -> None:
    """9007199254740993 reads as …992: an integer column must not hold a number that nobody wrote."""
    row = row_of({"passed": 2**53 + 1, "total": 2**53 + 1})
    assert (row.tests_passed, row.tests_total, row.flags) == (None, None, ("counts_too_large",))


def test_d04_show_says_which_gates_failed_and_what_each_stage_gave() -> None:
    metrics = {
        **{f"{name}_gate": name != "upload" for name in ("auth", "list", "upload")},
        "gates_passed": 2,
        "gates_total": 3,
        "pytest": {"auth": {"passed": 40, "total": 40}, "list": {"passed": 30, "total": 30}, "upload": {"passed": 10, "total": 20}},
        "partial_score": 0.0,
    }
    text = lines(
        row_of(metrics, stages={"correctness": {"rewards": {"reward": 0, "partial_score": 0.667}}, "ux": {"rewards": {"reward": 0}}})
    )
    assert "reward 0 from reward.txt   partial 0.00   tests 80/90   test rate 0.889" in text
    assert "gates 2 of 3; failed: upload" in text
    assert "stages correctness 0.0, ux 0.0" in text
    assert "stage:correctness.partial_score  0.667" in text
    assert f"read by extractor {EXTRACTOR}\n" in text


def test_show_names_the_rules_and_counts_what_was_refused() -> None:
    text = lines(row_of({"reward": 1, "passed": -1, "total": 2}, {"reward": "metrics.json:reward"}))
    assert "reward 1 from metrics.json:reward" in text
    assert f"read by extractor {EXTRACTOR}, by rules of the configuration: reward = metrics.json:reward" in text
    assert "1 refused, each named below" in text and "no count: negative or not whole" in text


SCORES = {
    "reward": {"exists": True, "note": ""},
    "partial": {"exists": False, "note": "its tests pass or fail as a whole"},
    "test_rate": {"exists": True, "note": "of CTRF"},
}


def test_d11_an_absent_column_is_left_out_and_says_why() -> None:
    columns = counted({"reward": 3, "partial": 0, "test_rate": 2}, 3, SCORES, "terminal")
    assert columns == (
        Column("reward", True, ""),
        Column("partial", False, "terminal has none: its tests pass or fail as a whole"),
        Column("test_rate", True, "of CTRF"),
    )
    text = lines(row_of({"passed": 3, "total": 4}), expected(SCORES, "terminal"))
    assert "partial 0" not in text and "no partial: terminal has none: its tests pass or fail as a whole" in text
    assert "tests 3/4   test rate 0.750" in text
    text = lines(row_of({"partial_score": 0.0}), expected(SCORES, "terminal"))
    assert "partial 0.00" in text and "no partial" not in text, "what was measured is shown"
    assert "no test rate: its verifier told none" in text


def test_d11_without_a_profile_what_was_scored_decides() -> None:
    nothing = counted({"reward": 0, "partial": 0, "test_rate": 0}, 0, None, None)
    assert [(column.exists, column.why) for column in nothing] == [(False, "no cell is done yet")] * 3
    some = counted({"reward": 4, "partial": 0, "test_rate": 1}, 4, None, None)
    assert [column.exists for column in some] == [True, False, True]
    assert some[1].why == "none of 4 done cells has a partial score"


def test_d11_what_was_measured_beats_what_a_profile_expects() -> None:
    columns = counted({"reward": 4, "partial": 2, "test_rate": 0}, 4, SCORES, "terminal")
    assert columns[1] == Column("partial", True, "terminal is said to have none, and 2 of 4 done cells hold one")
    assert columns[2] == Column("test_rate", False, "none of 4 done cells has a test rate")
