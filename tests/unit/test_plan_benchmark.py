"""SWE-Marathon's campaign as the example has it, planned against twenty folders with its tasks' names; digests; what is not supported."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from marathond.cli import ctl
from marathond.core.model import Unrunnable
from marathond.service import digests
from marathond.service.settings import load
from marathond.service.settings_errors import ConfigErrors
from marathond.service.submission import task_row
from marathond.service.taskread import read_tasks
from marathond.tasks.harbor import look
from tests.support.benchmarks import SEPARATE, known, make_benchmark, mend
from tests.support.published import printed

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
GPU = ["embedding-eval", "jax-pytorch-rewrite", "parameter-golf", "trimul-cuda"]


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Room:
    """A folder with a configuration and the twenty folders, which each test may change."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def tasks(self) -> Path:
        return self.folder / "swe-marathon/tasks"

    def run(self, *argv: str) -> Answer:
        code = ctl.run(argv)
        out, err = self.capsys.readouterr()
        return Answer(code, out, err)

    def change(self, old: str, new: str) -> None:
        path = self.folder / "marathond.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders, and the table of their digests."""
    home = tmp_path_factory.mktemp("twenty")
    folders = make_benchmark(home / "tasks").iterdir()
    digests.write(home / "digests.toml", {folder.name: look(folder) for folder in folders})
    return home


