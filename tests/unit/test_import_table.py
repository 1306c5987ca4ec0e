"""A table of trials: read whole or listed by line, never guessed; the public one to the trial."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.errors import ConfigError, Refused
from marathond.service.importing.choose import choose
from marathond.service.importing.seen import Reading, Seen
from marathond.service.importing.table import read_table

PUBLIC = Path(__file__).resolve().parents[1] / "data" / "swe-marathon-trials.csv"
HEADER = "task,agent,model,trial,reward,partial,tokens,cost_usd,duration_s,startedAt,status"


def table(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def row(
    reward: str = "1", *, partial: str = "0.5", trial: str = "zstd-1", status: str = "success", tokens: str = "12", start: str = ""
) -> str:
    return f"zstd,Codex,GPT-5.5,{trial},{reward},{partial},{tokens},0.5,90,{start},{status}"


def only(reading: Reading) -> Seen:
    assert len(reading.trials) == 1, reading.listed
    return reading.trials[0]


def test_the_public_table_is_read_to_the_last_trial() -> None:
    reading = read_table(PUBLIC)
    assert (len(reading.trials), reading.listed) == (1299, ())
    assert Counter(each.code for each in reading.remarks) == {"status": 55, "left_out": 3}
    solved: Counter[str] = Counter()
    for cell, trial in choose(reading, {}).trials:
        assert trial.score is not None
        solved[cell.arm] += trial.score.reward == 1
    assert sorted(solved.values(), reverse=True) == [26, 16, 12, 11, 7, 6, 4, 4, 2, 1, 0, 0, 0]


def test_its_grid_has_one_missing_cell() -> None:
    choice = choose(read_table(PUBLIC), {})
    held = {(cell.task, cell.arm, cell.replicate) for cell in choice.cells}
    assert (choice.replicates, len(choice.grid), len(held)) == (5, 1300, 1299)
    (missing,) = set(choice.grid) - held
    assert missing[1:] == ("Gemini CLI / Gemini 3.1 Pro", 5)


def test_replicates_follow_the_start_then_the_name(tmp_path: Path) -> None:
    rows = [
        row(trial=name, start=start)
        for name, start in (("c", "2026-05-02 10:00 UTC"), ("b", "2026-05-02 09:00 UTC"), ("a", "2026-05-02 10:00 UTC"), ("d", ""))
    ]
    placed = {trial.key.rpartition("/")[2]: cell.replicate for cell, trial in choose(read_table(table(tmp_path, *rows)), {}).trials}
    assert placed == {"b": 1, "a": 2, "c": 3, "d": 4}


def test_a_row_as_it_is_kept(tmp_path: Path) -> None:
    seen = only(read_table(table(tmp_path, row(start="2026-05-02 09:19 UTC") + ",16/22", header=HEADER + ",gates")))
    assert seen.arm == "Codex / GPT-5.5" and seen.score is not None
    assert (seen.score.reward, seen.score.partial, seen.score.test_rate) == (1.0, 0.5, None)
    assert seen.score.reward_source == "t.csv:2:reward"
    assert list(seen.score.parts) == [("partial", "0.5", "t.csv:2:partial"), ("gates", "16/22", "t.csv:2:gates")]
    d = seen.details
    assert (d.model, d.started_at_ms, d.agent_ms, d.tokens, d.cost_nusd, d.ended_by) == (
        "GPT-5.5", 1_777_713_540_000, 90_000, 12, 500_000_000, None,
    )  # fmt: skip


def test_d07_a_bare_decimal_is_a_number(tmp_path: Path) -> None:
    seen = only(read_table(table(tmp_path, row("1.", partial=".674"))))
    assert seen.score is not None and (seen.score.reward, seen.score.partial) == (1.0, 0.674)


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ("true", "reward: a boolean is not a number"),
        ("nan", "reward: not finite"),
        ("1e999", "reward: not finite"),
        ("1.5", "reward: above 1: 1.5"),
        ("-1", "reward: below 0: -1"),
        ("yes", "reward: text, not a number: 'yes'"),
        ("0x1", "reward: text, not a number: '0x1'"),
        ("1_0", "reward: text, not a number: '1_0'"),
        ("", "reward: empty, and the status does not say why"),
    ],
)
def test_d07_d09_a_reward_that_is_none_is_listed_with_its_line(tmp_path: Path, reward: str, why: str) -> None:
    reading = read_table(table(tmp_path, row(), row(reward, trial="zstd-2")))
    assert [(each.code, each.place, each.why) for each in reading.listed] == [("unreadable_row", "t.csv:3", why)]
    assert only(reading).key.endswith("zstd-1")


def test_d11_a_table_without_the_column_has_no_partial(tmp_path: Path) -> None:
    seen = only(read_table(table(tmp_path, "zstd,codex,1", header="task,arm,reward")))
    assert seen.score is not None and seen.score.partial is None and seen.arm == "codex"


def test_a_status_other_than_success_is_told_and_void_without_a_reward(tmp_path: Path) -> None:
    rows = [row("0", trial="a", status="AgentTimeoutError"), row("", trial="b", status="RuntimeError"), row("1", trial="c", status="X")]
    reading = read_table(table(tmp_path, *rows))
    by_name = {seen.key.rpartition("/")[2]: seen for seen in reading.trials}
    assert (by_name["a"].valid, by_name["a"].details.ended_by) == (True, "deadline")
    assert by_name["b"].why == "no reward; status RuntimeError"
    assert by_name["c"].valid and by_name["c"].details.ended_by == "X"
    assert [each.why.partition(": ")[2] for each in reading.remarks] == [
        "taken with its reward",
        "no reward, so no result",
        "taken with its reward",
    ]


def test_what_is_unreadable_beside_the_result_is_left_out_and_told(tmp_path: Path) -> None:
    seen = only(reading := read_table(table(tmp_path, row(tokens="many", start="UTC"))))
    assert seen.valid and seen.details.tokens is None and seen.details.started_at_ms is None
    assert {each.code for each in reading.remarks} == {"left_out"} and len(reading.remarks) == 2


def test_rows_that_are_no_rows(tmp_path: Path) -> None:
    reading = read_table(table(tmp_path, row(), "zstd,Codex", row(trial="zstd-1"), row(trial="x").replace("zstd", "", 1)))
    assert [(each.code, each.place) for each in reading.listed] == [
        ("unreadable_row", "t.csv:3"), ("twice", "t.csv:4"), ("unreadable_row", "t.csv:5"),
    ]  # fmt: skip


def test_what_is_no_csv_ends_the_reading(tmp_path: Path) -> None:
    path = table(tmp_path, row(), '"zstd,Codex', row(trial="b"))
    reading = read_table(path)
    assert len(reading.trials) == 1 and [each.code for each in reading.listed] == ["no_csv"]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = table(tmp_path, "zstd,codex,1,.5,7", header="Problem,who,pass,frac,steps")
    seen = only(read_table(path, ["Problem=task", "who=arm", "pass=reward", "frac=partial", "steps="]))
    assert seen.score is not None and seen.score.partial == 0.5 and seen.details.turns is None
    assert ("steps", "7", "t.csv:2:steps") in seen.score.parts


@pytest.mark.parametrize(
    ("mapping", "why"),
    [(["nope=task"], "must be COLUMN=FIELD"), (["task=nope"], "FIELD must be one of task, arm"), (["task"], "must be COLUMN=FIELD")],
)
def test_a_mapping_that_names_nothing(tmp_path: Path, mapping: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_table(table(tmp_path, row()), mapping)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"task\xff")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "twice").write_text("task,task\n")
    for name, why in (
        ("pipe", "must be a regular file"), ("latin", "not UTF-8 at byte 4"), ("empty", "no column for task, reward, arm"),
        ("twice", "appears twice"), ("nowhere", "No such file"), (".", "Is a directory|must be a regular file"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=why):
            read_table(tmp_path / name)


def test_a_byte_order_mark_is_none_of_the_first_column(tmp_path: Path) -> None:
    path = table(tmp_path, row())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert only(read_table(path)).task == "zstd"


CELLS = st.sampled_from(["", "1", "0", ".5", "nan", "-1", "true", "2", "x", "é", "1e3", " 1 ", "0.25"])


@settings(max_examples=150, deadline=None)
@given(cells=st.lists(CELLS, min_size=2, max_size=2), status=st.sampled_from(["", "success", "Error"]))
def test_no_number_that_the_row_does_not_hold(tmp_path_factory: pytest.TempPathFactory, cells: list[str], status: str) -> None:
    path = table(tmp_path_factory.mktemp("p"), f"zstd,codex,{cells[0]},{cells[1]},{status}", header="task,arm,reward,partial,status")
    reading = read_table(path)
    assert len(reading.trials) + len(reading.listed) == 1
    for seen in reading.trials:
        if seen.score is not None:
            assert seen.score.reward == float(cells[0]) and 0 <= seen.score.reward <= 1
            assert seen.score.partial is None if not cells[1] else seen.score.partial == float(cells[1])
