"""Broken, changing and impossible task directories in one campaign with a good one: each parks by name, and the good one runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.flow import images
from tests.support.hostile import Ran, campaign
from tests.support.rig import BASE_IMAGE, LIMIT_S, make_task

pytestmark = pytest.mark.docker

REWARD = "echo 1 >/logs/verifier/reward.txt\n"
NOT_TEXT = os.fsdecode(b"caf\xe9")


def edit(task: Path, old: str, new: str) -> None:
    file = task / "task.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def dockerfile(task: Path, text: str) -> None:
    edit(task, f'docker_image = "{BASE_IMAGE}"\n', "")
    (task / "environment").mkdir()
    (task / "environment" / "Dockerfile").write_text(text)


def broken_tasks(root: Path) -> None:
    for name in ("good", "no-toml", "bad-toml", "negative", "endless", "no-tests", "not-utf8", "no-image", "evil-image", "sick", NOT_TEXT):
        make_task(root, name)
    make_task(root, "unknown-key", toml="[surprise]\nkey = 1\n")
    make_task(root, "unsolved", solve=None)
    make_task(root, "builds-not")
    make_task(root, "too-big", environment="cpus = 9999")
    (root / "no-toml" / "task.toml").unlink()
    (root / "bad-toml" / "task.toml").write_text("[agent\n")
    edit(root / "negative", f"[agent]\ntimeout_sec = {LIMIT_S}", "[agent]\ntimeout_sec = -1")
    edit(root / "endless", f"[verifier]\ntimeout_sec = {LIMIT_S}", "[verifier]\ntimeout_sec = 1e300")
    shutil.rmtree(root / "no-tests" / "tests")
    (root / "not-utf8" / "instruction.md").write_bytes(b"Do \xff\xfe it")
    edit(root / "no-image", BASE_IMAGE, "localhost:1/marathond-no-such-image:1")
    edit(root / "evil-image", BASE_IMAGE, "../info?")
    edit(
        root / "sick",
        "[environment]\n",
        '[environment]\nhealthcheck = { command = "echo not yet; false", interval_sec = 0.1, retries = 2 }\n',
    )
    dockerfile(root / "builds-not", f"FROM {BASE_IMAGE}\nRUN echo words of the build && exit 3\n")


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("tasks")
    broken_tasks(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "RETRY_PAUSE_S", 0.1)
        arms = {"oracle": {"kind": "oracle"}, "nop": {"kind": "nop"}}
        overrides = {"engine.build_retries": 1, "engine.build_concurrency": 4, "admission.passes": 3}
        with campaign(docker_host, [root / "*"], arms, overrides) as ran:
            yield ran


@pytest.mark.parametrize(
    ("task", "code", "words"),
    [
        ("no-toml", "task_broken", "task.toml: missing"),
        ("bad-toml", "task_broken", "task.toml:1"),
        ("negative", "task_broken", "agent.timeout_sec = -1"),
        ("endless", "task_broken", "verifier.timeout_sec = 1e+300"),
        ("no-tests", "task_broken", "tests/test.sh: missing"),
        ("not-utf8", "task_broken", "instruction.md: not UTF-8 at byte 3"),
        ("evil-image", "task_broken", "environment.docker_image = '../info?'"),
        ("caf\\xe9", "task_broken", "not UTF-8"),
        ("builds-not", "image_build_failed", "words of the build"),
    ],
)
@pytest.mark.parametrize("arm", ["oracle", "nop"])
def test_f06_a_bad_task_parks_its_own_cells_with_the_reason(ran: Ran, task: str, code: str, words: str, arm: str) -> None:
    assert ran.trials(task, arm) == []
    assert ran.park(task, arm)[0] == code
    assert words in ran.park(task, arm)[1]


def test_f06_the_others_go_on(ran: Ran) -> None:
    for arm in ("oracle", "nop"):
        assert ran.reward("good", arm) == ran.reward("unknown-key", arm) == 1.0
    assert ran.stop_losses() == []


def test_a_build_is_tried_as_often_as_configured(ran: Ran) -> None:
    assert ran.park("builds-not", "nop")[1].startswith("after 2 tries: ")
    log = ran.rig.root / "state" / "builds" / "builds-not.log"
    assert "words of the build" in log.read_text()


def test_an_unknown_key_is_tolerated_and_noted(ran: Ran) -> None:
    assert ran.facts("unknown-key", "nop")["task note 1"] == ("task.toml: surprise: unknown key, ignored", "task.toml")


@pytest.mark.parametrize("arm", ["oracle", "nop"])
def test_an_image_that_does_not_exist_parks_its_cells(ran: Ran, arm: str) -> None:
    code, detail = ran.park("no-image", arm)
    assert code in ("image_missing", "image_build_failed") and "localhost:1" in detail
    assert ran.trials("no-image", arm) == []


def test_f07_every_attempt_of_a_sick_environment_keeps_its_row_and_its_folder_until_the_passes_are_used_up(ran: Ran) -> None:
    assert [code for code, _ in ran.voids("sick", "nop")] == ["healthcheck_failed"] * 3
    assert all("`echo not yet; false` failed 2 times in a row, last: exit 1: not yet" in reason for _, reason in ran.voids("sick", "nop"))
    code, detail = ran.park("sick", "nop")
    assert code == "passes_exhausted" and detail.startswith("3 of 3 passes used, the last one by healthcheck_failed")
    trials = ran.trials("sick", "nop")
    folders = [ran.rig.one("SELECT folder FROM artifact_export WHERE trial_id = ?", trial) for trial in trials]
    assert len(set(folders)) == 3
    assert all((ran.rig.root / "out" / folder / "result.json").exists() for folder in folders)
    assert [ran.rig.one("SELECT attempt FROM trial WHERE trial_id = ?", trial) for trial in trials] == [1, 2, 3]


def test_an_oracle_without_a_solution_is_no_agents_failure(ran: Ran) -> None:
    assert ran.trials("unsolved", "oracle") == []
    code, detail = ran.park("unsolved", "oracle")
    assert code == "no_solution" and "needs solution/solve.sh" in detail
    assert ran.reward("unsolved", "nop") == 1.0


def test_voids_stay_with_the_cells_that_deserve_them(ran: Ran) -> None:
    tasks = ran.rig.sql("SELECT DISTINCT task FROM v_void WHERE task <> 'too-big' ORDER BY task")
    assert tasks == [("sick",)]


def test_f06_a_task_larger_than_the_host_parks_before_it_is_tried(ran: Ran) -> None:
    assert ran.trials("too-big", "nop") == []
    code, detail = ran.park("too-big", "nop")
    assert code == "host_too_small" and "environment.cpus = 9999" in detail
