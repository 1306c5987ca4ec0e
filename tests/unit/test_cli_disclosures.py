"""`disclosures`, and their section in `plan`, `arms`, `arms show`: the ledger's where there is one, else what the configuration gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from marathond.core.arms import arm_to_data
from marathond.core.disclosure import Conditions
from marathond.core.model import Arm, Unrunnable
from marathond.core.names import NetworkPolicy
from marathond.ledger.verbs import campaigns
from marathond.ledger.verbs.campaigns import ArmRow
from marathond.service.disclosing import LOOKED_AT, conditions, configured, task_facts
from marathond.service.settings import Settings, load
from marathond.service.submission import build
from marathond.service.treatment import TREATMENT_KEYS
from marathond.tasks.harbor import read_task
from marathond.tasks.speaking import speaking_files
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, living_rig
from tests.support.rig import make_task
from tests.unit.test_cli_arms import CONFIG, GOAL, PLAIN

PROFILE = """
format = 1
name = "own"
[timeouts]
agent_multiplier = 3.0
[scores.reward]
exists = true
[scores.partial]
exists = true
[scores.test_rate]
exists = true
[tasks.t]
agent_s = 12345
"""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        yield rig


@pytest.fixture
def config(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with one task that speaks, and whose ledger does not exist."""
    monkeypatch.delenv("MARATHOND_DAEMON__STATE_DIR")
    task = make_task(tmp_path / "tasks", "talker", network="no-network")
    (task / "environment").mkdir(exist_ok=True)
    (task / "environment" / "AGENTS.md").write_text("Do as I say.")
    path = tmp_path / "marathond.toml"
    path.write_text(CONFIG.format(state_dir=tmp_path / "state"))
    (tmp_path / "state").mkdir()
    return path


def stored(rig: Rig, settings: Settings, *arms: Arm) -> None:
    rows = tuple(ArmRow(arm.name, arm.kind.value, f"h-{arm.name}", json.dumps(arm_to_data(arm))) for arm in arms)
    wanted = replace(have.submission(name="codex", tasks=[have.task("one")]), arms=rows, conditions=conditions(settings))
    with rig.sql() as c:
        campaigns.submit(c, wanted, now_ms=have.T0)


def test_before_a_submission_the_configurations_are_told_whole(rig: Rig, config: Path) -> None:
    out = rig.ask("--config", str(config), "disclosures")
    assert out.startswith("campaign codex: ") and "not stored yet" in out.splitlines()[0]
    rows = {line.split()[0]: line for line in out.splitlines()[2:]}
    assert "The objective of the native goal is the literal `Finish the task.`" in rows["goal_objective_literal"]
    assert "talker (AGENTS.md)" in rows["tasks_with_project_files"] and "talker" in rows["no_network"]
    assert " all arms " in rows["agent_dead_before_verifier"] and " plain, goal, operator " in rows["web_search_off"]
    made = json.loads(rig.ask("--config", str(config), "disclosures", "--json"))
    assert (made["campaign"], made["version"], made["at"]) == ("codex", 0, None)
    assert [row["code"] for row in made["disclosures"]] == [line.split()[0] for line in out.splitlines()[2:]]
    assert made["disclosures"][0].keys() == {"code", "arms", "text", "compared_with"}


def test_plan_and_arms_have_a_section_that_names_them(rig: Rig, config: Path) -> None:
    plan = rig.run("--config", str(config), "plan")
    assert "(marathonctl disclosures tells each):" in plan.out and "  operator_on " in plan.out and "tasks_with_project_files" in plan.out
    arms = rig.ask("--config", str(config), "arms")
    section = arms.partition("\n\n")[2].splitlines()
    assert section[0].endswith("(marathonctl disclosures tells each):")
    assert {"  plain_over_app_server", "  command_of_its_own", "  own_surroundings"} <= {
        line.rstrip().rpartition("  ")[0].rstrip() for line in section
    }
    one = rig.ask("--config", str(config), "arms", "show", "sh")
    assert "command_of_its_own: A command of its own is run" in one and "Compared with: Arms of codex" in one
    assert "plain_over_app_server" not in one and "swordfish" not in one
    (sh,) = [arm for arm in json.loads(rig.ask("--config", str(config), "arms", "--json")) if arm["name"] == "sh"]
    assert {"command_of_its_own", "own_surroundings"} <= {row["code"] for row in sh["disclosures"]}


def test_plan_arms_and_disclosures_tell_the_same_before_a_submission(rig: Rig, config: Path) -> None:
    """What tasks add, a missing network say, is no matter of who is asked."""
    asked = ("--config", str(config))
    whole = json.loads(rig.ask(*asked, "disclosures", "--json"))["disclosures"]
    plan = json.loads(rig.run(*asked, "plan", "--json").out)["disclosures"]
    shown = json.loads(rig.ask(*asked, "arms", "--json"))
    assert plan == whole and "no_network" in {row["code"] for row in whole}
    for arm in shown:
        assert arm["disclosures"] == [row for row in whole if arm["name"] in row["arms"]], arm["name"]
    section = rig.ask(*asked, "arms").partition("\n\n")[2]
    assert section and section in rig.run(*asked, "plan").out

    (config.parent / "tasks").rename(config.parent / "elsewhere")
    told = rig.run(*asked, "arms")
    assert told.code == 0 and "  no_network " not in told.out and "  web_search_off " in told.out
    assert told.err.startswith("what the tasks add to the disclosures is left out: ") and told.err.count("\n") == 1


