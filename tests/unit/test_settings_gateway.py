"""[gateway]: routes as the gateway itself takes them, whose key is never in a file of ours, and variables of verifiers with a judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.core.judge import asks_judge, filled, seen_by_tasks
from marathond.core.model import Task, Unrunnable
from marathond.gateway import config as gateway_config
from marathond.service import gateway_file
from marathond.service.effective import fixed, ways
from marathond.service.settings import Settings, load
from marathond.tasks.harbor import read_task
from tests.support.rig import make_task

HEAD = '[campaign]\nname = "first"\ntasks = ["tasks/*"]\n[arms.nop]\nkind = "nop"\n'
MAIN = '[gateway.routes.main]\nbase_url = "https://provider.example/v1"\nkey_file = "provider.key"\n'
CODEX = '[arms.plain]\nkind = "codex"\ndrive = "turn"\n[codex]\nmodel = "m"\n'
JUDGE = '[gateway.routes.judge]\nbase_url = "https://judge.example/v1"\nkey_credential = "judge"\nrequests_per_min = 60\n'
ENV = '[gateway]\nverifier_route = "judge"\nverifier_env = { OPENAI_API_KEY = "{key}", OPENAI_BASE_URL = "{base_url}" }\n'


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "tasks" / "one").mkdir(parents=True, exist_ok=True)
    (tmp_path / "config.toml").write_text(HEAD + text, encoding="utf-8")
    return load(Path("config.toml"), environ={"HOME": "/home/ana"}, cwd=tmp_path, uid=0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[gateway.routes.a]\nbase_url = "https://x"\n', "gateway.routes.a.key_file: exactly one of key_file and key_credential"),
        (MAIN + 'key_credential = "k"\n', "exactly one of key_file and key_credential"),
        (MAIN.replace("main", "gate"), "gateway.routes.gate: the name is taken"),
        ('[gateway]\nroute = "other"\n' + MAIN, 'gateway.route = "other": no such route in [gateway.routes]; defined: main'),
        (MAIN.replace("main", "a") + JUDGE, "gateway.route: required, for there are several routes and none is named main"),
        ('[gateway]\nverifier_env = { A = "{key}" }\n' + MAIN, "gateway.verifier_route: required, for there is a verifier_env"),
        (MAIN + 'headers = { Authorization = "Bearer x" }\n', "gateway.routes.main.headers.Authorization"),
        (MAIN.replace("https://", "https://ana:secret@"), "gateway.routes.main.base_url"),
        (CODEX + "stream_idle_timeout_ms = 60000\n" + MAIN, "must be at most 50, 10 s below codex.stream_idle_timeout_ms"),
        (MAIN + 'allow = ["GET http://elsewhere"]\n', "gateway.routes.main.allow"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert line in str(caught.value)


def test_agents_take_the_only_route_that_is_not_the_verifiers(tmp_path: Path) -> None:
    found = ways(read(tmp_path, ENV + MAIN.replace("main", "openai") + JUDGE))
    assert found is not None and (found.route, found.verifier_route, found.gate_route) == ("openai", "judge", "gate")
    assert ways(read(tmp_path, "")) is None


@pytest.mark.parametrize(("charged", "at_most_ms"), [("false", 3_600_000), ("true", 0)])
def test_held_time_is_charged_if_the_campaign_says_so(tmp_path: Path, charged: str, at_most_ms: int) -> None:
    found = ways(read(tmp_path, f"[gateway]\nheld_is_charged = {charged}\n{MAIN}"))
    assert found is not None and found.held_at_most_ms == at_most_ms


def test_c14_the_gateways_file_names_where_a_key_lies_and_holds_none(tmp_path: Path) -> None:
    (tmp_path / "provider.key").write_text("sk-real-secret\n")
    settings = read(tmp_path, ENV + MAIN + JUDGE)
    folder = tmp_path / "gateway"
    gateway_file.write(folder, settings.gateway, "http://127.0.0.1:9/v1")
    text = (folder / "gateway.json").read_text()
    assert "sk-real-secret" not in text and str(tmp_path / "provider.key") in text
    told = gateway_config.load(folder)
    assert set(told.routes) == {"main", "judge", "gate"}
    assert told.routes["judge"].key_credential == "judge" and told.routes["judge"].requests_per_min == 60
    assert told.routes["gate"].base_url == "http://127.0.0.1:9/v1"
    assert told.hold.hold_ms == 240_000
    again = json.loads(text)
    gateway_file.write(folder, settings.gateway, "http://127.0.0.1:9/v1")
    assert json.loads((folder / "gateway.json").read_text()) == again


def judged(tmp_path: Path, section: str, environ: dict[str, str]) -> Task | Unrunnable:
    return read_task(make_task(tmp_path, "t", toml=f'[{section}.env]\nOPENAI_API_KEY = "${{OPENAI_API_KEY}}"\nMODE = "strict"\n'), environ)


def test_c14_a_judges_key_is_filled_in_at_verification_and_never_the_daemons_own(tmp_path: Path) -> None:
    names = {"OPENAI_API_KEY": "{key}", "OPENAI_BASE_URL": "{base_url}"}
    task = judged(tmp_path, "verifier", seen_by_tasks({"OPENAI_API_KEY": "sk-real-secret"}, names))
    assert isinstance(task, Task) and asks_judge(task.verifier_env)
    assert "sk-real-secret" not in str(task)
    assert filled(task.verifier_env, names, base_url="http://127.0.0.1:8792/v1", key="mt-1") == {
        "OPENAI_API_KEY": "mt-1",
        "OPENAI_BASE_URL": "http://127.0.0.1:8792/v1",
        "MODE": "strict",
    }


@pytest.mark.parametrize("section", ["solution", "environment"])
def test_c14_a_variable_that_is_kept_for_verifiers_is_not_set_elsewhere(tmp_path: Path, section: str) -> None:
    task = judged(tmp_path, section, seen_by_tasks({"OPENAI_API_KEY": "sk-real-secret"}, ["OPENAI_API_KEY"]))
    assert isinstance(task, Unrunnable) and task.code == "task_broken"
    assert "OPENAI_API_KEY" in task.detail and "sk-real-secret" not in task.detail


def test_without_a_route_for_verifiers_the_daemons_environment_counts_as_in_harbor(tmp_path: Path) -> None:
    task = judged(tmp_path, "verifier", seen_by_tasks({"OPENAI_API_KEY": "own"}, []))
    assert isinstance(task, Task) and task.verifier_env["OPENAI_API_KEY"] == "own" and not asks_judge(task.verifier_env)


def test_what_runs_reads_tasks_as_what_was_planned(tmp_path: Path) -> None:
    settings = read(tmp_path, ENV + MAIN + JUDGE)
    made = fixed(settings, "0123456789ab", 1, {"OPENAI_API_KEY": "sk-real-secret", "A": "b"}, {})
    assert "sk-real-secret" not in str(made) and made.environ["A"] == "b"
