"""`config check` and `config show`, as a person types them."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from marathond.cli import ctl
from marathond.cli.config_cmds import app

UNASKED = "; the host was not asked (plan does)"

CONFIG = """[campaign]
name = "first"
tasks = ["tasks/*"]
replicates = 2
[engine]
build_args = { HTTP_PROXY = "http://ana:geheim@proxy:3128", API_TOKEN = "geheim2" }
[arms.nop]
kind = "nop"
[arms.mine]
kind = "command"
argv = ["true", "\\u001b[31m"]
env = { OPENAI_API_KEY = "geheim3", MODE = "x" }
"""
TASK = """[verifier]
timeout_sec = 60
[environment]
docker_image = "some:image"
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("MARATHOND_CONFIG", "DOCKER_HOST", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    _task(tmp_path, "good", TASK)
    (tmp_path / "marathond.toml").write_text(CONFIG)
    return tmp_path


def _task(room: Path, name: str, toml: str) -> None:
    folder = room / "tasks" / name
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/test.sh").write_text("#!/bin/sh\n")
    (folder / "instruction.md").write_text("Do it.\n")
    (folder / "task.toml").write_text(toml)


def run(*argv: str) -> Result:
    return CliRunner().invoke(app, argv, catch_exceptions=False)


def test_check_says_what_there_is(room: Path) -> None:
    done = run("check")
    assert (done.exit_code, done.stdout) == (0, f"ok: campaign first, 1 task, 2 arms, 2 replicates: 4 cells{UNASKED}\n")


def test_f06_check_lists_what_parks_and_why(room: Path) -> None:
    _task(room, "bad-toml", "[agent\n")
    _task(room, "gpu", TASK + "gpus = 1\n")
    (room / "tasks/empty").mkdir()
    done = run("check")
    assert done.exit_code == 1
    assert done.stdout.startswith(f"not ok: campaign first, 4 tasks, 2 arms, 2 replicates: 16 cells, of which 12 park{UNASKED}\n")
    parked = {line.split(": ")[1]: line.split(": ")[2] for line in done.stdout.splitlines()[1:]}
    assert parked == {"bad-toml": "task_broken", "empty": "task_broken", "gpu": "task_unsupported"}


def test_f06_what_the_host_is_too_small_for_check_says_that_it_did_not_ask(room: Path) -> None:
    """`plan` names such a task: until it was asked, a check without a word of it would promise that nothing parks."""
    _task(room, "huge", TASK.replace("[environment]", "[environment]\ncpus = 4096"))
    done = run("check")
    assert (done.exit_code, done.stdout) == (
        0,
        f"ok: campaign first, 2 tasks, 2 arms, 2 replicates: 8 cells{UNASKED}\n",
    )


@pytest.mark.parametrize("argv", [("check",), ("check", "--json")])
def test_word_and_exit_status_of_check_agree(room: Path, argv: tuple[str, ...]) -> None:
    def agrees(code: int) -> bool:
        done = run(*argv)
        said = json.loads(done.stdout)["ok"] if "--json" in argv else done.stdout.startswith("ok: ")
        return done.exit_code == code and said == (code == 0)

    assert agrees(0)
    (room / "marathond.toml").write_text(CONFIG + 'mounts = [{ source = "gone", target = "/opt/x" }]\n')
    assert agrees(1)
    (room / "marathond.toml").write_text(CONFIG)
    _task(room, "gpu", TASK + "gpus = 1\n")
    assert agrees(1)


def test_check_names_an_oracle_without_a_solution_and_a_mount_without_a_source(room: Path) -> None:
    (room / "marathond.toml").write_text(
        CONFIG + 'mounts = [{ source = "gone", target = "/opt/x" }]\n[arms.oracle]\nkind = "oracle"\n',
    )
    done = run("check")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0].endswith(f": 6 cells, of which 2 park{UNASKED}")
    assert "parks: good: no_solution: arm oracle needs solution/solve.sh, and there is none" in done.stdout.splitlines()
    assert f"cannot start: marathond.toml:13: arms.mine.mounts[0].source = {room}/gone: no such file or directory" in done.stdout


def test_check_mentions_what_was_tolerated_in_a_task(room: Path) -> None:
    _task(room, "typo", TASK + "[agent]\ntimeout_secs = 5\n")
    done = run("check")
    assert (done.exit_code, done.stderr) == (
        0,
        "note: typo: task.toml: agent.timeout_secs: unknown key, ignored; did you mean timeout_sec?\n",
    )