@pytest.fixture
def room(tmp_path: Path, twenty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Room:
    monkeypatch.chdir(tmp_path)
    for name in ("MARATHOND_CONFIG", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    shutil.copytree(twenty / "tasks", tmp_path / "swe-marathon/tasks")
    shutil.copy(twenty / "digests.toml", tmp_path / "swe-marathon.digests.toml")
    lines = EXAMPLE.read_text(encoding="utf-8").split("\n")
    text = "\n".join(line[3:] for line in lines if line.startswith("#: "))
    (tmp_path / "marathond.toml").write_text(text.replace("[notify]", f'[daemon]\nstate_dir = "{tmp_path}/s"\n[notify]'))
    return Room(tmp_path, capsys)


def test_the_example_plans_swe_marathons_campaign(room: Room) -> None:
    answer = room.run("plan")
    assert answer.code == 1, answer.err
    lines = answer.out.splitlines()
    arms = "plain, goal, ssh-goal, codex-cli, heartbeat"
    assert lines[0] == f"campaign swe-marathon: 500 cells = 20 tasks x 5 arms ({arms}) x 5 replicates"
    digest = known().digest.removeprefix("sha256:")[:12]
    assert (
        f"benchmark swe-marathon (SWE-Marathon, 20 tasks): 20 of its 20 tasks · columns reward, partial, test_rate · profile {digest}"
        in lines
    )
    assert f"task digests: 20 as in {room.folder}/swe-marathon.digests.toml" in lines

    start = lines.index("not supported yet: 125 cells of 5 tasks, parked as task_unsupported")
    named = [line.split("[")[0].strip() for line in lines[start + 1 : start + 6]]
    assert named == sorted([*GPU, SEPARATE])
    assert "  embedding-eval [gpu, offline]: task.toml: environment.gpus = 1: GPUs are not supported" in lines
    separate = next(line for line in lines if line.startswith(f"  {SEPARATE} "))
    assert separate.startswith(f"  {SEPARATE} [separate-verifier, ux-stage, verifier-image]: ") and "separate verifier is not" in separate
    assert not any(line.startswith("parked:") for line in lines)

    assert re.search(r"zstd-decoder +1h29m \(own; task 18000 x 1\.0 does not apply\) +1h20m \(task 1200 x 4\.0\) +none +1 ", answer.out)
    assert "note: s3-clone: ux-stage: a model judges the interface by gateway.verifier_route" in answer.err
    assert f"note: {SEPARATE}: ux-stage" not in answer.err  # it parks: said once, above


def test_plan_as_data(room: Room) -> None:
    made = printed("plan", room.run("plan", "--json").out)
    assert made["benchmark"]["profile"] == "swe-marathon" and made["benchmark"]["known"] == 20
    assert [column["name"] for column in made["benchmark"]["columns"] if column["exists"]] == ["reward", "partial", "test_rate"]
    parked = {task["name"]: task["marks"] for task in made["tasks"] if task["parks"] == "task_unsupported"}
    assert sorted(parked) == sorted([*GPU, SEPARATE]) and all("gpu" in parked[name] for name in GPU)


def test_the_example_takes_from_the_profile_what_it_does_not_say(room: Room) -> None:
    shown = room.run("config", "show", "--origin").out
    assert re.search(r"limits\.verifier_timeout_multiplier = 4\.0 +# profile swe-marathon \[treatment\]", shown)
    room.change("[limits]\n", "[limits]\nverifier_timeout_multiplier = 2\n")
    assert re.search(
        r"limits\.verifier_timeout_multiplier = 2.* +# marathond\.toml:\d+ \[treatment\]", room.run("config", "show", "--origin").out
    )


def test_a_column_that_does_not_exist_is_named_with_its_reason_by_plan(room: Room) -> None:
    room.change('benchmark = "swe-marathon"', 'benchmark = "terminal-bench"')
    lines = room.run("plan").out.splitlines()
    assert any(
        line.startswith("benchmark terminal-bench (Terminal-Bench 2): 20 tasks, names not checked · columns reward, test_rate ·")
        for line in lines
    )
    assert "  no column partial: its verifiers write 0 or 1 and nothing between" in lines


def test_other_limits_than_the_benchmarks_are_told(room: Room) -> None:
    mend(room.tasks / "wasm-simd", "timeout_sec = 18000", "timeout_sec = 600")
    room.change("digests = ", "#digests = ")
    answer = room.run("plan")
    assert "note: wasm-simd: agent limit 600 s, swe-marathon has 18000 s\n" in answer.err
    assert "task digests: not checked" in answer.out


@pytest.mark.parametrize("command", [("plan",), ("config", "check"), ("prebuild",)])
def test_every_command_that_reads_the_tasks_refuses_a_folder_that_is_not_the_benchmarks(room: Room, command: tuple[str, ...]) -> None:
    mend(room.tasks / "zstd-decoder", '"no-network"', '"public"')
    answer = room.run(*command)
    assert answer.code == 2 and "Traceback" not in answer.err
    expected = 'campaign.benchmark = "swe-marathon": zstd-decoder: is known as offline, and its folder does not show it\n'
    assert re.fullmatch(r"marathond\.toml:\d+: " + re.escape(expected), answer.err)


# ── digests ──


def test_a18_a_task_whose_folder_has_another_digest_parks_as_task_changed(room: Room) -> None:
    with (room.tasks / "stripe-clone/tests/test.sh").open("a") as file:
        file.write("# edited\n")
    answer = room.run("plan")
    assert answer.code == 1 and ", 1 task changed\n" in answer.out and "task digests: 19 as in" in answer.out
    line = next(line for line in answer.out.splitlines() if line.startswith("  stripe-clone: task_changed: "))
    assert re.search(r"swe-marathon\.digests\.toml:\d+: expects sha256:[0-9a-f]{12}…, the folder has sha256:[0-9a-f]{12}…$", line)
    checked = room.run("config", "check")
    assert checked.code == 1 and "parks: stripe-clone: task_changed: " in checked.out

    task = next(task for task in read_tasks(load(Path("marathond.toml"), cwd=room.folder), {}).tasks if task.name == "stripe-clone")
    assert isinstance(task, Unrunnable) and task_row(task).unrunnable == task  # what a submission parks by


def test_f06_a_daemon_goes_on_with_a_begun_campaign_whatever_became_of_a_folder(room: Room) -> None:
    mend(room.tasks / "zstd-decoder", '"no-network"', '"public"')
    room.change('digests = "', '#digests = "')
    shutil.copytree(room.tasks / "wasm-simd", room.tasks / "wasm-simd.copy")
    text = (room.folder / "marathond.toml").read_text()
    (room.folder / "marathond.toml").write_text(re.sub(r"include = \[.*?\]\n", "", text, flags=re.DOTALL))
    settings = load(Path("marathond.toml"), cwd=room.folder)
    with pytest.raises(ConfigErrors):
        read_tasks(settings, {})
    parked = {task.name: task for task in read_tasks(settings, {}, begun={}).tasks if isinstance(task, Unrunnable)}
    assert sorted(parked) == sorted([*GPU, SEPARATE, "wasm-simd.copy", "zstd-decoder"])
    assert parked["zstd-decoder"].code == parked["wasm-simd.copy"].code == "task_changed"
    assert parked["zstd-decoder"].detail.startswith("profile swe-marathon: zstd-decoder: is known as offline")
    room.change('#digests = "', 'digests = "')
    settings = load(Path("marathond.toml"), cwd=room.folder)
    details = {task.name: task.detail for task in read_tasks(settings, {}, begun={}).tasks if isinstance(task, Unrunnable)}
    assert "swe-marathon.digests.toml:4: lists no digest of it" in details["wasm-simd.copy"]
    assert "expects sha256:" in details["zstd-decoder"]


def test_a_table_is_written_once_and_never_over_another(room: Room) -> None:
    table = room.folder / "swe-marathon.digests.toml"
    before = table.read_text()
    assert before.count("sha256:") == 20
    again = room.run("plan", "--write-digests", "swe-marathon.digests.toml")
    assert (again.code, again.err) == (1, "marathonctl: swe-marathon.digests.toml: exists already; nothing was changed\n")
    assert table.read_text() == before
    shutil.rmtree(room.tasks / "wasm-simd/tests")
    (room.tasks / "wasm-simd/tests").symlink_to("/nowhere")
    other = room.run("plan", "--write-digests", "other.toml")
    assert "wrote 19 digests to other.toml: name it in campaign.digests\n" in other.err
    assert "note: wasm-simd has no digest: " in other.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("format = 1", "format = 2", "swe-marathon.digests.toml:2: format = 2: must be 1"),
        ("format = 1", "", "swe-marathon.digests.toml: format: must be 1"),
        ("format = 1", "format = true", "swe-marathon.digests.toml:2: format = true: must be 1"),
        ("[digests]", "[digest]", "digest: unknown key; did you mean digests?"),
        (
            "[digests]",
            "digests = 1\n[digest]",
            "swe-marathon.digests.toml:4: digests: must be a table of at least one task's name and sha256:…",
        ),
        ("sha256:", "md5:", "must be sha256: and 64 hex digits"),
        ("[digests]", "[digests", "swe-marathon.digests.toml:4: not TOML: "),
        (
            "wasm-simd",
            "wasm-simb",
            "digests.toml: digests.wasm-simd: missing: list it, leave it out by campaign.exclude, or write the table anew",
        ),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(room: Room, old: str, new: str, words: str) -> None:
    table = room.folder / "swe-marathon.digests.toml"
    assert old in table.read_text()
    table.write_text(table.read_text().replace(old, new, 1))
    answer = room.run("plan")
    assert answer.code == 2 and words in answer.err, answer.err


def test_a_table_that_is_not_there_is_an_error(room: Room) -> None:
    (room.folder / "swe-marathon.digests.toml").unlink()
    answer = room.run("plan")
    place = f"campaign.digests = {room.folder}/swe-marathon.digests.toml"
    assert answer.code == 2
    assert re.fullmatch(
        rf"marathond\.toml:\d+: {re.escape(place)}: no such file; marathonctl plan --write-digests FILE writes one\n", answer.err
    )
