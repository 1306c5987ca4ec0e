"""Sources that would have lost a trial silently, added two arms up, or broken the report that is made of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from marathond.cli.import_runs import ALARMS
from marathond.core.errors import Refused
from marathond.core.text import iso_utc
from marathond.service.importing.run import Wanted, plan, read
from marathond.service.importing.seen import END_MS, NAME_MAX, Names, instant_ms
from tests.support import ledgers as have
from tests.support.old_runs import STAMP, Trial, job_folder, passed, put, run_folder

HEADER = "task,arm,trial,reward,startedAt\n"


def test_a_harbor_job_among_runs_is_listed_and_none_of_its_folders_is_taken_for_a_task(tmp_path: Path) -> None:
    out = tmp_path / "o"
    run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed()))
    job = job_folder(out / "bench", [Trial("t__1", files=passed())])
    reading = read(Wanted(out))
    assert [(each.code, each.place) for each in reading.listed] == [("harbor_job", "bench")] and "harbor_job" in ALARMS
    assert [seen.task for seen in reading.trials] == ["zstd"] and [seen.key for seen in read(Wanted(job)).trials] == ["bench/t__1"]


def test_a_harbor_job_that_holds_runs_is_neither(tmp_path: Path) -> None:
    """Read as runs, its own trial was lost without a word."""
    out = job_folder(tmp_path / "o", [Trial("t__1", files=passed())])
    run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed()))
    with pytest.raises(Refused, match="is a Harbor job and holds runs of the old scripts, too"):
        read(Wanted(out))


def test_a_file_that_goes_while_its_folder_is_looked_at_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are still in work: a temporary name is renamed between the listing and the look."""
    out = tmp_path / "o"
    job = run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed()))
    put(job / "aaa.part", "x")
    real = os.stat

    def gone(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if path == "aaa.part":
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", gone)
    reading = read(Wanted(out))
    assert [seen.key.rpartition("/")[2] for seen in reading.trials] == ["zstd__a"] and reading.listed == ()


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-23:59", "9999-12-31", "3000-01-01", "0001-01-01", "1969-12-31", "0001-01-01T00:00+23:59"]
)
def test_a_time_of_which_no_report_can_make_a_date_is_none(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        instant_ms(text)


def test_every_time_that_is_taken_can_be_told_whatever_the_trial_lasted() -> None:
    assert instant_ms("1970-01-01") == 0 and instant_ms("2999-12-31T23:59:59Z") == END_MS - 1000
    assert iso_utc(END_MS + 9_223_372_036 * 1000).startswith("3292-")


def test_a_start_in_the_future_is_told(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    have.file_ledger(ledger, host="h", now_ms=have.T0)
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}t,a,1,1,2999-01-01\nt,a,2,0,2026-01-01\n")
    remarks = plan(ledger, Wanted(path, csv=True), "ana").reading.remarks
    assert [(each.code, each.place) for each in remarks] == [("future", "t.csv:2")]


@pytest.mark.parametrize("header", ["task,arm,reward,Reward", "task,task_name,arm,reward", "task,arm,reward,partial,partial_score"])
def test_two_columns_that_could_each_be_a_field_are_not_chosen_between(tmp_path: Path, header: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    with pytest.raises(Refused, match="could each be the"):
        read(Wanted(path, csv=True))
    name = header.split(",")
    twice = next(each for each in ("Reward", "task_name", "partial_score") if each in name)
    (seen,) = read(Wanted(path, csv=True, mapping=(f"{twice}=",))).trials
    assert seen.score is not None and seen.score.reward == 1


@pytest.mark.parametrize("other", ["n" * NAME_MAX + "b", "plain\u200b", "pl\u202eain", "plain\x1b[0m"])
def test_two_names_that_look_alike_are_not_one_arm(tmp_path: Path, other: str) -> None:
    """Cut to what can be shown they were the same, and their trials were added up."""
    first = "n" * NAME_MAX + "a" if other.startswith("n") else "plain"
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}t,{first},1,1,\nt,{other},2,0,\nt,{first},3,1,\n")
    reading = read(Wanted(path, csv=True))
    assert [seen.key.rpartition("/")[2] for seen in reading.trials] == ["1", "3"]
    assert [(each.code, each.place) for each in reading.listed] == [("unreadable_row", "t.csv:3")] and "of another one" in reading.listed[
        0
    ].why


def test_look_alikes_of_harbor_s_trials_are_listed(tmp_path: Path) -> None:
    job = job_folder(tmp_path / "j", [Trial("a__1", agent="goal", files=passed()), Trial("a__2", agent="goal\u200b", files=passed())])
    reading = read(Wanted(job))
    assert [seen.key for seen in reading.trials] == ["j/a__1"]
    assert [(each.code, each.place) for each in reading.listed] == [("nameless", "a__2")]


def test_a_name_of_which_nothing_can_be_shown_is_none() -> None:
    with pytest.raises(ValueError, match="no character of"):
        Names().plain("arm", "\u200b\u200b")


def test_a_verifier_s_file_that_we_may_not_read_is_an_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no property of the trial, which is withdrawn for want of a reward: a person must look."""
    out = tmp_path / "o"
    job = run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed()))
    real = os.open

    def closed(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path == "reward.txt":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", closed)
    reading = read(Wanted(out))
    place = f"{(job / 'zstd__a').relative_to(out)}/verifier/reward.txt"
    assert [(each.code, each.place) for each in reading.listed] == [("unreadable", place)] and "unreadable" in ALARMS
    assert [seen.valid for seen in reading.trials] == [False]
