"""The comparison behind `make bench-check`: what is worse, missing or new is told by name, and nothing passes for want of a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import rows
from bench.rows import Row


def row(key: str, ratio: float | None, *, kept: bool = True) -> Row:
    return Row(key, f"text of {key}", 1.0, "ms", ratio, "floor", kept)


def test_up_to_a_fifth_worse_is_noise_and_more_is_named_with_its_size() -> None:
    assert rows.compare({"a": 1.0, "b": 10.0}, {"a": 1.2, "b": 4.0}) == []
    (told,) = rows.compare({"a": 1.0, "b": 10.0}, {"a": 1.21, "b": 10.0})
    assert told.startswith("a: 1.21, expected 1.00: 21 % worse")
    assert rows.compare({"a": 1.0}, {"a": float("nan")})


def test_a_row_that_is_missing_or_new_is_a_failure() -> None:
    missing, new = rows.compare({"gone": 1.0}, {"new": 1.0})
    assert missing.startswith("gone: ") and "was not measured" in missing
    assert new.startswith("new: ") and "is not in expected.json" in new
    assert rows.compare({}, {}) == []


def test_what_became_much_better_is_said_so_that_it_is_checked_in() -> None:
    (told,) = rows.better({"a": 1.0, "b": 1.0}, {"a": 0.79, "b": 0.81})
    assert told.startswith("a: 0.79, expected 1.00: better")


def test_only_kept_rows_are_compared_and_each_must_have_its_ratio() -> None:
    assert rows.kept([row("a", 2.0), row("b", None, kept=False)]) == {"a": 2.0}
    for wrong in ([row("a", None)], [row("a", 1.0), row("a", 1.0)]):
        with pytest.raises(ValueError, match="row a"):
            rows.kept(wrong)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "expected.json"
    rows.write({"part/b": 1.23456, "part/a": 3.0}, path)
    assert rows.read(path) == {"part/a": 3.0, "part/b": 1.235}


@pytest.mark.parametrize("text", ["", "[]", '{"ratios": {"a": -1}}', '{"ratios": {"a": true}}', '{"ratios": {"a": "1"}}', '{"ratios": []}'])
def test_a_file_of_another_shape_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "expected.json"
    path.write_text(text)
    with pytest.raises(RuntimeError, match=r"expected\.json"):
        rows.read(path)


def test_the_table_has_a_line_a_row_with_ratio_bar_and_note() -> None:
    lines = rows.table(
        [Row("a", "short", 1234.5, "ms", 1.5, "bare calls", bar=300.0), Row("b", "a longer text", 0.25, "MB", note="as it is")]
    )
    assert lines[0].split() == ["short", "1,234", "ms", "1.50", "x", "bare", "calls", "bar", "300:", "MISSED"]
    assert lines[1].split() == ["a", "longer", "text", "0.25", "MB", "as", "it", "is"]
    assert lines[0].index("ms") == lines[1].index("MB")


def test_what_is_checked_in_can_be_read_and_belongs_to_quick_parts() -> None:
    from bench.__main__ import QUICK

    kept = rows.read()
    assert {key.partition("/")[0] for key in kept} <= set(QUICK)
    assert json.loads(rows.EXPECTED.read_text())["ratios"] == dict(sorted(kept.items()))
