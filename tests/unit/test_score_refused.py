"""What was refused of a score, as its parts tell it: which column it cost, by whatever rule that was read."""

from __future__ import annotations

import json

import pytest

from marathond.core.score import RefusedValue, example, parse, read_score, refused_values
from marathond.flow.score_row import score_row


def told(files: dict[str, object], **rules: str) -> tuple[RefusedValue, ...]:
    """By the way of a grading: files, reading, row, parts."""
    written = {name: held if isinstance(held, bytes) else json.dumps(held).encode() for name, held in files.items()}
    reading = read_score(
        {"reward.txt": b"0", **written}, verifier_exited=True, overrides={column: parse(text) for column, text in rules.items()}
    )
    assert reading.reward is not None
    row = score_row(reading, reading.reward)
    return refused_values(row.parts, partial=row.partial, test_rate=row.test_rate)


@pytest.mark.parametrize(
    ("files", "rules", "expected"),
    [
        ({"metrics.json": {"partial_score": 50}}, {}, [("partial", "metrics.json:partial_score", "above 1: 50", ("partial",))]),
        ({"metrics.json": {"partial_score": 0}}, {}, []),
        (
            {"metrics.json": {"partial_score": 0.5}, "r.json": {"partial_score": 50}},
            {"partial": "r.json:partial_score"},
            [("partial", "r.json:partial_score", "above 1: 50", ("partial",))],
        ),
        ({"metrics.json": {"pass_rate": 87.5}}, {}, [("test_rate", "metrics.json:pass_rate", "above 1: 87.5", ("test_rate",))]),
        (
            {"metrics.json": {"pass_rate": 75, "tests_passed": 3, "tests_total": 4}},
            {},
            [("test_rate", "metrics.json:pass_rate", "above 1: 75", ())],
        ),
        (
            {"metrics.json": {"tests_passed": 5, "tests_total": 4}},
            {},
            [("test_rate", "metrics.json:tests_passed", "more than tests_total", ("test_rate",))],
        ),
        (
            {"r.json": {"ok": -1, "all": 4}},
            {"tests_passed": "r.json:ok", "tests_total": "r.json:all"},
            [("test_rate", "r.json:ok", "no count: negative or not whole", ("test_rate",))],
        ),
        ({"metrics.json": {"partial_score": 0.5, "seconds": 1e999}}, {}, []),
        ({"metrics.json": {"partial_score": 0.5, "pytest": {"a": {"passed": 1, "total": 2}, "b": {}}}}, {}, []),
        ({"ctrf.json": b"{"}, {}, "ctrf.json"),
        ({"metrics.json": b"{", "ctrf.json": {"results": {"summary": {"tests": 2, "passed": 1}}}}, {}, "metrics.json"),
        ({"metrics.json": b"{"}, {"partial": "metrics.json:x"}, "metrics.json"),
    ],
)
def test_d09_what_was_refused_and_the_column_that_it_cost(files: dict[str, object], rules: dict[str, str], expected: object) -> None:
    found = told(files, **rules)
    if isinstance(expected, str):  # a whole file, and that alone
        assert [(each.what, each.place) for each in found] == [("file", expected)]
        assert found[0].columns == (("test_rate",) if expected == "ctrf.json" else ("partial", "test_rate"))
    else:
        assert found == tuple(RefusedValue(*each) for each in expected)  # type: ignore[attr-defined]


def test_d07_a_payload_shifted_by_one_is_a_file_that_was_not_taken() -> None:
    (found,) = told({"metrics.json": {"-": "reward", "partial_score": 0.5}})
    assert (found.what, found.place, found.columns) == ("file", "metrics.json", ("partial", "test_rate"))


def test_a_place_of_a_rule_where_nothing_stands_is_absent() -> None:
    (found,) = told({"r.json": {"x": 1}}, partial="r.json:y")
    assert found.absent and found.columns == ("partial",)


def test_an_example_is_the_most_frequent_reason_and_says_that_there_are_others() -> None:
    assert example(["above 1: 50"] * 2) == "above 1: 50"
    assert example(["above 1: 60", "above 1: 50", "above 1: 50"]) == "such as above 1: 50"
