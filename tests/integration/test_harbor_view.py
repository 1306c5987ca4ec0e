"""Harbor itself reads what we write: its models take every key, count as we count, and its viewer shows scores as scores."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.demo.host import SetupError
from marathond.tasks.layout import job_documents, trial_documents, trial_folder
from tests.conftest import IN_CI
from tests.support.harbor_env import harbor_env, harbor_view, run_harbor_python
from tests.support.layout_samples import job, trials

FOLDERS = [trial_folder(v.trial_id, v.task.name, v.arm.name, v.replicate) for v in trials()]

# Loads every document with the model that Harbor loads it with, and compares what the model understood with what the file says: a key that
# Harbor does not know is ignored silently, and a value that it reads differently is worse.
COMPARE = """
import json, sys
from datetime import datetime
from pathlib import Path
from harbor.models.job.config import JobConfig
from harbor.models.job.result import JobResult, JobStats
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult

def differ(where, said, understood):
    if isinstance(said, dict) and isinstance(understood, dict):
        for key, value in said.items():
            if key not in understood:
                yield f"{where}.{key}: Harbor does not know it"
            else:
                yield from differ(f"{where}.{key}", value, understood[key])
    elif isinstance(said, list) and isinstance(understood, list) and len(said) == len(understood):
        for index, pair in enumerate(zip(said, understood)):
            yield from differ(f"{where}.{index}", *pair)
    elif said != understood:
        try:
            same = datetime.fromisoformat(said) == datetime.fromisoformat(understood)
        except (TypeError, ValueError):
            same = False
        if not same:
            yield f"{where}: {said!r} became {understood!r}"

def load(model, path):
    value = model.model_validate_json(path.read_text())
    said = json.loads(path.read_text())
    if model is JobConfig:
        said.pop("marathond")
    problems.extend(differ(f"{path.parent.name}/{path.name}", said, value.model_dump(mode="json")))
    return value

problems = []
folder = Path(sys.argv[1])
load(JobConfig, folder / "config.json")
result = load(JobResult, folder / "result.json")
own = []
for trial in sorted(path.parent for path in folder.glob("*/result.json")):
    own.append(load(TrialResult, trial / "result.json"))
    config = load(TrialConfig, trial / "config.json")
    if config != own[-1].config or config.trial_name != own[-1].config.trial_name:
        problems.append(f"{trial.name}: config.json is not the config in result.json")
counted = JobStats.from_trial_results(own, n_total_trials=result.n_total_trials, n_running_trials=result.stats.n_running_trials)
print(json.dumps({
    "problems": problems,
    "ours": result.stats.model_dump(mode="json"),
    "counted": counted.model_dump(mode="json"),
    "valid": {trial.trial_name: trial.reward_valid for trial in own},
}))
"""


@pytest.fixture(scope="module", autouse=True)
def harbor() -> None:
    """Skipped outside CI where no Harbor can be had; in CI that is a failure."""
    try:
        harbor_env("view")
    except SetupError as err:
        if IN_CI:
            raise
        pytest.skip(str(err))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An out_dir with one campaign and a trial of every ending."""
    out = tmp_path_factory.mktemp("out")
    write(out / "pilot", job_documents(job(trials())))
    for view, folder in zip(trials(), FOLDERS, strict=True):
        write(out / "pilot" / folder, trial_documents(view))
        write(out / "pilot" / folder / "verifier", {"test-stdout.txt": b"3 of 4 passed\n"})
    return out


def write(folder: Path, documents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, data in documents.items():
        (folder / name).write_bytes(data)


@pytest.fixture(scope="module")
def viewer(out: Path) -> Iterator[str]:
    with harbor_view(out) as url:
        yield url


def get(url: str, *parts: str) -> Any:
    with urllib.request.urlopen("/".join([url, "api", *map(urllib.parse.quote, parts)]), timeout=240) as answer:
        return json.load(answer)


def compare(folder: Path) -> Any:
    done = run_harbor_python(COMPARE, str(folder), paths=[folder])
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def understood(out: Path) -> Any:
    return compare(out / "pilot")


def test_models_understand_every_key_as_it_is_written(understood: Any) -> None:
    assert understood["problems"] == []


def test_a_key_that_harbor_does_not_know_would_be_seen(tmp_path: Path) -> None:
    """The comparison can fail."""
    documents = job_documents(job([]))
    config = json.loads(documents["config.json"]) | {"n_atempts": 3, "timeout_multiplier": "2"}
    write(tmp_path / "bad", documents | {"config.json": json.dumps(config).encode()})
    assert compare(tmp_path / "bad")["problems"] == [
        "bad/config.json.n_atempts: Harbor does not know it",
        "bad/config.json.timeout_multiplier: '2' became 2.0",
    ]


def test_harbor_counts_the_trials_as_the_campaign_says(understood: Any) -> None:
    ours, counted = understood["ours"], understood["counted"]
    assert len(ours["evals"]) == 2
    for stats in (*ours["evals"].values(), *counted["evals"].values()):
        del stats["metrics"]  # Harbor's come from another place, over missing rewards as 0
    assert ours == counted
    assert understood["valid"] == dict(zip(FOLDERS, [True, True, False, False, False, False, True], strict=True))


def test_viewer_lists_the_campaign(viewer: str) -> None:
    (campaign,) = get(viewer, "jobs")["items"]
    assert campaign["name"] == "pilot"
    assert (campaign["n_total_trials"], campaign["n_completed_trials"], campaign["n_errored_trials"]) == (10, 7, 4)
    assert campaign["agents"] == ["goal", "plain"] and campaign["models"] == ["big-1"] and campaign["providers"] == ["acme"]
    assert campaign["datasets"] == ["sample-set"] and campaign["environment_type"] == "docker"
    assert campaign["evals"]["plain__sample-set"]["metrics"] == [{"mean": 0.75}]


def test_c10_viewer_shows_a_spent_deadline_as_a_scored_trial(viewer: str) -> None:
    shown = {trial["name"]: trial for trial in get(viewer, "jobs", "pilot", "trials")["items"]}
    assert list(shown) == FOLDERS
    assert [trial["reward"] for trial in shown.values()] == [1.0, 0.0, None, None, None, None, 0.5]
    assert [trial["error_type"] for trial in shown.values()] == [
        *(None, None, "MarathondVoid:network_failed", "MarathondVoid:container_lost", "MarathondVoid:operator"),
        *("MarathondReview:reward_missing", None),
    ]
    assert shown[FOLDERS[1]]["agent_name"] == "goal"


def test_viewer_opens_every_trial_with_its_output(viewer: str) -> None:
    for view, folder in zip(trials(), FOLDERS, strict=True):
        page = get(viewer, "jobs", "pilot", "trials", folder)
        assert page["task_name"] == view.task.name
        assert page["agent_result"]["metadata"]["marathond"]["state"] == view.state.value
        assert page["agent_result"]["n_input_tokens"] == (12_100 if view.usage else None)
        output = get(viewer, "jobs", "pilot", "trials", folder, "verifier-output")
        assert "3 of 4 passed" in json.dumps(output)


def test_viewer_groups_by_task_and_arm(viewer: str) -> None:
    groups = {(g["task_name"], g["agent_name"]): g for g in get(viewer, "jobs", "pilot", "tasks")["items"]}
    assert set(groups) == {(task, arm) for task in ("zstd-decoder", "sort lines") for arm in ("plain", "goal")}
    assert groups["zstd-decoder", "plain"]["avg_reward"] == 0.75
    assert groups["sort lines", "goal"]["avg_reward"] is None and groups["sort lines", "goal"]["n_errors"] == 2
