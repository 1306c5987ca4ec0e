"""The files of a verifier, out of a folder that an agent could write to: bounded, by name, and nothing is followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marathond.core.score import Refusal
from marathond.tasks import scorefiles
from marathond.tasks.scorefiles import collect


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs" / "verifier").mkdir(parents=True)
    return tmp_path / "logs"


def put(logs: Path, **files: bytes) -> None:
    for name, data in files.items():
        path = logs / "verifier" / name.replace("__", "/").replace("_json", ".json").replace("_txt", ".txt")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


def test_every_file_that_can_hold_a_score_and_no_other(logs: Path) -> None:
    put(logs, reward_txt=b"1", metrics_json=b"{}", ctrf_json=b"c", a_ctrf_json=b"a", b_pytest_json=b"b", other_json=b"o", deep__x_json=b"x")
    files, refused = collect(logs)
    assert (sorted(files), refused) == (["a_ctrf.json", "b_pytest.json", "ctrf.json", "metrics.json", "reward.txt"], [])
    files, refused = collect(logs, more=["other.json", "deep/x.json", "absent.json", "metrics.json"])
    assert (files["other.json"], files["deep/x.json"], len(files), refused) == (b"o", b"x", 7, [])
    assert collect(logs / "verifier", ".") == collect(logs)


@pytest.mark.parametrize("prefix", ["verifier", "nowhere", "."])
def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path, prefix: str) -> None:
    assert collect(tmp_path / "gone", prefix) == ({}, [])
    assert collect(tmp_path, prefix) == ({}, [])


def test_links_pipes_and_folders_are_refused_by_name(logs: Path, tmp_path: Path) -> None:
    put(logs, real_json=b"{}")
    verifier = logs / "verifier"
    (verifier / "metrics.json").symlink_to("real.json")
    (verifier / "a_ctrf.json").symlink_to("/etc/passwd")
    os.mkfifo(verifier / "reward.txt")
    (verifier / "stages.json").mkdir()
    files, refused = collect(logs, more=["deep/x.json"])
    assert files == {}
    assert {refusal.source: refusal.why for refusal in refused} == {
        "reward.txt": "reward.txt is a fifo (not_regular)",
        "metrics.json": "metrics.json is a symbolic link (unsafe_path)",
        "stages.json": "stages.json is a folder (not_regular)",
        "a_ctrf.json": "a_ctrf.json is a symbolic link (unsafe_path)",
    }
    moved = tmp_path / "moved"
    verifier.rename(moved)
    verifier.symlink_to(moved)
    files, refused = collect(logs)
    assert files == {} and {refusal.why for refusal in refused} >= {"verifier is a symbolic link (unsafe_path)"}


def test_files_that_hold_a_few_numbers_may_be_no_larger_than_that(logs: Path) -> None:
    """Parsed, hostile JSON takes twenty-five times its size: of one reading it must stay a few hundred megabytes."""
    put(logs, reward_json=b" " * ((1 << 20) + 1), metrics_json=b" " * (4 << 20), ctrf_json=b" " * (5 << 20), reward_txt=b"1")
    files, refused = collect(logs)
    assert sorted(files) == ["ctrf.json", "metrics.json", "reward.txt"]
    assert refused == [Refusal("reward.json", "", "more than 1048576 bytes (too_large)")]


def test_too_large_files_are_refused_one_by_one_and_gates_together(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorefiles, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(scorefiles, "MAX_GATE_BYTES", 15)
    put(logs, metrics_json=b"x" * 11, reward_txt=b"1", a_ctrf_json=b"x" * 9, b_ctrf_json=b"x" * 9, c_ctrf_json=b"x" * 5)
    files, refused = collect(logs)
    assert sorted(files) == ["a_ctrf.json", "c_ctrf.json", "reward.txt"]
    assert refused == [
        Refusal("metrics.json", "", "more than 10 bytes (too_large)"),
        Refusal("b_ctrf.json", "", "more than 6 bytes (too_large)"),
    ]


def test_a_folder_full_of_names_is_not_looked_through_by_chance(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorefiles, "MAX_ENTRIES", 20)
    monkeypatch.setattr(scorefiles, "MAX_GATE_FILES", 5)
    put(logs, reward_txt=b"1", **{f"g{number}_ctrf_json": b"{}" for number in range(6)})
    files, refused = collect(logs)
    assert list(files) == ["reward.txt"]
    assert refused == [Refusal("", "", "6 reports of single gates: at most 5 are read")]
    put(logs, **{f"n{number}": b"" for number in range(20)})
    assert collect(logs)[1] == [Refusal("", "", "more than 20 files: reports of single gates were not looked for")]