@pytest.mark.parametrize("argv", [("-c", "gone.toml", "config", "check"), ("config", "show", "-c", "gone.toml")])
def test_a_configuration_named_on_either_side_is_named_so(room: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    assert ctl.run(argv) == 2
    assert capsys.readouterr().err == f"{room}/gone.toml: named by --config: no such file\n"
    assert "MARATHOND_CONFIG" not in os.environ


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CONFIG + "[admission]\nconcurrency = 0\n", "marathond.toml:14: admission.concurrency = 0: must be at least 1\n"),
        (CONFIG.replace("tasks/*", "taks/*"), "matches no folder; near names in "),
        ("[campaign\n", "marathond.toml:1: not TOML: "),
    ],
)
def test_a_wrong_configuration_is_a_line_on_stderr_and_exit_2(room: Path, text: str, line: str) -> None:
    (room / "marathond.toml").write_text(text)
    done = run("check")
    assert (done.exit_code, done.stdout) == (2, "")
    assert line in done.stderr
    assert "Traceback" not in done.stderr


def test_a_named_configuration(room: Path) -> None:
    (room / "other.toml").write_text(CONFIG.replace('"first"', '"second"'))
    assert "campaign second" in run("check", "--config", "other.toml").stdout
    done = run("check", "-c", "gone.toml")
    assert (done.exit_code, done.stderr) == (2, f"{room}/gone.toml: named by --config: no such file\n")


def test_show_can_be_read_back(room: Path) -> None:
    lines = run("show").stdout.splitlines()
    assert "campaign.replicates = 2" in lines
    assert "limits.agent_timeout_s = none" in lines
    shown = tomllib.loads("\n".join(line for line in lines if not line.endswith("= none") and "\\x1b" not in line))
    assert shown["admission"]["order"] == "replicate-major"
    assert shown["engine"]["build_args"]["HTTP_PROXY"] == "http://(hidden)@proxy:3128"


def test_show_origin(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARATHOND_ADMISSION__CONCURRENCY", "8")
    lines = [" ".join(line.split()) for line in run("show", "--origin").stdout.splitlines()]
    assert "admission.concurrency = 8 # env MARATHOND_ADMISSION__CONCURRENCY [live]" in lines
    assert "campaign.replicates = 2 # marathond.toml:4 [extent]" in lines
    assert "limits.agent_timeout_s = none # default [treatment]" in lines
    assert 'network.range = "198.19.0.0/16" # default [restart]' in lines


def test_show_json(room: Path) -> None:
    shown = json.loads(run("show", "--json").stdout)
    assert shown["campaign.replicates"] == {"value": 2, "origin": "marathond.toml:4", "change": "extent"}
    assert shown["campaign.tasks"]["value"] == [str(room / "tasks/*")]
    assert shown["arms.mine.env"]["value"] == {"OPENAI_API_KEY": "(hidden)", "MODE": "x"}


def test_show_tells_where_a_key_lies_and_what_may_be_used_and_hides_what_headers_hold(room: Path) -> None:
    with (room / "marathond.toml").open("a") as file:
        file.write('[gateway.routes.main]\nbase_url = "https://api.example/v1"\nkey_file = "key"\ntokens_per_min = 600000\n')
        file.write('host_proxy = "http://ana:geheim@proxy.example"\nheaders = { X-Auth-Token = "geheim", OpenAI-Project = "p" }\n')
    shown = run("show", "--json").stdout
    assert "geheim" not in shown
    route = json.loads(shown)["gateway.routes"]["value"]["main"]
    assert (route["key_file"], route["tokens_per_min"], route["host_proxy"]) == (str(room / "key"), 600000, "http://(hidden)@proxy.example")
    assert route["headers"] == {"X-Auth-Token": "(hidden)", "OpenAI-Project": "p"}


@pytest.mark.parametrize("argv", [("show",), ("show", "--origin"), ("show", "--json")])
def test_show_hides_secrets_and_sends_no_escapes(room: Path, argv: tuple[str, ...]) -> None:
    done = run(*argv)
    assert done.exit_code == 0
    assert "geheim" not in done.stdout
    assert "\x1b" not in done.stdout
