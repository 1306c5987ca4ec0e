"""Runs of the old scripts, read from a real tree with everything that went wrong in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.core.errors import Refused
from marathond.service.importing.choose import Choice, choose
from marathond.service.importing.run import EXPECTED, Wanted, read
from marathond.service.importing.runs import read_runs, voided_folder
from marathond.service.importing.seen import Reading, Seen
from marathond.service.importing.tree import Tree
from tests.support.old_runs import LATER, OTHER_UID, POOL, STAMP, Trial, passed, plant, put, run_folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return plant(tmp_path)


@pytest.fixture
def reading(out: Path) -> Reading:
    return read(Wanted(out))


def trial(reading: Reading, name: str) -> Seen:
    return next(seen for seen in reading.trials if seen.key.endswith(f"/{name}"))


def listed(reading: Reading, code: str) -> list[str]:
    return [each.place for each in reading.listed if each.code == code]


def counting(choice: Choice) -> set[str]:
    return {trial.key.rpartition("/")[2] for _, trial in choice.trials if trial.withdrawal is None}


def test_what_counts_of_the_whole_tree(reading: Reading) -> None:
    choice = choose(reading, {})
    assert reading.kind == "runs" and reading.replicates == 1
    assert counting(choice) == {"zstd__p1", "zstd__g1", "zstd__h2", "stripe__p1", "rust__s1", "excel__g1"}
    assert len(choice.trials) == 15


def test_a09_of_two_valid_trials_the_first_counts_not_the_better(reading: Reading) -> None:
    choice = choose(reading, {})
    later = next(t for _, t in choice.trials if t.key.endswith("zstd__g2"))
    assert later.withdrawal is not None and later.withdrawal.reason.startswith("surplus: ")
    assert later.withdrawal.evidence == {"reward": 1.0, "partial": 1.0, "reward_source": "reward.txt"}
    assert "zstd__g1" in counting(choice)


def test_a_failed_environment_leaves_the_cell_to_the_next_trial(reading: Reading) -> None:
    assert trial(reading, "zstd__h1").why == f"it ended by RuntimeError: {POOL}"
    assert "zstd__h2" in counting(choose(reading, {}))


def test_e08_another_owners_folder_is_listed_and_refused(out: Path) -> None:
    theirs = read(Wanted(out, owner=OTHER_UID))
    refused = set(listed(theirs, "other_owner"))
    assert {"zstd/plain", "zstd/goal", "rust/plain", "stripe/plain-20481"} <= refused
    if os.geteuid() == 0:  # who may not give folders away can only ask for somebody else's
        reading = read(Wanted(out))
        assert listed(reading, "other_owner") == ["stripe/plain"]
        assert "stripe__root" not in counting(choose(reading, {}))
        assert counting(choose(theirs, {})) == {"stripe__root"}
    else:
        assert not theirs.trials
    why = next(each.why for each in theirs.listed if each.code == "other_owner")
    assert why.startswith("owned by ") and "--owner" in why


def test_e08_what_was_put_aside_by_its_name_is_listed_and_refused(reading: Reading) -> None:
    assert sorted(listed(reading, "excluded")) == ["excel/plain.excluded-0901", "excel/plain/.excluded"]
    assert not any("excel__x" in seen.key for seen in reading.trials)


def test_a_second_folder_of_an_arm_is_folded_into_it(reading: Reading) -> None:
    assert trial(reading, "stripe__p1").arm == "plain"
    assert trial(reading, "stripe__p1").key == f"stripe/plain-20481/{STAMP}/plain-20481/stripe__p1"
    assert any("stripe/plain-20481 is arm plain" in line for line in reading.told)


@pytest.mark.parametrize(
    ("folder", "job", "others", "arm"),
    [
        ("gpt-55", "gpt-55", ["plain"], "gpt-55"),  # a name of its own that ends in a number
        ("plain-31337", "plain", [], "plain"),  # the job inside has the plain name
        ("plain-31337", "plain-31337", ["plain"], "plain"),
        ("codex-2", "codex-2", ["codex"], "codex-2"),  # no process has such a number
    ],
)
def test_which_numbers_are_processes(tmp_path: Path, folder: str, job: str, others: list[str], arm: str) -> None:
    out = tmp_path / "out"
    run_folder(out, "zstd", folder, STAMP, Trial("zstd__a"), job=job)
    for other in others:
        run_folder(out, "rust", other, STAMP, Trial("rust__b"))
    assert trial(read(Wanted(out)), "zstd__a").arm == arm


def test_d01_a_verifier_that_has_not_finished_is_no_score(reading: Reading) -> None:
    given_up = trial(reading, "stripe__h1")
    assert (given_up.score, given_up.why) == (None, "its verifier never finished: no result.json says that it did")
    assert listed(reading, "in_work") == [f"stripe/goal/{STAMP}/goal/stripe__g1"]


def test_d01_initialized_is_no_score_even_of_a_trial_that_ended(tmp_path: Path) -> None:
    files = {"reward.txt": "0", "metrics.json": {"phase": "initialized", "partial_score": 0.0, "reward": 0}}
    run_folder(tmp_path / "o", "zstd", "plain", STAMP, Trial("zstd__a", files=files))
    seen = trial(read(Wanted(tmp_path / "o")), "zstd__a")
    assert seen.score is None and "initialized" in seen.why


def test_e07_half_written_files_are_never_scored(reading: Reading) -> None:
    assert trial(reading, "rust__g1").why == "metrics.json is half-written: its reward may be of another moment"
    assert trial(reading, "rust__p1").why.startswith("its verifier never finished")
    assert listed(reading, "half_written") == [f"rust/plain/{STAMP}/plain/rust__p1/result.json"]
    assert not counting(choose(reading, {})) & {"rust__g1", "rust__p1"}


@pytest.mark.parametrize("cut", [0, 1, 9, 20, 33, 43])
def test_e07_wherever_the_writing_stopped(tmp_path: Path, cut: int) -> None:
    whole = '{"partial_score": 0.9, "tests_passed": 12}  '
    run_folder(tmp_path / "o", "zstd", "plain", STAMP, Trial("zstd__a", files={"reward.txt": "1", "metrics.json": whole[:cut]}))
    seen = trial(read(Wanted(tmp_path / "o")), "zstd__a")
    assert seen.valid == (cut == 43)


def test_a_result_json_alone_is_no_result(reading: Reading) -> None:
    gone = trial(reading, "rust__h1")
    assert gone.why == "the verifier's files are gone; its result.json alone says reward 1.0, which nobody can check"
    assert gone.score is None


def test_c10_a_spent_budget_is_valid_and_named_beside_the_old_verdict(reading: Reading) -> None:
    spent = trial(reading, "zstd__p1")
    assert spent.valid and spent.details.ended_by == "deadline"
    found = {each.place.rpartition("/")[2]: each for each in reading.differences}
    assert (found["zstd__p1"].old, found["zstd__p1"].new) == ("not done (completed 1, errored 1)", "valid")
    assert found["zstd__p1"].why == "a spent budget is an ordinary end of a long task"
    assert found["rust__h1"].old.startswith("done ") and found["rust__h1"].new == "no result"
    assert set(found) == {"zstd__p1", "rust__s1", "rust__g1", "rust__h1", "excel__h1"}


def test_a04_the_timeout_whose_class_was_split_is_known_by_its_message(reading: Reading) -> None:
    split = trial(reading, "rust__s1")
    assert split.valid and split.details.ended_by == "deadline" and split.score is not None and split.score.partial == 0.75


def test_d05_build_failed_is_a_score(reading: Reading) -> None:
    score = trial(reading, "excel__g1").score
    assert score is not None and score.reward == 0 and "build_failed" in score.flags


def test_withdrawn_trials_carry_the_reason_of_the_nearest_readme(reading: Reading) -> None:
    named, first = trial(reading, "stripe__v1"), trial(reading, "zstd__v1")
    assert named.withdrawn and named.why == "withdrawn there: stripe 20260831-0100: provider outage 02:10 to 02:40"
    assert first.withdrawn and first.why == "withdrawn there: the address pool was exhausted"
    by_person = {t.key.rpartition("/")[2]: t.withdrawal for _, t in choose(reading, {}).trials if t.withdrawal and t.withdrawal.by_person}
    assert set(by_person) == {"stripe__v1", "zstd__v1"}


def test_a_trial_that_was_copied_to_the_voided_ones_is_withdrawn(out: Path) -> None:
    run_folder(out.parent / "marathon-voided", "zstd", "goal", STAMP, Trial("zstd__g1"))
    choice = choose(read(Wanted(out)), {})
    assert "zstd__g1" not in counting(choice) and "zstd__g2" in counting(choice)


def test_where_withdrawn_trials_are_looked_for(tmp_path: Path) -> None:
    for name in ("full", "marathon-full", "x-voided"):
        (tmp_path / name).mkdir()
    assert voided_folder(tmp_path / "marathon-full") is None
    (tmp_path / "full-voided").symlink_to(tmp_path / "marathon-full")
    run_folder(tmp_path / "full", "zstd", "plain", STAMP, Trial("zstd__a"))
    found = read(Wanted(tmp_path / "full"))
    assert [(each.code, each.place) for each in found.listed] == [("link", "../full-voided")]
    assert voided_folder(tmp_path / "x-voided") is None
    (tmp_path / "marathon-voided").mkdir()
    assert voided_folder(tmp_path / "marathon-full") == tmp_path / "marathon-voided"


def test_links_pipes_and_huge_files_are_listed_and_never_followed(reading: Reading) -> None:
    assert listed(reading, "link") == ["linked-task", f"excel/heartbeat/{STAMP}/heartbeat/excel__link"]
    why = trial(reading, "excel__h1").why
    assert "reward.json is a fifo" in why and "too_large" in why
    assert len(reading.trials) == 15


def test_only_settings_that_hold_no_secret_are_taken(reading: Reading) -> None:
    assert reading.conditions == {"GOAL_TIMEOUT_SEC": "21600", "MARATHON_CONCURRENCY": "12"}


def test_what_else_the_source_says(reading: Reading) -> None:
    spent = trial(reading, "zstd__p1")
    assert (spent.details.model, spent.details.tokens, spent.details.cost_nusd) == ("gpt-5.5", 1_020, 500_000_000)
    assert spent.details.agent_ms == 30 * 60_000
    facts = {fact.name: fact.value for fact in spent.facts}
    assert facts["receipt _unblock_count"] == "2"
    assert facts["exception 1"].startswith("AgentTimeoutError: Agent execution timed out")
    assert facts["agent files"] == "goal_receipt.json, sessions/"


def test_an_arm_that_asked_several_models_is_told(tmp_path: Path) -> None:
    out = tmp_path / "o"
    run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a"))
    run_folder(out, "rust", "plain", STAMP, Trial("rust__a", model="gpt-5", result=False, end=None))
    reading = read(Wanted(out))
    assert [(each.code, each.place, each.why) for each in reading.remarks] == [
        ("models_differ", "plain", "its trials name several models: gpt-5, gpt-5.5")
    ]


def test_more_attempts_than_one_are_replicates(tmp_path: Path) -> None:
    out = tmp_path / "o"
    starts = [f"2026-09-01T0{hour}:00:00Z" for hour in (3, 1, 2)]
    job = run_folder(out, "zstd", "plain", STAMP, *(Trial(f"zstd__{n}", start=start) for n, start in enumerate(starts)))
    put(job / "config.json", {"job_name": "plain", "n_attempts": 2})
    choice = choose(read(Wanted(out)), {})
    placed = {t.key.rpartition("/")[2]: (cell.replicate, t.withdrawal is None) for cell, t in choice.trials}
    assert placed == {"zstd__1": (1, True), "zstd__2": (2, True), "zstd__0": (2, False)}
    assert counting(choose(read(Wanted(out)), {}, replicates=3)) == {"zstd__0", "zstd__1", "zstd__2"}


def footprint(root: Path) -> list[tuple[Any, ...]]:
    def walk(folder: Path) -> Iterator[Path]:
        for entry in sorted(os.scandir(folder), key=lambda e: e.name):
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from walk(Path(entry.path))

    return [
        (str(path), s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_nlink) for path in walk(root) for s in [path.lstat()]
    ]


def test_the_source_is_not_touched(out: Path) -> None:
    before = footprint(out.parent)
    files = [path for path in out.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in files:
        os.utime(path, ns=(1, path.stat().st_mtime_ns))  # an access time that every ordinary look would move
    stamped = {path: path.stat().st_atime_ns for path in files}
    before = footprint(out.parent)
    read(Wanted(out))
    assert footprint(out.parent) == before
    assert {path: path.stat().st_atime_ns for path in files} == stamped


def test_what_cannot_be_read_is_listed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def broken(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path in ("goal_receipt.json", "stripe__p1"):
            raise OSError(5, "Input/output error")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", broken)
    reading = read(Wanted(out))
    assert f"zstd/plain/{STAMP}/plain/zstd__p1/agent/goal_receipt.json" in listed(reading, "unreadable")
    assert trial(reading, "zstd__p1").valid
    assert f"stripe/plain-20481/{STAMP}/plain-20481/stripe__p1" in listed(reading, "unreadable")


def test_hostile_json_is_listed(tmp_path: Path) -> None:
    out = tmp_path / "o"
    job = run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed()))
    put(job / "result.json", "[" * 100_000)
    put(job / "zstd__a" / "agent" / "goal_receipt.json", b"\xff\xfe")
    reading = read(Wanted(out))
    assert trial(reading, "zstd__a").valid
    assert {place.rpartition("/")[2] for place in listed(reading, "half_written")} == {"result.json", "goal_receipt.json"}


@pytest.mark.parametrize(
    "document",
    [
        {"stats": [], "started_at": 7, "finished_at": True},
        {"stats": {"n_completed_trials": True, "n_errored_trials": -1, "evals": {"k": {"exception_stats": {"E": "zstd__a"}}}}},
        {"stats": {"evals": [1], "n_completed_trials": "1"}, "n_total_trials": None},
    ],
)
def test_a_job_result_of_another_shape_decides_nothing(tmp_path: Path, document: dict[str, Any]) -> None:
    out = tmp_path / "o"
    put(run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed())) / "result.json", document)
    reading = read(Wanted(out))
    assert trial(reading, "zstd__a").valid
    assert [each.old for each in reading.differences] == ["not done (its job has no readable result.json)"]


def test_a_job_that_names_the_trial_says_that_it_ended(tmp_path: Path) -> None:
    out = tmp_path / "o"
    one = run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed()))
    two = run_folder(out, "rust", "plain", STAMP, Trial("rust__a", files=passed(), error=("ApiError", "m")))
    for path in (one / "zstd__a" / "result.json", two / "rust__a" / "result.json"):
        path.unlink()
    reading = read(Wanted(out))
    assert trial(reading, "zstd__a").valid and trial(reading, "zstd__a").details.model == "gpt-5.5"
    assert trial(reading, "zstd__a").details.started_at_ms == 1_788_224_340_000, "its job's"
    assert trial(reading, "rust__a").why == "it ended by ApiError"


def test_what_is_neither_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    with pytest.raises(Refused) as refused:
        read(Wanted(tmp_path))
    assert str(refused.value) == f"{tmp_path}: {EXPECTED}"
    with pytest.raises(Refused, match="must be a folder"):
        read(Wanted(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="must be a folder"):
        read(Wanted(tmp_path / "file"))


def test_an_empty_run_is_still_a_run(tmp_path: Path) -> None:
    put(tmp_path / ".driver_env", "GOAL_TIMEOUT_SEC=1\n")
    assert read_runs(Tree(tmp_path)).trials == ()


def test_later_means_by_start_not_by_folder(tmp_path: Path) -> None:
    out = tmp_path / "o"
    run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", start="2026-09-01T09:00:00Z", files=passed()))
    run_folder(out, "zstd", "plain", LATER, Trial("zstd__b", start="2026-09-01T08:00:00Z"))
    assert counting(choose(read(Wanted(out)), {})) == {"zstd__b"}
