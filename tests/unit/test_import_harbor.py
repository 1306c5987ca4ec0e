"""Harbor's job folders: found, told apart, read by the same rules; also those that this project itself exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marathond.core.errors import Refused
from marathond.service.importing.choose import choose
from marathond.service.importing.run import Wanted, read
from marathond.service.importing.seen import Reading
from marathond.tasks.layout import job_documents, line_of, trial_documents, trial_folder
from tests.support.harbor_env import run_harbor_python
from tests.support.layout_samples import job, trials
from tests.support.old_runs import Trial, job_folder, passed, put


def names(reading: Reading) -> dict[str, tuple[str, bool]]:
    return {seen.key: (seen.arm, seen.valid) for seen in reading.trials}


def test_one_job_or_a_folder_of_jobs(tmp_path: Path) -> None:
    job_folder(tmp_path / "j1", [Trial("zstd__1", files=passed())])
    job_folder(tmp_path / "j2", [Trial("zstd__2", agent="claude", model=None)])
    whole, first = read(Wanted(tmp_path)), read(Wanted(tmp_path / "j1"))
    assert whole.kind == first.kind == "harbor"
    assert names(whole) == {"j1/zstd__1": ("codex_plain / gpt-5.5", True), "j2/zstd__2": ("claude", True)}
    assert names(first) == {"j1/zstd__1": ("codex_plain / gpt-5.5", True)}, "the key is the same, whichever folder is given"


def test_attempts_of_a_job_are_replicates(tmp_path: Path) -> None:
    found = [Trial(f"zstd__{n}", start=f"2026-09-01T0{n}:00:00Z", files=passed()) for n in (3, 1, 2)]
    job_folder(tmp_path / "j", found, attempts=3)
    choice = choose(read(Wanted(tmp_path)), {})
    assert {trial.key: cell.replicate for cell, trial in choice.trials} == {"j/zstd__1": 1, "j/zstd__2": 2, "j/zstd__3": 3}
    assert len(choice.grid) == 3


def test_c10_ends_by_class(tmp_path: Path) -> None:
    ends = {"a": "AgentTimeoutError", "b": "VerifierTimeoutError", "c": "EnvironmentStartTimeoutError", "d": "MarathondVoid:pool"}
    job_folder(tmp_path / "j", [Trial(name, files=passed(), error=(kind, "words")) for name, kind in ends.items()], attempts=4)
    reading = read(Wanted(tmp_path))
    assert {key: valid for key, (_, valid) in names(reading).items()} == {"j/a": True, "j/b": False, "j/c": False, "j/d": False}
    assert [(each.place, each.new) for each in reading.differences] == [("j/a", "valid")]
    assert next(seen.why for seen in reading.trials if seen.key == "j/b") == "it ended by VerifierTimeoutError: words"


def test_an_exception_of_a_step_counts_too(tmp_path: Path) -> None:
    folder = job_folder(tmp_path / "j", [Trial("a", files=passed())])
    document = json.loads((folder / "a" / "result.json").read_text())
    document["step_results"] = [{"exception_info": None}, {"exception_info": {"exception_type": "ApiError", "exception_message": ""}}, 7]
    put(folder / "a" / "result.json", document)
    assert read(Wanted(tmp_path)).trials[0].why == "it ended by ApiError"


def test_d01_unfinished_in_a_job_that_goes_on_is_listed_and_in_one_that_ended_is_void(tmp_path: Path) -> None:
    job_folder(tmp_path / "going", [Trial("a", result=False, end=None)], finished=False)
    job_folder(tmp_path / "over", [Trial("b", result=False, end=None)])
    reading = read(Wanted(tmp_path))
    assert [(each.code, each.place) for each in reading.listed] == [("in_work", "going/a")]
    assert names(reading) == {"over/b": ("codex_plain / gpt-5.5", False)}


def test_two_agents_that_differ_in_settings_alone_are_never_added_up(tmp_path: Path) -> None:
    job_folder(tmp_path / "j1", [Trial("a", kwargs={"mode": "goal"})])
    job_folder(tmp_path / "j2", [Trial("b", kwargs={"mode": "plain"})])
    with pytest.raises(Refused, match=r"codex_plain / gpt-5\.5: agents of that name differ in kwargs.*--arm-by job"):
        read(Wanted(tmp_path))
    assert {arm for arm, _ in names(read(Wanted(tmp_path, arm_by="job"))).values()} == {"j1", "j2"}


def test_a_trial_that_does_not_say_whose_it_is_is_listed(tmp_path: Path) -> None:
    folder = job_folder(tmp_path / "j", [Trial("a", result=False)])
    put(folder / "a" / "config.json", {"agent": 7})
    (folder / "notes").mkdir()
    reading = read(Wanted(tmp_path))
    assert {(each.code, each.place) for each in reading.listed} == {("nameless", "j/a"), ("layout", "j/notes")}


def test_e08_excluded_jobs_are_refused(tmp_path: Path) -> None:
    job_folder(tmp_path / "j", [Trial("a")])
    job_folder(tmp_path / "old.excluded", [Trial("b", files=passed())])
    reading = read(Wanted(tmp_path))
    assert list(names(reading)) == ["j/a"] and [each.code for each in reading.listed] == ["excluded"]


def exported(root: Path) -> Path:
    """A campaign as this project exports it, with its verifiers' files."""
    views = trials()
    view = job(views, trials=tuple(line_of(each) for each in views))
    folder = root / "pilot"
    for name, data in job_documents(view).items():
        put(folder / name, data)
    for each in views:
        here = folder / trial_folder(each.trial_id, each.task.name, each.arm.name, each.replicate)
        for name, data in trial_documents(each).items():
            put(here / name, data)
        if each.score is not None:
            put(here / "verifier" / "reward.txt", repr(each.score.reward))
    return folder


