"""The shipped sample tasks are whole, pinned, and differ in what they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

import marathond.demo
from marathond.core.model import Task
from marathond.core.names import NetworkPolicy
from marathond.tasks.dataset import harbor_digest
from marathond.tasks.digest import scan
from marathond.tasks.harbor import read_task

SAMPLES = Path(marathond.demo.__file__).parent / "samples"
NAMES = ("csv-totals", "greet", "maze", "own-address", "roman", "visits")


def sample(name: str, **environ: str) -> Task:
    path = SAMPLES / name
    outcome = read_task(path, environ)
    assert isinstance(outcome, Task), f"{outcome}\nthe digest of {name} is sha256:{harbor_digest(scan(path))}"
    return outcome


def test_there_are_six() -> None:
    assert tuple(sorted(item.name for item in SAMPLES.iterdir() if item.is_dir())) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_whole_and_is_what_its_manifest_pins(name: str) -> None:
    task = sample(name)
    assert task.has_solution and task.instruction.startswith(f"# {name}\n")
    assert task.warnings == () and task.verifier_timeout_declared and task.agent_timeout_s == 60.0
    assert name in (SAMPLES / "dataset.toml").read_text()
    for script in ("tests/test.sh", "solution/solve.sh"):
        assert (SAMPLES / name / script).stat().st_mode & 0o111 == 0o111, script


def test_the_samples_use_what_the_format_offers() -> None:
    tasks = {name: sample(name) for name in NAMES}
    assert [name for name, task in tasks.items() if task.network is NetworkPolicy.PUBLIC] == ["own-address"]
    assert [name for name, task in tasks.items() if task.has_dockerfile and task.image is None] == ["visits"]
    assert [name for name, task in tasks.items() if task.healthcheck] == ["maze"]
    assert [name for name, task in tasks.items() if task.agent_user] == ["roman"]
    assert all(task.network_origin == "task network_mode" for task in tasks.values())
    assert tasks["greet"].env == {"GREETING": "Hello"}
    assert sample("greet", MARATHOND_GREETING="Salut").verifier_env == {"EXPECTED_GREETING": "Salut"}
