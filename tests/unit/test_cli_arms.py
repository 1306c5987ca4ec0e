"""`arms`, `arms show`, `arms diff`: from the configuration alone, from a ledger alone, and from both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex import contract, declares
from marathond.core.arms import arm_to_data
from marathond.core.contract import shape
from marathond.core.model import Arm, CodexArm, LoopXArm
from marathond.core.names import AgentKind, Drive, LoopXProfile
from marathond.ledger.verbs import agentlog, campaigns, shapes
from marathond.ledger.verbs.campaigns import ArmRow
from marathond.service.treatment import arm_treatment, treatment_hash
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, living_rig
from tests.support.published import printed
from tests.support.rig import make_task

CONFIG = """
[daemon]
state_dir = "{state_dir}"
[campaign]
name = "codex"
tasks = ["tasks/*"]
[codex]
model = "gpt-5.5"
[gateway.routes.main]
base_url = "http://127.0.0.1:1/v1"
key_file = "key"
[arms.plain]
kind = "codex"
drive = "turn"
[arms.goal]
kind = "codex"
drive = "goal"
[arms.operator]
kind = "codex"
drive = "goal"
operator = true
token_budget = 7
[arms.sh]
kind = "command"
argv = ["true"]
env = {{ API_KEY = "swordfish", HOW = "so" }}
"""
PACKAGE = "codex-of-a-test"


def codex_arm(name: str, drive: Drive, **codex: Any) -> Arm:
    row = CodexArm(package=PACKAGE, version="0.171.0", model="gpt-5.5", effort="high", drive=drive, **codex)
    return Arm(name, AgentKind.CODEX, codex=row)


PLAIN, GOAL = codex_arm("plain", Drive.TURN), codex_arm("goal", Drive.GOAL)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        yield rig


@pytest.fixture
def config(rig: Rig, tmp_path: Path) -> Path:
    """A configuration whose ledger does not exist."""
    path = tmp_path / "marathond.toml"
    path.write_text(CONFIG.format(state_dir=tmp_path / "state"))
    (tmp_path / "state").mkdir()
    make_task(tmp_path / "tasks", "one")
    return path


@pytest.fixture(autouse=True)
def no_state_dir_by_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "config" in request.fixturenames:
        request.getfixturevalue("rig")
        monkeypatch.delenv("MARATHOND_DAEMON__STATE_DIR")


def stored(rig: Rig, *arms: Arm) -> None:
    rows = tuple(
        ArmRow(arm.name, arm.kind.value, treatment_hash(arm_treatment(arm)), json.dumps(arm_to_data(arm), sort_keys=True)) for arm in arms
    )
    wanted = replace(have.submission(name="codex", tasks=[have.task("one")]), arms=rows)
    with rig.sql() as c:
        campaigns.submit(c, wanted, now_ms=have.T0)


def asks(rig: Rig, arm: str, effort: str = "high", tools: tuple[str, ...] = ()) -> None:
    """A trial of the arm, and its first request as the gateway saw it."""
    offered = [{"type": "function", "name": name} for name in ("exec_command", *tools)]
    with rig.sql() as c:
        trial = have.bring_to(c, have.cell(c, "one", arm), "running")
        made = shape({"model": "gpt-5.5", "reasoning": {"effort": effort}, "tools": offered}, ["accept"])
        shapes.keep(c, trial.trial_id, made, now_ms=have.T0)


def listed(out: str) -> list[str]:
    """The rows of the list, without its head and the section of disclosures below it."""
    return out.partition("\n\n")[0].splitlines()[2:]


def test_the_configuration_alone_is_enough(rig: Rig, config: Path) -> None:
    out = rig.ask("--config", str(config), "arms")
    rows = {line.split()[0]: line for line in listed(out)}
    assert out.startswith("campaign codex\n") and list(rows) == ["plain", "goal", "operator", "sh"]
    assert "500 turns, 3 infra retries  " in rows["plain"] and " - " in rows["plain"]
    assert "3 idle turns, 8 unblocks, 7 tokens" in rows["operator"] and " yes " in rows["operator"] and " no " in rows["goal"]
    # What is staged is a part of a codex arm's treatment, and nothing is.
    assert " unknown " in rows["goal"] and " unknown " not in rows["sh"]
    assert all(line.endswith("configuration") for line in rows.values())
    (sh,) = [arm for arm in printed("arms", rig.ask("--config", str(config), "arms", "--json")) if arm["name"] == "sh"]
    assert sh["env"] == {"API_KEY": "(hidden)", "HOW": "so"} and sh["treatment_hash"].startswith("sha256:")


def test_show_tells_row_and_record(rig: Rig, config: Path) -> None:
    out = rig.ask("--config", str(config), "arms", "show", "goal")
    for words in (
        'codex.objective = "Finish the task."',
        "codex.token_budget = none",
        "goal.direct.json",
        "update_goal",
        "web search disabled",
    ):
        assert words in out
    assert "goal.code.json" in rig.ask("--config", str(config), "arms", "show", "goal", "--surface", "code")
    whole = printed("arms show", rig.ask("--config", str(config), "arms", "show", "goal", "--json"))
    assert whole["contract"] == contract.reviewed("goal", "direct")
    out = rig.ask("--config", str(config), "arms", "show", "sh")
    assert "swordfish" not in out and 'HOW = "so"' in out and "reviewed" not in out


def test_diff_tells_rows_what_they_declare_and_the_records(rig: Rig, config: Path) -> None:
    out = rig.ask("--config", str(config), "arms", "diff", "plain", "goal")
    for words in (
        'codex.drive: plain "turn", goal "goal"',
        "    tools.update_goal\n",
        "(plain.direct.json, goal.direct.json): 9 differences, none undeclared",
        "codex.drive  config.features.goals: plain false, goal true",
        "0 trials of plain, 0 trials of goal",
    ):
        assert words in out
    made = printed("arms diff", rig.ask("--config", str(config), "arms", "diff", "plain", "goal", "--surface", "code", "--json"))
    assert made["record"]["files"] == ["plain.code.json", "goal.code.json"] and made["record"]["missing"] == []
    assert {each["declared_by"] for each in made["record"]["differences"]} == {"codex.drive"}
    assert {"path": ["config", "features", "goals"], "a": False, "b": True, "declared_by": "codex.drive"} in made["record"]["differences"]


def test_diff_of_arms_that_are_driven_alike_or_not_codexs(rig: Rig, config: Path) -> None:
    out = rig.ask("--config", str(config), "arms", "diff", "goal", "operator")
    assert "codex.operator: goal false, operator true" in out and "codex.operator: nothing that reaches codex" in out
    assert "codex.token_budget: goal none, operator 7" in out and "both arms are driven alike" in out
    out = rig.ask("--config", str(config), "arms", "diff", "plain", "sh")
    assert 'kind: plain "codex", sh "command"' in out and "there is no record of a first request" in out
    assert "swordfish" not in out and 'env.API_KEY: plain absent, sh "(hidden)"' in out


def test_a14_arms_with_loopx_are_shown_and_compared(rig: Rig) -> None:
    def of(profile: LoopXProfile, drive: Drive = Drive.GOAL) -> CodexArm:
        loopx = LoopXArm("loopx-of-a-test", "2.1.1", "wheel", profile=profile)
        return CodexArm(PACKAGE, "0.171.0", "gpt-5.5", "high", drive=drive, operator=True, loopx=loopx)

    rows = [of(LoopXProfile.SSH_GOAL), of(LoopXProfile.CODEX_CLI), of(LoopXProfile.GENERIC_CLI, Drive.WAKE)]
    stored(rig, PLAIN, GOAL, *(Arm(contract.name_of(codex), AgentKind.CODEX, codex=codex) for codex in rows))
    out = rig.ask("arms", "diff", "ssh-goal", "codex-cli")
    for words in (
        'codex.loopx.profile: ssh-goal "codex_app_ssh_goal", codex-cli "codex_cli"',
        "    input.function_call_output goal_objective\n",
        "(ssh-goal.direct.json, codex-cli.direct.json): 3 differences, none undeclared",
    ):
        assert words in out
    for a, b in combinations(contract.ARMS, 2):
        for surface in contract.SURFACES:
            out = rig.ask("arms", "diff", a, b, "--surface", surface)
            assert "none undeclared" in out and "MISSING" not in out
    out = rig.ask("arms", "diff", "plain", "ssh-goal", "--surface", "code")
    assert "    tools.functions.exec/get_goal\n" in out and "    input.developer <skills_instructions>\n" in out
    made = printed("arms diff", rig.ask("arms", "diff", "goal", "heartbeat", "--json"))
    assert {each["declared_by"] for each in made["record"]["differences"]} == {"codex.drive", "codex.loopx"}
    out = rig.ask("arms", "show", "heartbeat")
    for words in ("heartbeat.direct.json", 'codex.loopx.profile = "generic_cli"', "quota should-run decision=run", "skills_instructions"):
        assert words in out
    assert "LoopX goal" not in rig.ask("arms", "show", "goal")


def test_an_undeclared_difference_fails(rig: Rig, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(name: str, surface: contract.Surface) -> dict[str, Any]:
        made = contract.from_text(contract.file_of(name, surface).read_text())
        if name == "goal":
            made["body"]["reasoning"]["effort"] = "low"
            made["tools"] = [tool for tool in made["tools"] if tool["is"] != "get_goal"]
        return made

    monkeypatch.setattr(contract, "reviewed", planted)
    answer = rig.run("--config", str(config), "arms", "diff", "plain", "goal")
    assert answer.code == 1 and "1 undeclared" in answer.out
    assert "UNDECLARED  body.reasoning.effort: plain high, goal low" in answer.out
    assert "MISSING  codex.drive declares tools.get_goal" in answer.out


def test_the_ledger_alone_is_enough_and_knows_what_trials_asked(rig: Rig) -> None:
    stored(rig, PLAIN, GOAL)
    out = rig.ask("arms")
    assert out.startswith("campaign codex\n") and all(line.endswith("ledger") for line in listed(out))
    assert treatment_hash(arm_treatment(GOAL)).removeprefix("sha256:")[:12] in out
    asks(rig, "plain")
    asks(rig, "goal", tools=declares.GOAL_TOOLS)
    assert "1 trial of plain, 1 trial of goal; as declared" in rig.ask("arms", "diff", "plain", "goal")
    assert rig.ask("arms", "--campaign", "codex") == out
    assert rig.run("arms", "--campaign", "nope").code == 2
    answer = rig.run("arms", "--campaign", "x")  # of half a row
    assert answer.code == 1 and "the row of arm plain was not written by this version" in answer.err and answer.err.count("\n") == 1


def test_a13_delivered_and_used_stand_beside_each_arm_with_loopx(rig: Rig) -> None:
    loopx = LoopXArm("loopx-of-a-test", "2.1.1", "wheel", profile=LoopXProfile.GENERIC_CLI)
    stored(rig, PLAIN, codex_arm("heartbeat", Drive.WAKE, loopx=loopx, operator=True))
    assert "delivered" not in rig.ask("arms"), "no trial has told yet"
    with rig.sql() as c:
        for arm, part in (("plain", None), ("heartbeat", {"delivered_all": True, "used_any": False})):
            trial = have.bring_to(c, have.cell(c, "one", arm), "running")
            agentlog.keep_receipt(c, trial.trial_id, schema=2, data={"loopx": part}, now_ms=have.T0)
    out = rig.ask("arms")
    rows = {line.split()[0]: line.split() for line in listed(out)}
    assert out.splitlines()[1].split()[-4:] == ["delivered", "used", "treatment", "from"]
    assert rows["heartbeat"][-4:-2] == ["1/1", "0/1"] and rows["plain"][-4:-2] == ["-", "-"] and "yes" in rows["heartbeat"]
    told = {arm["name"]: arm["loopx_trials"] for arm in printed("arms", rig.ask("arms", "--json"))}
    assert told == {"plain": None, "heartbeat": {"trials": 1, "delivered": 1, "used": 0}}


def test_a14_trials_that_asked_otherwise_fail_the_diff(rig: Rig) -> None:
    stored(rig, PLAIN, GOAL)
    asks(rig, "plain")
    asks(rig, "goal", effort="low", tools=declares.GOAL_TOOLS)
    answer = rig.run("arms", "diff", "plain", "goal")
    assert answer.code == 1 and "body.reasoning.effort: plain high, goal low" in answer.out
    made = printed("arms diff", rig.run("arms", "diff", "plain", "goal", "--json").out)
    assert made["seen"]["trials"] == {"plain": 1, "goal": 1} and len(made["seen"]["undeclared"]) == 1


def test_both_say_whether_the_configuration_is_still_the_ledgers(rig: Rig, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(CONFIG.format(state_dir=rig.state_dir))
    sh = Arm("sh", AgentKind.COMMAND, argv=("false",))
    stored(rig, PLAIN, sh)
    rows = {line.split()[0]: line for line in listed(rig.ask("--config", str(config), "arms"))}
    assert rows["plain"].endswith("  ledger") and rows["goal"].endswith("  configuration")
    assert rows["sh"].endswith("ledger; the configuration has changed")


def test_what_cannot_be_shown_is_one_line(rig: Rig, config: Path) -> None:
    answer = rig.run("--config", str(config), "arms", "show", "zebra")
    assert answer.code == 2 and "no arm zebra in campaign codex; there are: plain, goal, operator, sh" in answer.err
    assert answer.err.count("\n") == 1
    config.write_text("[daemon]\nstate_dir = 7\n")
    answer = rig.run("--config", str(config), "arms")
    assert answer.code == 2 and answer.out == "" and "state_dir" in answer.err