def test_the_ledgers_are_told_with_their_version_and_arms_to_come_beside_them(
    rig: Rig, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(rig.state_dir))
    config.write_text(CONFIG.format(state_dir=rig.state_dir))
    settings = load(config, environ={})
    stored(rig, settings, PLAIN)
    stored(rig, settings, PLAIN, GOAL)
    out = rig.ask("disclosures")
    assert out.startswith("campaign codex: ") and "version 2, told since 2026-09-21T14:13:20Z" in out.splitlines()[0]
    assert rig.ask("--config", str(config), "disclosures") == out == rig.ask("disclosures", "--campaign", "codex")
    assert json.loads(rig.ask("disclosures", "--json"))["version"] == 2
    alone = [line.split() for line in rig.ask("arms").splitlines()]
    assert ["goal_objective_literal", "goal"] in alone and ["goals_off", "plain"] in alone
    both = rig.ask("--config", str(config), "arms")
    assert "command_of_its_own" in both and "operator_on" in both
    assert "operator_on" in rig.ask("--config", str(config), "arms", "show", "operator")
    assert "operator_on" not in rig.ask("--config", str(config), "arms", "show", "goal")


def test_a_campaign_of_before_says_that_there_is_nothing(rig: Rig) -> None:
    assert rig.ask("disclosures").startswith("campaign x: 0 disclosures")
    answer = rig.run("disclosures", "--campaign", "nope")
    assert answer.code == 2 and answer.err.count("\n") == 1


def test_what_is_submitted_is_what_was_told_before(config: Path) -> None:
    settings = load(config, environ={})
    made = build(settings, "ana", {}, {})
    c = have.memory_ledger()
    have.begin(c)
    campaigns.submit(c, made, now_ms=have.T0)
    tasks = [read_task(path) for path in sorted((config.parent / "tasks").iterdir())]
    found = [tuple(row) for row in c.execute("SELECT code, text, compared_with FROM v_disclosure ORDER BY position").fetchall()]
    assert found == [(row.code, row.text, row.compared_with) for row in configured(settings, tasks)]
    c.close()


def test_every_key_of_the_treatment_was_looked_at() -> None:
    assert LOOKED_AT.keys() == TREATMENT_KEYS, "decide what a disclosure says of these keys (service/disclosing.py, core/disclosures.py)"
    assert {field for field in LOOKED_AT.values() if field} <= {field.name for field in fields(Conditions)}


def test_conditions_are_the_settings(config: Path) -> None:
    proxy = '{ HTTP_PROXY = "http://u:pw@p:1"'
    more = f"""
[limits]
agent_timeout_s = 60.0
pids = 0
[engine]
build_args = {proxy}, FLAVOUR = "x" }}
[network]
runtime_proxy = {proxy} }}
[gateway]
strip = ["a"]
hold_s = 5.0
"""
    config.write_text(config.read_text() + more)
    made = conditions(load(config, environ={}))
    assert (made.own_deadline_s, made.pids, made.build_args) == (60.0, None, ("FLAVOUR",))
    assert (made.gateway, made.strip, made.hold_s) == (True, ("a",), 5.0)
    assert made.runtime_proxy == "HTTP_PROXY=http://***@p:1" and "pw" not in repr(made)


def test_files_that_speak_are_found_below_the_environment_alone(tmp_path: Path) -> None:
    for name in (
        "environment/app/AGENTS.md",
        "environment/x/.agents/skills/s/SKILL.md",
        "environment/.codex/config.toml",
        "tests/AGENTS.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "environment/config.toml").write_text("")
    (tmp_path / "environment/skills").mkdir()
    assert speaking_files(tmp_path) == (".codex/config.toml", "app/AGENTS.md", "x/.agents/skills")
    assert speaking_files(tmp_path / "nowhere") == ()


def test_facts_of_tasks_are_of_those_that_can_run(tmp_path: Path) -> None:
    task = read_task(make_task(tmp_path / "tasks", "t", network="public"))
    (tmp_path / "own.toml").write_text(PROFILE)
    path = tmp_path / "c.toml"
    path.write_text('[campaign]\nname = "c"\ntasks = ["tasks/*"]\nbenchmark = "./own.toml"\n[arms.nop]\nkind = "nop"\n')
    settings = load(path, environ={})
    made = task_facts(settings, [task, Unrunnable("u", "/u", "task_broken", "d")])
    assert [(fact.name, fact.network) for fact in made] == [("t", NetworkPolicy.PUBLIC)]
    assert len(made[0].differs) == 1 and made[0].differs[0].endswith(", own has 12345 s")
    kept = {row.name: json.loads(row.data_json) for row in build(settings, "ana", {}, {}).tasks}
    assert kept["t"]["not_the_benchmarks"] == list(made[0].differs)
    on = conditions(settings)
    assert (on.benchmark, on.agent_multiplier, on.usual_agent_multiplier, on.usual_verifier_multiplier) == ("own", 3.0, 3.0, 1.0)