def test_what_this_project_exports_can_be_imported_elsewhere(tmp_path: Path) -> None:
    reading = read(Wanted(exported(tmp_path)))
    found: dict[str, Any] = {seen.key.partition("/")[2].partition("__")[0]: seen for seen in reading.trials}
    assert {key for key, seen in found.items() if seen.valid} == {"t0001", "t0002", "t0007"}
    assert found["t0003"].why.startswith("it ended by MarathondVoid:network_failed")
    assert found["t0005"].why.startswith("it ended by MarathondVoid:operator")
    assert found["t0006"].why.startswith("it ended by MarathondReview:reward_missing")


_WRITE = """
import sys, json, pathlib, datetime
from harbor.models.trial.result import TrialResult, ExceptionInfo, AgentInfo, ModelInfo
from harbor.models.trial.config import TrialConfig, TaskConfig, AgentConfig
from harbor.models.task.id import LocalTaskId
from harbor.models.agent.context import AgentContext
from harbor.models.verifier.result import VerifierResult
from harbor.models.job.result import JobResult, JobStats
root = pathlib.Path(sys.argv[1]) / "real"
at = datetime.datetime(2026, 9, 1, 1, tzinfo=datetime.UTC)
results = []
for n, (reward, error) in enumerate([(1.0, None), (0.0, "AgentTimeoutError"), (0.0, "ApiError")]):
    name = f"zstd__{n}"
    config = TrialConfig(task=TaskConfig(path=pathlib.Path("/tasks/zstd")), trial_name=name, trials_dir=root,
        agent=AgentConfig(name="codex", model_name="openai/gpt-5.5"))
    info = error and ExceptionInfo(exception_type=error, exception_message="m", exception_traceback="t", occurred_at=at)
    result = TrialResult(task_name="zstd", trial_name=name, trial_uri="file:///x", task_id=LocalTaskId(path=pathlib.Path("/tasks/zstd")),
        task_checksum="c", config=config,
        agent_info=AgentInfo(name="codex", version="1", model_info=ModelInfo(name="gpt-5.5", provider="openai")),
        agent_result=AgentContext(n_input_tokens=100, n_output_tokens=5, cost_usd=0.25), exception_info=info or None,
        verifier_result=VerifierResult(rewards={"reward": reward}),
        started_at=at + datetime.timedelta(minutes=n), finished_at=at + datetime.timedelta(hours=1))
    (root / name / "verifier").mkdir(parents=True)
    (root / name / "verifier" / "reward.txt").write_text(str(reward))
    (root / name / "result.json").write_text(result.model_dump_json())
    (root / name / "config.json").write_text(config.model_dump_json())
    results.append(result)
from uuid import uuid4
whole = JobResult(id=uuid4(), started_at=at, finished_at=at, n_total_trials=3, stats=JobStats.from_trial_results(results))
(root / "result.json").write_text(whole.model_dump_json())
(root / "config.json").write_text(json.dumps({"job_name": "real", "n_attempts": 3}))
"""


def test_documents_that_harbor_itself_wrote(harbor: None, tmp_path: Path) -> None:
    done = run_harbor_python(_WRITE, str(tmp_path), paths=[tmp_path])
    assert done.returncode == 0, done.stderr[-2000:]
    reading = read(Wanted(tmp_path / "real"))
    assert names(reading) == {f"real/zstd__{n}": ("codex / openai/gpt-5.5", n < 2) for n in range(3)}
    first = reading.trials[0]
    assert (first.details.tokens, first.details.cost_nusd, first.details.started_at_ms) == (105, 250_000_000, 1_788_224_400_000)
    assert reading.replicates == 3 and reading.listed == ()
    assert [(each.place, each.new) for each in reading.differences] == [("zstd__1", "valid")]
