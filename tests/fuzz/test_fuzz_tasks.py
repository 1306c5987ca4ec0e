"""Harbor task folders as somebody wrote them: a task or why it cannot run, never an exception, and no number that is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.errors import ConfigError
from marathond.core.model import Task, Unrunnable
from marathond.core.score import Number, read_score
from marathond.core.score.rules import follow, parse
from marathond.practice.script import parse as parse_script
from marathond.tasks.asks import images_below, verifier_variables
from marathond.tasks.dataset import pinned_digest
from marathond.tasks.harbor import look, read_task
from tests.support.fuzzing import as_toml, few, files_of_json, fuzz, refused_by, spoiled, torn

TOML: Mapping[str, Any] = {
    "schema_version": "1.4",
    "task": {"name": "org/t", "authors": [{"name": "a"}]},
    "metadata": {"difficulty": "hard"},
    "agent": {"timeout_sec": 3600.0, "user": "agent"},
    "verifier": {"timeout_sec": 60, "env": {"KEY": "${KEY:-x}"}, "user": 0},
    "environment": {
        "docker_image": "debian:12", "build_timeout_sec": 600.0, "cpus": 2, "memory_mb": 4096, "storage_mb": 10240, "gpus": 0,
        "network_mode": "no-network", "workdir": "/app", "env": {"A": "b"},
        "healthcheck": {"command": "true", "interval_sec": 5.0, "timeout_sec": 3.0, "start_period_sec": 1.0, "retries": 3},
    },
    "solution": {"env": {"B": "c"}},
}  # fmt: skip
MANIFEST: Mapping[str, Any] = {
    "tasks": [{"name": "org/t", "digest": "sha256:" + "ab" * 32}, {"name": "org/u", "digest": "sha256:" + "cd" * 32}]
}
SCRIPT = (Path(__file__).parents[2] / "marathond" / "practice" / "example.toml").read_bytes()
FILES = ["instruction.md", "tests/test.sh", "environment/Dockerfile", "environment/.dockerignore", "x\x1b[2J\n.md"]
RULE = "metrics.json:final[0].score"
METRICS = {"phase": "done", "partial_score": 0.625, "tests_passed": 13, "tests_total": 16, "final": [{"score": 0.25}], "-": None}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    for name in ("tests", "solution", "environment"):
        (folder / name).mkdir(parents=True)
    (folder / "instruction.md").write_text("<!-- canary -->\nDo it.\n")
    (folder / "tests" / "test.sh").write_text("exit 0\n")
    (folder / "solution" / "solve.sh").write_text("true\n")
    (folder / "task.toml").write_text(tomli_w.dumps(TOML))
    return folder


def test_f06_a_task_is_whole_or_says_why_not(task: Path) -> None:
    whole = read_task(task)
    assert isinstance(whole, Task) and whole.cpus == 2 and whole.agent_timeout_s == 3600.0

    @fuzz
    @given(spoiled(TOML), st.data())
    def read(document: Any, data: st.DataObject) -> None:
        raw = tomli_w.dumps(as_toml(document)).encode() if isinstance(document, dict) else b"x"
        if data.draw(st.booleans()):
            raw = data.draw(torn(raw, (b"[", b"=", b"'''", b"inf", b"-nan", b"0x7fffffffffffffffff")))
        (task / "task.toml").write_bytes(raw)
        seen = look(task, {"KEY": "v"})
        assert isinstance(seen.outcome, Task | Unrunnable)
        assert all(variable.name for variable in verifier_variables(task))
        if isinstance(seen.outcome, Unrunnable):
            assert seen.outcome.detail.isprintable() and seen.outcome.code in ("task_broken", "task_unsupported")
            return
        made = seen.outcome
        numbers = (made.cpus, made.memory_mb, made.storage_mb, made.agent_timeout_s, made.verifier_timeout_s, made.build_timeout_s)
        assert all(number is None or (math.isfinite(number) and number > 0 and not isinstance(number, bool)) for number in numbers)
        assert all(text.encode() is not None for pair in (*made.env.items(), *made.verifier_env.items()) for text in pair)

    read()


def test_f06_a_task_of_any_files_is_whole_or_says_why_not(task: Path) -> None:
    @few
    @given(
        st.sampled_from(FILES),
        st.data(),
    )
    def read(name: str, data: st.DataObject) -> None:
        path = task / name
        path.write_bytes(data.draw(torn(b"FROM debian:12\n# canary\nCOPY . /app\n", (b"<!-- canary -->\n",))))
        seen = read_task(task)
        assert isinstance(seen, Task) or seen.detail.isprintable()
        if name == "environment/Dockerfile":
            assert all(images_below(task / "environment", {}))
        if name not in ("instruction.md", "tests/test.sh"):
            path.unlink()

    read()


def test_a_manifest_of_a_data_set_pins_a_digest_or_is_refused(task: Path) -> None:
    @fuzz
    @given(spoiled(MANIFEST), st.data())
    def read(document: Any, data: st.DataObject) -> None:
        raw = tomli_w.dumps(as_toml(document)).encode() if isinstance(document, dict) else b"x"
        (task.parent / "dataset.toml").write_bytes(data.draw(torn(raw)) if data.draw(st.booleans()) else raw)
        found = refused_by(lambda: pinned_digest(task, "org/t"), ConfigError)
        assert found is None or isinstance(found, ConfigError) or (len(found[1]) == 64 and found[1].encode() in raw)

    read()


@fuzz
@given(torn(SCRIPT, (b"[[", b"=", b"inf", b"-1", b"true", b"\na=" + b"[" * 3000)))
def test_a_practice_script_is_one_or_is_refused(data: bytes) -> None:
    refused_by(lambda: parse_script(data.decode("utf-8", "replace")), ConfigError)


@fuzz
@given(
    files_of_json(METRICS),
    st.just(RULE) | st.text(alphabet="metrics.json:final[0]*\"'\0é", max_size=30),
)
def test_d07_a_rule_finds_a_number_or_is_refused(raw: bytes, rule: str) -> None:
    path = refused_by(lambda: parse(rule), ValueError)
    if isinstance(path, ValueError):
        return
    follow({"final": [{"score": 1}]}, path)
    reading = read_score({"metrics.json": raw, "reward.txt": b"1"}, verifier_exited=True, overrides={"partial": path})
    if isinstance(reading.partial, Number):
        assert math.isfinite(reading.partial.value) and 0 <= reading.partial.value <= 1
